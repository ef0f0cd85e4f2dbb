"""Text of a library's sections: any text is a query, and hits are in the library now."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.index.manifest import IndexSettings
from eqkin.index.text import TextIndex
from eqkin.index.update import update_index
from eqkin.library.queries import list_contents
from tests.index.conftest import replace_content, write_note


def _found(library: Library, text: str) -> list[str]:
    """Paper and heading of the sections found."""
    rows = [
        library.connection.execute(
            "SELECT p.title, s.title FROM sections s JOIN papers p ON p.id = s.paper WHERE s.id = ?", (section,)
        ).fetchone()
        for section, _ in TextIndex.open(library).search(library, text, 20)
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
        scores = [score for _, score in words.search(atlas, text, 50)]
        assert scores and scores == sorted(scores, reverse=True)
        assert 0 < min(scores) and max(scores) <= 1
    assert len(words.search(atlas, "energy", 3)) == 3
    assert words.search(atlas, "energy", 0) == words.search(atlas, "energy", -4) == []


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
    for _, score in TextIndex.open(papers).search(papers, text, 5):
        assert 0 <= score <= 1


def test_rarer_words_and_headings_score_higher(papers: Library) -> None:
    words = TextIndex.open(papers)
    assert _found(papers, "entropy model")[0] == "On magnets/Entropy"
    ((rare, _), *_) = words.search(papers, "lattice model")
    assert rare == words.search(papers, "lattice")[0][0]


def test_words_are_searched_in_the_given_papers_only(papers: Library) -> None:
    keys = list(list_contents(papers))
    words = TextIndex.open(papers)
    both = words.search(papers, "ising model")
    parts = [words.search(papers, "ising model", papers=[key]) for key in keys]
    assert sorted(both) == sorted(parts[0] + parts[1])
    assert words.search(papers, "ising model", papers=[]) == words.search(papers, "ising", papers=["other"]) == []
    assert words.search(papers, '"ising model"', papers=[keys[1]]) == []


def test_phrases_do_not_cross_from_heading_to_prose(papers: Library) -> None:
    assert _found(papers, '"magnets lattices"') == _found(papers, '"lattices lattices"') == []


def test_knows_words_of_sections_only(papers: Library) -> None:
    words = TextIndex.open(papers)
    assert words.knows_word("Lattice") and words.knows_word("naive")
    assert not words.knows_word("wombat") and not words.knows_word("") and not words.knows_word("\ud800")


def test_long_queries_are_truncated(papers: Library) -> None:
    assert TextIndex.open(papers).search(
        papers, "ising " + " ".join(f"word{i}" for i in range(10_000)) + "z" * 10**6, 5
    )


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


def test_interrupted_update_keeps_the_papers_that_were_written(library: Library, encoder: Encoder) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("words", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_index(library, encoder, interrupt, settings=IndexSettings(max_seconds=0.0))
    assert set(_found(library, "note")) == {"Note 1/", "Note 1/Note 1"}
    assert update_index(library, encoder).papers == 2
    assert {"Note 2/Note 2", "Note 3/Note 3"} < set(_found(library, "note"))


def test_removed_papers_do_not_crowd_out_other_hits(papers: Library, encoder: Encoder, tmp_path: Path) -> None:
    for number in range(12):
        papers.add(write_note(tmp_path / "notes", number, words="bilby " * 5))
    papers.add(write_note(tmp_path / "other", 99, words="bilby and much else that makes it score lower"))
    update_index(papers, encoder)
    papers.remove(str(tmp_path / "notes"))
    assert [section for section, _ in TextIndex.open(papers).search(papers, "bilby", 1)]


def test_deleted_documents_are_dropped_in_time(papers: Library, encoder: Encoder, tmp_path: Path) -> None:
    sizes = []
    for number in range(12):
        papers.add(write_note(tmp_path / "notes", 1, words=f"round{number} " + " ".join(map(str, range(1000)))))
        update_index(papers, encoder)
        assert len(_found(papers, f"round{number}")) == 1
        (folder,) = (papers.folder / "index").glob("words-*")
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
    assert max(sizes) < 5 * sizes[0]


def test_error_without_a_text_index_says_what_to_do(library: Library) -> None:
    with pytest.raises(BadInput, match="run `eqkin index`"):
        TextIndex.open(library)


def test_read_only_folder_can_be_searched(papers: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = sorted(path.name for path in (papers.folder / "index").rglob("*"))
    assert _found(papers, "viscosity") == ["On fluids/Viscosity"]
    assert before == sorted(path.name for path in (papers.folder / "index").rglob("*"))


def test_text_index_is_searched_by_many_threads_while_it_changes(
    papers: Library, encoder: Encoder, tmp_path: Path
) -> None:
    found, failed = [], []
    stop = threading.Event()

    def search() -> None:
        try:
            with Library.open(papers.folder) as library:
                while not stop.is_set():
                    found.append(len(TextIndex.open(library).search(library, "ising lattice model", 5)))
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


def test_flipped_byte_is_found_before_the_text_index_is_read(papers: Library, encoder: Encoder) -> None:
    (folder,) = (papers.folder / "index").glob("words-*")
    for path in [path for path in folder.iterdir() if path.stat().st_size]:
        whole = path.read_bytes()
        content = bytearray(whole)
        content[len(content) // 2] ^= 1
        replace_content(path, content)
        with pytest.raises(CorruptData):
            TextIndex.open(papers)
        replace_content(path, whole)
    path.unlink()
    with pytest.raises(CorruptData):
        TextIndex.open(papers)
    update_index(papers, encoder)
    assert _found(papers, "ising")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_damage_that_hashes_would_find_is_our_error(papers: Library, tmp_path: Path, chance: Random) -> None:
    (folder,) = (papers.folder / "index").glob("words-*")
    copy = Path(shutil.copytree(folder, tmp_path / f"{chance.random()}"))
    path = chance.choice(sorted(path for path in copy.iterdir() if path.stat().st_size))
    content = bytearray(path.read_bytes())
    for _ in range(20):
        content[chance.randrange(len(content))] = chance.randrange(256)
    replace_content(path, content)
    with suppress(EqkinError):
        words = TextIndex(copy)
        words.search(papers, "ising model", 5)
        words.complete_name("a", 3)
    shutil.rmtree(copy)
