"""Weights of common subsequences compared with the plain recurrence."""

from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqkin.trees import ForestBuilder
from eqkin.trees.align import IDF_STEPS, RENAMED_TOKEN_WEIGHT, score_common_subsequences
from eqkin.trees.mathml import Node, to_forest
from eqkin.trees.tokens import MAX_TOKENS, extract_tokens

SYMBOLS = st.lists(st.sampled_from("xyz12+="), max_size=8).map("".join)
WORTH = {"x": 1, "y": 2.5, "z": 0.25, "1": 0.5, "2": 3, "+": 0.75, "=": 0.125}


def tokens(*formulas):
    """Extract the tokens of formulas with one symbol per character."""
    builder = ForestBuilder()
    for formula in formulas:
        leaves = [Node("mi" if s.isalpha() else "mn" if s.isdigit() else "mo", text=s) for s in formula]
        builder.add_forest(to_forest(Node("mrow", children=leaves)))
    return extract_tokens(builder.build())


def found(query, *formulas, worth=WORTH):
    """Score the common subsequences of a formula and others."""
    weights = np.array([worth[symbol] for symbol in query], np.float32)
    return score_common_subsequences(tokens(query), weights, tokens(*formulas)).tolist()


def slow(query, formula):
    """Compute the same by recursion."""

    @cache
    def best(i, j):
        if not i or not j:
            return 0
        ours, theirs = query[i - 1], formula[j - 1]
        alike = (ours.isalpha() and theirs.isalpha()) or (ours.isdigit() and theirs.isdigit())
        gain = WORTH[ours] if ours == theirs else min(WORTH[ours], RENAMED_TOKEN_WEIGHT) if alike else 0
        return max(best(i - 1, j), best(i, j - 1), best(i - 1, j - 1) + gain)

    return best(len(query), len(formula))


@given(SYMBOLS, st.lists(SYMBOLS, min_size=1, max_size=4))
def test_subsequence_weight_equals_the_recurrence(query, formulas):
    assert found(query, *formulas) == [slow(query, formula) for formula in formulas]


def test_subsequence_allows_gaps_but_keeps_the_order():
    assert found("x+y", "x+y", "1x==+2y=", "y+x") == [4.25, 4.25, 2.5]  # of the last, y alone


def test_renamed_token_weighs_less_than_an_equal_one():
    same, other, sign = found("y", "y", "x", "+")
    assert same == WORTH["y"] > other == RENAMED_TOKEN_WEIGHT > sign == 0
    assert found("z", "x") == [WORTH["z"]]


def test_subsequence_ignores_slots():
    x, y = Node("mi", text="x"), Node("mi", text="y")
    builder = ForestBuilder()
    builder.add_forest(to_forest(Node("mfrac", children=[x, y])))
    worth = np.array([1, 2.5], np.float32)
    assert score_common_subsequences(tokens("xy"), worth, extract_tokens(builder.build())).tolist() == [3.5]


def test_longest_formulas_of_rarest_tokens_do_not_overflow():
    long, worth = "x" * MAX_TOKENS, {"x": 300 / IDF_STEPS}
    assert found(long, long, worth=worth) == [MAX_TOKENS * 300 / IDF_STEPS]


def test_empty_formulas_have_no_common_subsequence():
    assert found("", "x") == [0]
    assert found("x", "") == [0]
    assert score_common_subsequences(
        tokens("x"), np.ones(1, np.float32), tokens("x").select(np.zeros(0, np.int64))
    ).shape == (0,)
