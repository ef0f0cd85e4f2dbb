"""Loops over the nodes of trees, compiled by numba: where nodes are, and hashes of their terms.

The functions with a signature are called from Python. They are compiled when the module is first imported, and loaded
from numba's cache after that; so it is imported where it is needed. Compiled code does not check indices. Each function
checks what it is given, and says so if it is wrong.

Terms are described in `eqkin.formulas.terms`.
"""

from __future__ import annotations

import numpy as np
from numba import bool_, float32, int64, types, uint32, uint64

from eqkin.compiler import njit
from eqkin.formulas.hashing import FAMILY_BITS, GOLDEN, MULTIPLIERS, LabelKinds

# The numbers of families in `terms.TERM_FAMILIES`.
_PATH, _TREE = 0, 1
# The longest path of a leaf ends with this ancestor.
_MAX_PATH = 4
# Operands after this position share a slot.
_MAX_POSITION = 3
# Terms of a query are looked up by their leading bits.
_CODE_BUCKETS, _BUCKET_SHIFT = 256, np.uint32(24)
# Columns of the table that `labels.describe_labels` returns.
_NAMED, _ANONYMOUS, _BITS = 1, 2, 3

_FAMILY_BITS = np.uint64(FAMILY_BITS)
_ZERO, _HALF = np.uint64(0), np.uint64(32)
_GOLDEN, _FIRST_FACTOR, _SECOND_FACTOR = np.uint64(GOLDEN), np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
_UNORDERED = np.uint64(LabelKinds.UNORDERED)
_VARIABLE, _APPLIED, _DETAIL = map(np.uint64, (LabelKinds.VARIABLE, LabelKinds.APPLIED, LabelKinds.DETAIL))
_WRAPPER = np.uint64(LabelKinds.WRAPPER)
_SIMPLE = np.uint64(LabelKinds.VARIABLE | LabelKinds.PLAIN | LabelKinds.INDEXED | LabelKinds.DETAIL)

_NUMBERS, _CODES, _HASHES, _FLOATS = (
    types.Array(dtype, 1, "C", readonly=True) for dtype in (int64, uint32, uint64, float32)
)
_TABLE = types.Array(uint64, 2, "C", readonly=True)


@njit(int64[::1](_NUMBERS, _NUMBERS, _NUMBERS, int64), cache=True, nogil=True)
def find_parents(label, depth, offsets, labels):
    """Return the parent of each node, a root is its own; an empty array if the nodes do not form trees.

    Args:
        label: Their labels, each one of so many `labels`.
        depth: Their depths.
        offsets: The first node of each tree, and the end of the last.
        labels: The number of labels.
    """
    parent = np.empty(len(depth), np.int64)
    # The last node of each depth.
    last = np.zeros(len(depth) + 1, np.int64)
    if len(label) != len(depth) or offsets[0] != 0 or offsets[-1] != len(depth):
        return parent[:0]
    for tree in range(len(offsets) - 1):
        if offsets[tree + 1] < offsets[tree]:
            return parent[:0]
        for node in range(offsets[tree], offsets[tree + 1]):
            level = depth[node]
            if node == offsets[tree]:
                is_right = level == 0
            else:
                is_right = 0 < level <= depth[node - 1] + 1
            if not is_right or not 0 <= label[node] < labels:
                return parent[:0]
            parent[node] = last[level - 1] if level else node
            last[level] = node
    return parent


@njit(types.UniTuple(int64[::1], 3)(_NUMBERS, _NUMBERS, _TABLE), cache=True, nogil=True)
def find_outlines(label, parent, table):
    """Return the nodes that outlines have, the nodes whose labels they show, and their parents, by number in the first.

    Args:
        label: Labels of operator trees, all of them rows of `table`.
        parent: What `find_parents` returned.
        table: What is known of labels (`labels.describe_labels`).
    """
    size = len(parent)
    n_children, above, number = np.zeros(size, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64)
    is_plain, is_applied = np.ones(size, np.bool_), np.zeros(size, np.bool_)
    is_dropped, is_spliced = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    nodes, shown, parents = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    for node in range(size):
        if parent[node] != node:
            n_children[parent[node]] += 1
            if table[label[node], _BITS] & _SIMPLE == _ZERO:
                is_plain[parent[node]] = False
    count = 0
    for node in range(size):
        up, bits, operands = parent[node], table[label[node], _BITS], n_children[node]
        # The first operand follows its operator. An application to plain operands shows only what is applied.
        if operands > 0 and is_plain[node] and bits & _APPLIED != _ZERO:
            is_applied[node] = table[label[node + 1], _BITS] & _VARIABLE != _ZERO
        is_dropped[node] = bits & _DETAIL != _ZERO
        above[node] = up
        if up != node:
            # What is below a dropped node is dropped, too.
            is_dropped[node] = is_dropped[node] or is_dropped[up] or is_applied[up]
            if is_spliced[up] and parent[up] != up:
                above[node] = above[up]
        is_spliced[node] = bits & _WRAPPER != _ZERO and operands > 0 and (up != node or operands == 1)
        if not is_dropped[node] and not is_spliced[node]:
            nodes[count], shown[count], number[node] = node, node + is_applied[node], count
            # Below a spliced root, nodes are roots.
            parents[count] = count if is_spliced[above[node]] else number[above[node]]
            count += 1
    return nodes[:count], shown[:count], parents[:count]


