"""Features of query and formulas: structural overlap, common substrings and subsequences, sizes."""

import numpy as np
import pytest

from eqkin.search import features
from eqkin.search.features import (
    FEATURES,
    LINEAR_WEIGHTS,
    SIMILARITIES,
    build_feature_matrix,
    compute_linear_score,
    compute_overlaps,
    compute_similarities,
    compute_structural_overlap,
    extract_features,
)
from eqkin.trees.idf import DocumentFrequencies
from eqkin.trees.terms import TERM_FAMILIES, extract_terms

QUERY = r"x^2 + y^2 = \frac{a}{x + y}"
SAME = r"x^{2}\, + y^2 = \frac{a}{{x} + y}"
RENAMED = r"u^2 + v^2 = \frac{b}{u + v}"
MIXED = r"u^2 + u^2 = \frac{b}{u + v}"
LARGER = rf"\oint_C f\, dz = {QUERY} - \sum_k c_k"
OTHER = r"\nabla \times \mathbf{B} = \mu_0 \mathbf{J}"
FORMULAS = (SAME, RENAMED, MIXED, LARGER, OTHER)


def similarity(name, forest, query=QUERY, formulas=FORMULAS):
    """Return one of the similarities of formulas to a query."""
    found = compute_similarities(
        extract_features(forest(query)), extract_features(forest(*formulas)), np.zeros(len(formulas), np.float32)
    )
    return found[:, SIMILARITIES.index(name)].tolist()


def test_features_have_unique_names_and_finite_values(forest):
    assert len(set(FEATURES)) == len(FEATURES) > len(SIMILARITIES)
    query, formulas, cosines = (
        extract_features(forest(QUERY)),
        extract_features(forest(*FORMULAS)),
        np.linspace(1, -1, 5, dtype="f"),
    )
    columns = build_feature_matrix(query, formulas, cosines)
    assert columns.shape == (5, len(FEATURES)) and columns.dtype == np.float32
    assert np.isfinite(columns).all()
    alike = compute_similarities(query, formulas, cosines)
    assert np.array_equal(columns[:, [FEATURES.index(name) for name in SIMILARITIES]], alike)
    assert alike[:, SIMILARITIES.index("vector")].tolist() == cosines.tolist()


def test_similarities_are_high_for_a_copy_and_low_for_another_formula(forest):
    query, formulas = extract_features(forest(QUERY)), extract_features(forest(SAME, OTHER))
    found = compute_similarities(query, formulas, np.array([1, 0], np.float32))
    assert found[0] == pytest.approx(1, abs=1e-4)
    assert (found >= 0).all()
    assert (found[1] < 0.5).all()


def test_overlaps_sum_products_of_weights_of_common_terms(forest):
    trees = forest(QUERY, *FORMULAS)
    every, terms = extract_features(trees), extract_terms(trees)
    weights = [
        {
            (int(terms.code[at]), int(terms.family[at])): float(every.weight[at])
            for at in range(terms.offsets[tree], terms.offsets[tree + 1])
        }
        for tree in range(len(trees))
    ]
    expected = np.zeros((len(TERM_FAMILIES), len(trees)))
    for tree, theirs in enumerate(weights):
        for (code, family), weight in theirs.items():
            expected[family, tree] += weight * weights[0].get((code, family), 0)
    assert compute_overlaps(every, every) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert every.norms[:, 0] == pytest.approx(expected[:, 0], rel=1e-4)


def test_term_weights_grow_with_count_and_rarity(forest):
    once, often = (
        extract_features(forest("x", "x x x x x x")),
        extract_features(forest("x"), DocumentFrequencies.from_forest(forest(*"xxxxxxxy"), kept=1)),
    )
    code = once.terms.code[0]
    at = int(np.flatnonzero(once.terms.code[1:] == code)[0]) + 1
    assert once.weight[0] < once.weight[at] < 2 * once.weight[0]
    assert often.weight[0] < once.weight[0]


def test_structural_overlap_is_the_same_with_or_without_tokens(forest):
    query, trees = extract_features(forest(QUERY)), forest(*FORMULAS)
    expected = similarity("counted", forest)
    assert compute_structural_overlap(query, extract_features(trees)).tolist() == pytest.approx(expected)
    assert compute_structural_overlap(query, extract_features(trees, tokens=False)).tolist() == pytest.approx(expected)
    assert expected[0] > expected[2] and expected[0] > expected[3] > expected[4]


def test_shares_tell_a_part_from_its_whole(forest):
    for query, formula, all_of, some_of in (
        (QUERY, LARGER, "query", "formula"),
        (LARGER, QUERY, "formula", "query"),
    ):
        most, some = (similarity(f"all.of_{which}", forest, query, (formula,))[0] for which in (all_of, some_of))
        assert 0.2 < some < 0.7 < most <= 1.2
        assert some < similarity("all.cosine", forest, query, (formula,))[0] < most


