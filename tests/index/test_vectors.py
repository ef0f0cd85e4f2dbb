"""`TreeRows`, rows of trees in several segments, in any order and with gaps; and buffers of the next segment."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import CorruptData
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.index.embedding import TreeTask
from eqkin.index.manifest import SETTINGS
from eqkin.index.term_segments import TermBuffer, extract_structure, open_segment
from eqkin.index.vectors import (
    TreeRows,
    VectorBuffer,
    VectorCodec,
    VectorSegment,
    normalise,
    open_vectors,
    write_vectors,
)

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
    assert table.trees.tolist() == numbers
    rows = np.arange(len(numbers))[::-1]
    assert table.find_rows(np.array(numbers[::-1], np.int64)).tolist() == rows.tolist()
    assert np.flatnonzero(table.find_known(np.arange(-1, 62))).tolist() == [number + 1 for number in sorted(numbers)]
    assert table.select_live(np.array(sorted(live), np.int64)).tolist() == sorted(live & set(numbers))


@pytest.mark.parametrize("parts", [[], [[]], [[], [3], []]])
def test_empty_segments_have_no_rows(parts: list[list[int]]) -> None:
    table = TreeRows([np.array(part, np.int64) for part in parts])
    assert table.find_known(np.arange(5)).tolist() == [number in table.trees for number in range(5)]
    assert table.find_rows(table.trees).tolist() == list(range(len(table)))


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
    written = open_vectors(tmp_path, vectors.write(tmp_path), 2)
    assert written.trees.tolist() in ([3, 4], [3, 4, 5, 6])
    np.testing.assert_allclose(written.decode(slice(None)), np.tile(np.eye(2), (len(written.trees) // 2, 1)), atol=1e-3)
    segment = open_segment(tmp_path, terms.write(tmp_path))
    owners = np.bincount(segment.lists.read_all()[0], minlength=len(segment.trees))
    assert segment.trees.tolist() == ([3, 4] if was_interrupted else [3, 4, 5, 6])
    assert owners.min() == owners.max() > 0


def _make_unit_vectors(count: int, dimensions: int) -> np.ndarray:
    generator = np.random.default_rng(4)
    vectors = generator.normal(size=(count, dimensions)) + 2 * generator.normal(size=dimensions)
    return normalise(vectors.astype(np.float32))


@pytest.mark.parametrize(("count", "dimensions"), [(1, 3), (700, 64), (2_000, 128)])
def test_rounded_vectors_are_near_the_vectors(tmp_path: Path, count: int, dimensions: int) -> None:
    vectors, numbers = _make_unit_vectors(count, dimensions), np.arange(count) * 3 + 2**40
    segment = open_vectors(tmp_path, write_vectors(tmp_path, VectorSegment.encode(numbers, vectors)), dimensions)
    assert segment.trees.tolist() == numbers.tolist()
    queries, rows = _make_unit_vectors(3, dimensions), np.arange(count)[::-7]
    assert np.abs(segment.decode(slice(None)) - vectors).max() < 0.003
    np.testing.assert_allclose(segment.compute_cosines(queries), queries @ vectors.T, atol=0.006)
    np.testing.assert_allclose(segment.compute_cosines(queries, rows), queries @ segment.decode(rows).T, atol=1e-5)


@pytest.mark.parametrize("array", ["scale", "centres"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_segment_with_numbers_that_are_not_finite_is_refused(tmp_path: Path, array: str, value: float) -> None:
    segment = VectorSegment.encode(np.arange(5), _make_unit_vectors(5, 8))
    getattr(segment, array)[0] = value
    with pytest.raises(CorruptData, match="NaN or infinite"):
        open_vectors(tmp_path, write_vectors(tmp_path, segment), 8)


def test_merging_does_not_round_vectors_again(tmp_path: Path) -> None:
    vectors = _make_unit_vectors(900, 16)
    parts = [VectorSegment.encode(np.arange(a, b), vectors[a:b]) for a, b in ((0, 600), (600, 610), (610, 900))]
    entries = [write_vectors(tmp_path, part) for part in parts]
    for live in (np.arange(900), np.arange(0, 900, 3)):
        merged = VectorCodec(tmp_path, 16, live).merge(entries, drop_dead=True)
        assert merged is not None
        segment = open_vectors(tmp_path, merged, 16)
        expected = np.concatenate([part.decode(slice(None)) for part in parts])[live]
        assert segment.trees.tolist() == live.tolist()
        assert np.array_equal(segment.decode(slice(None)), expected)


def test_vectors_that_share_a_direction_lose_little_recall() -> None:
    vectors = _make_unit_vectors(3_000, 64)
    queries = vectors[:200]
    exact = np.sort(queries @ vectors.T, axis=1)[:, -10:-9]
    rounded = VectorSegment.encode(np.arange(3_000), vectors).compute_cosines(queries)
    found = np.argpartition(-rounded, 9, axis=1)[:, :10]
    assert (np.take_along_axis(queries @ vectors.T, found, axis=1) >= exact).mean() > 0.98
