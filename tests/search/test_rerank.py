"""The ranker: what it puts first, in one stage or two, and its boosted trees."""

from dataclasses import replace

import numpy as np
import pytest

from eqkin.errors import CorruptData
from eqkin.search import rerank
from eqkin.search.features import (
    FEATURES,
    build_feature_matrix,
    compute_linear_score,
    compute_structural_overlap,
    extract_features,
)
from eqkin.search.rerank import (
    BUNDLED_RANKER,
    BoostedTrees,
    Ranker,
    compute_relevance,
    compute_relevance_within,
    load_bundled_ranker,
)

QUERY = r"p(x|y) = \frac{p(y|x) p(x)}{p(y)}"
SPACED = r"p(x|y)\, =\, \frac{p(y|x)\, p(x)}{{p(y)}}"
RENAMED = r"q(a|b) = \frac{q(b|a) q(a)}{q(b)}"
WHOLE = rf"{QUERY} = \frac{{e^{{-H(y,x)}}}}{{Z_y}}"
OTHERS = (
    r"\nabla \times \mathbf{B} = \mu_0 \mathbf{J}",
    r"\sum_{k=0}^n \binom{n}{k} = 2^n",
    r"\int_0^\infty e^{-t} t^{z-1} dt = \Gamma(z)",
    r"a \le b",
    r"\det(A - \lambda I) = 0",
)
FORMULAS = (OTHERS[0], RENAMED, OTHERS[1], WHOLE, SPACED, *OTHERS[2:])


@pytest.fixture(scope="module")
def given(forest, units):
    """Features of the query, features of the formulas, and cosines."""
    query, formulas = forest(QUERY), forest(*FORMULAS)
    return extract_features(query), extract_features(formulas), units(formulas) @ units(query)[0]


def _best(scores):
    return [FORMULAS[at] for at in np.argsort(-scores, kind="stable")]


def test_ranker_puts_copies_first_then_wholes_and_renamed_copies(given):
    scores = load_bundled_ranker().score(*given)
    assert ((scores >= 0) & (scores <= 1)).all()
    ranked = _best(scores)
    assert ranked[0] == SPACED and scores.max() == 1
    assert set(ranked[1:3]) == {WHOLE, RENAMED}
    assert np.sort(scores)[-3] > 1.5 * np.sort(scores)[-4]


def test_ranker_tells_long_formulas_with_the_same_beginning_apart(forest):
    long = "+".join(f"x_{{{number}}}" for number in range(90))
    query, formulas = extract_features(forest(f"{long} = a")), extract_features(forest(f"{long} = a", f"{long} = b"))
    assert query.tokens.length[0] == formulas.tokens.length[1]  # the end is cut off
    scores = load_bundled_ranker().score(query, formulas, np.array([1, 0.95], np.float32))
    assert scores[0] == 1 > scores[1]


def test_ranker_puts_the_whole_of_a_part_first(forest, units):
    query, formulas = forest(r"\frac{e^{-H(y,x)}}{Z_y}"), forest(*FORMULAS)
    assert _best(compute_relevance(query, units(query), formulas, units(formulas))[0])[0] == WHOLE


def test_score_never_falls_when_the_cosine_grows(given):
    query, formulas, cosines = given
    for at in range(len(formulas)):
        found = []
        for cosine in np.linspace(-0.5, 0.98, 12):
            changed = cosines.copy()
            changed[at] = cosine
            found.append(load_bundled_ranker().score(query, formulas, changed)[at])
        assert (np.diff(found) >= 0).all() and found[-1] > found[0]


def test_score_does_not_depend_on_the_order_of_formulas(given):
    query, formulas, cosines = given
    order = np.array([7, 3, 0, 1, 2, 6, 5, 4])
    shuffled = load_bundled_ranker().score(query, formulas.select(order), cosines[order])
    assert shuffled == pytest.approx(load_bundled_ranker().score(*given)[order], abs=1e-5)


def test_small_collection_is_ranked_by_all_features(given):
    assert load_bundled_ranker().score_collection(*given) == pytest.approx(
        load_bundled_ranker().score(*given), abs=1e-5
    )


def test_large_collection_is_reranked_up_to_the_depth(given, monkeypatch):
    monkeypatch.setattr(rerank, "RERANK_DEPTH", 3)
    query, formulas, cosines = given
    scores = load_bundled_ranker().score_collection(query, formulas, cosines)
    order = np.argsort(-(compute_structural_overlap(query, formulas) + rerank.FIRST_STAGE_VECTOR_WEIGHT * cosines))
    best, rest = order[:3], order[3:]
    assert {FORMULAS[at] for at in best} == {SPACED, RENAMED, WHOLE}
    assert scores[best] == pytest.approx(load_bundled_ranker().score(query, formulas.select(best), cosines[best]))
    assert (np.diff(scores[rest]) < 0).all()
    assert scores[best].min() > scores[rest].max() > scores[rest].min() > 0


def test_score_collection_leaves_one_formula_out(given):
    query, formulas, cosines = given
    at = FORMULAS.index(SPACED)
    scores = load_bundled_ranker().score_collection(query, formulas, cosines, without=at)
    others = np.delete(np.arange(len(FORMULAS)), at)
    assert scores[at] == 0
    assert scores[others] == pytest.approx(
        load_bundled_ranker().score(query, formulas.select(others), cosines[others]), abs=1e-5
    )


