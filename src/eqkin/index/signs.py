"""Binary codes of vectors, to find those that a query is worth comparing with.

The signs of a vector's projections onto random directions, after the mean of all vectors is subtracted, differ between
two vectors in proportion to their angle (Charikar, STOC 2002). Codes of 128 bits are compared in an instant; the
nearest of them, a few thousand, are then compared by the vectors themselves. The codes follow from the vectors and are
computed when an index is opened.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.index import kernels
from eqkin.index.vectors import Floats, Integers, VectorFiles
from eqkin.limits import check_cancelled

_MIN_BITS = 128
_WORD_BITS = 64
_SAMPLED_VECTORS = 20_000  # whose mean is subtracted


class BinaryCodes:
    """The codes of all vectors of a collection. Safe to share between threads."""

    def __init__(self, vectors: VectorFiles) -> None:
        count, dimensions = len(vectors), vectors.dimensions
        self._mean = vectors.take(np.unique(np.linspace(0, count - 1, _SAMPLED_VECTORS).astype(np.int64))).mean(axis=0)
        bits = max(_MIN_BITS, dimensions // _WORD_BITS * _WORD_BITS)
        generator = np.random.default_rng(0)
        blocks = [np.eye(dimensions)]
        while len(blocks) * dimensions < bits:  # further directions, orthogonal among themselves
            blocks.append(np.linalg.qr(generator.normal(size=(dimensions, dimensions)))[0])
        self._directions: Floats = np.concatenate(blocks, axis=1)[:, :bits].astype(np.float32)
        self._words = np.empty((bits // _WORD_BITS, count), np.uint64)  # (words, rows)
        start = 0
        for _, block in vectors.iter_blocks():
            self._words[:, start : start + len(block)] = self._encode(block).T
            start += len(block)

    def find_rows(self, query: Floats, count: int, usable: npt.NDArray[np.bool_] | None = None) -> Integers:
        """Return about `count` rows whose codes are nearest to that of a query, ascending.

        Args:
            query: a vector.
            count: how many.
            usable: which rows may be returned; by default all.
        """
        check_cancelled()  # a paper has thousands of queries
        n_rows = self._words.shape[1]
        distance, rows = np.zeros(n_rows, np.uint16), np.empty(n_rows, np.int64)
        chosen = np.zeros(0, bool) if usable is None else usable
        found = kernels.find_near_codes(self._words, self._encode(query[None])[0], count, chosen, distance, rows)
        return rows[:found]

    def _encode(self, vectors: Floats) -> npt.NDArray[np.uint64]:
        """Return the codes of vectors, (vectors, words)."""
        bits = (vectors - self._mean) @ self._directions > 0
        return np.packbits(bits, axis=1).view(np.uint64)
