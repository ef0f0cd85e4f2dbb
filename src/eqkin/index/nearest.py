"""Nearest neighbours with faiss: exact in a small collection, inverted lists with 16-bit numbers in a large one.

The lists looked into for a query are as few as give the recall asked for, measured on vectors of the collection itself
(each without itself) against exact search. Readers map the file of the lists, so that many processes share one copy in
memory, and never change it. This is the only module that knows faiss.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index.checked import is_intact
from eqkin.index.state import REBUILD_HINT, FaissEntry
from eqkin.index.vectors import Floats, Integers, VectorFiles
from eqkin.storage import hash_file, replace_file

MAX_FLAT_VECTORS = 100_000  # vectors up to which all are compared
TARGET_RECALL = 0.99  # at 10, asked of the inverted lists
_RECALL_MARGIN = 0.003  # of recall, kept for queries that are not in the collection
_RECALL_QUERIES = 400  # queries it is measured with
_LISTS_PER_ROOT = 2.0  # times the square root of the number of vectors
_TRAINING_VECTORS_PER_LIST = 64  # vectors a list is trained with
_KMEANS_ITERATIONS = 10  # of training
_TIE_TOLERANCE = 1e-4  # cosines this near each other count as equal
_ID_BYTES = 8  # bytes of a tree's number in a list

Bitmap = np.ndarray[tuple[int], np.dtype[np.uint8]]


def _import_faiss() -> Any:
    import faiss

    return faiss


@dataclass
class FaissIndex:
    """An index of faiss with the numbers of trees as ids, and how to ask it."""

    index: Any
    kind: str
    probes: int = 0  # 0: exact
    recall: float = 1.0
    trained: int = 0
    usable: Bitmap | None = None  # trees that may be found, None: all; what is mapped cannot be taken out
    later: FaissIndex | None = None  # vectors that are not in this index, compared one by one
    rows: int = 0  # the first ones of all files, whose vectors can be found here

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """The `k` nearest of each vector, among those allowed: similarities, best first, and trees or -1."""
        faiss = _import_faiss()
        bitmap = self.usable if allowed is None else _to_bitmap(allowed)
        chosen = {} if bitmap is None else {"sel": faiss.IDSelectorBitmap(bitmap)}
        if self.probes:
            parameters = faiss.SearchParametersIVF(nprobe=self._choose_probes(k, allowed), **chosen)
        else:
            parameters = faiss.SearchParameters(**chosen)
        similarities, trees = self.index.search(np.ascontiguousarray(vectors), k, params=parameters)
        if self.later is None:
            return similarities, trees
        more, others = self.later.search(vectors, min(k, len(self.later)), allowed)
        similarities, trees = np.hstack((similarities, more)), np.hstack((trees, others))
        best = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(similarities, best, axis=1), np.take_along_axis(trees, best, axis=1)

    def _choose_probes(self, k: int, allowed: Integers | None) -> int:
        """More lists for a long answer, or when few vectors are allowed: what is sought lies farther away."""
        lists, total = self.index.nlist, max(len(self), 1)
        share = 1.0 if allowed is None else max(len(allowed) / total, 1 / total)
        enough = 8 * k / share / total * lists
        return int(min(lists, max(self.probes * max(k / 10, 1) ** 0.25 / share**0.5, enough, 1)))

    def add(self, trees: Integers, vectors: Floats) -> None:
        """Add vectors."""
        self.index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(trees))

    def restrict_to(self, trees: Integers) -> None:
        """Let nothing be found but these trees."""
        self.usable = _to_bitmap(trees)

    def append(self, vectors: VectorFiles) -> None:
        """Add those of the vectors that came after the ones that are there."""
        for trees, block in vectors.iter_blocks(self.rows):
            self.add(trees, block)
        self.rows = len(vectors)

    def save(self, folder: Path) -> FaissEntry:
        """Write the index's file, named by its content; raises `StorageFailed`."""
        temporary = folder / f".nearest.{os.getpid()}.tmp"
        try:
            _import_faiss().write_index(self.index, str(temporary))
            size, digest = temporary.stat().st_size, hash_file(temporary)
            head = size - len(self) * (self.index.code_size + _ID_BYTES)
            described = len(self), self.kind, self.probes, self.recall, self.trained, head, _hash_head(temporary, head)
            entry = FaissEntry(f"nearest-{digest[:16]}.faiss", digest, size, *described)
            replace_file(temporary, folder / entry.file)
        except (RuntimeError, OSError) as error:
            raise StorageFailed(f"{folder}: the file of faiss could not be written ({error})") from error
        finally:
            temporary.unlink(missing_ok=True)
        return entry


