"""Segments of vectors: tree numbers and unit vectors, mapped into memory.

Vectors are stored with 16 bits per number: components of unit vectors lose less than 0.0005 of their value, and nearest
neighbours stay the same except for near-ties (`docs/LOG.md` has the figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.index.manifest import REBUILD_HINT, SETTINGS, IndexSettings
from eqkin.storage.segments import Array, SegmentEntry, open_arrays, write_arrays

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Integers = npt.NDArray[np.int64]

_BLOCK_VECTORS = 65_536  # read at a time
_MAX_SORTED = 10_000  # wanted trees; more are looked up in a table instead of sorted


def normalise(vectors: Floats) -> Floats:
    """Return vectors of length one; a vector without direction (zero or not finite) becomes zero."""
    vectors = np.asarray(vectors, np.float32)
    with np.errstate(all="ignore"):
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
        usable = np.isfinite(largest) & (largest > 0)
        scaled = np.where(usable, vectors / np.where(usable, largest, 1), 0)  # no overflow in the squares
        lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        result: Floats = (scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return result


def find_positions(trees: Integers, wanted: Integers) -> Integers:
    """Return the positions of wanted trees among `trees`, which are ascending; unknown trees are left out."""
    wanted = np.asarray(wanted, np.int64).ravel()
    if not len(trees):
        return np.zeros(0, np.int64)
    last = int(trees[-1])
    if len(wanted) > _MAX_SORTED:
        flags = np.zeros(last + 1, bool)
        flags[wanted[(wanted >= 0) & (wanted <= last)]] = True
        return np.flatnonzero(flags[trees])
    wanted = np.unique(wanted[wanted <= last])
    at = np.searchsorted(trees, wanted)
    found: Integers = at[trees[at] == wanted]
    return found


def find_members(trees: Integers, known: Integers) -> npt.NDArray[np.bool_]:
    """Return which trees are among `known`, which are ascending."""
    if not len(known):
        return np.zeros(len(trees), bool)
    at = np.minimum(np.searchsorted(known, trees), len(known) - 1)
    return np.asarray(known[at] == trees)


def has_repeats(trees: Integers) -> bool:
    """Return whether a number occurs twice; sorting is far faster than the hashing of `np.unique`."""
    ordered = np.sort(trees)
    return bool((ordered[1:] == ordered[:-1]).any())


class TreeRows:
    """The tree of each row of several segments, one after the other, and the row of each tree.

    Trees are usually ascending throughout, since a later segment has higher numbers; then no memory is needed beyond
    the mapped files. Where a damaged segment was written again they are not, and a sorted table is kept.
    """

    def __init__(self, parts: Sequence[Integers]) -> None:
        self.parts = list(parts)
        self.starts: Integers = np.cumsum([0, *map(len, self.parts)])
        filled = [number for number, part in enumerate(self.parts) if len(part)]
        self._filled = np.array(filled, np.int64)
        self._first = np.array([self.parts[number][0] for number in filled], np.int64)
        last = np.array([self.parts[number][-1] for number in filled], np.int64)
        rising = all(bool((part[1:] > part[:-1]).all()) for part in self.parts)
        self.ascending = rising and bool((self._first[1:] > last[:-1]).all())
        self._table: tuple[Integers, Integers] | None = None
        if not self.ascending:
            order = np.argsort(self.concatenate(), kind="stable")
            self._table = self.concatenate()[order], order

    def __len__(self) -> int:
        return int(self.starts[-1])

    def concatenate(self) -> Integers:
        """Return the trees of all rows."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate([np.zeros(0, np.int64), *self.parts])

    def get_trees(self, rows: Integers) -> Integers:
        """Return the trees of some rows."""
        part = np.searchsorted(self.starts, rows, "right") - 1
        found = np.empty(len(rows), np.int64)
        for number in np.unique(part):
            here = part == number
            found[here] = self.parts[number][rows[here] - self.starts[number]]
        return found

    def find_rows(self, trees: Integers) -> Integers:
        """Return the rows of trees, all of which must be there."""
        if self._table is not None:
            known, order = self._table
            return order[np.searchsorted(known, trees)]
        owner = np.searchsorted(self._first, trees, "right") - 1
        found = np.empty(len(trees), np.int64)
        for number in np.unique(owner):
            here, part = owner == number, self._filled[number]
            found[here] = np.searchsorted(self.parts[part], trees[here]) + self.starts[part]
        return found

    def find_known(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Return which trees are there."""
        if self._table is not None:
            return find_members(trees, self._table[0])
        owner = np.searchsorted(self._first, trees, "right") - 1
        found = np.zeros(len(trees), bool)
        for number in np.unique(owner[owner >= 0]):
            here = owner == number
            found[here] = find_members(trees[here], self.parts[self._filled[number]])
        return found

    def select_live(self, live: Integers) -> tuple[Integers, Integers]:
        """Return the trees that are in `live`, ascending, and the rows of all others.

        The first are `live` itself if they are equal: then all parts of an index share one array.
        """
        trees = self.concatenate()
        if np.array_equal(trees, live):
            return live, np.zeros(0, np.int64)
        used = np.isin(trees, live)
        dead = np.flatnonzero(~used)
        found = trees[used] if self.ascending else np.unique(trees[used])
        return live if len(found) == len(live) else found, dead


def write_vectors(folder: Path, trees: Integers, vectors: Floats | Halves) -> SegmentEntry:
    """Write one segment."""
    arrays: dict[str, Array] = {"trees": np.asarray(trees, np.int64), "vectors": np.asarray(vectors, np.float16)}
    return SegmentEntry(*write_arrays(folder, "vectors", arrays), len(trees))


def open_vectors(folder: Path, entry: SegmentEntry, dimensions: int) -> tuple[Integers, Halves]:
    """Return tree numbers and vectors of a segment as views of the mapped file; raises `CorruptData`."""
    wanted = {"trees": ("I64", [entry.count]), "vectors": ("F16", [entry.count, dimensions])}
    trees, vectors = open_arrays(folder, entry, wanted, REBUILD_HINT)
    return trees, vectors


class VectorFiles:
    """Several segments of vectors as one table: row i has the tree `trees[i]`."""

    def __init__(self, folder: Path, entries: Sequence[SegmentEntry], dimensions: int) -> None:
        opened = [open_vectors(folder, entry, dimensions) for entry in entries]
        self.dimensions = dimensions
        self.rows = TreeRows([trees for trees, _ in opened])
        self._parts = [vectors for _, vectors in opened]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def trees(self) -> Integers:
        """The trees of all rows; a new array for each call if there are several segments."""
        return self.rows.concatenate()

    def take(self, rows: Integers) -> Floats:
        """Return the vectors of some rows."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        part = np.searchsorted(self.rows.starts, rows, "right") - 1
        for number in np.unique(part):
            here = part == number
            vectors[here] = self._parts[number][rows[here] - self.rows.starts[number]]
        return vectors

    def iter_blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Integers, Floats]]:
        """Yield trees and vectors of the rows from `start` to `end`, some at a time."""
        last = len(self) if end is None else end
        for before, trees, part in zip(self.rows.starts.tolist(), self.rows.parts, self._parts, strict=False):
            for at in range(max(start - before, 0), min(last - before, len(part)), _BLOCK_VECTORS):
                until = min(at + _BLOCK_VECTORS, last - before)
                yield trees[at:until], part[at:until].astype(np.float32)


