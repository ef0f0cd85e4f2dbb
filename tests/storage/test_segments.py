"""Segment files: compacted by one rule, checked by their hashes, opened as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from eqkin.errors import CorruptData
from eqkin.storage.segments import (
    HASH_CACHE_NAME,
    SegmentEntry,
    SegmentSet,
    cache_hashes,
    has_hash,
    is_cache_damaged,
    open_arrays,
    write_arrays,
)


def _write(folder: Path, numbers: Sequence[int]) -> SegmentEntry:
    return SegmentEntry(*write_arrays(folder, "numbers", {"numbers": np.array(numbers, np.int64)}), len(numbers))


def _read(folder: Path, entry: SegmentEntry) -> list[int]:
    (numbers,) = open_arrays(folder, entry, {"numbers": ("I64", [entry.count])}, "mend it")
    return [int(number) for number in numbers]


@dataclass
class NumberCodec:
    """Segments of at most six numbers; negative ones are dead."""

    folder: Path

    def fits(self, run: Sequence[SegmentEntry]) -> bool:
        return sum(entry.count for entry in run) <= 6

    def merge(self, run: Sequence[SegmentEntry], drop_dead: bool) -> SegmentEntry | None:
        numbers = [number for entry in run for number in _read(self.folder, entry)]
        numbers = [number for number in numbers if number >= 0 or not drop_dead]
        return _write(self.folder, numbers) if numbers else None


@pytest.fixture
def segments(tmp_path: Path) -> SegmentSet[SegmentEntry]:
    """Four segments, the last with dead numbers only."""
    content = [[1, -2], [3, 4, 5], [6, 7], [-8, -9, -10, -11, -12]]
    return SegmentSet(tmp_path, [_write(tmp_path, numbers) for numbers in content], "mend it")


def _contents(segments: SegmentSet[SegmentEntry], entries: Sequence[SegmentEntry]) -> list[list[int]]:
    return [_read(segments.folder, entry) for entry in entries]


def test_few_segments_are_left_as_they_are(segments: SegmentSet[SegmentEntry]) -> None:
    assert segments.compact(NumberCodec(segments.folder), drop_dead=False, max_segments=4) == segments.entries


def test_too_many_segments_are_merged_with_their_neighbours(segments: SegmentSet[SegmentEntry]) -> None:
    compacted = segments.compact(NumberCodec(segments.folder), drop_dead=False, max_segments=3)
    assert _contents(segments, compacted) == [[1, -2, 3, 4, 5], [6, 7], [-8, -9, -10, -11, -12]]
    assert compacted[1:] == segments.entries[2:]


def test_dead_content_is_dropped_with_the_segments_that_have_nothing_else(segments: SegmentSet[SegmentEntry]) -> None:
    compacted = segments.compact(NumberCodec(segments.folder), drop_dead=True)
    assert _contents(segments, compacted) == [[1, 3, 4, 5], [6, 7]]


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damaged_segment_is_reported_and_never_merged(segments: SegmentSet[SegmentEntry], damage: str) -> None:
    path = segments.folder / segments.entries[1].file
    content = path.read_bytes()
    path.unlink()
    if damage == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert segments.find_problems() == [f"{path}: missing, or does not match its hash; mend it"]
    assert segments.select_intact() == (segments.entries[0], *segments.entries[2:])
    with pytest.raises(CorruptData, match="does not match its hash; mend it"):
        segments.compact(NumberCodec(segments.folder), drop_dead=True)


def test_open_arrays_refuses_other_dtypes_shapes_and_sizes(tmp_path: Path) -> None:
    entry = _write(tmp_path, [1, 2, 3])
    assert _read(tmp_path, entry) == [1, 2, 3]
    for wanted in (
        {"numbers": ("I64", [4])},
        {"numbers": ("U32", [-1])},
        {"numbers": ("I64", [3, 1])},
        {"x": ("I64", [3])},
    ):
        with pytest.raises(CorruptData, match="damaged .*; mend it"):
            open_arrays(tmp_path, entry, wanted, "mend it")
    with pytest.raises(CorruptData, match="wrong size"):
        open_arrays(tmp_path, replace(entry, bytes=1), {"numbers": ("I64", [3])}, "mend it")
    with pytest.raises(CorruptData, match="cannot be read"):
        open_arrays(tmp_path, replace(entry, file="missing"), {"numbers": ("I64", [3])}, "mend it")


def test_cached_hash_is_used_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = _write(tmp_path, [1, 2, 3])
    path = tmp_path / entry.file
    cache_hashes(tmp_path, {entry.file: entry.sha256})
    with monkeypatch.context() as patch:
        patch.setattr("eqkin.storage.segments.hash_file", lambda path: "read again")
        assert has_hash(path, entry.sha256)
        assert not has_hash(path, entry.sha256, force=True)
    assert has_hash(path, entry.sha256)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not has_hash(path, entry.sha256)


def test_damaged_cache_is_reported_and_replaced(tmp_path: Path) -> None:
    entry = _write(tmp_path, [1])
    assert not is_cache_damaged(tmp_path)
    (tmp_path / HASH_CACHE_NAME).write_bytes(b"{}")
    assert is_cache_damaged(tmp_path)
    assert has_hash(tmp_path / entry.file, entry.sha256)
    cache_hashes(tmp_path, {entry.file: entry.sha256})
    assert not is_cache_damaged(tmp_path)
