"""`TreeRows`, rows of trees in several segments, in any order and with gaps; and buffers of the next segment."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.index.embedding import TreeTask
from eqkin.index.manifest import SETTINGS
from eqkin.index.terms import TermBuffer, extract_structure, open_segment
from eqkin.index.vectors import TreeRows, VectorBuffer, open_vectors
from eqkin.trees.mathml import parse_mathml, to_forest

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


def _interrupt(call: Callable[[], None], name: str, line: int) -> bool:
    """Call a function that is interrupted before the given line of the function `name`; return whether it was."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines
        if frame.f_code.co_name != name:
            return None
        lines += event == "line"
        if lines == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("line", range(1, 9))
def test_interrupted_buffers_write_the_trees_that_were_added_completely(tmp_path: Path, line: int) -> None:
    trees = np.array([3, 4])
    forest = to_forest(parse_mathml("<math><mi>x</mi><mo>=</mo><mi>y</mi></math>")).select(np.array([0, 0]))
    _, structure = extract_structure(TreeTask(trees, forest))
    vectors, terms = VectorBuffer(SETTINGS), TermBuffer(SETTINGS)
    vectors.add(trees, np.eye(2, dtype=np.float32))
    terms.add(trees, structure)
    _interrupt(lambda: vectors.add(trees + 2, np.eye(2, dtype=np.float32)), "add", line)
    was_interrupted = _interrupt(lambda: terms.add(trees + 2, structure), "add", line)
    numbers, rows = open_vectors(tmp_path, vectors.write(tmp_path), 2)
    assert numbers.tolist() in ([3, 4], [3, 4, 5, 6])
    assert rows.tolist() == np.tile(np.eye(2), (len(numbers) // 2, 1)).tolist()
    segment = open_segment(tmp_path, terms.write(tmp_path))
    owners = np.bincount(segment.read_postings()[0], minlength=len(segment.trees))
    assert segment.trees.tolist() == ([3, 4] if was_interrupted else [3, 4, 5, 6])
    assert owners.min() == owners.max() > 0
