"""Files of vectors: tree numbers and unit vectors side by side, written once, mapped into memory, never changed.

Numbers are stored with 16 bits: components of unit vectors lose less than 0.0005 of themselves, and the lists of
nearest neighbours stay the same but for near-ties (`docs/LOG.md` has the figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.index.arrays import Array, open_arrays, write_arrays
from eqkin.index.rows import TreeRows
from eqkin.index.state import VectorsEntry

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Integers = npt.NDArray[np.int64]

_BLOCK_VECTORS = 65_536  # vectors read at a time
_MAX_SORTED = 10_000  # trees up to which those wanted are sorted


def normalise(vectors: Floats) -> Floats:
    """Vectors of length one; those without direction (zero, or not finite) become zero."""
    vectors = np.asarray(vectors, np.float32)
    with np.errstate(all="ignore"):
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
        usable = np.isfinite(largest) & (largest > 0)
        scaled = np.where(usable, vectors / np.where(usable, largest, 1), 0)  # no overflow in the squares
        lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        result: Floats = (scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return result


def write_vectors(folder: Path, trees: Integers, vectors: Floats | Halves) -> VectorsEntry:
    """Write one file, named by its content."""
    arrays: dict[str, Array] = {"trees": np.asarray(trees, np.int64), "vectors": np.asarray(vectors, np.float16)}
    return VectorsEntry(*write_arrays(folder, "vectors", arrays), len(trees))


def open_vectors(folder: Path, entry: VectorsEntry, dimensions: int) -> tuple[Integers, Halves]:
    """Tree numbers and vectors of a file as views of the mapped file; raises `CorruptData`."""
    kinds = {"trees": ("I64", [entry.count]), "vectors": ("F16", [entry.count, dimensions])}
    trees, vectors = open_arrays(folder, entry, kinds)
    return trees, vectors


def find_positions(trees: Integers, wanted: Integers) -> Integers:
    """Where some trees are among others in ascending order, each once; those that are not there are left out."""
    wanted = np.asarray(wanted, np.int64).ravel()
    if not len(trees):
        return np.zeros(0, np.int64)
    last = int(trees[-1])
    if len(wanted) > _MAX_SORTED:  # a table is faster than sorting
        flags = np.zeros(last + 1, bool)
        flags[wanted[(wanted >= 0) & (wanted <= last)]] = True
        return np.flatnonzero(flags[trees])
    wanted = np.unique(wanted[wanted <= last])
    at = np.searchsorted(trees, wanted)
    found: Integers = at[trees[at] == wanted]
    return found


class VectorFiles:
    """Several files of vectors as one table: row i has the tree `trees[i]`."""

    def __init__(self, folder: Path, entries: Sequence[VectorsEntry], dimensions: int) -> None:
        opened = [open_vectors(folder, entry, dimensions) for entry in entries]
        self.dimensions = dimensions
        self.rows = TreeRows([trees for trees, _ in opened])
        self._parts = [vectors for _, vectors in opened]
        self._starts = self.rows.starts

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def trees(self) -> Integers:
        """The trees of all rows; put together anew whenever it is asked for, unless there is one file."""
        return self.rows.concatenate()

    def take(self, rows: Integers) -> Floats:
        """The vectors of some rows, in their order."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        part = np.searchsorted(self._starts, rows, "right") - 1
        for number in np.unique(part):
            here = part == number
            vectors[here] = self._parts[number][rows[here] - self._starts[number]]
        return vectors

    def iter_blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[Integers, Floats]]:
        """The rows from one to another, some at a time: trees and vectors."""
        last = len(self) if end is None else end
        for before, trees, part in zip(self._starts.tolist(), self.rows.parts, self._parts, strict=False):
            for at in range(max(start - before, 0), min(last - before, len(part)), _BLOCK_VECTORS):
                until = min(at + _BLOCK_VECTORS, last - before)
                yield trees[at:until], part[at:until].astype(np.float32)