@njit()
def combine_pair(first, second):
    """Return the hash of an ordered pair, as `hashing.combine_hashes`."""
    x = first * _GOLDEN + second
    x = (x ^ (x >> _SHIFTS[0])) * _FIRST_FACTOR
    x = (x ^ (x >> _SHIFTS[1])) * _SECOND_FACTOR
    return x ^ (x >> _SHIFTS[2])


@njit()
def _make_key(tree, code, seeds, family):
    """Return tree, first bits of the hash, and family of a term in one number, to be sorted."""
    term = np.uint64(tree) << _HALF | combine_pair(seeds[family], code) >> _HALF
    return term << _FAMILY_BITS | np.uint64(family)


@njit(uint64[::1](_NUMBERS, _NUMBERS, _NUMBERS, _TABLE, _HASHES), cache=True, nogil=True)
def hash_terms(label, parent, tree, table, seeds):
    """Return the keys of all paths and trees of outlines.

    Args:
        label: Labels of operator trees, all of them rows of `table`.
        parent: What `find_parents` returned.
        tree: The number of each node's tree.
        table: What is known of labels (`labels.describe_labels`).
        seeds: Hashes of families.
    """
    nodes, shown, parent = find_outlines(label, parent, table)
    label, tree = label[shown], tree[nodes]
    size = len(parent)
    n_children, place, slot = np.zeros(size, np.int64), np.zeros(size, np.uint64), np.zeros(size, np.uint64)
    for node in range(size):
        above = parent[node]
        if above != node:
            if table[label[above], _BITS] & _UNORDERED == _ZERO:
                place[node] = np.uint64(min(n_children[above], _MAX_POSITION) + 1)
            slot[node] = combine_pair(table[label[above], _NAMED], place[node])
            n_children[above] += 1

    # Paths: from each leaf upwards, one term for each length.
    keys, count = np.empty((_MAX_PATH + 1) * size, np.uint64), 0
    for leaf in range(size):
        if n_children[leaf] > 0:
            continue
        node, code = leaf, table[label[leaf], _NAMED]
        keys[count] = _make_key(tree[leaf], code, seeds, _PATH)
        count += 1
        for _ in range(_MAX_PATH):
            if parent[node] == node:
                break
            code = combine_pair(code, slot[node])
            keys[count] = _make_key(tree[leaf], code, seeds, _PATH)
            count += 1
            node = parent[node]

    # Trees: operands follow their operator, so they are hashed before it.
    operands = np.zeros(size, np.uint64)
    for node in range(size - 1, -1, -1):
        code = table[label[node], _ANONYMOUS]
        if n_children[node] > 0:
            code = combine_pair(code, operands[node])
            keys[count] = _make_key(tree[node], code, seeds, _TREE)
            count += 1
        if parent[node] != node:
            operands[parent[node]] += combine_pair(place[node], code)
    return keys[:count].copy()


@njit(
    bool_(
        *(_NUMBERS, _NUMBERS, _NUMBERS, _TABLE, _HASHES),
        *(_CODES, _NUMBERS, _FLOATS, _FLOATS, float32[:, ::1]),
    ),
    cache=True,
    nogil=True,
)
def add_overlaps(label, depth, offsets, table, seeds, codes, families, weights, saturated, overlaps):
    """Add up the weights of a query's terms that operator trees have; return False if the nodes do not form trees.

    Args:
        label: Labels of operator trees.
        depth: Their depths.
        offsets: The first node of each tree, and the end of the last.
        table: What is known of labels (`labels.describe_labels`).
        seeds: Hashes of families.
        codes: Paths and trees of the query, ascending.
        families: The row of `overlaps` to which each belongs.
        weights: The weight of each for one occurrence.
        saturated: By what a weight is multiplied for each number of occurrences.
        overlaps: (families, trees) to which is added.
    """
    n_trees, n_terms = len(offsets) - 1, len(codes)
    parent = find_parents(label, depth, offsets, len(table))
    if len(parent) != len(label):
        return False
    tree, counts = np.empty(len(label), np.int64), np.zeros((n_trees, n_terms + 1), np.int32)
    for number in range(n_trees):
        tree[offsets[number] : offsets[number + 1]] = number
    # The first of the codes with each value of the leading bits.
    first, term = np.zeros(_CODE_BUCKETS + 1, np.int64), 0
    for bucket in range(_CODE_BUCKETS):
        while term < n_terms and codes[term] >> _BUCKET_SHIFT == bucket:
            term += 1
        first[bucket + 1] = term
    for key in hash_terms(label, parent, tree, table, seeds):
        code = np.uint32(key >> _FAMILY_BITS)
        leading = np.int64(code >> _BUCKET_SHIFT)
        for place in range(first[leading], first[leading + 1]):
            if codes[place] == code:
                counts[np.int64(key >> _HALF + _FAMILY_BITS), place] += 1
    for number in range(n_trees):
        for term in range(n_terms):
            if counts[number, term]:
                factor = saturated[min(counts[number, term], len(saturated) - 1)]
                overlaps[families[term], number] += factor * weights[term]
    return True
