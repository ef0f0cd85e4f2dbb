"""Inverted lists of collections that are too large for exact search, here with a low limit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.index import IndexSettings, VectorIndex, update_index
from eqkin.index.manifest import FaissEntry, IndexManifest
from tests.index.conftest import write_note

SETTINGS = IndexSettings(max_flat_vectors=1_000, min_tail=30, max_tail=60, max_compared_trees=10)


def _entry(library: Library) -> FaissEntry | None:
    state = IndexManifest.load(library.folder / "index")
    assert state is not None
    return state.nearest


def _recall(index: VectorIndex, k: int = 10, allowed: np.ndarray | None = None) -> float:
    vectors = index.get_vectors(index.trees)
    candidates = vectors if allowed is None else index.get_vectors(allowed)
    queries = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # with 16 bits they are not quite 1 long
    best = -np.sort(-(queries @ candidates.T), axis=1)[:, :k]
    similarities, trees = index.search(queries, k, allowed)
    assert (trees >= 0).all()
    assert allowed is None or set(trees.ravel().tolist()) <= set(allowed.tolist())
    return float((similarities >= best[:, -1:] - 1e-4).mean())


def test_large_collection_gets_inverted_lists_with_high_recall(atlas: Library, encoder: Encoder) -> None:
    report = update_index(atlas, encoder, settings=SETTINGS)
    assert (report.embedded, report.kind) == (0, "IVF75,SQfp16")
    assert report.recall >= 0.99
    entry = _entry(atlas)
    assert entry is not None and 1 <= entry.probes < 75
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    assert _recall(index) >= 0.98
    assert _recall(index, 100) >= 0.95
    assert _recall(index, 10, index.trees[::7]) >= 0.97
    assert (index.search(index.get_vectors(index.trees[:3]), 1_401)[1] >= 0).all()
    assert not verify(atlas.folder).problems


def test_new_vectors_are_added_without_training(atlas: Library, encoder: Encoder, tmp_path: Path) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    first = _entry(atlas)
    atlas.add(write_note(tmp_path / "notes", 1, 20))
    update_index(atlas, encoder, settings=SETTINGS)
    assert _entry(atlas) == first  # so few are added whenever the file is loaded
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    assert (len(index), index.missing) == (1_421, 0)
    new = index.trees[-20:]
    assert index.search(index.get_vectors(new), 1)[0].min() > 0.999
    atlas.add(write_note(tmp_path / "notes", 2, 50))
    update_index(atlas, encoder, settings=SETTINGS)
    second = _entry(atlas)
    assert first is not None and second is not None
    assert (second.count, second.trained, second.kind) == (1_471, 1_401, first.kind)
    assert _recall(VectorIndex.open(atlas, encoder.digest, SETTINGS)) >= 0.98


def test_lists_are_retrained_when_the_collection_has_grown(atlas: Library, encoder: Encoder, tmp_path: Path) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    atlas.add(write_note(tmp_path / "notes", 1, 20))
    update_index(atlas, encoder, settings=replace(SETTINGS, max_growth=1.01))
    entry = _entry(atlas)
    assert entry is not None and entry.trained == 1_421


def test_removed_equations_are_not_found(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    before = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    atlas.remove("atlas:probability")
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    assert 1_000 < len(index) < 1_401
    _, trees = index.search(before.get_vectors(before.trees), 5)
    assert set(trees.ravel().tolist()) <= set(index.trees.tolist())


def test_collection_that_became_small_is_searched_exactly(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    settings = replace(SETTINGS, max_flat_vectors=2_000)
    assert update_index(atlas, encoder, settings=settings).kind == "IDMap2,Flat"
    assert _entry(atlas) is None
    assert not list((atlas.folder / "index").glob("*.faiss"))
    assert _recall(VectorIndex.open(atlas, encoder.digest, settings)) == 1.0


@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "missing"])
def test_damaged_file_never_reaches_faiss_and_is_rebuilt(
    atlas: Library, encoder: Encoder, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    entry = _entry(atlas)
    assert entry is not None
    path = atlas.folder / "index" / entry.file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"flipped": bytes(content), "short": bytes(content[:-9]), "empty": b"", "missing": b""}[damage])
    if damage == "missing":
        path.unlink()
    assert any("does not match its hash; run `eqkin index" in problem for problem in verify(atlas.folder).problems)

    def refuse(*_: object) -> None:
        raise AssertionError("a damaged file reached faiss")

    with monkeypatch.context() as patch:
        patch.setattr("faiss.read_index", refuse)
        assert _recall(VectorIndex.open(atlas, encoder.digest, SETTINGS)) >= 0.98
    assert not verify(atlas.folder).problems


def test_reader_that_cannot_write_builds_the_lists_in_memory(atlas: Library, encoder: Encoder) -> None:
    update_index(atlas, encoder, settings=SETTINGS)
    entry = _entry(atlas)
    assert entry is not None
    (atlas.folder / "index" / entry.file).unlink()
    lock = atlas.folder / "index" / "lock"
    lock.unlink()
    lock.mkdir()  # not even root can open that for writing
    assert _recall(VectorIndex.open(atlas, encoder.digest, SETTINGS)) >= 0.98
    assert not list((atlas.folder / "index").glob("*.faiss"))
    lock.rmdir()
    update_index(atlas, encoder, settings=SETTINGS)
    assert not verify(atlas.folder).problems
