"""Similarities of formulas to a query, and the relevance they add up to."""

from dataclasses import replace

import numpy as np
import pytest

from eqkin.formulas.engine import parse_operators
from eqkin.formulas.operators import FORM_KINDS, share_form
from eqkin.formulas.terms import decode_norms, encode_norms, extract_norms, extract_terms
from eqkin.search.candidates import (
    WEIGHTS,
    QueryTerms,
    compute_relevance,
    compute_similarities,
    weigh_similarities,
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
def parse(forest):
    """A function that reads formulas into operator trees."""
    return lambda *formulas: parse_operators(forest(*formulas))


@pytest.fixture(scope="module")
def relate(parse):
    """A function that computes relevance with equal cosines."""

    def compute(query, *formulas, cosine=0.5):
        operators, cosines = parse(*formulas), np.full(len(formulas), cosine, np.float32)
        return compute_relevance(QueryTerms.extract(parse(query)), operators, extract_norms(operators), cosines)

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


def test_similarities_of_terms_that_the_query_lacks_are_left_out(parse):
    known = dict(zip(WEIGHTS, QueryTerms.extract(parse("x")).known_similarities.tolist(), strict=True))
    assert known == {"vector": True, "path": True, "tree": False}
    columns = np.array([[1, 0, 1]], np.float32)
    kept = WEIGHTS["vector"] + WEIGHTS["path"]
    assert weigh_similarities(columns, np.array(list(known.values()))) == pytest.approx([WEIGHTS["vector"] / kept])


def test_weights_choose_between_similarities(parse):
    query, formulas = QueryTerms.extract(parse(QUERY)), parse(SAME, OTHER)
    columns = compute_similarities(query, formulas, extract_norms(formulas), np.array([0, 1], np.float32))
    for name, best in (("vector", 1), ("path", 0), ("tree", 0)):
        alone = dict.fromkeys(WEIGHTS, 0.0) | {name: 2.0}
        assert weigh_similarities(columns, query.known_similarities, alone).argmax() == best


@pytest.mark.parametrize("query", [QUERY, LARGER, OTHER, "x", r"\frac{du(x)}{dt} = -u_{xx}"])
def test_overlaps_sum_products_of_weights_of_common_terms(parse, query):
    operators, asked = parse(*FORMULAS, query, r"\quad"), QueryTerms.extract(parse(query))
    terms = extract_terms(operators)
    weights = dict(zip(asked.codes.tolist(), asked.weights.tolist(), strict=True))
    expected = np.zeros((2, len(operators)))
    for tree, code, family, count in zip(terms.tree, terms.code, terms.family, terms.count, strict=True):
        if family < 2:
            expected[family, tree] += weights.get(int(code), 0) * 2 * count / (count + 1)
    assert asked.compute_overlaps(operators) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert asked.compute_overlaps(operators)[:, -2] == pytest.approx(asked.norms[:, 0], rel=1e-5)


def test_stored_norms_are_exact_to_two_percent():
    norms = np.concatenate(([0], np.geomspace(0.01, 40_000, 1000))).astype(np.float32)
    assert 1 + decode_norms(encode_norms(norms)) == pytest.approx(1 + norms, rel=0.022)
    assert encode_norms(np.array([1e9], np.float32)) == 255


def test_relevance_of_no_formulas_and_of_a_blank_query(relate):
    assert relate(QUERY).shape == (0,)
    assert len(set(relate(r"\quad", *FORMULAS).tolist())) == 1  # the vector alone


def test_formula_solved_for_another_letter_is_more_relevant_than_one_that_looks_alike(relate):
    solved, alike = relate("V = k n", r"\frac{V}{n} = k", "V = Z I")
    assert solved > alike


def test_formulas_that_cannot_be_parsed_do_not_say_the_same():
    zeros = np.zeros((1, len(FORM_KINDS)), np.uint32)  # the forms of what takes too long to parse
    assert not share_form(zeros, zeros).any()


def test_query_that_cannot_be_parsed_favours_no_formula(parse):
    query, other = QueryTerms.extract(parse(QUERY)), parse(OTHER)
    unparsed = replace(query, forms=np.zeros_like(query.forms)), replace(other, forms=np.zeros_like(other.forms))
    cosines = np.full(1, 0.5, np.float32)
    expected = compute_relevance(query, other, extract_norms(other), cosines)
    assert compute_relevance(*unparsed, extract_norms(other), cosines) == pytest.approx(expected)
