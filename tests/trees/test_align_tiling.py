"""Greedy string tiling compared with a plain search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.trees import ForestBuilder
from eqkin.trees.align import MIN_RENAMING_TILE, align_tokens
from eqkin.trees.mathml import Node, to_forest
from eqkin.trees.tokens import extract_tokens

SYMBOLS = st.lists(st.sampled_from("xyz+="), min_size=1, max_size=9).map("".join)


def _tokens(*formulas):
    builder = ForestBuilder()
    for formula in formulas:
        leaves = [
            Node("mi" if symbol.isalpha() else "mn" if symbol.isdigit() else "mo", text=symbol) for symbol in formula
        ]
        builder.add_forest(to_forest(Node("mrow", children=leaves)))
    return extract_tokens(builder.build())


def _tiled(query, formula):
    """List pairs of places in two strings; the row is the first node and not a token."""
    tokens = _tokens(query, formula)
    tiling = align_tokens(tokens.select(np.array([0])), tokens, 1)
    assert tiling.pairs == tuple((i + 1, j + 1) for i, j in tiling.places)
    return tiling


def _consistent(query, formula, places):
    there, back = {}, {}
    for i, j in places:
        ours, theirs = query[i], formula[j]
        if ours.isalpha() != theirs.isalpha() or (not ours.isalpha() and ours != theirs):
            return False
        if ours.isalpha() and (there.setdefault(ours, theirs) != theirs or back.setdefault(theirs, ours) != ours):
            return False
    return True


def _longest(query, formula):
    return max(
        (
            size
            for i in range(len(query))
            for j in range(len(formula))
            for size in range(1, min(len(query) - i, len(formula) - j) + 1)
            if _consistent(query, formula, [(i + k, j + k) for k in range(size)])
        ),
        default=0,
    )


@settings(max_examples=150, deadline=None)
@given(SYMBOLS, SYMBOLS)
def test_tiling_keeps_one_renaming_and_starts_with_the_longest_run(query, formula):
    tiling = _tiled(query, formula)
    assert _consistent(query, formula, tiling.places)
    assert len({j for _, j in tiling.places}) == len(tiling.places)
    assert tiling.same == tuple(query[i] == formula[j] for i, j in tiling.places)
    runs = [0]
    for at, (i, j) in enumerate(tiling.places):
        runs.append(runs[-1] + 1 if at and tiling.places[at - 1] == (i - 1, j - 1) else 1)
    if _longest(query, formula) >= MIN_RENAMING_TILE:
        assert max(runs) >= _longest(query, formula)


def test_tiling_prefers_equal_names_then_earlier_runs():
    assert _tiled("x+y", "a+bx+y").places == ((0, 3), (1, 4), (2, 5))
    assert _tiled("x+y", "a+bc+d").places == ((0, 0), (1, 1), (2, 2))


def test_tiling_cuts_runs_that_contradict_the_renaming():
    assert _tiled("x+y+x=z", "a+b+c=d").places == tuple((i, i) for i in range(1, 7))  # the first x cannot be a: it is c


def test_tiling_pairs_equal_tokens_between_tiles():
    places = dict(_tiled("x+y1=2z-x", "x+y3=4z-x").places)
    assert places[4] == 4  # the sign, alone between the sides
    assert 3 not in places


def test_short_tile_does_not_rename_letters():
    assert _tiled("x=1", "z+y=2").places == ()
    assert _tiled("x=1", "z+x=2").places == ((0, 2), (1, 3))
    assert dict(_tiled("x+1=2x-y", "z+1=3x+2z+z").places)[5] == 8  # 2x is 2z, as x+1= is z+1=


def test_alignment_lists_each_letter_once():
    tiling = _tiled("x+x=y", "a+a=y")
    assert tiling.letters == ((1, 1), (5, 5))
    assert tiling.same == (False, True, False, True, True)


@pytest.mark.parametrize(
    ("query", "formula", "places"), [("x", "x", ((0, 0),)), ("x", "y", ()), ("=", "x+y=z", ((0, 3),))]
)
def test_single_token_is_aligned_with_itself(query, formula, places):
    assert _tiled(query, formula).places == places


def test_tiling_of_repeated_symbols_is_bounded():
    tokens = _tokens("x" * 400, "+x" * 200)
    for query, at in ((0, 0), (0, 1), (1, 0), (1, 1)):
        tiling = align_tokens(tokens.select(np.array([query])), tokens, at)
        assert (len(tiling.places) == 192) == (query == at)
