"""Corpora: read from a library, stored in one file, split by work."""

import gzip
import io
import json
import tarfile
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from eqkin.api import Library
from eqkin.cli import app
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.formulas import Forest
from eqkin.learning.checkpoint import CHECKPOINT_FILE, save_checkpoint
from eqkin.learning.data import Corpus
from tests.formulas.strategies import TREES, build, rows_of
from tests.library.conftest import write_article

CITING = r"""\documentclass{article}\begin{document}\section{One}\[ E = mc^2 \]\[ p = mv \]
\section{Two}\[ F = ma \]
\begin{thebibliography}{9}\bibitem{a} A, arXiv:%s. \bibitem{b} B, arXiv:%s. \bibitem{c} C, arXiv:1701.00009.
\end{thebibliography}\end{document}"""
PAPERS = {
    "1701.00001": ("hep-th/9901001", "1701.00001"),
    "hep-th9901001": ("math.AG/0309136", "1701.00001v2"),
    "math0309136": ("1701.00004", "1701.00005"),
}


def write_sources(folder: Path) -> list[Path]:
    """An archive of three papers that cite each other, records of three works and of none, and three articles."""
    folder.mkdir()
    with tarfile.open(folder / "bulk.tar", "w") as tar:
        for name, cited in PAPERS.items():
            data = gzip.compress((CITING % cited).encode())
            member = tarfile.TarInfo(f"some/{name}.gz")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    works = [
        {"repo": "r/1", "parent": "p"},
        {"repo": "r/1"},
        {"parent": "book"},
        {"parent": "book"},
        {"repo": "r\0"},
        {},
    ]
    records = [
        {"doc_id": f"d{n}", "latex": rf"\section{{S}} \[ x_{n} = {n} \] \[ y^{n} \]", "arxiv_ids_cited": ["1701.00001"]}
        | work
        for n, work in enumerate(works)
    ]
    records.append({"doc_id": "wordy", "latex": "no equation", "arxiv_ids_cited": ["1701.00001"], "repo": "r/2"})
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for number in (1, 2, 3):
        write_article(folder / "articles", number)
    return [folder / "bulk.tar", folder / "records.jsonl", folder / "articles"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_sources(tmp_path_factory.mktemp("corpus") / "sources")


@pytest.fixture(scope="module")
def library(sources: list[Path]) -> Library:
    opened = Library.open(sources[0].parents[1] / "library", create=True)
    opened.add(*sources)
    return opened


@pytest.fixture(scope="module")
def corpus(library: Library) -> Corpus:
    return Corpus.from_library(library)


def words_of(corpus: Corpus) -> list[list[str]] | None:
    """Return the words around each equation."""
    held = corpus.words
    if held is None:
        return None
    named = [held.vocabulary[word] for word in held.word]
    return [named[start:end] for start, end in pairwise(held.offsets)]


def same(one: Corpus, other: Corpus) -> bool:
    """Return whether two corpora are equal in every field."""
    arrays = all(
        np.array_equal(getattr(one, n), getattr(other, n)) for n in ("section", "paper", "citations", "numbers")
    )
    lists = one.papers == other.papers and one.works == other.works and words_of(one) == words_of(other)
    return arrays and lists and one.forest.to_bytes() == other.forest.to_bytes()


@st.composite
def corpora(draw: st.DrawFn, works: int = 8) -> Corpus:
    """Draw a corpus of a few works with some papers each, and citations between them."""
    sizes = draw(st.lists(st.one_of(st.integers(1, 4), st.integers(1, 30)), max_size=works))
    names = [f"work{i}" for i, size in enumerate(sizes) for _ in range(size)]
    sections = [draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)) for _ in names]
    tree = draw(TREES)
    trees = [sum(paper) for paper in sections]
    pairs = st.tuples(*[st.integers(0, len(names) - 1)] * 2).filter(lambda pair: pair[0] != pair[1])
    cites = sorted(draw(st.sets(pairs, max_size=9))) if len(names) > 1 else []
    flat = [size for paper in sections for size in paper]
    return Corpus(
        forest=build([tree] * sum(trees)).canonicalise(),
        section=np.repeat(np.arange(len(flat)), flat).astype(np.int32),
        paper=np.repeat(np.arange(len(names)), trees).astype(np.int32),
        papers=[f"key{i}" for i in range(len(names))],
        works=names,
        citations=np.array(cites, np.int32).reshape(-1, 2),
        numbers=np.array([number for count in trees for number in range(count)], np.int32),
    )


