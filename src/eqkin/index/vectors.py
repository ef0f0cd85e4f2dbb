"""Files of vectors: tree numbers and unit vectors side by side, written once, mapped into memory, never changed.

Numbers are stored with 16 bits: components of unit vectors lose less than 0.0005 of themselves, and the lists of
nearest neighbours stay the same but for near-ties (`docs/LOG.md` has the figures).
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.index.state import MEND, FileEntry
from eqkin.library.durable import sha256_of, write_file

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Integers = npt.NDArray[np.int64]

_BLOCK = 65_536  # vectors read at a time


def unit(vectors: Floats) -> Floats:
    """Vectors of length one; those without direction (zero, or not finite) become zero."""
    vectors = np.asarray(vectors, np.float32)
    with np.errstate(all="ignore"):
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
        usable = np.isfinite(largest) & (largest > 0)
        scaled = np.where(usable, vectors / np.where(usable, largest, 1), 0)  # no overflow in the squares
        lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        result: Floats = (scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return result


def write_vectors(folder: Path, trees: Integers, vectors: Floats | Halves) -> FileEntry:
    """Write one file, named by its content."""
    content = safetensors.save(
        {"trees": np.ascontiguousarray(trees, np.int64), "vectors": np.ascontiguousarray(vectors, np.float16)}
    )
    digest = sha256(content).hexdigest()
    name = f"vectors-{digest[:16]}.safetensors"
    write_file(folder / name, content)
    return FileEntry(name, digest, len(content), len(trees))


def intact(folder: Path, entry: FileEntry) -> bool:
    """Whether a file is there and matches its hash."""
    path = folder / entry.file
    try:
        return path.stat().st_size == entry.bytes and sha256_of(path) == entry.sha256
    except OSError:
        return False


def open_vectors(folder: Path, entry: FileEntry, dimensions: int) -> tuple[Integers, Halves]:
    """Tree numbers and vectors of a file as views of the mapped file; raises `CorruptData`."""
    path = folder / entry.file
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        length = int.from_bytes(data[:8], "little")
        if len(data) != entry.bytes or length > len(data) - 8:
            raise ValueError("wrong size")
        header = json.loads(bytes(data[8 : 8 + length]))
        body = data[8 + length :]
        parts = []
        for name, dtype, shape in (
            ("trees", "I64", [entry.count]),
            ("vectors", "F16", [entry.count, dimensions]),
        ):
            if header[name]["dtype"] != dtype or header[name]["shape"] != shape:
                raise ValueError(f"{name} of another kind")
            start, end = header[name]["data_offsets"]
            parts.append(np.frombuffer(body[start:end], {"I64": np.int64, "F16": np.float16}[dtype]).reshape(shape))
        return parts[0], parts[1]
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {MEND}") from error
    except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {MEND}") from error


class VectorFiles:
    """Several files of vectors as one table: row i has the tree `trees[i]`."""

    def __init__(self, folder: Path, entries: Sequence[FileEntry], dimensions: int) -> None:
        opened = [open_vectors(folder, entry, dimensions) for entry in entries]
        self.dimensions = dimensions
        self.trees = np.concatenate([np.zeros(0, np.int64), *(trees for trees, _ in opened)])
        self._parts = [vectors for _, vectors in opened]
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])

    def __len__(self) -> int:
        return len(self.trees)

    def take(self, rows: Integers) -> Floats:
        """The vectors of some rows, in their order."""
        vectors = np.empty((len(rows), self.dimensions), np.float32)
        part = np.searchsorted(self._starts, rows, "right") - 1
        for number in np.unique(part):
            here = part == number
            vectors[here] = self._parts[number][rows[here] - self._starts[number]]
        return vectors

    def blocks(self) -> Iterator[tuple[Integers, Floats]]:
        """All rows, some at a time: trees and vectors."""
        for start, part in zip(self._starts, self._parts, strict=False):
            for at in range(0, len(part), _BLOCK):
                vectors = part[at : at + _BLOCK].astype(np.float32)
                yield self.trees[start + at : start + at + len(vectors)], vectors
