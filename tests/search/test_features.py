"""Similarities of formulas to a query, and the relevance they add up to."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from eqkin.formulas.engine import parse_operators
from eqkin.formulas.idf import DocumentFrequencies, decode_norms, encode_norms, find_groups
from eqkin.formulas.operators import FORM_KINDS, share_form
from eqkin.formulas.terms import extract_terms
from eqkin.search.features import (
    WEIGHTS,
    compute_relevance,
    compute_similarities,
    extract_features,
    extract_query,
    weight_similarities,
)

QUERY = r"x^2 + y^2 = \frac{a}{x + y}"
SAME = r"x^{2}\, + y^2 = \frac{a}{{x} + y}"
COMMUTED = r"\frac{a}{y + x} = y^2 + x^2"
RENAMED = r"u^2 + v^2 = \frac{b}{u + v}"
REWRITTEN = r"(x^2 + y^2) (x + y) = a"
LARGER = rf"\oint_C f\, dz = {QUERY} - \sum_k c_k"
OTHER = r"\nabla \times \mathbf{B} = \mu_0 \mathbf{J}"
FORMULAS = (SAME, COMMUTED, RENAMED, REWRITTEN, LARGER, OTHER)


@pytest.fixture(scope="module")
def relate(forest):
    """A function that computes relevance with equal cosines."""

    def compute(query, *formulas, cosine=0.5):
        cosines = np.full(len(formulas), cosine, np.float32)
        return compute_relevance(extract_features(forest(query)), extract_features(forest(*formulas)), cosines)

    return compute


@pytest.mark.parametrize("formula", [QUERY, OTHER, "x", r"\sum_i a_i", r"a = b = c, \quad d < e"])
def test_relevance_of_an_identical_formula_is_one(relate, formula):
    assert relate(formula, formula, cosine=1) == pytest.approx([1], abs=1e-4)


def test_relevance_is_in_the_unit_interval(relate):
    for cosine in (-1, 0, 1):
        for query in FORMULAS:
            found = relate(query, *FORMULAS, cosine=cosine)
            assert ((found >= 0) & (found <= 1)).all() and found.dtype == np.float32


def test_rewritten_formulas_are_more_relevant_than_others(relate):
    *related, other = relate(QUERY, *FORMULAS).tolist()
    assert min(related) > other + 0.05
    assert related[0] == max(related)
    assert related[1] > related[2]  # the same names


def test_similarities_have_the_order_of_the_weights(forest):
    query, formulas = extract_features(forest(QUERY)), extract_features(forest(SAME, RENAMED, OTHER))
    cosines = np.array([1, 0.5, -0.5], np.float32)
    found = dict(zip(WEIGHTS, compute_similarities(query, formulas, cosines).T, strict=True))
    assert found["vector"].tolist() == cosines.tolist()
    assert all(column[0] == pytest.approx(1, abs=1e-4) for column in found.values())
    assert all(found[name][1] == pytest.approx(1, abs=1e-4) for name in ("anytree", "outline anytree"))
    assert found["subtree"][1] < 0.7  # names differ
    assert all(found[name][2] < 0.3 for name in WEIGHTS)


def test_similarities_of_which_the_query_has_no_terms_are_left_out(forest):
    query = extract_features(forest("x"))
    known = dict(zip(WEIGHTS, query.known.tolist(), strict=True))
    assert known["vector"] and known["path"] and not known["neighbours"]
    columns = np.array([[name in ("vector", "neighbours") for name in WEIGHTS]], np.float32)
    kept = sum(weight for name, weight in WEIGHTS.items() if known[name])
    assert weight_similarities(columns, query.known) == pytest.approx([WEIGHTS["vector"] / kept])
    nothing = weight_similarities(columns, query.known, dict.fromkeys(WEIGHTS, 0.0))
    assert nothing.tolist() == [0]


def test_weights_choose_between_similarities(forest):
    query, formulas = extract_features(forest(QUERY)), extract_features(forest(SAME, OTHER))
    columns = compute_similarities(query, formulas, np.array([0, 1], np.float32))
    for name, best in (("vector", 1), ("path", 0), ("outline subtree", 0)):
        alone = dict.fromkeys(WEIGHTS, 0.0) | {name: 2.0}
        assert weight_similarities(columns, query.known, alone).argmax() == best


def test_overlaps_sum_products_of_weights_of_common_terms(forest):
    every = extract_features(forest(*FORMULAS))
    bounds = zip(every.terms.offsets[:-1], every.terms.offsets[1:], strict=True)
    weights = [dict(zip(every.terms.code[a:b].tolist(), every.weight[a:b].tolist(), strict=True)) for a, b in bounds]
    groups = dict(zip(every.terms.code.tolist(), find_groups(every.terms.family).tolist(), strict=True))
    expected = np.zeros(every.norms.shape)
    for formula, theirs in enumerate(weights):
        for code, weight in theirs.items():
            expected[groups[code], formula] += weight * weights[0].get(code, 0)
    assert every.compute_overlaps(every) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert every.norms[:, 0] == pytest.approx(expected[:, 0], rel=1e-4)


def test_term_weights_grow_with_count_and_rarity(forest):
    twice = extract_features(forest("a b = 1", r"a b = \frac{a b}{a b}"))
    code = twice.terms.code[: twice.terms.offsets[1]]
    later = twice.terms.offsets[1] + np.flatnonzero(np.isin(twice.terms.code[twice.terms.offsets[1] :], code))
    pairs = [(twice.weight[np.flatnonzero(code == twice.terms.code[at])[0]], twice.weight[at]) for at in later]
    assert all(once <= more < 2 * once for once, more in pairs) and any(once < more for once, more in pairs)
    common = DocumentFrequencies.from_forest(forest(*["a b = 1"] * 8, "y", "z"), kept=1)
    assert extract_features(forest("a b = 1"), idf=common).weight.max() < twice.weight[: len(code)].max()


def test_features_can_be_selected_in_any_order(forest):
    trees, query = forest(*FORMULAS), extract_features(forest(QUERY))
    chosen, cosines = np.array([3, 0, 3]), np.array([0.5, 1, 0.5], np.float32)
    picked, fresh = extract_features(trees).select(chosen), extract_features(trees.select(chosen))
    assert len(picked) == 3
    assert np.array_equal(compute_similarities(query, picked, cosines), compute_similarities(query, fresh, cosines))
    assert len(picked.select(np.zeros(0, np.int64))) == 0


def test_given_operator_trees_are_not_parsed_again(forest):
    trees = forest(*FORMULAS)
    given = extract_features(trees, parse_operators(trees.select([5, 4, 3, 2, 1, 0])))
    structure = slice(1, None)  # without neighbours
    assert np.array_equal(given.norms[structure], extract_features(trees).norms[structure, ::-1])


@pytest.mark.parametrize("query", [QUERY, LARGER, OTHER, "x", r"\frac{du(x)}{dt} = -u_{xx}"])
def test_terms_counted_for_a_query_give_the_same_overlaps_as_all_terms(forest, query):
    trees, asked = forest(*FORMULAS, query, r"\quad"), forest(query)
    terms, every = extract_query(extract_terms(asked), parse_operators(asked)), extract_features(trees)
    indexed = np.zeros((len(terms.indexed), len(trees)), np.uint8)
    for tree, (start, end) in enumerate(pairwise(every.terms.offsets.tolist())):
        codes, counts = every.terms.code[start:end], every.terms.count[start:end]
        indexed[:, tree] = [counts[codes == code].sum() for code in terms.indexed]
    found = terms.compute_overlaps(parse_operators(trees), indexed)
    assert found == pytest.approx(terms.features.compute_overlaps(every), rel=1e-5, abs=1e-5)
    assert found[:, -2] == pytest.approx(every.norms[:, -2], rel=1e-5)


def test_stored_norms_are_exact_to_two_percent():
    norms = np.concatenate(([0], np.geomspace(0.01, 40_000, 1000))).astype(np.float32)
    assert 1 + decode_norms(encode_norms(norms)) == pytest.approx(1 + norms, rel=0.022)
    assert encode_norms(np.array([1e9], np.float32)) == 255


def test_relevance_of_no_formulas_and_of_a_blank_query(forest, relate):
    assert relate(QUERY).shape == (0,)
    assert len(set(relate(r"\quad", *FORMULAS).tolist())) == 1  # the vector alone
    assert len(extract_features(forest())) == 0


def test_formula_solved_for_another_letter_is_more_relevant_than_one_that_looks_alike(relate):
    solved, alike = relate("V = k n", r"\frac{V}{n} = k", "V = Z I")
    assert solved > alike


def test_formulas_that_cannot_be_parsed_do_not_say_the_same():
    zeros = np.zeros((1, len(FORM_KINDS)), np.uint32)  # the forms of what takes too long to parse
    assert not share_form(zeros, zeros).any()


def test_query_that_cannot_be_parsed_favours_no_formula(forest):
    query, other = (extract_features(forest(formula)) for formula in (QUERY, OTHER))
    zeros = np.zeros_like(query.forms)
    unparsed = [replace(features, forms=zeros) for features in (query, other)]
    cosines = np.full(1, 0.5, np.float32)
    assert compute_relevance(*unparsed, cosines) == pytest.approx(compute_relevance(query, other, cosines))
