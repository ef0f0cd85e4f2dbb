"""Rows of different lengths as tables of one width, so that a batch is put together by indexing alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


def heaviest(offsets: Integers, weight: Floats, width: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """The entries with the largest weights of each row, the largest first; of equal ones those that come first.

    Args:
        offsets: (rows + 1,) where each row's entries begin.
        weight: Of all entries, row after row.
        width: How many of a row to take.

    Returns:
        (rows, width) numbers of entries, and whether there is one; where there is none, the number is that of the row's
        largest entry again, 0 in an empty row.
    """
    rows, counts = len(offsets) - 1, np.diff(offsets)
    row = np.repeat(np.arange(rows), counts)
    order = np.lexsort((-weight, row))
    rank = np.arange(len(weight)) - offsets[:-1][row]
    taken = rank < width
    table = np.zeros((rows, width), np.int64)
    if len(weight):
        table[:] = np.where(counts > 0, order[np.minimum(offsets[:-1], len(weight) - 1)], 0)[:, None]
    table[row[taken], rank[taken]] = order[taken]
    return table, np.arange(width) < counts[:, None]
