"""Nearest neighbours with faiss: exact in a small collection, inverted lists of 16-bit numbers in a large one.

The number of lists read per query is the smallest that reaches the target recall, measured against exact search on
vectors of the collection itself (each without itself). Readers map the file of the lists, so that many processes share
one copy in memory, and never change it. No other module knows faiss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import CorruptData, StorageFailed
from eqkin.index.manifest import REBUILD_HINT, FaissEntry
from eqkin.index.vectors import Floats, Integers, VectorFiles
from eqkin.storage import hash_file, replace_file
from eqkin.storage.segments import is_intact

TARGET_RECALL = 0.99  # at 10, of the inverted lists
_RECALL_MARGIN = 0.003  # for queries that are not in the collection
_RECALL_QUERIES = 400  # to measure it with
_LISTS_PER_ROOT = 2.0  # lists, in units of the square root of the number of vectors
_TRAINING_VECTORS_PER_LIST = 64
_KMEANS_ITERATIONS = 10
_TIE_TOLERANCE = 1e-4  # cosines that differ by less count as equal
_ID_BYTES = 8  # of a tree's number in a list

Bitmap = np.ndarray[tuple[int], np.dtype[np.uint8]]


def _import_faiss() -> Any:
    import faiss

    return faiss


@dataclass
class FaissIndex:
    """An index of faiss with tree numbers as ids, and how to search it."""

    index: Any
    kind: str
    probes: int = 0  # 0: exact
    recall: float = 1.0
    trained: int = 0
    usable: Bitmap | None = None  # trees that may be found, None: all; a mapped file cannot be changed
    tail: FaissIndex | None = None  # an exact index of vectors that are not in this one
    rows: int = 0  # of the vector files, from the first on, that can be found here

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """Return the `k` nearest allowed trees of each vector: similarities, best first, and trees or -1."""
        faiss = _import_faiss()
        bitmap = self.usable if allowed is None else _to_bitmap(allowed)
        chosen = {} if bitmap is None else {"sel": faiss.IDSelectorBitmap(bitmap)}
        if self.probes:
            parameters = faiss.SearchParametersIVF(nprobe=self._choose_probes(k, allowed), **chosen)
        else:
            parameters = faiss.SearchParameters(**chosen)
        similarities, trees = self.index.search(np.ascontiguousarray(vectors), k, params=parameters)
        if self.tail is None:
            return similarities, trees
        more, others = self.tail.search(vectors, min(k, len(self.tail)), allowed)
        similarities, trees = np.hstack((similarities, more)), np.hstack((trees, others))
        best = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(similarities, best, axis=1), np.take_along_axis(trees, best, axis=1)

    def _choose_probes(self, k: int, allowed: Integers | None) -> int:
        """Return how many lists to read: more for many hits or few allowed trees, which are farther away."""
        lists, total = self.index.nlist, max(len(self), 1)
        share = 1.0 if allowed is None else max(len(allowed) / total, 1 / total)
        enough = 8 * k / share / total * lists
        return int(min(lists, max(self.probes * max(k / 10, 1) ** 0.25 / share**0.5, enough, 1)))

    def add(self, trees: Integers, vectors: Floats) -> None:
        """Add vectors."""
        self.index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(trees))

    def restrict_to(self, trees: Integers) -> None:
        """Let only these trees be found."""
        self.usable = _to_bitmap(trees)

    def append(self, vectors: VectorFiles) -> None:
        """Add the vectors of the rows that are not here yet."""
        for trees, block in vectors.iter_blocks(self.rows):
            self.add(trees, block)
        self.rows = len(vectors)

    def save(self, folder: Path) -> FaissEntry:
        """Write the file of the index, named by its content; raises `StorageFailed`."""
        temporary = folder / ".nearest.tmp"
        try:
            _import_faiss().write_index(self.index, str(temporary))
            size, digest = temporary.stat().st_size, hash_file(temporary)
            head = size - len(self) * (self.index.code_size + _ID_BYTES)
            facts = len(self), self.kind, self.probes, self.recall, self.trained, head, _hash_head(temporary, head)
            entry = FaissEntry(f"nearest-{digest[:16]}.faiss", digest, size, *facts)
            replace_file(temporary, folder / entry.file)
        except (RuntimeError, OSError) as error:
            raise StorageFailed(f"{folder}: the file of faiss could not be written ({error})") from error
        finally:
            temporary.unlink(missing_ok=True)
        return entry


def load_index(folder: Path, entry: FaissEntry, dimensions: int, *, mapped: bool = True) -> FaissIndex:
    """Open the file of the index; faiss sees it only if its hash is right. Raises `CorruptData`.

    The lists follow the head of the file. Damaged lists do no harm: their numbers are only compared. faiss relies on
    the head, so that it is hashed whenever the file is opened.

    Args:
        folder: the index's folder.
        entry: what is known of the file.
        dimensions: numbers per vector.
        mapped: share the file's pages with other processes; then nothing can be added. Otherwise the whole file is
            hashed, since what is added to it will be written under a new hash.
    """
    path = folder / entry.file
    intact = is_intact(folder, entry, force=not (mapped and entry.head))
    if not intact or _hash_head(path, entry.head) != entry.head_sha256:
        raise CorruptData(f"{path}: does not match its hash; {REBUILD_HINT}")
    try:
        faiss = _import_faiss()
        index = faiss.read_index(str(path), getattr(faiss, "IO_FLAG_MMAP_IFC", 0) if mapped else 0)
    except RuntimeError as error:
        raise CorruptData(f"{path}: cannot be read ({error}); {REBUILD_HINT}") from error
    if index.d != dimensions or index.ntotal != entry.count or not hasattr(index, "invlists"):
        raise CorruptData(f"{path}: differs from its description in index.json; {REBUILD_HINT}")
    return FaissIndex(index, entry.kind, entry.probes, entry.recall, entry.trained, rows=entry.count)


def _hash_head(path: Path, length: int) -> str:
    """Return the hash of a file's first bytes, "" if there are none."""
    if length <= 0:
        return ""
    try:
        with path.open("rb") as file:
            return sha256(file.read(length)).hexdigest()
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {REBUILD_HINT}") from error


