"""Scores, folding and grouping by themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.search.query import FormulaReader
from eqkin.search.ranking import Candidate, combine_scores, compute_shape, deduplicate, limit_per_paper, normalise_latex
from eqkin.search.store import EquationRef
from eqkin.trees.mathml import parse_mathml


@pytest.fixture(scope="module")
def shapes():
    reader = FormulaReader(1)
    yield lambda latex: compute_shape(reader.read(latex).root)
    reader.close()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a+b", r"a\,+\;b ."),
        ("a+b", r"{a}+{{b}},"),
        (r"\frac{a}{b}", r"\frac{{a}}{b}"),
        (r"\left(x\right)^2", r"(x)^{2}"),
        ("x", r"\displaystyle x\quad"),
    ],
)
def test_formulas_that_differ_in_spacing_alone_have_one_shape(shapes, one, other):
    if "left" not in one:
        assert shapes(one) == shapes(other)
    assert normalise_latex(one).replace("{", "").replace("}", "") == normalise_latex(other).replace("{", "").replace(
        "}", ""
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("x^2", "y^2"), ("x^2", "x_2"), (r"\frac ab", r"\frac ba"), ("a+b", "a-b"), ("x^{ab}", "x^a b"), ("a,b", "ab")],
)
def test_formulas_that_differ_have_different_shapes(shapes, one, other):
    assert shapes(one) != shapes(other)


def test_a_tree_of_blanks_has_a_shape():
    assert compute_shape(parse_mathml("<math><mspace/></math>")) == ""
    assert compute_shape(parse_mathml("<math><mrow></mrow></math>")) == compute_shape(
        parse_mathml("<math><mrow><mrow/></mrow></math>")
    )


def _candidates(papers):
    return [
        Candidate(EquationRef(i, str(paper), i, f"x_{i}", None, ()), score=1 - i / 100)
        for i, paper in enumerate(papers)
    ]


def test_far_vectors_are_never_folded_and_their_trees_never_read():
    candidates = _candidates([1, 2, 3])
    kept = deduplicate(candidates, np.eye(3, dtype=np.float32), lambda number: pytest.fail("read"))
    assert kept == candidates


def test_near_vectors_are_folded_only_if_the_formulas_are_the_same(shapes):
    del shapes
    places = [EquationRef(i, f"{i}", 0, latex, None, ()) for i, latex in enumerate(("a + b", "a+b,", "a+c"))]
    trees = [parse_mathml(f"<math><mi>a</mi><mo>+</mo><mi>{x}</mi></math>") for x in "bbc"]
    kept = deduplicate([Candidate(place) for place in places], np.ones((3, 4), np.float32) / 2, trees.__getitem__)
    assert [candidate.ref.key for candidate in kept] == [0, 2]
    assert kept[0].duplicates == [places[1]]


def test_no_candidates_are_no_hits():
    assert deduplicate([], np.zeros((0, 4), np.float32), lambda _: pytest.fail("read")) == []
    assert limit_per_paper([], 10, 2) == []


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 15), st.integers(1, 3))
def test_grouping_keeps_order_and_counts_what_it_left_out(papers, k, per_paper):
    shown = limit_per_paper(_candidates(papers), k, per_paper)
    assert len(shown) == min(k, len(papers))
    places = [candidate.ref.key for candidate in shown]
    assert places == sorted(places)
    counts = {paper: papers.count(paper) for paper in papers}
    enough = sum(min(count, per_paper) for count in counts.values()) >= k
    if enough:
        ours = [candidate.ref.paper for candidate in shown]
        assert max(ours.count(paper) for paper in ours) <= per_paper
        better = [paper for i, paper in enumerate(papers) if i < places[-1] and i not in places]
        assert sum(candidate.hidden for candidate in shown) == len(better)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_formula_counts_three_quarters_and_either_alone_counts_all(kinship, words):
    both = combine_scores(kinship, words, formula=True, text=True)
    assert 0 <= both <= 1 and both == pytest.approx(0.75 * kinship + 0.25 * words)
    assert combine_scores(kinship, words, formula=True, text=False) == kinship
    assert combine_scores(kinship, words, formula=False, text=True) == words
