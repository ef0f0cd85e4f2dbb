"""Vectors of a library: a search sees what the encoder computes of the equations in the library now."""

from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, LibraryBusy
from eqkin.files import WriterLock
from eqkin.index.index import Index
from eqkin.index.manifest import IndexManifest, IndexSettings
from eqkin.index.update import update_index
from tests.index.conftest import expected, write_note


def _check(library: Library, encoder: Encoder) -> Index:
    """An index that holds exactly the library's vectors, and finds each by itself."""
    index = Index.open(library, encoder.digest)
    vectors = expected(library, encoder)
    assert index.keys.tolist() == sorted(vectors)
    assert (len(index), index.missing) == (len(vectors), 0)
    if len(index):
        np.testing.assert_allclose(index.get_vectors(index.keys), [vectors[t] for t in index.keys.tolist()], atol=2e-3)
        similarities, _ = index.search_vectors(index.get_vectors(index.keys), 1)
        np.testing.assert_allclose(similarities, 1, atol=2e-3)
    verdict = verify(library.folder)
    assert not verdict.problems + verdict.notes
    return index


def test_index_has_the_vectors_of_all_equations(library: Library, encoder: Encoder) -> None:
    report = update_index(library, encoder)
    assert (report.indexed, report.equations) == (15, 15)
    index = _check(library, encoder)
    assert index.dimensions == encoder.dimensions


def test_search_is_exact_and_sorted(atlas: Library, encoder: Encoder) -> None:
    index = Index.open(atlas, encoder.digest)
    queries = encoder.encode([r"E = mc^2", r"\int_0^1 f(x) dx", r"P(A|B) = P(B|A) P(A) / P(B)"])
    similarities, trees = index.search_vectors(queries, 20)
    assert (similarities.dtype, trees.dtype) == (np.float32, np.int64)
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    right = unit @ index.get_vectors(index.keys).T
    np.testing.assert_allclose(similarities, -np.sort(-right, axis=1)[:, :20], atol=1e-6)
    for row, (found, cosines) in enumerate(zip(trees, similarities, strict=True)):
        np.testing.assert_allclose(right[row, np.searchsorted(index.keys, found)], cosines, atol=1e-6)
    np.testing.assert_array_equal(index.search_vectors(7e20 * queries, 20)[1], trees)


