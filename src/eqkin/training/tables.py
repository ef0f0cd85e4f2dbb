"""Rows of different lengths as tables of one width, so that a batch is put together by indexing alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def select_heaviest(offsets: Integers, weight: Floats, width: int) -> tuple[Integers, Mask]:
    """The entries of each row, in their order; of a row with too many, those with the largest weights.

    Args:
        offsets: (rows + 1,) where each row's entries begin.
        weight: Of all entries, row after row; of equal ones the first count as larger.
        width: How many of a row to take.

    Returns:
        (rows, width) numbers of entries, and whether there is one; where there is none, the number is that of the row's
        first entry taken, 0 in an empty row.
    """
    counts = np.minimum(np.diff(offsets), width)
    taken = np.flatnonzero(_mark_heaviest(offsets, weight, width))
    starts = np.cumsum(counts) - counts
    row = np.repeat(np.arange(len(counts)), counts)
    table = np.zeros((len(counts), width), np.int64)
    table[counts > 0] = taken[starts[counts > 0], None]
    table[row, np.arange(len(taken)) - starts[row]] = taken
    return table, np.arange(width) < counts[:, None]


def _mark_heaviest(offsets: Integers, weight: Floats, width: int) -> Mask:
    """Which entries are among the heaviest of their row."""
    counts = np.diff(offsets)
    row = np.repeat(np.arange(len(counts)), counts)
    kept = np.ones(len(weight), bool)
    entries = np.flatnonzero((counts > width)[row])
    order = entries[np.lexsort((-weight[entries], row[entries]))]
    rank = entries - offsets[row[entries]]  # rows stay where they are
    kept[order[rank >= width]] = False
    return kept
