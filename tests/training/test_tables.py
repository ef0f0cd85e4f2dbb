"""Ragged rows as tables: against the same done row by row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqkin.training.losses import select_heaviest

WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@given(st.lists(st.lists(WEIGHTS, max_size=8), max_size=6), st.integers(1, 5))
def test_each_row_keeps_its_heaviest_entries_in_order(rows, width):
    offsets = np.cumsum([0, *map(len, rows)])
    weight = np.array([value for row in rows for value in row], np.float32)
    table, real = select_heaviest(offsets, weight, width)
    assert table.shape == real.shape == (len(rows), width)
    for row, start, numbers, there in zip(rows, offsets, table.tolist(), real.tolist(), strict=False):
        best = sorted(sorted(range(len(row)), key=lambda i: (-row[i], i))[:width])
        expected = [start + i for i in best]
        assert numbers == expected + [expected[0] if expected else 0] * (width - len(best))
        assert there == [True] * len(best) + [False] * (width - len(best))
