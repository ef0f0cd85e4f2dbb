"""Compiled loops over the vectors of an index: what a search reads of thousands of equations.

They are compiled when this module is imported for the first time, and loaded from numba's cache afterwards. They run
without the interpreter's lock. Indices are not checked by the machine: whoever calls them has checked that arrays fit
one another. Innermost loops have unsigned indices: a signed one might be negative and mean to count from the end, which
takes twice as long.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (the types are those of the signatures)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from eqkin.compiler import njit
from eqkin.storage.bits import count_bits

_SAMPLE_STRIDE = 37  # one distance of this many is sampled to guess which are among the lowest
_MAX_COUNTED = 100_000  # distances; of more, a sample is counted
_FAR = np.uint16(0xFFFF)  # a distance that no code has


def _stored(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


_I = types.int64
_I64, _F32, _BOOL = map(_stored, (_I, types.float32, types.boolean))
_F32_2, _F32M2 = _stored(types.float32, 2), types.float32[:, ::1]


@njit(_I(_stored(types.uint16), _I, _I, _I), nogil=True, cache=True)
def _find_quantile(distance, stride, place, most):
    """Return which distance has a place, from 0 on, among one of `stride`; the largest possible if it is none."""
    counts = np.zeros(most + 1, np.int64)
    for row in range(0, len(distance), stride):
        if distance[row] <= most:
            counts[distance[row]] += 1
    limit, below = 0, counts[0]
    while below <= place and limit < most:
        limit += 1
        below += counts[limit]
    return limit


@njit(_I(_stored(types.uint16), _I, _I[::1]), nogil=True, cache=True)
def _list_near(distance, limit, rows):
    """Write the rows up to a distance; return how many there are."""
    n = np.uint64(0)
    for row in range(len(distance)):
        if distance[row] <= limit:
            rows[n] = row
            n += np.uint64(1)
    return np.int64(n)


@njit(
    _I(_stored(types.uint64, 2), _stored(types.uint64), _I, _BOOL, types.uint16[::1], _I[::1]), nogil=True, cache=True
)
def find_near_codes(codes, query, count, usable, distance, rows):
    """Find about `count` rows of binary codes that differ from a query's in the fewest bits.

    Args:
        codes: (words, rows) of 64 bits.
        query: (words,) that of the query.
        count: How many.
        usable: Which rows may be found; if it is empty, all.
        distance: 0 for each row.
        rows: Room for all rows; those found are written here, ascending.

    Returns:
        How many are found.
    """
    n_rows, most = codes.shape[1], 64 * len(query)
    for word in range(len(query)):
        asked = query[word]
        for row in range(n_rows):
            distance[row] += np.uint16(count_bits(codes[word, row] ^ asked))
    for row in range(len(usable)):
        if not usable[row]:
            distance[row] = _FAR
    stride = _SAMPLE_STRIDE if n_rows > _MAX_COUNTED else 1
    limit = _find_quantile(distance, stride, count * ((n_rows + stride - 1) // stride) // max(n_rows, 1), most)
    n = _list_near(distance, limit, rows)
    if n < count // 2 and count <= n_rows:  # the guess was too low
        n = _list_near(distance, _find_quantile(distance, 1, count - 1, most), rows)
    return n


@njit(
    types.void(_stored(types.int8, 2), _I64, _F32_2, _F32, _stored(types.uint16), _F32_2, _F32M2),
    nogil=True,
    cache=True,
    fastmath=True,
)
def multiply_codes(codes, rows, queries, scale, cells, centred, products):
    """Write the products of queries with the vectors of some rows: (queries, rows).

    Args:
        codes: Of all vectors.
        rows: The rows.
        queries: The queries.
        scale: The scale of each of the rows.
        cells: The centre of every vector.
        centred: (queries, centres) products of queries and centres.
        products: What is written.
    """
    for query in range(len(queries)):
        asked, near, result = queries[query], centred[query], products[query]
        for at in range(len(rows)):
            own, total = codes[rows[at]], np.float32(0)
            for place in range(len(asked)):
                total += np.float32(own[place]) * asked[place]
            result[at] = total * scale[at] + near[cells[rows[at]]]


@njit(
    types.void(_stored(types.int8, 2), _I64, _F32, _stored(types.uint16), _F32_2, _F32M2),
    nogil=True,
    cache=True,
)
def decode_vectors(codes, rows, scale, cell, centres, vectors):
    """Write the vectors of some rows, given the scale and the centre of each."""
    for at in range(len(rows)):
        own, centre, factor, vector = codes[rows[at]], centres[cell[at]], scale[at], vectors[at]
        for place in range(codes.shape[1]):
            vector[place] = np.float32(own[place]) * factor + centre[place]
