r"""Segments of vectors: tree numbers and unit vectors with 8 bits per number, mapped into memory.

Unit vectors of formulas share directions, which need not be stored again with each of them. A vector is stored as

$$ v \approx c + s\, q, \qquad q \in \{-127, \dots, 127\}^d, $$

with the nearest $c$ of a few centres of its segment and a scale $s$ of its own. Cosines lose about 0.0005
(`docs/LOG.md` has the figures).

    first    (1,)             the lowest tree number
    trees    (rows,)          tree numbers, less the lowest
    centres  (cells, d)       c
    cell     (rows,)          which of them
    scale    (rows,)          s
    codes    (rows, d)        q
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.index import kernels
from eqkin.index.manifest import REBUILD_HINT, SETTINGS, IndexSettings
from eqkin.storage.segments import Array, SegmentEntry, open_arrays, write_arrays

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_BLOCK_VECTORS = 65_536  # read at a time
_CACHED_VECTORS = 1_024  # converted to 32 bits at a time: they fit into the processor's cache
_VECTORS_PER_CENTRE = 256
_SAMPLED_PER_CENTRE = 64  # vectors that determine a centre; with 256, scales are 1 % smaller
_MAX_CENTRES = 256  # of a new segment; a merged one has those of all its parts
_CENTRE_ITERATIONS = 4
_MAX_CODE = 127
_MIN_LENGTH = 1e-9  # of a vector whose square is not too small for 32 bits
_ROW_BITS = 32  # of the number of a row in all segments
_MAX_SORTED = 10_000  # wanted trees; more are looked up in a table instead of sorted


def normalise(vectors: Floats) -> Floats:
    """Return vectors of length one; a vector without direction (zero or not finite) becomes zero."""
    vectors = np.asarray(vectors, np.float32)
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
        if ((lengths > _MIN_LENGTH) & (lengths < 1 / _MIN_LENGTH)).all():
            unit: Floats = vectors / lengths
            return unit
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
    """Return which trees are among `known`, which are ascending, each once."""
    if not len(known):
        return np.zeros(len(trees), bool)
    if _has_no_gaps(known):
        return np.asarray((trees >= known[0]) & (trees <= known[-1]))
    at = np.minimum(np.searchsorted(known, trees), len(known) - 1)
    return np.asarray(known[at] == trees)


def _has_no_gaps(trees: Integers) -> bool:
    """Return whether trees, ascending, each once, are numbered without gaps: those of a library that only grew are."""
    return len(trees) > 0 and int(trees[-1]) - int(trees[0]) == len(trees) - 1


def has_repeats(trees: Integers) -> bool:
    """Return whether a number occurs twice; sorting is far faster than the hashing of `np.unique`."""
    ordered = np.sort(trees)
    return bool((ordered[1:] == ordered[:-1]).any())


class TreeRows:
    """The tree of each row of several segments, one after the other, and the row of each tree.

    Trees are usually ascending throughout, since a later segment has higher numbers. Where a damaged segment was
    written again they are not, and a sorted table is kept.
    """

    def __init__(self, parts: Sequence[Integers]) -> None:
        self.starts: Integers = np.cumsum([0, *map(len, parts)])
        self.trees: Integers = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int64), *parts])
        self._sorted, self._order, self._ranks = self.trees, None, None  # None: the order of rows
        self._known = self.trees  # ascending, each once
        if not (self.trees[1:] > self.trees[:-1]).all():
            self._order = np.argsort(self.trees, kind="stable")
            self._sorted, self._ranks = self.trees[self._order], np.argsort(self._order)
            self._known = self._sorted[np.diff(self._sorted, prepend=-1) > 0]

    def __len__(self) -> int:
        return len(self.trees)

    def iter_parts(self, rows: Integers) -> Iterator[tuple[int, Integers, slice | Integers]]:
        """Yield the segments that have some of the rows: number, rows within it, places in `rows`."""
        if len(self.starts) == 2:
            yield 0, rows, slice(None)
            return
        ascending = bool((rows[1:] >= rows[:-1]).all())
        bounds = np.searchsorted(rows, self.starts).tolist() if ascending else []
        for number, (start, stop) in enumerate(pairwise(self.starts.tolist())):
            places: slice | Integers
            if ascending:
                places = slice(bounds[number], bounds[number + 1])
            else:
                places = np.flatnonzero((rows >= start) & (rows < stop))
            inside = rows[places] - start
            if len(inside):
                yield number, inside, places

    def sort_by_score(self, rows: Integers, scores: Floats) -> tuple[Floats, Integers]:
        """Return scores, which are not negative, from the highest to the lowest, equal ones by tree; and the trees."""
        keys = (np.iinfo(np.int32).max - scores.view(np.int32)).astype(np.int64) << _ROW_BITS
        keys |= rows if self._ranks is None else self._ranks[rows]
        keys.sort()
        bits = np.iinfo(np.int32).max - (keys >> _ROW_BITS)
        return bits.astype(np.int32).view(np.float32), self._sorted[keys & (1 << _ROW_BITS) - 1]

    def find_rows(self, trees: Integers) -> Integers:
        """Return the rows of trees, all of which must be there."""
        if self._order is not None:
            return self._order[np.searchsorted(self._sorted, trees)]
        return trees - self.trees[0] if _has_no_gaps(self.trees) else np.searchsorted(self.trees, trees)

    def find_known(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Return which trees are there."""
        return find_members(trees, self._known)

    def select_live(self, live: Integers) -> Integers:
        """Return the trees that are in `live`, ascending; `live` itself if they are equal, to share one array."""
        if np.array_equal(self.trees, live):
            self.trees = self._sorted = self._known = live
            return live
        found = self._known[find_members(self._known, live)]
        return live if len(found) == len(live) else found


