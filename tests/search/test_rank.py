"""Relevance in collections: what comes first, in one block or several."""

import numpy as np
import pytest

from eqkin.search import candidates
from eqkin.search.candidates import combine_scores, compare_collections, compare_within

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
def compare(forest, units):
    """A function that returns the relevance of all formulas to each query."""

    def compute(*queries):
        asked, formulas = forest(*queries), forest(*FORMULAS)
        return compare_collections(asked, units(asked), formulas, units(formulas))

    return compute


def _best(scores):
    return [FORMULAS[at] for at in np.argsort(-scores, kind="stable")]


def test_copies_come_first_then_wholes_and_renamed_copies(compare):
    (scores,) = compare(QUERY)
    assert ((scores >= 0) & (scores <= 1)).all()
    ranked = _best(scores)
    assert ranked[0] == SPACED and scores.max() == pytest.approx(1, abs=1e-4)
    assert set(ranked[1:3]) == {WHOLE, RENAMED}
    assert np.sort(scores)[-3] > 1.5 * np.sort(scores)[-4]


def test_the_whole_of_a_part_comes_first(compare):
    assert _best(compare(r"\frac{e^{-H(y,x)}}{Z_y}")[0])[0] == WHOLE


def test_long_formulas_with_the_same_beginning_differ(forest):
    long = "+".join(f"x_{{{number}}}" for number in range(90))
    one = np.ones((1, 1), np.float32)
    (scores,) = compare_collections(
        forest(f"{long} = a"), one, forest(f"{long} = a", f"{long} = b"), np.tile(one, (2, 1))
    )
    assert scores[0] == pytest.approx(1, abs=1e-4) and scores[0] > scores[1]


def test_relevance_grows_with_the_cosine(forest):
    query, formulas = forest(QUERY), forest(*FORMULAS)
    cosines = np.linspace(0, 1, 12, dtype=np.float32)
    one = np.ones((1, 1), np.float32)
    found = [compare_collections(query, one, formulas, np.full((8, 1), cosine))[0] for cosine in cosines]
    assert (np.diff(found, axis=0) > 0).all()


def test_relevance_is_the_same_in_blocks(compare, monkeypatch):
    at_once = compare(QUERY, OTHERS[1])
    assert at_once.shape == (2, len(FORMULAS))
    assert at_once[1].argmax() == FORMULAS.index(OTHERS[1])
    monkeypatch.setattr(candidates, "_BLOCK_FORMULAS", 3)
    assert compare(QUERY, OTHERS[1]) == pytest.approx(at_once, abs=1e-5)


def test_relevance_within_leaves_each_formula_itself_out(forest, units, compare):
    formulas = forest(*FORMULAS)
    found = compare_within(formulas, units(formulas))
    assert not np.diag(found).any()
    others = ~np.eye(len(FORMULAS), dtype=bool)
    assert found[others] == pytest.approx(compare(*FORMULAS)[others], abs=1e-5)
    assert found[FORMULAS.index(RENAMED)].argmax() in (FORMULAS.index(SPACED), FORMULAS.index(WHOLE))


def test_relevance_of_no_formulas_is_empty(forest, units):
    nothing, query = forest(), forest(QUERY)
    none = np.zeros((0, units(query).shape[1]), np.float32)
    assert compare_collections(query, units(query), nothing, none).shape == (1, 0)
    assert compare_collections(nothing, none, query, units(query)).shape == (0, 1)
    assert compare_within(nothing, none).shape == (0, 0)
    assert compare_within(query, units(query)).tolist() == [[0]]


def test_text_counts_for_a_quarter_of_the_score():
    assert combine_scores(0.8, 0.4, formula=True, text=True) == pytest.approx(0.7)
    assert combine_scores(0.8, 0.4, formula=True, text=False) == 0.8
    assert combine_scores(0.8, 0.4, formula=False, text=True) == 0.4