def test_corpus_has_every_display_with_a_tree_once(corpus: Corpus, library: Library) -> None:
    exported = [equation for equation in library.iter_equations(mathml=False) if equation["whole"] is None]
    assert len(corpus) == len(exported) == 9 + 12 + 6
    assert {corpus.get_equation_id(tree) for tree in range(len(corpus))} == {equation["id"] for equation in exported}
    assert "record:wordy" not in corpus.papers


def test_corpus_trees_are_sorted_by_paper(corpus: Corpus, library: Library) -> None:
    forests = []
    numbers = []
    for here, forest, _ in library.iter_trees(library.list_tree_keys()):
        forests.append(forest)
        numbers += here.tolist()
    rows = library.connection.execute(
        "SELECT p.key || '#' || e.number, e.id FROM equations e JOIN papers p ON p.id = e.paper"
    )
    place = {row[0]: numbers.index(row[1]) for row in rows if row[1] in numbers}
    order = [place[corpus.get_equation_id(tree)] for tree in range(len(corpus))]
    assert corpus.forest.to_bytes() == Forest.concatenate(forests).select(order).canonicalise().to_bytes()
    assert [corpus.papers[p] for p in sorted(set(corpus.paper.tolist()))] == corpus.papers
    assert list(zip(corpus.works, corpus.papers, strict=True)) == sorted(zip(corpus.works, corpus.papers, strict=True))
    places = list(zip(corpus.paper.tolist(), corpus.section.tolist(), corpus.numbers.tolist(), strict=True))
    assert places == sorted(places)


def test_citations_resolve_old_and_new_arxiv_identifiers(corpus: Corpus) -> None:
    cites = {(corpus.papers[citing], corpus.papers[cited]) for citing, cited in corpus.citations.tolist()}
    assert cites == {
        ("arxiv:1701.00001", "arxiv:hep-th/9901001"),
        ("arxiv:hep-th/9901001", "arxiv:math/0309136"),
        ("arxiv:hep-th/9901001", "arxiv:1701.00001"),
        *((f"record:d{n}", "arxiv:1701.00001") for n in range(6)),
    }
    assert corpus.citations.dtype == np.int32


def test_work_is_repository_then_parent_then_paper(corpus: Corpus) -> None:
    works = dict(zip(corpus.papers, corpus.works, strict=True))
    assert [works[f"record:d{n}"] for n in range(6)] == ["r/1", "r/1", "book", "book", "r\0", "record:d5"]
    assert works["arxiv:1701.00001"] == "arxiv:1701.00001"


def test_equal_libraries_give_equal_corpus_files(corpus: Corpus, sources: list[Path], tmp_path: Path) -> None:
    with Library.open(tmp_path / "other", create=True) as other:
        for source in reversed(sources):
            other.add("atlas:", source)
        other.remove("atlas:")  # most trees are dead now, so all segments are rewritten
        again = Corpus.from_library(other)
    assert again.digest == corpus.digest
    corpus.save(tmp_path / "a.zst")
    again.save(tmp_path / "b.zst")
    assert (tmp_path / "a.zst").read_bytes() == (tmp_path / "b.zst").read_bytes()


def test_corpus_digest_changes_with_any_content(corpus: Corpus) -> None:
    other = [
        replace(corpus, works=[*corpus.works[:-1], "another"]),
        replace(corpus, citations=corpus.citations[1:]),
        replace(corpus, numbers=corpus.numbers + np.int32(1)),
        replace(corpus, words=None),
        replace(corpus, names=None),
        replace(corpus, forest=replace(corpus.forest, texts=[*corpus.forest.texts[:-1], "another"])),
        corpus.select(range(3)),
    ]
    assert len({corpus.digest, *(changed.digest for changed in other)}) == 1 + len(other)
    assert corpus.select(range(len(corpus.papers))).digest == corpus.digest