def train_centroids(vectors: Floats, count: int, iterations: int) -> Floats:
    """Return the centroids of `count` clusters of vectors (Lloyd's algorithm), always the same."""
    generator = np.random.default_rng(0)
    centroids = vectors[np.sort(generator.permutation(len(vectors))[:count])].astype(np.float32)
    for _ in range(iterations):
        nearest = find_centroids(vectors, centroids)
        order = np.argsort(nearest, kind="stable")
        filled, first, sizes = np.unique(nearest[order], return_index=True, return_counts=True)
        centroids[filled] = np.add.reduceat(vectors[order], first, axis=0) / sizes[:, None]  # an empty one stays
    return centroids


def find_centroids(vectors: Floats, centroids: Floats) -> Integers:
    """Return the nearest centroid of each vector."""
    half = np.einsum("ij,ij->i", centroids, centroids) / 2
    step = _CACHED_VECTORS
    parts = [(vectors[at : at + step] @ centroids.T - half).argmax(axis=1) for at in range(0, len(vectors), step)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


@dataclass(frozen=True)
class VectorSegment:
    """Vectors with 8 bits per number."""

    trees: Integers
    centres: Floats
    cell: npt.NDArray[np.uint16]
    scale: npt.NDArray[np.float16]
    codes: npt.NDArray[np.int8]

    @classmethod
    def encode(cls, trees: Integers, vectors: Floats) -> VectorSegment:
        """Round vectors of length 1."""
        count = min(max(len(vectors) // _VECTORS_PER_CENTRE, 1), _MAX_CENTRES)
        sample = vectors[:: max(len(vectors) // (count * _SAMPLED_PER_CENTRE), 1)]
        centres = train_centroids(sample, count, _CENTRE_ITERATIONS)
        cell = find_centroids(vectors, centres).astype(np.uint16)
        scale, codes = np.empty(len(vectors), np.float16), np.empty(vectors.shape, np.int8)
        for at in range(0, len(vectors), _CACHED_VECTORS):
            block = slice(at, at + _CACHED_VECTORS)
            rest = vectors[block] - centres[cell[block]]
            scale[block] = np.abs(rest).max(axis=1) / _MAX_CODE
            rest /= np.where(scale[block] > 0, scale[block], 1).astype(np.float32)[:, None]
            np.clip(np.rint(rest, out=rest), -_MAX_CODE, _MAX_CODE, out=codes[block], casting="unsafe")
        return cls(np.asarray(trees, np.int64), centres, cell, scale, codes)

    def decode(self, rows: Integers | slice) -> Floats:
        """Return the vectors of some rows."""
        chosen = np.arange(len(self.trees))[rows] if isinstance(rows, slice) else np.ascontiguousarray(rows)
        vectors = np.empty((len(chosen), self.codes.shape[1]), np.float32)
        scale = self.scale[chosen].astype(np.float32)
        kernels.decode_vectors(self.codes, chosen, scale, self.cell[chosen], self.centres, vectors)
        return vectors

    def compute_cosines(self, queries: Floats, rows: Integers | None = None) -> Floats:
        """Return the dot products of queries and the vectors of some rows, or of all: (queries, rows)."""
        chosen = np.arange(len(self.trees)) if rows is None else np.ascontiguousarray(rows)
        cosines = np.empty((len(queries), len(chosen)), np.float32)
        scale, centred = self.scale[chosen].astype(np.float32), queries @ self.centres.T
        kernels.multiply_codes(self.codes, chosen, np.ascontiguousarray(queries), scale, self.cell, centred, cosines)
        return cosines


def write_vectors(folder: Path, segment: VectorSegment) -> SegmentEntry:
    """Write one segment."""
    first = segment.trees.min(initial=np.iinfo(np.int64).max, keepdims=True)
    arrays: dict[str, Array] = {"first": first, "trees": (segment.trees - first).astype(np.uint32)}
    arrays |= {name: getattr(segment, name) for name in ("centres", "cell", "scale", "codes")}
    return SegmentEntry(*write_arrays(folder, "vectors", arrays), len(segment.trees))


def open_vectors(folder: Path, entry: SegmentEntry, dimensions: int) -> VectorSegment:
    """Return a segment as views of the mapped file; raises `CorruptData`."""
    rows = entry.count
    wanted = {
        "first": ("I64", [1]),
        "trees": ("U32", [rows]),
        "centres": ("F32", [-1, dimensions]),
        "cell": ("U16", [rows]),
        "scale": ("F16", [rows]),
        "codes": ("I8", [rows, dimensions]),
    }
    first, trees, centres, cell, scale, codes = open_arrays(folder, entry, wanted, REBUILD_HINT)
    if len(cell) and int(cell.max()) >= len(centres):
        raise CorruptData(f"{folder / entry.file}: damaged (a centre is missing); {REBUILD_HINT}")
    if not (np.isfinite(centres).all() and np.isfinite(scale).all()):
        raise CorruptData(f"{folder / entry.file}: damaged (a vector is NaN or infinite); {REBUILD_HINT}")
    return VectorSegment(first + trees.astype(np.int64), centres, cell, scale, codes)


class VectorFiles:
    """Several segments of vectors as one table: row i has the tree `trees[i]`."""

    def __init__(self, folder: Path, entries: Sequence[SegmentEntry], dimensions: int) -> None:
        self.dimensions = dimensions
        self._parts = [open_vectors(folder, entry, dimensions) for entry in entries]
        self.rows: TreeRows = TreeRows([part.trees for part in self._parts])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def trees(self) -> Integers:
        """The trees of all rows."""
        return self.rows.trees

    def take(self, rows: Integers) -> Floats:
        """Return the vectors of some rows."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        for number, inside, places in self.rows.iter_parts(rows):
            vectors[places] = self._parts[number].decode(inside)
        return vectors

    def compute_cosines(self, queries: Floats, rows: Integers | None = None) -> Floats:
        """Return the cosines of queries and the vectors of some rows, or of all: (queries, rows)."""
        if rows is None:
            parts = [part.compute_cosines(queries) for part in self._parts]
            return np.concatenate([np.zeros((len(queries), 0), np.float32), *parts], axis=1)
        cosines = np.empty((len(queries), len(rows)), np.float32)
        for number, inside, places in self.rows.iter_parts(rows):
            cosines[:, places] = self._parts[number].compute_cosines(queries, inside)
        return cosines

    def iter_blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Integers, Floats]]:
        """Yield trees and vectors of the rows from `start` to `end`, some at a time."""
        last = len(self) if end is None else end
        for before, part in zip(self.rows.starts.tolist(), self._parts, strict=False):
            stop = min(last - before, len(part.trees))
            for at in range(max(start - before, 0), stop, _BLOCK_VECTORS):
                block = slice(at, min(at + _BLOCK_VECTORS, stop))
                yield part.trees[block], part.decode(block)


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
        before = np.cumsum([0, *(len(part.centres) for part in opened)])
        cells = [part.cell.astype(np.int64) + start for part, start in zip(opened, before, strict=False)]
        arrays = ([part.trees for part in opened], cells, [p.scale for p in opened], [p.codes for p in opened])
        trees, cell, scale, codes = map(np.concatenate, arrays)
        alive = np.isin(trees, self.live, assume_unique=True) if drop_dead else np.ones(len(trees), bool)
        used, cell = np.unique(cell[alive], return_inverse=True)
        centres = np.concatenate([part.centres for part in opened])[used]
        if len(centres) > np.iinfo(np.uint16).max:
            return write_vectors(self.folder, self._encode_again(opened, alive))
        merged = VectorSegment(trees[alive], centres, cell.astype(np.uint16), scale[alive], codes[alive])
        return write_vectors(self.folder, merged) if len(merged.trees) else None

    def _encode_again(self, segments: Sequence[VectorSegment], alive: npt.NDArray[np.bool_]) -> VectorSegment:
        """Round vectors again, with new centres: there are too many."""
        trees = np.concatenate([part.trees for part in segments])
        vectors = np.concatenate([part.decode(slice(None)) for part in segments])
        return VectorSegment.encode(trees[alive], vectors[alive])


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
        return write_vectors(folder, VectorSegment.encode(trees, vectors))