def test_renamed_substrings_ignore_names_but_rename_consistently(forest):
    same, renamed, mixed, larger, _ = similarity("run", forest)
    assert same == larger == 1 > renamed
    same, renamed, mixed, larger, other = similarity("renamed_run", forest)
    assert same == renamed == larger == 1 > mixed > other


def test_substring_coverage_of_query_and_formula(forest):
    of_query, of_formula = similarity("run.of_query", forest), similarity("renamed_run.of_formula", forest)
    assert of_query[0] == of_query[3] == of_formula[0] == of_formula[1] == 1
    assert 0 < of_query[1] < 1 and 0 < of_formula[3] < 1
    assert of_query[4] == of_formula[4] == 0


def test_common_subsequences_may_have_gaps(forest):
    scattered = r"x^2 - c + y^2 \ge \frac{a + b}{x + z + y}"
    of_query, run = (
        similarity(name, forest, formulas=(SAME, scattered, OTHER)) for name in ("sequence.of_query", "run.of_query")
    )
    assert of_query[0] == pytest.approx(1)
    assert 1 > of_query[1] > of_query[2]
    assert of_query[1] > run[1] + 0.1


def test_linear_score_is_a_weighted_mean(forest):
    columns = build_feature_matrix(
        extract_features(forest(QUERY)), extract_features(forest(*FORMULAS)), np.linspace(1, 0, 5, dtype="f")
    )
    parts = [weight * columns[:, FEATURES.index(name)] for name, weight in LINEAR_WEIGHTS.items()]
    assert compute_linear_score(columns) == pytest.approx(sum(parts) / sum(LINEAR_WEIGHTS.values()), abs=1e-5)
    assert compute_linear_score(columns)[0] == pytest.approx(1, abs=1e-4)


def test_features_can_be_selected_in_any_order(forest):
    trees = forest(*FORMULAS)
    chosen = np.array([3, 0, 3])
    picked, fresh = extract_features(trees).select(chosen), extract_features(trees.select(chosen))
    assert len(picked) == 3
    query, cosines = extract_features(forest(QUERY)), np.array([0.5, 1, 0.5], np.float32)
    assert np.array_equal(build_feature_matrix(query, picked, cosines), build_feature_matrix(query, fresh, cosines))
    assert len(extract_features(trees).select(np.zeros(0, np.int64))) == 0


def test_relative_features_are_standardised_over_candidates(forest):
    query, cosines = extract_features(forest(QUERY)), np.array([1, 0.8, 0.7, 0.6, 0.1], np.float32)
    columns = build_feature_matrix(query, extract_features(forest(*FORMULAS)), cosines)
    relative = columns[:, [FEATURES.index(f"{name}.relative") for name in SIMILARITIES]]
    assert relative.mean(axis=0) == pytest.approx(0, abs=1e-5)
    order = [SIMILARITIES.index(name) for name in ("vector", "counted")]
    alike = compute_similarities(query, extract_features(forest(*FORMULAS)), cosines)
    for at in order:
        assert np.array_equal(np.argsort(-relative[:, at]), np.argsort(-alike[:, at]))


def test_relative_features_are_standardised_over_the_best_alone(forest, monkeypatch):
    query, cosines = extract_features(forest(QUERY)), np.array([1, 0.9, 0.1, 0.1, 0.1], np.float32)
    formulas = extract_features(forest(SAME, SAME, OTHER, OTHER, OTHER))
    monkeypatch.setattr(features, "STANDARDISED_OVER", 2)
    found = build_feature_matrix(query, formulas, cosines)[:, FEATURES.index("vector.relative")]
    assert found == pytest.approx((cosines - 0.95) / 0.06, abs=1e-3)


def test_features_do_not_depend_on_the_order_of_formulas(forest):
    query, cosines = extract_features(forest(QUERY)), np.array([1, 0.8, 0.7, 0.6, 0.1], np.float32)
    forwards = build_feature_matrix(query, extract_features(forest(*FORMULAS)), cosines)
    backwards = build_feature_matrix(query, extract_features(forest(*FORMULAS[::-1])), cosines[::-1])
    assert forwards == pytest.approx(backwards[::-1], abs=1e-4)


def test_features_of_no_formulas_and_of_a_blank_query(forest):
    nothing = extract_features(forest())
    assert build_feature_matrix(extract_features(forest(QUERY)), nothing, np.zeros(0, np.float32)).shape == (
        0,
        len(FEATURES),
    )
    blank = extract_features(forest(r"\quad"))
    found = build_feature_matrix(blank, extract_features(forest(*FORMULAS)), np.zeros(5, np.float32))
    assert np.isfinite(found).all()
    assert not compute_similarities(blank, extract_features(forest(QUERY)), np.zeros(1, np.float32)).any()