def test_corpus_survives_its_file(corpus: Corpus, tmp_path: Path) -> None:
    corpus.save(tmp_path / "corpus.zst")
    loaded = Corpus.load(tmp_path / "corpus.zst")
    assert same(loaded, corpus)
    assert loaded.digest == corpus.digest


def test_corpus_load_rejects_damaged_and_foreign_files_by_name(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "file.zst"
    corpus.select(range(2)).save(path)
    content, whole = path.read_bytes(), Corpus.load(path)
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        # A bit that says nothing, such as one in the header of a zstd frame, may change.
        try:
            assert same(Corpus.load(path), whole)
        except CorruptData as error:
            assert str(path) in str(error)
    foreign = [b"", b"hello", zstandard.compress(b"hello"), b"[" * 10_000, content[: len(content) // 2]]
    for other in foreign:
        path.write_bytes(other)
        with pytest.raises(CorruptData, match="file.zst"):
            Corpus.load(path)
    save_checkpoint(tmp_path, {}, {})
    with pytest.raises(CorruptData, match="this eqkin reads eqkin-corpus"):
        Corpus.load(tmp_path / CHECKPOINT_FILE)


def test_corpus_reports_missing_files_and_folders(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        Corpus.load(tmp_path / "nothing")
    with pytest.raises(StorageFailed):
        corpus.save(tmp_path / "no" / "such" / "folder.zst")


def test_corpus_of_an_empty_library_is_empty(tmp_path: Path) -> None:
    empty = Corpus.from_library(Library.open(tmp_path / "library", create=True))
    assert empty.compute_statistics() == dict.fromkeys(
        ("trees", "papers", "works", "sections", "citations", "nodes", "mean_nodes"), 0
    )
    empty.save(tmp_path / "empty.zst")
    assert same(Corpus.load(tmp_path / "empty.zst"), empty)
    with pytest.raises(BadInput, match="no papers"):
        empty.split(0.1, 0)


@given(corpora(), st.data())
def test_select_keeps_trees_sections_and_citations(made: Corpus, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, len(made.papers) - 1))) if made.papers else set()
    part = made.select(sorted(chosen, reverse=True))
    assert part.papers == [made.papers[p] for p in sorted(chosen)]
    trees = [tree for tree in range(len(made)) if made.paper[tree] in chosen]
    assert [part.get_equation_id(tree) for tree in range(len(part))] == [made.get_equation_id(tree) for tree in trees]
    rows = rows_of(made.forest)
    assert rows_of(part.forest) == [rows[tree] for tree in trees]
    named = [[part.papers[p] for p in pair] for pair in part.citations.tolist()]
    assert named == [[made.papers[p] for p in pair] for pair in made.citations.tolist() if set(pair) <= chosen]


@given(corpora(), st.floats(0.01, 0.99), st.integers(0, 2**40))
def test_split_divides_by_work_and_keeps_all_papers(made: Corpus, held_out: float, seed: int) -> None:
    if len(set(made.works)) < 2:
        with pytest.raises(BadInput, match="one work|no papers"):
            made.split(held_out, seed)
        return
    training, test = made.split(held_out, seed)
    assert len(training)
    assert len(test)
    assert not set(training.works) & set(test.works)
    assert sorted(training.papers + test.papers) == sorted(made.papers)
    assert len(training) + len(test) == len(made)
    again = made.split(held_out, seed)
    assert (again[0].digest, again[1].digest) == (training.digest, test.digest)
    smallest = min(Counter(made.works).values())
    assert len(test.papers) <= max(1.1 * held_out * len(made.papers), smallest)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_split_rejects_invalid_fractions(corpus: Corpus, share: float) -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        corpus.split(share, 0)


def test_atlas_is_exported_as_a_corpus(atlas_library: Path, tmp_path: Path) -> None:
    path = tmp_path / "corpus.zst"
    result = CliRunner().invoke(app, ["export", "--library", str(atlas_library), "--forest", str(path)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("1,401 trees written")
    assert "(papers: 28, works: 28, size: " in result.stdout
    assert {entry.name for entry in tmp_path.iterdir()} == {"corpus.zst"}
    atlas = Corpus.load(path)
    assert atlas.get_equation_id(0) == f"{atlas.papers[0]}#0"
    learn, held_out = atlas.split(0.1, 0)
    assert (len(learn.papers), len(held_out.papers)) == (25, 3)
