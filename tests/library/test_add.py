"""Adding, replacing, skipping and removing papers."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.errors import BadInput, CorruptData
from eqkin.executor import LocalExecutor
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.formulas.scripts import ConverterIdentity
from eqkin.latex.prose import extract_context, to_plain_text
from eqkin.library.queries import compute_statistics, list_citations
from eqkin.library.records import export_equations
from eqkin.sources.paper import Paper, SourceItem
from tests.library.conftest import write_article


def test_report_counts_equations_by_outcome(library: Library) -> None:
    equations = compute_statistics(library)["equations"]
    assert equations["found"] == 9
    assert equations["converted"] == 6
    assert equations["degraded"] == 3
    assert equations["diagrams"] == 3
    assert sum(equations["failed"].values()) == 3


def test_sections_prose_labels_and_citations_are_kept(library: Library) -> None:
    row = library.connection.execute(
        "SELECT e.label, e.mark, s.title, decompress_text(s.prose) AS prose, p.title AS paper "
        "FROM equations e JOIN sections s ON s.id = e.section JOIN papers p ON p.id = e.paper "
        "WHERE e.label = 'energy-subject2'"
    ).fetchone()
    assert row["title"] == "First"
    assert row["paper"] == "On subject2"
    assert extract_context(to_plain_text(row["prose"]), row["mark"]) == ("Energy of subject2 is conserved.", "")
    assert {cited for _, cited in list_citations(library)} == {"1701.03762", "1702.03762", "1703.03762"}


def test_unchanged_sources_are_skipped_and_changed_ones_replaced(library: Library, papers: Path) -> None:
    before = verify(library.folder).content
    again = library.add(papers)
    assert (again.papers, again.unchanged) == (0, 3)
    assert verify(library.folder).content == before
    write_article(papers, 2, "another matter")
    changed = library.add(papers)
    assert (changed.papers, changed.unchanged) == (1, 2)
    titles = {row[0] for row in library.connection.execute("SELECT title FROM papers")}
    assert titles == {"On subject1", "On another matter", "On subject3"}
    assert not verify(library.folder).problems


def test_removing_drops_papers_by_key_file_and_folder(library: Library, papers: Path) -> None:
    assert library.remove(str(papers / "a1.tex")) == 1
    assert library.remove(f"file:{(papers / 'a2.tex').resolve()}") == 1
    assert library.remove("arxiv:9999.99999") == 0
    assert library.remove(str(papers)) == 1
    numbers = compute_statistics(library)
    assert numbers["papers"] == numbers["equations"]["found"] == numbers["sections"] == numbers["citations"] == 0
    assert not verify(library.folder).problems


def test_keys_are_never_used_again_and_room_is_given_back(tmp_path: Path) -> None:
    for number in range(40):
        write_article(tmp_path / "papers", number)
    library = Library.open(tmp_path / "library", create=True)
    library.add(tmp_path / "papers")
    keys = library.list_tree_keys()
    trees = dict(zip(keys.tolist(), map(to_mathml, library.get_nodes(keys.tolist())), strict=True))
    size = (library.folder / "library.db").stat().st_size
    library.remove(*(str(tmp_path / "papers" / f"a{number}.tex") for number in range(37)))
    kept = library.list_tree_keys().tolist()
    assert {*kept} < {*trees} and [to_mathml(nodes) for nodes in library.get_nodes(kept)] == [
        trees[key] for key in kept
    ]
    assert (library.folder / "library.db").stat().st_size < size
    library.remove(str(tmp_path / "papers"))
    assert not len(library.list_tree_keys())
    library.add(write_article(tmp_path / "papers", 20))
    assert library.list_tree_keys().min() > keys.max()
    assert not verify(library.folder).problems


def test_trees_of_large_papers_are_read_in_any_order(tmp_path: Path) -> None:
    formulas = "".join(
        rf"\[ x_{{{n}}} + \frac{{{n}}}{{2}} = y^{{{n}}} + \sum_i i^{{{n}}} \]" + "\n" for n in range(900)
    )
    (tmp_path / "large.tex").write_text(formulas)
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "large.tex")
        assert library.connection.execute("SELECT count(*) FROM trees").fetchone()[0] > 1
        keys = library.list_tree_keys()
        assert len(keys) == 900
        chosen = np.random.default_rng(1).permutation(keys)[:300]
        nodes = library.get_nodes(chosen.tolist())
        assert [f"<mn>{key - keys[0]}</mn>" in to_mathml(tree) for key, tree in zip(chosen, nodes, strict=True)]
        together = library.get_trees(chosen)
        assert [to_mathml(to_node(together, at)) for at in range(300)] == [to_mathml(tree) for tree in nodes]
        expected = parse_operators(together)
        found = library.get_operators(chosen)
        assert [found.to_json(at) for at in range(300)] == [expected.to_json(at) for at in range(300)]
        parts = list(library.iter_trees(keys, 200))
        assert np.array_equal(np.concatenate([part for part, _, _ in parts]), keys) and len(parts) > 1
        assert all(len(part) == len(forest) == len(operators) for part, forest, operators in parts)


def test_two_processes_make_the_same_library_as_one(tmp_path: Path) -> None:
    for number in range(20):
        write_article(tmp_path / "papers", number)
    contents = []
    for jobs in (1, 2):
        with Library.open(tmp_path / f"library{jobs}", create=True) as library:
            report = library.add(tmp_path / "papers", executor=LocalExecutor(jobs, warm_up_seconds=0.0))
            assert report.papers == 20
        contents.append(verify(tmp_path / f"library{jobs}"))
    assert contents[0].content == contents[1].content
    assert not contents[0].problems + contents[1].problems


def test_a_bad_paper_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "good.tex").write_text(r"\[ a = b \]")
    (tmp_path / "in" / "bad.ipynb").write_text("{ not json")
    (tmp_path / "in" / "huge.jsonl").write_text('{"doc_id": "1", "latex": "\\\\[ x = y \\\\]"}\n{broken\n')
    library = Library.open(tmp_path / "library", create=True)
    report = library.add(tmp_path / "in")
    assert report.papers == 2
    assert report.failed == Counter({"unreadable": 2})
    assert compute_statistics(library)["papers_failed"] == {"unreadable": 2}
    assert any("bad.ipynb" in problem for problem in report.problems)
    assert not verify(library.folder).problems


def test_a_source_that_does_not_exist_is_refused_before_anything_is_written(library: Library, tmp_path: Path) -> None:
    before = verify(library.folder).content
    with pytest.raises(BadInput, match="no such file"):
        library.add(tmp_path / "nothing-here")
    assert verify(library.folder).content == before


def test_mathml_in_a_source_is_used_unchanged(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<html><body><h1>Title</h1><h2>Part</h2><p>Words.</p><math display='block'><semantics>"
        "<mrow><mi>a</mi><mo>=</mo><mi>b</mi></mrow>"
        "<annotation encoding='application/x-tex'>a=b</annotation></semantics></math></body></html>".replace("'", '"')
    )
    library = Library.open(tmp_path / "library", create=True)
    library.add(page)
    row = library.connection.execute("SELECT * FROM equations").fetchone()
    assert row["status"] == "converted"
    assert row["latex"] == "a=b"
    (nodes,) = library.get_nodes([row["id"]])
    assert nodes.texts == ["", "a", "=", "b"]


def test_the_same_record_twice_is_stored_once(tmp_path: Path) -> None:
    line = json.dumps({"doc_id": "x", "latex": r"\[ a^2 + b^2 = c^2 \]", "title": "T", "discipline": "geometry"})
    (tmp_path / "twice.jsonl").write_text(line + "\n" + line + "\n")
    library = Library.open(tmp_path / "library", create=True)
    report = library.add(tmp_path / "twice.jsonl")
    assert (report.papers, report.unchanged) == (1, 1)
    assert compute_statistics(library)["fields"] == {"geometry": 1}


def test_of_two_versions_of_a_paper_the_last_one_counts_every_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        record = {"doc_id": "x", "latex": r"\[ a = b \]", "title": name}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
    library = Library.open(tmp_path / "library", create=True)
    for _ in range(2):
        assert library.add(tmp_path / "first.jsonl", tmp_path / "second.jsonl").papers == 2
        assert [row["title"] for row in library.list_papers()] == ["second"]
    together = tmp_path / "together.jsonl"
    together.write_text((tmp_path / "first.jsonl").read_text() + (tmp_path / "second.jsonl").read_text())
    for _ in range(4):
        library.add(together)
        assert [row["title"] for row in library.list_papers()] == ["second"]
    assert not verify(library.folder).problems


def test_trees_of_another_converter_are_never_mixed_in(library: Library, papers: Path) -> None:
    with library.open_writer() as writer:
        writer.set_converter(ConverterIdentity("katex", "0.0.1", "0" * 64))
    with Library.open(library.folder) as reopened, pytest.raises(CorruptData, match="never mixed"):
        reopened.add(papers)


def test_a_folder_with_other_things_in_it_is_not_taken_for_a_library(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("important")
    with pytest.raises(BadInput, match="not empty"):
        Library.open(tmp_path, create=True)
    with pytest.raises(BadInput, match=r"no library\n.*create=True"):
        Library.open(tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


def _failing(key: str) -> SourceItem:
    return SourceItem(key, "somewhere", _fail)


def _fail() -> Paper:
    raise BadInput("the server did not answer")


def test_a_failed_reading_never_replaces_a_paper_and_is_tried_again(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = verify(library.folder).content
    (key,) = library.connection.execute("SELECT key FROM papers ORDER BY key").fetchone()
    for source in (key, "arxiv:new"):
        monkeypatch.setattr(
            "eqkin.library.ingest.open_source", lambda *_, source=source, **__: iter([_failing(source)])
        )
        for _ in range(2):
            report = library.add("anything")
            assert report.failed == Counter({"unreadable": 1})
            assert report.unchanged == 0
    verdict = verify(library.folder)
    assert not verdict.problems
    assert verdict.papers == 4
    library.remove("arxiv:new")
    assert verify(library.folder).content == before


def test_sources_are_removed_by_the_name_they_were_added_with(tmp_path: Path) -> None:
    records = tmp_path / "some.jsonl"
    records.write_text("".join(json.dumps({"doc_id": str(n), "latex": rf"\[ x_{n} = {n} \]"}) + "\n" for n in range(3)))
    library = Library.open(tmp_path / "library", create=True)
    library.add("atlas:", records)
    assert library.remove(str(records)) == 3
    assert library.remove("\udcff", "\0", "no such thing") == 0
    assert library.remove("atlas:") == 28
    assert verify(library.folder).papers == 0


@pytest.mark.parametrize(
    "record",
    [
        {"doc_id": "x", "latex": r"\[ \char0 + \char\"1F = 1 \]"},
        {"doc_id": "x", "latex": r"\[ a = b \]", "year": 2**64 - 1, "title": "\ud800"},
        {"doc_id": "\ud800", "latex": "\\[ \ud800 \0 \\]"},
    ],
)
def test_odd_characters_and_numbers_cost_at_most_their_paper(tmp_path: Path, record: dict[str, object]) -> None:
    good = {"doc_id": "good", "latex": r"\[ a = b \]"}
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (record, good)))
    library = Library.open(tmp_path / "library", create=True)
    library.add(tmp_path / "odd.jsonl")
    assert library.connection.execute("SELECT 1 FROM papers WHERE key = 'record:good' AND failure = ''").fetchone()
    assert len(list(export_equations(library))) >= 1
    assert not verify(library.folder).problems


def test_library_without_its_database_is_not_overwritten(library: Library) -> None:
    library.open_engine()
    library.close()
    (library.folder / "library.db").unlink()
    with pytest.raises(CorruptData):
        Library.open(library.folder, create=True)
    assert sorted(path.name for path in library.folder.iterdir()) == ["index", "lock"]
