"""Loops that compute the normal form of trees, compiled by numba. Compiled code does not check indices."""

from __future__ import annotations

import numpy as np
from numba import int64, types, uint64

from eqkin.compiler import njit
from eqkin.formulas.hashing import hash_string
from eqkin.formulas.kernels import combine_pair
from eqkin.learning.normal import TAG_BITS, TEXT_BITS

_ROW, _ORDERED, _SPACE, _TEXT, _IDENTIFIER, _SYMBOL = map(np.uint64, TAG_BITS)
_LETTER, _SILENT, _SIGN, _BLANK = map(np.uint64, TEXT_BITS)
_ZERO, _HASH = np.uint64(0), 1  # the second column of a table of strings
_ROW_HASH, _SIGN_HASH = np.uint64(hash_string("mrow")), np.uint64(hash_string("mo"))

_NUMBERS, _HASHES = (types.Array(dtype, 1, "C", readonly=True) for dtype in (int64, uint64))
_TABLE = types.Array(uint64, 2, "C", readonly=True)


@njit(types.UniTuple(int64[::1], 4)(_NUMBERS, _NUMBERS), cache=True, nogil=True)
def place_nodes(n_children, offsets):
    """Return parent and first child of the nodes of breadth-first trees, their ranks depth first, sizes of subtrees.

    A root is its own parent; ranks are counted from the root. Arrays are empty if the nodes do not form trees.

    Args:
        n_children: Number of children of each node.
        offsets: The first node of each tree, and the end of the last.
    """
    count = len(n_children)
    parent, first, rank, size = (
        np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, np.int64),
    )  # fmt: skip
    nothing = parent[:0]
    if offsets[0] != 0 or offsets[-1] != count:
        return nothing, nothing, nothing, nothing
    for tree in range(len(offsets) - 1):
        start, end = offsets[tree], offsets[tree + 1]
        following = start + 1
        if not start < end <= count:
            return nothing, nothing, nothing, nothing
        parent[start] = start
        for node in range(start, end):
            if n_children[node] < 0 or n_children[node] > end - following or following <= node:
                return nothing, nothing, nothing, nothing
            first[node] = following
            for child in range(following, following + n_children[node]):
                parent[child] = node
            following += n_children[node]
        if following != end:
            return nothing, nothing, nothing, nothing
        for node in range(end - 1, start, -1):
            size[parent[node]] += size[node]
        for node in range(start, end):
            at = rank[node] + 1
            for child in range(first[node], first[node] + n_children[node]):
                rank[child] = at
                at += size[child]
    return parent, first, rank, size


@njit()
def _are_valid(numbers, bound):
    """Return whether all numbers are below a bound."""
    for number in numbers:
        if not 0 <= number < bound:
            return False
    return True


@njit()
def _find_silent_nodes(tag, text, parent, tags, texts):
    """Return which nodes say nothing: blanks, and everything below them."""
    is_silent = np.zeros(len(tag), np.bool_)
    for node in range(len(tag)):
        kinds, said = tags[tag[node], 0], texts[text[node], 0]
        if kinds & _SPACE != _ZERO:
            is_silent[node] = True
        elif kinds & _TEXT != _ZERO and said & _BLANK != _ZERO:
            is_silent[node] = True
        elif kinds & _SYMBOL != _ZERO and said & _SILENT != _ZERO:
            is_silent[node] = True
        elif is_silent[parent[node]]:
            is_silent[node] = True
    return is_silent


@njit()
def _unite_rows(is_row, is_silent, parent):
    """Return for each node the outermost of the rows inside each other that end with it, and the size of these."""
    outermost, members = np.arange(len(parent)), np.zeros(len(parent), np.int64)
    for node in range(len(parent)):
        if not is_row[parent[node]]:
            continue
        if is_row[node]:
            outermost[node] = outermost[parent[node]]
        elif not is_silent[node]:
            members[outermost[parent[node]]] += 1
    return outermost, members


@njit()
def _list_depth_first(rank, offsets):
    """Return the nodes in depth-first order, tree after tree."""
    order = np.empty(len(rank), np.int64)
    for tree in range(len(offsets) - 1):
        for node in range(offsets[tree], offsets[tree + 1]):
            order[offsets[tree] + rank[node]] = node
    return order


