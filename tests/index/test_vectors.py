"""`TreeRows`: rows of trees in several segments, in any order and with gaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.index.vectors import TreeRows

trees = st.lists(st.integers(0, 60), unique=True, max_size=30)


def _parts(numbers: list[int], cuts: list[int]) -> list[np.ndarray]:
    return [np.array(part, np.int64) for part in np.split(np.array(numbers, np.int64), sorted(cuts))]


@given(trees, st.lists(st.integers(0, 30), max_size=4), st.sets(st.integers(0, 60)), st.booleans())
def test_rows_of_trees_are_inverse_to_trees_of_rows(
    numbers: list[int], cuts: list[int], live: set[int], in_order: bool
) -> None:
    numbers = sorted(numbers) if in_order else numbers
    table = TreeRows(_parts(numbers, [min(cut, len(numbers)) for cut in cuts]))
    assert len(table) == len(numbers)
    assert table.concatenate().tolist() == numbers
    assert table.ascending == (numbers == sorted(numbers))
    rows = np.arange(len(numbers))[::-1]
    assert table.get_trees(rows).tolist() == numbers[::-1]
    assert table.find_rows(np.array(numbers[::-1], np.int64)).tolist() == rows.tolist()
    assert np.flatnonzero(table.find_known(np.arange(-1, 62))).tolist() == [number + 1 for number in sorted(numbers)]
    found, dead = table.select_live(np.array(sorted(live), np.int64))
    assert found.tolist() == sorted(live & set(numbers))
    assert dead.tolist() == [row for row, number in enumerate(numbers) if number not in live]


@pytest.mark.parametrize("parts", [[], [[]], [[], [3], []]])
def test_empty_segments_have_no_rows(parts: list[list[int]]) -> None:
    table = TreeRows([np.array(part, np.int64) for part in parts])
    assert table.ascending
    assert table.find_known(np.arange(5)).tolist() == [number in table.concatenate() for number in range(5)]
    assert table.find_rows(table.concatenate()).tolist() == list(range(len(table)))