def load_index(folder: Path, entry: FaissEntry, dimensions: int, *, mapped: bool = True) -> FaissIndex:
    """Open the index's file; it reaches faiss only after its hash was found right. Raises `CorruptData`.

    Lists follow the head of the file. Whatever they hold can do no harm: their numbers are only compared. The head is
    what faiss relies on, so it is hashed whenever the file is opened.

    Args:
        folder: the index's folder.
        entry: what is known of the file.
        dimensions: numbers in a vector.
        mapped: share the file's pages with other processes; nothing can be added then. Otherwise it is hashed afresh,
            since what is added to it will be written under a new hash.
    """
    path = folder / entry.file
    if (
        not is_intact(folder, entry, afresh=not (mapped and entry.head))
        or _hash_head(path, entry.head) != entry.head_sha256
    ):
        raise CorruptData(f"{path}: does not match its hash; {REBUILD_HINT}")
    try:
        faiss = _import_faiss()
        index = faiss.read_index(str(path), getattr(faiss, "IO_FLAG_MMAP_IFC", 0) if mapped else 0)
    except RuntimeError as error:
        raise CorruptData(f"{path}: cannot be read ({error}); {REBUILD_HINT}") from error
    if index.d != dimensions or index.ntotal != entry.count or not hasattr(index, "invlists"):
        raise CorruptData(f"{path}: is of another kind than index.json says; {REBUILD_HINT}")
    return FaissIndex(index, entry.kind, entry.probes, entry.recall, entry.trained, rows=entry.count)


def _hash_head(path: Path, length: int) -> str:
    """The hash of a file's first bytes, "" of none."""
    if length <= 0:
        return ""
    try:
        with path.open("rb") as file:
            return sha256(file.read(length)).hexdigest()
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {REBUILD_HINT}") from error


def make_flat_index(dimensions: int) -> FaissIndex:
    """An empty index that compares with every vector."""
    faiss = _import_faiss()
    return FaissIndex(faiss.IndexIDMap2(faiss.IndexFlatIP(dimensions)), "IDMap2,Flat")


def build_flat_index(vectors: VectorFiles, live: Integers, start: int = 0, most: int | None = None) -> FaissIndex:
    """The live ones of the vectors from a row on, at most so many rows, each of which is compared with."""
    nearest = make_flat_index(vectors.dimensions)
    nearest.rows = len(vectors) if most is None else min(start + most, len(vectors))
    for trees, block in vectors.iter_blocks(start, nearest.rows):
        alive = np.isin(trees, live, assume_unique=True)
        nearest.add(trees[alive], block[alive])
    return nearest


def build_inverted_lists(
    vectors: VectorFiles, tell: Callable[[int, int], None] | None = None, recall: float = TARGET_RECALL
) -> FaissIndex:
    """Inverted lists of all vectors; `tell` is called with how many are in, and of how many."""
    faiss = _import_faiss()
    lists = max(1, round(_LISTS_PER_ROOT * len(vectors) ** 0.5))
    kind = f"IVF{lists},SQfp16"
    index = faiss.index_factory(vectors.dimensions, kind, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = (
        _KMEANS_ITERATIONS,
        _TRAINING_VECTORS_PER_LIST,
        1,
    )
    generator = np.random.default_rng(0)
    index.train(vectors.take(np.sort(generator.permutation(len(vectors))[: lists * _TRAINING_VECTORS_PER_LIST])))
    nearest = FaissIndex(index, kind, lists, trained=len(vectors), rows=len(vectors))
    for trees, block in vectors.iter_blocks():
        nearest.add(trees, block)
        if tell:
            tell(len(nearest), len(vectors))
    queries = generator.permutation(len(vectors))[:_RECALL_QUERIES]
    nearest.probes, nearest.recall = _tune_probes(nearest, vectors, queries, recall)
    return nearest


def _tune_probes(nearest: FaissIndex, vectors: VectorFiles, queries: Integers, target: float) -> tuple[int, float]:
    """The fewest probes that reach a recall at 10, and what they reach."""
    k = min(10, len(vectors) - 1)
    asked, own = vectors.take(queries), vectors.trees[queries]
    threshold = _compute_best_similarities(vectors, asked, own, k)[:, -1:] - _TIE_TOLERANCE
    low, high = 1, nearest.index.nlist
    while low < high:
        middle = (low + high) // 2
        if _measure_recall(nearest, middle, asked, own, threshold) >= target + _RECALL_MARGIN:
            high = middle
        else:
            low = middle + 1
    return low, _measure_recall(nearest, low, asked, own, threshold)


def _measure_recall(
    nearest: FaissIndex, probes: int, asked: Floats, own: Integers, threshold: Floats, k: int = 10
) -> float:
    parameters = _import_faiss().SearchParametersIVF(nprobe=probes)
    similarities, trees = nearest.index.search(asked, k + 1, params=parameters)
    found = (similarities >= threshold) & (trees >= 0) & (trees != own[:, None])
    return float(np.minimum(found.sum(axis=1), k).mean() / k)


def _compute_best_similarities(vectors: VectorFiles, asked: Floats, own: Integers, k: int) -> Floats:
    """The `k` highest similarities of each query to other vectors, by comparing with all."""
    best = np.full((len(asked), k), -np.inf, np.float32)
    for trees, block in vectors.iter_blocks():
        similarity = asked @ block.T
        similarity[own[:, None] == trees] = -np.inf
        both = np.concatenate((best, similarity), axis=1)
        best = -np.partition(-both, k - 1, axis=1)[:, :k]
    return np.asarray(-np.sort(-best, axis=1))


def _to_bitmap(trees: Integers) -> Bitmap:
    flags = np.zeros(int(trees.max(initial=-1)) + 1 or 1, bool)
    flags[trees] = True
    return np.packbits(flags, bitorder="little")
