"""Text of a library's sections: any text is a query, and hits are in the library now."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, CorruptData
from eqkin.index.text import TextIndex, connect, find_last_document
from eqkin.index.update import update_index
from eqkin.library.queries import list_contents, read_paper_text
from eqkin.storage.segments import MAX_DEAD_FRACTION
from tests.index.conftest import write_note


def _found(library: Library, text: str) -> list[str]:
    """Paper and heading of the sections found."""
    rows = [
        library.connection.execute(
            "SELECT p.title, s.title FROM sections s JOIN papers p ON p.id = s.paper WHERE s.id = ?", (section,)
        ).fetchone()
        for section, _ in TextIndex.open(library).search(text, 20)
    ]
    return [f"{row[0]}/{row[1]}" for row in rows]


@pytest.fixture
def papers(tmp_path: Path, encoder: Encoder) -> Library:
    """A library of two papers with words in all places."""
    (tmp_path / "a.md").write_text(
        "---\ntitle: On magnets\nabstract: Phase transitions of spins.\n---\n# Lattices\n\n"
        "The Ising model has spins on a lattice; naïve counting fails.\n\n$$ E = -J s $$\n\n"
        "# Entropy\n\nNothing but entropy.\n\n$$ S = k \\log W $$\n"
    )
    (tmp_path / "b.md").write_text(
        "---\ntitle: On fluids\n---\n# Viscosity\n\nA model of the flow that Ising never wrote.\n\n$$ a = b $$\n"
    )
    library = Library.open(tmp_path / "library", create=True)
    library.add(tmp_path / "a.md", tmp_path / "b.md")
    update_index(library, encoder)
    return library


def test_search_finds_words_in_heading_prose_and_title(papers: Library) -> None:
    assert _found(papers, "lattices")[0] == "On magnets/Lattices"
    assert _found(papers, "counts")[0] == "On magnets/Lattices"  # a stem
    assert _found(papers, "NAIVE") == ["On magnets/Lattices"]
    assert set(_found(papers, "magnet")) >= {"On magnets/Lattices", "On magnets/Entropy"}
    assert _found(papers, "viscosity entropy")[0] in {"On magnets/Entropy", "On fluids/Viscosity"}
    assert _found(papers, "wombat") == []


def test_quoted_words_match_as_a_phrase(papers: Library) -> None:
    assert set(_found(papers, "ising model")) == {"On magnets/Lattices", "On fluids/Viscosity"}
    assert _found(papers, '"ising model"') == ["On magnets/Lattices"]
    assert _found(papers, 'flow "ising model"') == ["On magnets/Lattices"]
    assert _found(papers, '"ising model" "flow"') == []


def test_scores_are_fractions_in_descending_order(atlas: Library) -> None:
    words = TextIndex.open(atlas)
    for text in ("entropy", "probability of the prior", '"partition function" temperature', "energy"):
        scores = [score for _, score in words.search(text, 50)]
        assert scores and scores == sorted(scores, reverse=True)
        assert 0 < min(scores) and max(scores) <= 1
    assert len(words.search("energy", 3)) == 3
    assert words.search("energy", 0) == words.search("energy", -4) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    st.one_of(
        st.text(),
        st.text("\"*^:+-(){}[]\\'ab AND OR NOT NEAR/\0\ud800_$", max_size=30),
        st.lists(st.sampled_from(["AND", "OR", "NEAR(", '"', "title:", "{a b}:", "*", "^", "-", "x", "é", ","])).map(
            " ".join
        ),
    )
)
def test_any_text_is_a_valid_query(papers: Library, text: str) -> None:
    for _, score in TextIndex.open(papers).search(text, 5):
        assert 0 <= score <= 1


def test_scores_are_those_of_fts5_over_all_that_belongs_to_a_section(papers: Library) -> None:
    with closing(sqlite3.connect(":memory:")) as oracle:
        columns = "heading, prose, title, abstract"
        oracle.execute(f"CREATE VIRTUAL TABLE text USING fts5({columns}, tokenize='porter unicode61')")
        for key in list_contents(papers):
            paper = read_paper_text(papers, key)
            assert paper is not None
            rows = [(heading, prose, paper.title, paper.abstract) for _, heading, prose in paper.sections]
            oracle.executemany("INSERT INTO text VALUES (?, ?, ?, ?)", rows)
        queries = {query: query for query in ('"spin"', '"phase transition"', '"a lattice"', '"on magnets"')}
        for query, expression in (queries | {"entropy model lattice": "entropy OR model OR lattice"}).items():
            found = oracle.execute(
                "SELECT bm25(text, 4.0, 1.0, 3.0, 1.5) AS score FROM text WHERE text MATCH ? ORDER BY score",
                (expression,),
            ).fetchall()
            scores = [score for _, score in TextIndex.open(papers).search(query)]
            assert scores and [score / scores[0] for score in scores] == pytest.approx(
                [s / found[0][0] for (s,) in found]
            )


def test_long_queries_are_truncated(papers: Library) -> None:
    assert TextIndex.open(papers).search("ising " + " ".join(f"word{i}" for i in range(10_000)) + "z" * 10**6, 5)


def test_only_changed_papers_are_indexed(papers: Library, encoder: Encoder, tmp_path: Path) -> None:
    report = update_index(papers, encoder)
    assert (report.papers, report.forgotten) == (0, 0)
    papers.add(write_note(tmp_path / "notes", 1, words="quokka"))
    assert update_index(papers, encoder).papers == 1
    assert len(_found(papers, "quokka")) == 1
    papers.add(write_note(tmp_path / "notes", 1, words="numbat"))
    assert _found(papers, "quokka") == []  # gone from the library, still in the words
    report = update_index(papers, encoder)
    assert (report.papers, report.forgotten) == (1, 1)
    assert (len(_found(papers, "numbat")), _found(papers, "quokka")) == (1, [])
    papers.remove(str(tmp_path / "notes" / "n1.md"))
    assert _found(papers, "numbat") == []
    assert update_index(papers, encoder).forgotten == 1
    assert _found(papers, "numbat") == []
    assert set(_found(papers, "ising")) == {"On magnets/Lattices", "On fluids/Viscosity"}


def test_removed_papers_do_not_crowd_out_other_hits(papers: Library, encoder: Encoder, tmp_path: Path) -> None:
    for number in range(12):
        papers.add(write_note(tmp_path / "notes", number, words="bilby " * 5))
    papers.add(write_note(tmp_path / "other", 99, words="bilby and much else that makes it score lower"))
    update_index(papers, encoder)
    papers.remove(str(tmp_path / "notes"))
    assert [section for section, _ in TextIndex.open(papers).search("bilby", 1)]


def test_text_index_is_rebuilt_when_most_documents_are_gone(papers: Library, encoder: Encoder, tmp_path: Path) -> None:
    words, paths = TextIndex.open(papers), set()
    for number in range(8):
        papers.add(write_note(tmp_path / "notes", 1, words=f"round{number}"))
        update_index(papers, encoder)
        ever = find_last_document(words._connect()[0])
        (alive,) = words._connect()[0].execute("SELECT sum(length(sizes) / 4) FROM papers").fetchone()
        assert ever - alive <= MAX_DEAD_FRACTION * ever
        assert len(words.search(f"round{number}")) == 1
        paths.add(words._path)
    assert len(paths) > 1


def test_error_without_a_text_index_says_what_to_do(library: Library) -> None:
    with pytest.raises(BadInput, match="run `eqkin index`"):
        TextIndex.open(library)


def test_text_index_of_another_version_is_refused_and_rebuilt(papers: Library, encoder: Encoder) -> None:
    words = TextIndex.open(papers)
    words._connect()[0].execute("PRAGMA user_version = 77")
    words.close()
    (database,) = (papers.folder / "index").glob("words-*.db")
    with pytest.raises(CorruptData, match="version 77"):
        connect(database)
    with pytest.raises(CorruptData):
        TextIndex.open(papers)
    update_index(papers, encoder)
    assert _found(papers, "ising")


def test_text_index_is_searched_by_many_threads_while_it_changes(
    papers: Library, encoder: Encoder, tmp_path: Path
) -> None:
    words, found, failed = TextIndex.open(papers), [], []
    stop = threading.Event()

    def search() -> None:
        try:
            while not stop.is_set():
                found.append(len(words.search("ising lattice model", 5)))
        except BaseException as error:  # noqa: BLE001 (asserted below)
            failed.append(error)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(4):
        papers.add(write_note(tmp_path / "notes", number))
        update_index(papers, encoder)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert found and min(found) >= 2


def test_flipped_byte_is_found_before_the_text_index_is_read(papers: Library) -> None:
    (database,) = (papers.folder / "index").glob("words-*.db")
    content = bytearray(database.read_bytes())
    content[-1] ^= 1
    database.write_bytes(content)
    with pytest.raises(CorruptData, match="hash"):
        TextIndex.open(papers)
