"""The compiled loop over the vectors of an index: numpy has no fast product of 8-bit numbers.

It is compiled when this module is imported for the first time, and loaded from numba's cache afterwards. Indices are
not checked by the machine: whoever calls it has checked that the arrays fit one another.
"""
# ruff: noqa: ANN001 (the types are those of the signature)

from __future__ import annotations

import numpy as np
from numba import types

from eqkin.compiler import njit

_CODES = types.Array(types.int8, 2, "C", readonly=True)
_FLOATS = types.Array(types.float32, 1, "C", readonly=True)


@njit(types.void(_CODES, _FLOATS, types.float32[::1]), nogil=True, cache=True, fastmath=True)
def multiply_codes(codes, query, products) -> None:
    """Write the product of a query with each row of 8-bit numbers."""
    for row in range(len(codes)):
        own = codes[row]
        total = np.float32(0)
        for place in range(len(query)):
            total += np.float32(own[place]) * query[place]
        products[row] = total