def make_flat_index(dimensions: int) -> FaissIndex:
    """Return an empty index that compares a query with every vector."""
    faiss = _import_faiss()
    return FaissIndex(faiss.IndexIDMap2(faiss.IndexFlatIP(dimensions)), "IDMap2,Flat")


def build_flat_index(vectors: VectorFiles, live: Integers, start: int = 0, max_rows: int | None = None) -> FaissIndex:
    """Return an exact index of the live vectors from a row on, of at most `max_rows` rows."""
    flat = make_flat_index(vectors.dimensions)
    flat.rows = len(vectors) if max_rows is None else min(start + max_rows, len(vectors))
    for trees, block in vectors.iter_blocks(start, flat.rows):
        alive = np.isin(trees, live, assume_unique=True)
        flat.add(trees[alive], block[alive])
    return flat


def build_inverted_lists(
    vectors: VectorFiles, progress: Callable[[int, int], None] | None = None, recall: float = TARGET_RECALL
) -> FaissIndex:
    """Return inverted lists of all vectors; `progress` is called with how many are added, and of how many."""
    faiss = _import_faiss()
    lists = max(1, round(_LISTS_PER_ROOT * len(vectors) ** 0.5))
    kind = f"IVF{lists},SQfp16"
    index = faiss.index_factory(vectors.dimensions, kind, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.min_points_per_centroid = _KMEANS_ITERATIONS, 1
    index.cp.max_points_per_centroid = _TRAINING_VECTORS_PER_LIST
    generator = np.random.default_rng(0)
    index.train(vectors.take(np.sort(generator.permutation(len(vectors))[: lists * _TRAINING_VECTORS_PER_LIST])))
    nearest = FaissIndex(index, kind, lists, trained=len(vectors), rows=len(vectors))
    for trees, block in vectors.iter_blocks():
        nearest.add(trees, block)
        if progress:
            progress(len(nearest), len(vectors))
    queries = generator.permutation(len(vectors))[:_RECALL_QUERIES]
    nearest.probes, nearest.recall = _tune_probes(nearest, vectors, queries, recall)
    return nearest


def _tune_probes(nearest: FaissIndex, vectors: VectorFiles, rows: Integers, target: float) -> tuple[int, float]:
    """Return the smallest number of probes that reaches a recall at 10, and the recall that it reaches."""
    k = min(10, len(vectors) - 1)
    queries, own = vectors.take(rows), vectors.trees[rows]
    threshold = _compute_best_similarities(vectors, queries, own, k)[:, -1:] - _TIE_TOLERANCE
    low, high = 1, nearest.index.nlist
    while low < high:
        middle = (low + high) // 2
        if _measure_recall(nearest, middle, queries, own, threshold) >= target + _RECALL_MARGIN:
            high = middle
        else:
            low = middle + 1
    return low, _measure_recall(nearest, low, queries, own, threshold)


def _measure_recall(
    nearest: FaissIndex, probes: int, queries: Floats, own: Integers, threshold: Floats, k: int = 10
) -> float:
    parameters = _import_faiss().SearchParametersIVF(nprobe=probes)
    similarities, trees = nearest.index.search(queries, k + 1, params=parameters)
    found = (similarities >= threshold) & (trees >= 0) & (trees != own[:, None])
    return float(np.minimum(found.sum(axis=1), k).mean() / k)


def _compute_best_similarities(vectors: VectorFiles, queries: Floats, own: Integers, k: int) -> Floats:
    """Return the `k` highest similarities of each query to other vectors, from all of them."""
    best = np.full((len(queries), k), -np.inf, np.float32)
    for trees, block in vectors.iter_blocks():
        similarity = queries @ block.T
        similarity[own[:, None] == trees] = -np.inf
        both = np.concatenate((best, similarity), axis=1)
        best = -np.partition(-both, k - 1, axis=1)[:, :k]
    return np.asarray(-np.sort(-best, axis=1))


def _to_bitmap(trees: Integers) -> Bitmap:
    flags = np.zeros(int(trees.max(initial=-1)) + 1 or 1, bool)
    flags[trees] = True
    return np.packbits(flags, bitorder="little")
