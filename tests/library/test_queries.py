"""Questions to the database of a library, and that no other package asks any."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eqkin.api import Library
from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.library import queries
from eqkin.library.records import get_refs
from tests.cancelling import CountingScope
from tests.library.conftest import write_article

_PACKAGE = Path(queries.__file__).parents[1]


def test_only_the_library_and_own_databases_are_asked_in_sql() -> None:
    own = {"index/documents.py", "index/fts5.py", "index/text.py", "sources/metadata.py"}  # databases of their own
    allowed = own | {"sources/references.py"}  # Zotero
    asking = {
        str(path.relative_to(_PACKAGE))
        for path in _PACKAGE.rglob("*.py")
        if path.parent.name != "library" and re.search(r"\.execute(many|script)?\(", path.read_text())
    }
    assert asking <= allowed


def test_counts_and_contents_follow_the_papers(library: Library, papers: Path, tmp_path: Path) -> None:
    assert queries.has_equations(library)
    before = queries.list_contents(library)
    assert [key.rsplit("/", 1)[-1] for key in before] == ["a1.tex", "a2.tex", "a3.tex"]
    library.add(write_article(papers, 2, "something else"))
    after = queries.list_contents(library, failed=False)
    assert {key for key in before if after[key] != before[key]} == {key for key in before if key.endswith("a2.tex")}
    with Library.open(tmp_path / "empty", create=True) as empty:
        assert not queries.has_equations(empty)
        assert queries.list_contents(empty) == {}


def test_text_of_papers_sections_and_equations_agrees(library: Library) -> None:
    (key, *_) = queries.list_contents(library)
    text = queries.read_paper_text(library, key)
    assert text is not None
    assert (text.title, [heading for _, heading, _ in text.sections]) == ("On subject1", ["", "First", "Second"])
    sections = [section for section, *_ in text.sections]
    assert queries.read_sections(library, sections) == {
        section: (heading, prose) for section, heading, prose in text.sections
    }
    assert queries.find_sections(library, [*sections, 9_999]) == set(sections)
    assert queries.read_paper_text(library, "missing") is None


def test_read_corpus_reads_all_tables_in_one_transaction(library: Library) -> None:
    with queries.read_corpus(library) as tables:
        assert library.connection.in_transaction
        assert (len(tables.papers), tables.equations.shape, tables.citations.shape) == (3, (6, 5), (0, 2))
        assert set(tables.equations[:, 3].tolist()) <= set(library.list_tree_keys().tolist())
        refs = get_refs(library, tables.equations[:, 3].tolist())
        assert {refs[tree].number for tree in tables.equations[:, 3].tolist()} == set(tables.equations[:, 2].tolist())
    assert not library.connection.in_transaction


def test_damaged_database_raises_corrupt_data(library: Library) -> None:
    library.connection.execute("ALTER TABLE trees RENAME TO lost")
    with pytest.raises(CorruptData, match="no such table"):
        queries.has_equations(library)


def test_statement_is_interrupted_when_its_work_is_cancelled(library: Library) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

    def work() -> None:
        with library.translate_errors():
            library.connection.execute(endless).fetchone()

    with pytest.raises(LimitReached, match="given up"):
        CountingScope(3).run(work)
    assert queries.has_equations(library)  # the connection can be used again


def test_library_that_is_closed_or_of_another_thread_is_not_called_damaged(library: Library) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(BadInput, match="thread"):
        pool.submit(library.list_papers).result()
    library.close()
    with pytest.raises(BadInput, match="closed"):
        library.list_papers()
