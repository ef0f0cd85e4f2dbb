"""Common substrings compared with a search at every pair of places."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqkin.trees import ForestBuilder
from eqkin.trees.align import MIN_SUBSTRING, find_common_substrings, mark_covered
from eqkin.trees.mathml import Node, to_forest
from eqkin.trees.tokens import extract_tokens

SYMBOLS = st.lists(st.sampled_from("xyz+="), max_size=9).map("".join)


def tokens(*formulas):
    """Extract the tokens of formulas with one symbol per character."""
    builder = ForestBuilder()
    for formula in formulas:
        leaves = [Node("mi" if symbol.isalpha() else "mo", text=symbol) for symbol in formula]
        builder.add_forest(to_forest(Node("mrow", children=leaves)))
    return extract_tokens(builder.build())


def runs(query, *formulas, renamed):
    """Find the common substrings of a formula and others."""
    return find_common_substrings(tokens(query), tokens(*formulas), renamed=renamed)


def agree(ours, theirs, renamed):
    """Return whether two pieces are equal, or equal under an injective renaming."""
    if not renamed:
        return ours == theirs
    there, back = {}, {}
    for one, other in zip(ours, theirs, strict=True):
        if not (one.isalpha() and other.isalpha()):
            if one != other:
                return False
        elif there.setdefault(one, other) != other or back.setdefault(other, one) != one:
            return False
    return True


def slow(query, formula, renamed):
    """Return the longest common substring that ends at each place of the query and of the formula."""
    length = {}
    for i in range(len(query)):
        for j in range(len(formula)):
            size = length.get((i - 1, j - 1), 0) + 1
            good = agree(query[i - size + 1 : i + 1], formula[j - size + 1 : j + 1], renamed)
            length[i, j] = size if good else 0
    ours = [max((length[i, j] for j in range(len(formula))), default=0) for i in range(len(query))]
    theirs = [max((length[i, j] for i in range(len(query))), default=0) for j in range(len(formula))]
    return ours, theirs


@settings(max_examples=200)
@given(SYMBOLS, st.lists(SYMBOLS, min_size=1, max_size=4), st.booleans())
@example("x+x", ["x+y"], True)
@example("x+y", ["x+x"], True)
@example("x+y=y+x", ["y+x=x+y", "z+x=x+z", "z+x=z+x"], True)
def test_common_substrings_equal_those_of_a_slow_search(query, formulas, renamed):
    found = runs(query, *formulas, renamed=renamed)
    for at, formula in enumerate(formulas):
        ours, theirs = slow(query, formula, renamed)
        assert found.query[at].tolist() == ours
        assert found.formula[at, : len(formula)].tolist() == theirs
        assert not found.formula[at, len(formula) :].any()
        assert found.longest[at] == max(ours, default=0)


@pytest.mark.parametrize(("one", "other"), [("a+b", "x+x"), ("a=a+b", "x=y+x"), ("ab+ab", "xy+yx")])
def test_renaming_is_injective_in_both_directions(one, other):
    for query, formula in ((one, other), (other, one)):
        assert runs(query, formula, renamed=True).longest[0] < len(query)


@pytest.mark.parametrize(("one", "other"), [("a+b", "x+y"), ("a=a+b", "x=x+y"), ("ab+ba", "yx+xy"), ("xx", "yy")])
def test_renamed_formula_is_one_substring(one, other):
    assert runs(one, other, renamed=True).longest.tolist() == [len(one)]
    assert runs(one, other, renamed=False).longest[0] < len(one)


def test_letters_before_a_substring_do_not_matter():
    """Before the substring, x is a different letter on one side only."""
    assert runs("y=x+y", "z=a+b", renamed=True).longest.tolist() == [4]
    assert runs("x+y=", "y*x+y=", renamed=True).longest.tolist() == [4]


def test_formulas_are_compared_independently():
    formulas = ["", "x", "x+y=z", "x+y", "+" * 40]
    together = runs("x+y=z", *formulas, renamed=False)
    for at, formula in enumerate(formulas):
        alone = runs("x+y=z", formula, renamed=False)
        assert np.array_equal(together.query[at], alone.query[0])
        assert np.array_equal(together.formula[at, : len(formula)], alone.formula[0])
    assert together.longest.tolist() == [0, 1, 5, 3, 1]


def test_longest_possible_substring_is_counted():
    assert runs("x+" * 96, "x+" * 96, renamed=True).longest.tolist() == [192]


def test_empty_query_or_no_formulas_have_no_substrings():
    empty = tokens("x").select(np.zeros(0, np.int64))
    assert find_common_substrings(tokens("x+y"), empty, renamed=True).longest.shape == (0,)
    assert runs("", "x", renamed=False).longest.tolist() == [0]
    assert runs("", "x", renamed=False).mark_formula().tolist() == [[False]]


def test_substrings_cover_tokens_of_both_sides():
    found = runs("a+b=c", "zza+b-a+b=c", "a+", renamed=False)
    assert found.mark_query().tolist() == [[True] * 5, [False] * 5]
    assert found.mark_formula()[0].tolist() == [False] * 2 + [True] * 3 + [False] + [True] * 5


@given(st.lists(st.lists(st.integers(0, 6), min_size=7, max_size=7), min_size=1, max_size=4), st.integers(1, 4))
def test_mark_covered_marks_tokens_before_each_end(ends, least):
    ends = [[min(length, at + 1) for at, length in enumerate(row)] for row in ends]
    expected = [
        [any(row[end] >= least and end - row[end] < at <= end for end in range(7)) for at in range(7)] for row in ends
    ]
    assert mark_covered(np.array(ends, np.uint8), least).tolist() == expected


def test_short_substrings_cover_nothing():
    assert MIN_SUBSTRING == 3
    assert not runs("x+", "x+", renamed=False).mark_query().any()
    assert runs("x+y", "x+y", renamed=False).mark_query().all()
