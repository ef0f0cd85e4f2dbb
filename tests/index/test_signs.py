"""Collections that are too large to compare a query with every vector, here with a low limit."""

from pathlib import Path

import numpy as np

from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.index.manifest import IndexSettings
from eqkin.index.reader import VectorIndex
from eqkin.index.signs import BinaryCodes
from eqkin.index.update import update_index
from eqkin.index.vectors import VectorFiles, VectorSegment, normalise, write_vectors
from tests.index.conftest import write_note

SETTINGS = IndexSettings(max_flat_vectors=1_000, max_compared_trees=10, compared_vectors=400)


def _recall(index: VectorIndex, k: int = 10, allowed: np.ndarray | None = None, rough: bool = False) -> float:
    vectors = index.get_vectors(index.trees)
    candidates = vectors if allowed is None else index.get_vectors(allowed)
    queries = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # rounded ones are not quite 1 long
    best = -np.sort(-(queries @ candidates.T), axis=1)[:, :k]
    similarities, trees = index.search(queries, k, allowed, rough=rough)
    assert (trees >= 0).all()
    assert allowed is None or set(trees.ravel().tolist()) <= set(allowed.tolist())
    return float((similarities >= best[:, -1:] - 1e-4).mean())


def test_large_collection_is_searched_with_high_recall(atlas: Library, encoder: Encoder) -> None:
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    assert _recall(index) >= 0.98
    assert _recall(index, 100) >= 0.89
    assert 0.93 < _recall(index, rough=True) < _recall(index)
    assert _recall(index, 10, index.trees[::7]) >= 0.97
    assert (index.search(index.get_vectors(index.trees[:3]), 1_401)[1] >= 0).all()


def test_large_collection_finds_new_and_not_removed_equations(atlas: Library, encoder: Encoder, tmp_path: Path) -> None:
    before = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    atlas.remove("atlas:probability")
    atlas.add(write_note(tmp_path / "notes", 1, 20))
    update_index(atlas, encoder)
    index = VectorIndex.open(atlas, encoder.digest, SETTINGS)
    assert 1_000 < len(index) < 1_421 and index.missing == 0
    _, trees = index.search(before.get_vectors(before.trees), 5)
    assert set(trees.ravel().tolist()) <= set(index.trees.tolist())
    assert index.search(index.get_vectors(index.trees[-20:]), 1)[0].min() > 0.999


def test_nearest_codes_are_those_of_near_vectors(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    for dimensions in (3, 64, 192):
        vectors = normalise(generator.normal(size=(5_000, dimensions)).astype(np.float32) + 1)
        entry = write_vectors(tmp_path, VectorSegment.encode(np.arange(5_000), vectors))
        codes = BinaryCodes(VectorFiles(tmp_path, [entry], dimensions))
        for row, query in enumerate(normalise(vectors[:10] + generator.normal(size=(10, dimensions)) / 30)):
            rows = codes.find_rows(query, 500)
            assert 500 <= len(rows) < 1_000 and (np.diff(rows) > 0).all()
            assert row in rows
        even = np.arange(5_000) % 2 == 0
        assert (codes.find_rows(vectors[0], 500, even) % 2 == 0).all()
        assert codes.find_rows(vectors[0], 9_999, even).tolist() == list(range(0, 5_000, 2))
