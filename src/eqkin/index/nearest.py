"""Nearest neighbours with faiss: exact in a small collection, inverted lists with 16-bit numbers in a large one.

The lists looked into for a query are as few as give the recall asked for, measured on vectors of the collection itself
(each without itself) against exact search. This is the only module that knows faiss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import CorruptData
from eqkin.index.arrays import intact
from eqkin.index.state import MEND, NearestEntry
from eqkin.index.vectors import Floats, Integers, VectorFiles
from eqkin.library.durable import write_stream

FLAT_LIMIT = 100_000  # vectors up to which all are compared
RECALL = 0.99  # at 10, asked of the inverted lists
_MARGIN = 0.003  # of recall, kept for queries that are not in the collection
_SAMPLE = 400  # queries it is measured with
_LISTS = 2.0  # times the square root of the number of vectors
_TRAINING = 64  # vectors a list is trained with
_ROUNDS = 10  # of training
_PIECE = 1 << 24  # bytes written at a time
_TIE = 1e-4  # cosines this near each other count as equal


def _faiss() -> Any:
    import faiss

    return faiss


@dataclass
class Nearest:
    """An index of faiss with the numbers of trees as ids, and how to ask it."""

    index: Any
    kind: str
    probes: int = 0  # 0: exact
    recall: float = 1.0
    trained: int = 0

    def __len__(self) -> int:
        return int(self.index.ntotal)

    def search(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """The `k` nearest of each vector, among those allowed: similarities, and trees or -1."""
        faiss = _faiss()
        bitmap = None if allowed is None else _bitmap(allowed)
        chosen = {} if bitmap is None else {"sel": faiss.IDSelectorBitmap(bitmap)}
        if self.probes:
            parameters = faiss.SearchParametersIVF(nprobe=self._probes(k, allowed), **chosen)
        else:
            parameters = faiss.SearchParameters(**chosen)
        similarities, trees = self.index.search(np.ascontiguousarray(vectors), k, params=parameters)
        return similarities, trees

    def _probes(self, k: int, allowed: Integers | None) -> int:
        """More lists for a long answer, or when few vectors are allowed: what is sought lies farther away."""
        lists, total = self.index.nlist, max(len(self), 1)
        share = 1.0 if allowed is None else max(len(allowed) / total, 1 / total)
        enough = 8 * k / share / total * lists
        return int(min(lists, max(self.probes * max(k / 10, 1) ** 0.25 / share**0.5, enough, 1)))

    def add(self, trees: Integers, vectors: Floats) -> None:
        """Add vectors."""
        self.index.add_with_ids(np.ascontiguousarray(vectors), np.ascontiguousarray(trees))

    def remove(self, trees: Integers) -> None:
        """Drop vectors."""
        if len(trees):
            self.index.remove_ids(_faiss().IDSelectorBitmap(_bitmap(trees)))

    def take_in(self, vectors: VectorFiles) -> None:
        """Add those of the vectors that are not there yet."""
        new = np.flatnonzero(np.isin(vectors.trees, self.ids(), assume_unique=True, invert=True))
        self.add(vectors.trees[new], vectors.take(new))

    def ids(self) -> Integers:
        """The trees in an index of inverted lists."""
        faiss, lists = _faiss(), self.index.invlists
        parts = [faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i)) for i in range(lists.nlist)]
        return np.concatenate([np.zeros(0, np.int64), *(part for part in parts if len(part))])

    def save(self, folder: Path) -> NearestEntry:
        """Write the index's file, named by its content."""
        content = memoryview(_faiss().serialize_index(self.index))
        digest = sha256(content).hexdigest()
        name = f"nearest-{digest[:16]}.faiss"
        write_stream(folder / name, (bytes(content[at : at + _PIECE]) for at in range(0, len(content), _PIECE)))
        return NearestEntry(name, digest, len(content), len(self), self.kind, self.probes, self.recall, self.trained)


