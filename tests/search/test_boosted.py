"""Boosted trees as arrays: the same sums as scikit-learn's, kept in a file."""

import numpy as np
import pytest

from eqkin.errors import CorruptData
from eqkin.search.rerank import BoostedTrees

NAMES = ("first", "second", "third", "naïve")


def _of(model):
    """The trees of a fitted HistGradientBoostingRegressor, padded to the same number of nodes."""
    trees = [rounds[0].nodes for rounds in model._predictors]
    shape = len(trees), max(map(len, trees))
    arrays = {name: np.zeros(shape, np.float32) for name in ("feature", "threshold", "left", "right", "value")}
    for at, nodes in enumerate(trees):
        n, leaf, itself = len(nodes), nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        arrays["feature"][at, :n] = np.where(leaf, 0, nodes["feature_idx"])
        arrays["threshold"][at, :n] = np.where(leaf, 0, nodes["num_threshold"])
        arrays["left"][at, :n] = np.where(leaf, itself, nodes["left"])
        arrays["right"][at, :n] = np.where(leaf, itself, nodes["right"])
        arrays["value"][at, :n] = np.where(leaf, nodes["value"], 0)
    return BoostedTrees(
        NAMES,
        arrays["feature"].astype(np.int16),
        arrays["threshold"],
        arrays["left"].astype(np.int16),
        arrays["right"].astype(np.int16),
        arrays["value"],
        np.asarray(model._baseline_prediction, np.float32).ravel(),
    )


@pytest.fixture(scope="module")
def fitted():
    """A model of scikit-learn, the same as arrays, and rows it has not seen, some of them on a threshold."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(4)
    columns = (random.integers(0, 64, (600, 4)) / 64).astype(np.float32)
    wanted = columns[:, 0] * columns[:, 1] + np.sin(5 * columns[:, 2]) + random.normal(0, 0.1, 600)
    model = ensemble.HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=7, min_samples_leaf=5, random_state=0)
    model.fit(columns, wanted)
    trees = _of(model)
    rows = (random.integers(-8, 80, (500, 4)) / 64).astype(np.float32)
    for at, (feature, threshold) in enumerate(zip(trees.feature[:, 0], trees.threshold[:, 0], strict=True)):
        rows[at, feature] = threshold
    return model, trees, rows


def test_sums_are_those_of_scikit_learn(fitted):
    model, trees, rows = fitted
    expected = model.predict(rows)
    assert expected.std() > 0.3
    assert trees(rows) == pytest.approx(expected, abs=1e-5)
    assert trees(rows).dtype == np.float32


def test_each_row_is_summed_by_itself(fitted):
    _, trees, rows = fitted
    assert np.array_equal(trees(rows)[:5], np.concatenate([trees(row[None]) for row in rows[:5]]))
    assert trees(rows[:0]).shape == (0,)


def test_a_file_gives_back_what_was_written(fitted, tmp_path):
    _, trees, rows = fitted
    trees.save(tmp_path / "trees.safetensors")
    read = BoostedTrees.load(tmp_path / "trees.safetensors")
    assert read.features == NAMES
    assert np.array_equal(read(rows), trees(rows))


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "other"])
def test_a_damaged_file_is_told(fitted, tmp_path, damage):
    path = tmp_path / "trees.safetensors"
    fitted[1].save(path)
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "short": content[:-9], "other": b"\x02\0\0\0\0\0\0\0{}"}.get(damage, content))
    if damage == "missing":
        path.unlink()
    with pytest.raises(CorruptData, match=r"trees\.safetensors.*install eqkin again"):
        BoostedTrees.load(path)
