"""The ranking by itself: what it puts first, in one step or in two."""

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
    """Profile of the query, those of the formulas, and cosines."""
    query, formulas = forest(QUERY), forest(*FORMULAS)
    return extract_features(query), extract_features(formulas), units(formulas) @ units(query)[0]


def _best(scores):
    return [FORMULAS[at] for at in np.argsort(-scores, kind="stable")]


def test_the_same_comes_first_then_what_holds_it_or_is_it_under_other_names_then_the_rest(given):
    scores = load_bundled_ranker().score(*given)
    assert ((scores >= 0) & (scores <= 1)).all()
    ranked = _best(scores)
    assert ranked[0] == SPACED and scores.max() == 1
    assert set(ranked[1:3]) == {WHOLE, RENAMED}
    assert np.sort(scores)[-3] > 1.5 * np.sort(scores)[-4]


def test_formulas_that_begin_the_same_are_not_the_same(forest):
    long = "+".join(f"x_{{{number}}}" for number in range(90))
    query, formulas = extract_features(forest(f"{long} = a")), extract_features(forest(f"{long} = a", f"{long} = b"))
    assert query.tokens.length[0] == formulas.tokens.length[1]  # the end is cut off
    scores = load_bundled_ranker().score(query, formulas, np.array([1, 0.95], np.float32))
    assert scores[0] == 1 > scores[1]


def test_a_part_finds_its_whole(forest, units):
    query, formulas = forest(r"\frac{e^{-H(y,x)}}{Z_y}"), forest(*FORMULAS)
    assert _best(compute_relevance(query, units(query), formulas, units(formulas))[0])[0] == WHOLE


def test_a_nearer_vector_never_makes_a_formula_fall(given):
    query, formulas, cosines = given
    for at in range(len(formulas)):
        found = []
        for cosine in np.linspace(-0.5, 0.98, 12):
            changed = cosines.copy()
            changed[at] = cosine
            found.append(load_bundled_ranker().score(query, formulas, changed)[at])
        assert (np.diff(found) >= 0).all() and found[-1] > found[0]


def test_formulas_are_ranked_the_same_in_any_order(given):
    query, formulas, cosines = given
    order = np.array([7, 3, 0, 1, 2, 6, 5, 4])
    shuffled = load_bundled_ranker().score(query, formulas.select(order), cosines[order])
    assert shuffled == pytest.approx(load_bundled_ranker().score(*given)[order], abs=1e-5)


def test_a_small_collection_is_ranked_by_everything(given):
    assert load_bundled_ranker().score_collection(*given) == pytest.approx(
        load_bundled_ranker().score(*given), abs=1e-5
    )


def test_in_a_large_collection_the_best_are_compared_closely_and_the_rest_keep_their_order(given, monkeypatch):
    monkeypatch.setattr(rerank, "RERANK_DEPTH", 3)
    query, formulas, cosines = given
    scores = load_bundled_ranker().score_collection(query, formulas, cosines)
    order = np.argsort(-(compute_structural_overlap(query, formulas) + rerank.FIRST_STAGE_VECTOR_WEIGHT * cosines))
    best, rest = order[:3], order[3:]
    assert {FORMULAS[at] for at in best} == {SPACED, RENAMED, WHOLE}
    assert scores[best] == pytest.approx(load_bundled_ranker().score(query, formulas.select(best), cosines[best]))
    assert (np.diff(scores[rest]) < 0).all()
    assert scores[best].min() > scores[rest].max() > scores[rest].min() > 0


def test_one_that_is_no_candidate_has_0_and_does_not_count(given):
    query, formulas, cosines = given
    at = FORMULAS.index(SPACED)
    scores = load_bundled_ranker().score_collection(query, formulas, cosines, without=at)
    others = np.delete(np.arange(len(FORMULAS)), at)
    assert scores[at] == 0
    assert scores[others] == pytest.approx(
        load_bundled_ranker().score(query, formulas.select(others), cosines[others]), abs=1e-5
    )


def test_a_collection_in_blocks_is_ranked_the_same(forest, units, monkeypatch):
    queries, formulas = forest(QUERY, OTHERS[1]), forest(*FORMULAS)
    monkeypatch.setattr(rerank, "RERANK_DEPTH", 5)
    at_once = compute_relevance(queries, units(queries), formulas, units(formulas))
    assert at_once.shape == (2, len(FORMULAS))
    assert at_once[1].argmax() == FORMULAS.index(OTHERS[1])
    monkeypatch.setattr(rerank, "_BLOCK_FORMULAS", 3)
    assert compute_relevance(queries, units(queries), formulas, units(formulas)) == pytest.approx(at_once, abs=1e-5)


def test_no_formula_of_a_collection_is_a_candidate_for_itself(forest, units):
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


def test_nothing_is_ranked(forest, units):
    nothing, query = forest(), forest(QUERY)
    none = np.zeros((0, units(query).shape[1]), np.float32)
    assert compute_relevance(query, units(query), nothing, none).shape == (1, 0)
    assert compute_relevance(nothing, none, query, units(query)).shape == (0, 1)
    assert compute_relevance_within(nothing, none).shape == (0, 0)
    assert compute_relevance_within(query, units(query)).tolist() == [[0]]


def test_weights_for_other_features_are_refused(tmp_path):
    learned = BoostedTrees.load(BUNDLED_RANKER)
    assert learned.features == FEATURES
    replace(learned, features=("other", *FEATURES[1:])).save(tmp_path / "w.safetensors")
    with pytest.raises(CorruptData, match="other features"):
        Ranker.load(tmp_path / "w.safetensors")


def test_other_weights_rank_differently(given, tmp_path):
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