@njit()
def _sum_before(flags):
    """Return how many flags are set before each, and how many there are."""
    before = np.zeros(len(flags) + 1, np.int64)
    for at in range(len(flags)):
        before[at + 1] = before[at] + flags[at]
    return before


@njit(
    types.Tuple((int64[:, ::1], uint64[:, ::1]))(*[_NUMBERS] * 5, _TABLE, _TABLE, _HASHES),
    cache=True,
    nogil=True,
)
def normalise_nodes(tag, text, variant, n_children, offsets, tags, texts, variants):
    """Return the normal form of trees, depth first; arrays without rows if they are damaged.

    Args:
        tag: Number of each node's tag in `tags`.
        text: Number of its text in `texts`.
        variant: Number of its variant in `variants`.
        n_children: Number of its children.
        offsets: The first node of each tree, and the end of the last.
        tags: (tags, 2) bits, hash.
        texts: (texts, 2) bits, hash.
        variants: Hashes; the first is that of the usual one.

    Returns:
        (5, nodes) tree, parent or -1, size of the subtree, number of children, whether it is a row (1) or tagged as a
        letter (2); and (3, nodes) hashes of label, slot and name.
    """
    count = len(tag)
    places, codes = np.zeros((5, count), np.int64), np.zeros((3, count), np.uint64)
    parent, first, rank, size = place_nodes(n_children, offsets)
    is_complete = _are_valid(tag, len(tags)) and _are_valid(text, len(texts)) and _are_valid(variant, len(variants))
    if len(parent) != count or not is_complete:
        return places[:0], codes[:0]

    is_row = np.zeros(count, np.bool_)
    for node in range(count):
        is_row[node] = tags[tag[node], 0] & _ROW != _ZERO
    is_silent = _find_silent_nodes(tag, text, parent, tags, texts)
    outermost, members = _unite_rows(is_row, is_silent, parent)

    # An outermost row with one member leaves its place to that member.
    stays, has_place = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    for node in range(count):
        if is_silent[node]:
            continue
        if not is_row[node]:
            stays[node] = has_place[node] = True
        elif outermost[node] == node:
            stays[node] = members[node] > 1
            has_place[node] = members[node] > 0
    taken = _sum_before(has_place)

    order = _list_depth_first(rank, offsets)
    before = _sum_before(stays[order])
    n = 0
    for tree in range(len(offsets) - 1):
        for place in range(offsets[tree], offsets[tree + 1]):
            node = order[place]
            if not stays[node]:
                continue
            places[0, n], places[1, n], places[2, n] = tree, -1, before[place + size[node]] - before[place]

            # Where the node is: below the outermost row, or instead of a row of which it is the only member.
            instead = node
            if not is_row[node] and is_row[parent[node]] and members[outermost[parent[node]]] == 1:
                instead = outermost[parent[node]]
            if instead != parent[instead]:
                above = outermost[parent[instead]]
                kinds, position = tags[tag[above], 0], np.uint64(0)
                if kinds & _ORDERED != _ZERO:
                    position = np.uint64(taken[instead] - taken[first[above]] + 1)
                codes[1, n] = combine_pair(_ROW_HASH if is_row[above] else tags[tag[above], _HASH], position)
                places[1, n] = before[offsets[tree] + rank[above]]
                places[3, places[1, n]] += 1

            # What it says: a symbol that is no letter is a sign, whatever its tag.
            kinds, said = tags[tag[node], 0], texts[text[node], 0]
            name = combine_pair(texts[text[node], _HASH], variants[0 if said & _BLANK != _ZERO else variant[node]])
            codes[2, n] = name
            if is_row[node]:
                codes[0, n] = _ROW_HASH
                places[4, n] = 1
            elif kinds & _IDENTIFIER != _ZERO and said & _SIGN != _ZERO:
                codes[0, n] = combine_pair(_SIGN_HASH, name)
            else:
                codes[0, n] = combine_pair(tags[tag[node], _HASH], name)
            if kinds & _IDENTIFIER != _ZERO and said & _LETTER != _ZERO:
                places[4, n] |= 2
            n += 1
    return places[:, :n].copy(), codes[:, :n].copy()
