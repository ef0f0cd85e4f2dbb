"""Compiled loops of the networks on a CPU: everything between the matrix products, in a few passes over memory.

They work on some whole trees, whose nodes are rows in the order of a forest: breadth-first, so that siblings are
adjacent and the children of all nodes follow one another. One number per node describes the shape of a tree. Indices
are not checked: the caller validates the forest. The loops are compiled when this module is imported for the first
time and loaded from numba's cache afterwards; they run without the interpreter's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from eqkin.compiler import njit

# Rows of coefficients.
PARENT, CHILDREN, LEFT, RIGHT = range(4)
_BYTES: Any = types.uint8[::1]
_INTEGERS: Any = types.int64[::1]
_VECTOR: Any = types.float32[::1]
_MATRIX: Any = types.float32[:, ::1]
_NOTHING: Any = types.void
# a * b + c may be one instruction.
_OPTIONS: Any = {"cache": True, "nogil": True, "fastmath": {"contract"}}


@njit(_NOTHING(_MATRIX, _BYTES, _INTEGERS, _MATRIX), **_OPTIONS)
def embed_strings(weight, slots, ends, strings):
    """Write the sum of the rows of `weight` that are the features of each string."""
    at, width = 0, weight.shape[1]
    for i in range(len(ends)):
        for column in range(width):
            strings[i, column] = 0
        while at < ends[i]:
            for column in range(width):
                strings[i, column] += weight[slots[at], column]
            at += 1


@njit(_NOTHING(_MATRIX, *[_INTEGERS] * 3, _MATRIX, _INTEGERS, _INTEGERS, types.float32, _MATRIX), **_OPTIONS)
def embed_nodes(strings, tag, attribute, text, positions, n_children, offsets, lowest, nodes):
    """Write the first layer: three rows of `strings` and the position among siblings, at least `lowest`."""
    for tree in range(len(offsets) - 1):
        # The root has no siblings.
        parent, first, stop = offsets[tree] - 1, offsets[tree], offsets[tree] + 1
        for i in range(offsets[tree], offsets[tree + 1]):
            while i == stop:
                parent += 1
                first, stop = stop, stop + n_children[parent]
            a, b, c, position = tag[i], attribute[i], text[i], i - first
            for column in range(strings.shape[1]):
                total = strings[a, column] + strings[b, column] + strings[c, column] + positions[position, column]
                nodes[i, column] = max(total, lowest)


@njit(_NOTHING(_MATRIX, _MATRIX, _INTEGERS, _INTEGERS, types.boolean, _MATRIX), **_OPTIONS)
def mix_neighbours(nodes, coefficients, n_children, offsets, is_mix, mixed):
    """Write the sum of each node and its neighbours times their coefficients. The last row of `nodes` is 0."""
    width, missing = coefficients.shape[1], len(nodes) - 1
    for tree in range(len(offsets) - 1):
        parent, first, stop, child = missing, offsets[tree], offsets[tree] + 1, offsets[tree] + 1
        for i in range(offsets[tree], offsets[tree + 1]):
            while i == stop:
                parent = parent + 1 if parent != missing else offsets[tree]
                first, stop = stop, stop + n_children[parent]
            left = i - 1 if i > first else missing
            right = i + 1 if i + 1 < stop else missing
            for column in range(width):
                mixed[i, column] = (
                    nodes[i, column]
                    + coefficients[PARENT, column] * nodes[parent, column]
                    + coefficients[LEFT, column] * nodes[left, column]
                    + coefficients[RIGHT, column] * nodes[right, column]
                )
            share = np.float32(1 / max(n_children[i], 1) if is_mix else 1)
            for _ in range(n_children[i]):
                for column in range(width):
                    mixed[i, column] += share * (coefficients[CHILDREN, column] * nodes[child, column])
                child += 1


@njit(_NOTHING(_MATRIX, _VECTOR, _INTEGERS, _INTEGERS, types.boolean, _MATRIX), **_OPTIONS)
def rectify(products, bias, n_children, offsets, is_mix, nodes):
    """Add relu(product + bias) to each node ("mix"), or replace the node by it, the bias once per neighbour ("sum")."""
    kept = np.float32(is_mix)
    for tree in range(len(offsets) - 1):
        for i in range(offsets[tree], offsets[tree + 1]):
            terms = np.float32(1 if is_mix else 1 + n_children[i] + (i > offsets[tree]))
            for column in range(len(bias)):
                value = products[i, column] + terms * bias[column]
                nodes[i, column] = kept * nodes[i, column] + max(value, np.float32(0))


@njit(_NOTHING(_MATRIX, _INTEGERS, _MATRIX), **_OPTIONS)
def pool_trees(nodes, offsets, pooled):
    """Write the mean and the mean square over the nodes of each tree, (trees, 2 * width)."""
    width = nodes.shape[1]
    for tree in range(len(offsets) - 1):
        for column in range(2 * width):
            pooled[tree, column] = 0
        for i in range(offsets[tree], offsets[tree + 1]):
            for column in range(width):
                pooled[tree, column] += nodes[i, column]
            for column in range(width):
                pooled[tree, width + column] += nodes[i, column] * nodes[i, column]
        share = np.float32(1 / (offsets[tree + 1] - offsets[tree]))
        for column in range(2 * width):
            pooled[tree, column] *= share
