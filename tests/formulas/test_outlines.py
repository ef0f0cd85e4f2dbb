r"""Outlines of operator trees: what is left out, and what two notations of a law share."""

import numpy as np
import pytest

from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.terms import extract_terms
from tests.formulas.outlines import build_outlines


@pytest.fixture(scope="module")
def parse(engine):
    """A function that reads formulas into operator trees."""

    def read(*latex):
        return parse_operators(convert_formulas(engine, list(latex)).forest)

    return read


def describe(outlines, tree):
    """Return the labels of a tree with their depths."""
    nodes = range(outlines.offsets[tree], outlines.offsets[tree + 1])
    return [(outlines.labels[outlines.label[node]], int(outlines.depth[node])) for node in nodes]


def share(terms):
    """Return how many terms of the first tree the second has, of all that either has."""
    first, second = (set(terms.code[a:b].tolist()) for a, b in zip(terms.offsets[:2], terms.offsets[1:3], strict=True))
    return len(first & second) / len(first | second)


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        (r"u(x, t) = v", "u = v"),
        (r"a_i = b", "a = b"),
        (r"\sum_{i=1}^n p_i = 1", r"\sum p = 1"),
        (r"x \approx y", "x = y"),
        (r"x = -y", "x = y"),
        (r"\|x\| = y", "x = y"),
        (r"\frac{du}{dt} = v", r"\frac{u}{t} = v"),
    ],
)
def test_outline_leaves_out_details(parse, formula, same):
    outlines = build_outlines(parse(formula, same))
    assert describe(outlines, 0) == describe(outlines, 1)


def test_outline_keeps_what_formulas_say(parse):
    outlines = build_outlines(parse("a + b = c", "a b = c", r"a + \frac{b}{2} = c", r"a + b^2 = c", "a + b = d"))
    assert len({str(describe(outlines, tree)) for tree in range(5)}) == 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (r"H(X) = -\sum_i P(x_i) \log P(x_i)", r"H = -\sum_{x} P(x) \log P(x)"),
        (
            r"i\hbar\frac{\partial \psi(x,t)}{\partial t} = H \psi(x,t)",
            r"i\hbar\frac{\partial\psi}{\partial t} = H\psi",
        ),
    ],
)
def test_notations_of_a_law_share_more_of_their_outlines(parse, one, other):
    forest = parse(one, other)
    assert share(extract_terms(forest)) > 0.6


def test_outlines_of_several_trees_are_those_of_each(parse):
    latex = [
        r"H(X) = -\sum_i P(x_i) \log P(x_i)",
        "x",
        r"\quad",
        "a_1 + f(b) = -c",
        r"\begin{matrix} a & b \end{matrix}",
    ]
    forest = parse(*latex)
    outlines, terms = build_outlines(forest), extract_terms(forest)
    assert len(outlines) == len(terms) == len(latex)
    assert outlines.offsets[-1] == len(outlines.label) <= len(forest.label)
    for tree in range(len(latex)):
        alone = forest.select([tree])
        assert describe(outlines, tree) == describe(build_outlines(alone), 0)
        part = slice(terms.offsets[tree], terms.offsets[tree + 1])
        assert np.array_equal(terms.code[part], extract_terms(alone).code)
        assert (np.diff(terms.code[part].astype(np.int64)) > 0).all()


def test_no_trees_have_no_outlines(parse):
    nothing = parse("x").select([])
    assert len(build_outlines(nothing)) == len(extract_terms(nothing)) == 0