def load(folder: Path, entry: NearestEntry, dimensions: int) -> Nearest:
    """Read the index's file; it reaches faiss only after its hash was found right. Raises `CorruptData`."""
    path = folder / entry.file
    if not intact(folder, entry):
        raise CorruptData(f"{path}: does not match its hash; {MEND}")
    try:
        index = _faiss().read_index(str(path))
    except RuntimeError as error:
        raise CorruptData(f"{path}: cannot be read ({error}); {MEND}") from error
    if index.d != dimensions or index.ntotal != entry.count or not hasattr(index, "invlists"):
        raise CorruptData(f"{path}: is of another kind than index.json says; {MEND}")
    return Nearest(index, entry.kind, entry.probes, entry.recall, entry.trained)


def exact(dimensions: int) -> Nearest:
    """An empty index that compares with every vector."""
    faiss = _faiss()
    return Nearest(faiss.IndexIDMap2(faiss.IndexFlatIP(dimensions)), "IDMap2,Flat")


def build(vectors: VectorFiles, tell: Callable[[int, int], None] | None = None, recall: float = RECALL) -> Nearest:
    """Inverted lists of all vectors; `tell` is called with how many are in, and of how many."""
    faiss = _faiss()
    lists = max(1, round(_LISTS * len(vectors) ** 0.5))
    kind = f"IVF{lists},SQfp16"
    index = faiss.index_factory(vectors.dimensions, kind, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = _ROUNDS, _TRAINING, 1
    generator = np.random.default_rng(0)
    index.train(vectors.take(np.sort(generator.permutation(len(vectors))[: lists * _TRAINING])))
    nearest = Nearest(index, kind, lists, trained=len(vectors))
    for trees, block in vectors.blocks():
        nearest.add(trees, block)
        if tell:
            tell(len(nearest), len(vectors))
    queries = generator.permutation(len(vectors))[:_SAMPLE]
    nearest.probes, nearest.recall = _tuned(nearest, vectors, queries, recall)
    return nearest


def _tuned(nearest: Nearest, vectors: VectorFiles, queries: Integers, target: float) -> tuple[int, float]:
    """The fewest probes that reach a recall at 10, and what they reach."""
    k = min(10, len(vectors) - 1)
    asked, own = vectors.take(queries), vectors.trees[queries]
    threshold = _best(vectors, asked, own, k)[:, -1:] - _TIE
    low, high = 1, nearest.index.nlist
    while low < high:
        middle = (low + high) // 2
        if _reached(nearest, middle, asked, own, threshold) >= target + _MARGIN:
            high = middle
        else:
            low = middle + 1
    return low, _reached(nearest, low, asked, own, threshold)


def _reached(nearest: Nearest, probes: int, asked: Floats, own: Integers, threshold: Floats, k: int = 10) -> float:
    parameters = _faiss().SearchParametersIVF(nprobe=probes)
    similarities, trees = nearest.index.search(asked, k + 1, params=parameters)
    found = (similarities >= threshold) & (trees >= 0) & (trees != own[:, None])
    return float(np.minimum(found.sum(axis=1), k).mean() / k)


def _best(vectors: VectorFiles, asked: Floats, own: Integers, k: int) -> Floats:
    """The `k` highest similarities of each query to other vectors, by comparing with all."""
    best = np.full((len(asked), k), -np.inf, np.float32)
    for trees, block in vectors.blocks():
        similarity = asked @ block.T
        similarity[own[:, None] == trees] = -np.inf
        both = np.concatenate((best, similarity), axis=1)
        best = -np.partition(-both, k - 1, axis=1)[:, :k]
    return np.asarray(-np.sort(-best, axis=1))


def _bitmap(trees: Integers) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    flags = np.zeros(int(trees.max(initial=-1)) + 1 or 1, bool)
    flags[trees] = True
    return np.packbits(flags, bitorder="little")