def test_relevance_is_the_same_in_blocks(forest, units, monkeypatch):
    queries, formulas = forest(QUERY, OTHERS[1]), forest(*FORMULAS)
    monkeypatch.setattr(rerank, "RERANK_DEPTH", 5)
    at_once = compute_relevance(queries, units(queries), formulas, units(formulas))
    assert at_once.shape == (2, len(FORMULAS))
    assert at_once[1].argmax() == FORMULAS.index(OTHERS[1])
    monkeypatch.setattr(rerank, "_BLOCK_FORMULAS", 3)
    assert compute_relevance(queries, units(queries), formulas, units(formulas)) == pytest.approx(at_once, abs=1e-5)


def test_relevance_within_leaves_each_formula_itself_out(forest, units):
    formulas = forest(*FORMULAS)
    found = compute_relevance_within(formulas, units(formulas))
    assert not np.diag(found).any()
    every, vectors = extract_features(formulas), units(formulas)
    for at in range(len(FORMULAS)):
        query = every.select(np.array([at]))
        assert np.array_equal(
            found[at], load_bundled_ranker().score_collection(query, every, vectors @ vectors[at], without=at)
        )
    assert found[FORMULAS.index(RENAMED)].argmax() in (FORMULAS.index(SPACED), FORMULAS.index(WHOLE))


def test_relevance_of_no_formulas_is_empty(forest, units):
    nothing, query = forest(), forest(QUERY)
    none = np.zeros((0, units(query).shape[1]), np.float32)
    assert compute_relevance(query, units(query), nothing, none).shape == (1, 0)
    assert compute_relevance(nothing, none, query, units(query)).shape == (0, 1)
    assert compute_relevance_within(nothing, none).shape == (0, 0)
    assert compute_relevance_within(query, units(query)).tolist() == [[0]]


def test_ranker_refuses_weights_for_other_features(tmp_path):
    learned = BoostedTrees.load(BUNDLED_RANKER)
    assert learned.features == FEATURES
    replace(learned, features=("other", *FEATURES[1:])).save(tmp_path / "w.safetensors")
    with pytest.raises(CorruptData, match="other features"):
        Ranker.load(tmp_path / "w.safetensors")


def test_ranker_without_learned_part_is_linear(given, tmp_path):
    learned = BoostedTrees.load(BUNDLED_RANKER)
    replace(learned, value=np.zeros_like(learned.value), first=np.zeros(1, np.float32)).save(tmp_path / "w.safetensors")
    query, formulas, cosines = given
    scores = Ranker.load(tmp_path / "w.safetensors").score(query, formulas, cosines)
    expected = (
        compute_linear_score(build_feature_matrix(query, formulas, cosines))
        * rerank.LINEAR_SCORE_WEIGHT
        / (1 + rerank.LINEAR_SCORE_WEIGHT)
    )
    expected[FORMULAS.index(SPACED)] = 1
    assert scores == pytest.approx(np.clip(expected, 0, 1), abs=1e-5)


NAMES = ("first", "second", "third", "naïve")


def _export_trees(model):
    """Return the trees of a fitted HistGradientBoostingRegressor, padded to the same number of nodes."""
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
    """A model of scikit-learn, its trees as arrays, and new rows, some of them exactly on a threshold."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    random = np.random.default_rng(4)
    columns = (random.integers(0, 64, (600, 4)) / 64).astype(np.float32)
    wanted = columns[:, 0] * columns[:, 1] + np.sin(5 * columns[:, 2]) + random.normal(0, 0.1, 600)
    model = ensemble.HistGradientBoostingRegressor(max_iter=30, max_leaf_nodes=7, min_samples_leaf=5, random_state=0)
    model.fit(columns, wanted)
    trees = _export_trees(model)
    rows = (random.integers(-8, 80, (500, 4)) / 64).astype(np.float32)
    for at, (feature, threshold) in enumerate(zip(trees.feature[:, 0], trees.threshold[:, 0], strict=True)):
        rows[at, feature] = threshold
    return model, trees, rows


def test_boosted_trees_predict_like_scikit_learn(fitted):
    model, trees, rows = fitted
    expected = model.predict(rows)
    assert expected.std() > 0.3
    assert trees(rows) == pytest.approx(expected, abs=1e-5)
    assert trees(rows).dtype == np.float32


def test_boosted_trees_predict_each_row_independently(fitted):
    _, trees, rows = fitted
    assert np.array_equal(trees(rows)[:5], np.concatenate([trees(row[None]) for row in rows[:5]]))
    assert trees(rows[:0]).shape == (0,)


def test_boosted_trees_load_what_was_saved(fitted, tmp_path):
    _, trees, rows = fitted
    trees.save(tmp_path / "trees.safetensors")
    read = BoostedTrees.load(tmp_path / "trees.safetensors")
    assert read.features == NAMES
    assert np.array_equal(read(rows), trees(rows))


@pytest.mark.parametrize("damage", ["missing", "empty", "short", "other"])
def test_boosted_trees_refuse_a_damaged_file(fitted, tmp_path, damage):
    path = tmp_path / "trees.safetensors"
    fitted[1].save(path)
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "short": content[:-9], "other": b"\x02\0\0\0\0\0\0\0{}"}.get(damage, content))
    if damage == "missing":
        path.unlink()
    with pytest.raises(CorruptData, match=r"trees\.safetensors.*install eqkin again"):
        BoostedTrees.load(path)