@dataclass
class VectorCodec:
    """Merges segments of vectors; the order of rows is kept, unless dead ones are dropped."""

    folder: Path
    dimensions: int
    live: Integers
    settings: IndexSettings = SETTINGS

    def fits(self, run: Sequence[SegmentEntry]) -> bool:
        """Return whether neighbouring segments may become one."""
        return sum(entry.count for entry in run) <= self.settings.max_segment_trees

    def merge(self, run: Sequence[SegmentEntry], drop_dead: bool) -> SegmentEntry | None:
        """Write one segment with the vectors of several, or with the live ones of them."""
        opened = [open_vectors(self.folder, entry, self.dimensions) for entry in run]
        trees, vectors = (np.concatenate(arrays) for arrays in zip(*opened, strict=True))
        if drop_dead:
            alive = np.isin(trees, self.live, assume_unique=True)
            trees, vectors = trees[alive], vectors[alive]
        return write_vectors(self.folder, trees, vectors) if len(trees) else None


@dataclass
class VectorBuffer:
    """The vectors of the next segment. An interrupted `add` leaves it as it was."""

    settings: IndexSettings
    _parts: list[tuple[Integers, Floats]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of trees."""
        return sum(len(trees) for trees, _ in self._parts)

    @property
    def is_full(self) -> bool:
        """True if it is time to write a segment."""
        return self.count >= self.settings.max_segment_trees

    def add(self, trees: Integers, vectors: Floats) -> None:
        """Add the vectors of trees."""
        self._parts.append((trees, vectors))

    def write(self, folder: Path) -> SegmentEntry:
        """Write the segment."""
        trees, vectors = (np.concatenate(arrays) for arrays in zip(*self._parts, strict=True))
        return write_vectors(folder, trees, vectors)