def test_adding_papers_embeds_only_their_equations(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    before = IndexManifest.load(library.folder / "index")
    library.add(write_note(notes, 9, 4))
    index = Index.open(library, encoder.digest)
    assert (len(index), index.missing) == (15, 4)
    assert any("4 equations are not indexed yet" in note for note in verify(library.folder).notes)
    assert update_index(library, encoder).indexed == 4
    _check(library, encoder)
    after = IndexManifest.load(library.folder / "index")
    assert before is not None and after is not None
    assert after.parts[:1] == before.parts
    assert update_index(library, encoder).indexed == 0
    assert IndexManifest.load(library.folder / "index") == after


def test_adding_papers_singly_gives_the_same_index_as_all_at_once(
    tmp_path: Path, library: Library, encoder: Encoder, notes: Path
) -> None:
    for number in range(10, 16):
        library.add(write_note(notes, number))
        update_index(library, encoder, settings=IndexSettings(max_small_parts=3))
    state = IndexManifest.load(library.folder / "index")
    assert state is not None and len(state.parts) <= 4
    gradual = _check(library, encoder)
    with Library.open(tmp_path / "other", create=True) as other:
        other.add(notes)
        update_index(other, encoder)
        at_once = _check(other, encoder)
    queries = encoder.encode(["x_3^2 + 2 = 7", "y = x"])
    np.testing.assert_allclose(gradual.search_vectors(queries, 9)[0], at_once.search_vectors(queries, 9)[0], atol=2e-3)


def test_search_does_not_find_changed_and_removed_papers(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    old = Index.open(library, encoder.digest)
    library.remove(str(notes / "n1.md"))
    library.add(write_note(notes, 2, 7))
    index = Index.open(library, encoder.digest)
    assert (len(index), index.missing) == (5, 7)
    _, trees = index.search_vectors(old.get_vectors(old.keys), 15)
    assert set(trees.ravel().tolist()) == {-1, *index.keys.tolist()}
    update_index(library, encoder)
    _check(library, encoder)


def test_update_drops_dead_vectors_when_they_are_most(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    library.remove(str(notes / "n1.md"))
    update_index(library, encoder)
    state = IndexManifest.load(library.folder / "index")
    assert state is not None and state.count == 15
    library.remove(str(notes / "n2.md"))
    assert update_index(library, encoder).indexed == 0  # those that stay have their vectors
    state = IndexManifest.load(library.folder / "index")
    assert state is not None and state.count == 5
    _check(library, encoder)


def test_number_of_a_removed_tree_is_never_reused(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    old = Index.open(library, encoder.digest).keys
    for round_ in range(2):
        assert library.remove(str(notes)) == 3 - 2 * round_
        library.add(write_note(notes, 50 + round_))
        update_index(library, encoder)
        index = _check(library, encoder)
        assert index.keys.min() > old.max()
        old = index.keys


def test_another_model_replaces_all_vectors(library: Library, encoder: Encoder, other_encoder: Encoder) -> None:
    update_index(library, encoder)
    with pytest.raises(BadInput, match="another model; run `eqkin index`"):
        Index.open(library, other_encoder.digest)
    assert update_index(library, other_encoder).indexed == 15
    _check(library, other_encoder)
    with pytest.raises(BadInput, match="another model"):
        Index.open(library, encoder.digest)


def test_rebuild_writes_all_files_again(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    report = update_index(library, encoder, rebuild=True)
    assert (report.indexed, report.papers) == (15, 3)
    _check(library, encoder)


def test_index_of_another_library_is_refused(tmp_path: Path, library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    with Library.open(tmp_path / "young", create=True) as young:
        (library.folder / "index").rename(young.folder / "index")
        with pytest.raises(BadInput, match="another library"):
            Index.open(young, encoder.digest)
        assert any("another library" in problem for problem in verify(young.folder).problems)
        update_index(young, encoder)
        assert len(_check(young, encoder)) == 0


def test_error_without_an_index_says_what_to_do(library: Library, encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="run `eqkin index`"):
        Index.open(library, encoder.digest)


def test_empty_library_has_an_empty_index(tmp_path: Path, encoder: Encoder) -> None:
    with Library.open(tmp_path / "empty", create=True) as empty:
        update_index(empty, encoder)
        index = _check(empty, encoder)
    similarities, trees = index.search_vectors(encoder.encode(["x"]), 3)
    assert trees.tolist() == [[-1, -1, -1]]
    assert similarities.tolist() == [[0, 0, 0]]
    assert index.get_vectors(np.zeros(0, np.int64)).shape == (0, encoder.dimensions)


def test_index_of_one_vector_finds_it(tmp_path: Path, encoder: Encoder) -> None:
    with Library.open(tmp_path / "one", create=True) as library:
        library.add(write_note(tmp_path / "notes", 1, 1))
        update_index(library, encoder)
        index = _check(library, encoder)
    assert index.search_vectors(encoder.encode(["x", "y"]), 2)[1].tolist() == [[1, -1], [1, -1]]


def test_search_pads_missing_hits_and_ignores_queries_without_direction(library: Library, encoder: Encoder) -> None:
    update_index(library, encoder)
    index = Index.open(library, encoder.digest)
    queries = np.repeat(encoder.encode(["x + y"]), 5, axis=0)
    queries[1], queries[2, 3], queries[3, 0] = 0, np.nan, np.inf
    similarities, trees = index.search_vectors(queries, 40)
    assert trees.shape == similarities.shape == (5, 40)
    for row, hits in enumerate((15, 0, 0, 0, 15)):
        assert (trees[row] >= 0).sum() == hits
        assert len(set(trees[row, :hits].tolist())) == hits
        assert not similarities[row, hits:].any()
    assert np.isfinite(similarities).all()
    assert index.search_vectors(queries, 0)[1].shape == (5, 0)
    assert index.search_vectors(queries[:0], 3)[1].shape == (0, 3)
    for wrong in (queries[0], queries[:, :5]):
        with pytest.raises(BadInput, match="shape"):
            index.search_vectors(wrong, 3)
    with pytest.raises(BadInput):
        index.search_vectors(queries, -1)
    with pytest.raises(BadInput, match="tree 99 has no vector"):
        index.get_vectors(np.array([1, 99]))


def test_search_finds_only_allowed_equations(atlas: Library, encoder: Encoder) -> None:
    index = Index.open(atlas, encoder.digest)
    queries = encoder.encode(["E = mc^2", "a = b"])
    everything, _ = index.search_vectors(queries, len(index))
    allowed = np.array([1400, 17, 3, 17, 10**12, -5, 600])
    similarities, trees = index.search_vectors(queries, 6, allowed)
    assert {*trees.ravel().tolist()} == {-1, 3, 17, 600, 1400}
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    right = -np.sort(-(unit @ index.get_vectors(np.array([3, 17, 600, 1400])).T), axis=1)
    np.testing.assert_allclose(similarities[:, :4], right, atol=1e-6)
    assert (index.search_vectors(queries, 2, np.zeros(0, np.int64))[1] == -1).all()
    np.testing.assert_allclose(index.search_vectors(queries, len(index), index.keys[::-1])[0], everything, atol=1e-6)


def test_second_updater_is_refused_and_readers_continue(library: Library, encoder: Encoder, notes: Path) -> None:
    update_index(library, encoder)
    with WriterLock(library.folder / "index"):
        with pytest.raises(LibraryBusy, match="process"):
            update_index(library, encoder)
        with pytest.raises(LibraryBusy):
            verify(library.folder)
        assert len(Index.open(library, encoder.digest)) == 15
        library.add(write_note(notes, 9))  # papers can be added while an index is made
    update_index(library, encoder)
    _check(library, encoder)


def test_interrupted_update_keeps_what_was_embedded(library: Library, encoder: Encoder) -> None:

    def interrupt(stage: str, done: int, total: int) -> None:
        assert (stage, total) == ("formulas", 15)
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        update_index(library, encoder, interrupt, settings=IndexSettings(step_trees=4))
    missing = Index.open(library, encoder.digest).missing
    assert 0 < missing <= 7
    assert update_index(library, encoder).indexed == missing
    _check(library, encoder)
