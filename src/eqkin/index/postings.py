"""Inverted lists in few bits: which rows have a term, and how often.

Rows of a term in which it occurs equally often are a list. Lists are sorted by the code of their term. Leading bits of
a code are the number of a bucket of lists, which begins with a byte; everything else takes as many bits as it needs,
the lowest bit first:

    code         difference from the code before, in an exponential Golomb code, as all numbers without a limit
    size         number of rows; 0: one row in which the term occurs once; 1: one row in which it occurs more often
    occurrences  less one, or less two if the size is 1; unless the size is 0
    rows         the one row; a bitmap of all rows; or differences of neighbouring rows

A difference is the prefix code of its number of bits, and then these bits without the first, which is 1. Lists of
similar size share a prefix code, which is made for each segment (Huffman 1952): rows come in clusters, since a paper
repeats its terms. Before the differences, a list of more than 32 rows has the number of bits that follow, and one of
more than 64 rows says for every 64 of them how many bits and how many rows can be skipped.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.index import posting_kernels as kernels
from eqkin.index.posting_kernels import COUNT, GAP_CLASSES, GAP_SYMBOLS, PADDING, ROW_BITS, SIZE, TERM, PostingArrays
from eqkin.storage.bits import assign_prefixes, compute_prefix_lengths
from eqkin.storage.segments import Array

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int32]
FoundLists = Integers  # (lists, 4), see `kernels.find_lists`

POSTING_ARRAYS = {
    "starts": "U32",  # (buckets + 1,) the first byte of each bucket, and the end of the last
    "data": "U8",
    "prefixes": "U8",  # (classes * symbols,) number of bits of each prefix code
}
MAX_COUNT = 16  # occurrences
_CODE_BITS = 26  # the last ones; the others are not stored, so that some terms share a list
_CODE_MASK = np.uint32((1 << _CODE_BITS) - 1)
_BUCKET_LIST_BITS = 5  # a bucket has 16 to 32 lists on average
_MAX_BUCKET_BITS = 17  # with more buckets, a list might take less than a byte
_COUNT_BITS = np.uint64(4)


def _freeze(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array as kernels take it: read-only, in order and aligned."""
    view = np.require(array, dtype, ("C", "A")).view()
    view.flags.writeable = False
    return view


class _Room(threading.local):
    """Arrays that a thread uses again for each search: to get memory from the system takes longer than to search."""

    def __init__(self) -> None:
        self.clear(0)

    def clear(self, n_rows: int) -> None:
        """Make room for a number of rows."""
        self.scores: Floats = np.zeros(n_rows, np.float32)
        self.rows: Rows = np.empty(n_rows + 1, np.int32)
        self.buffer: Rows = np.empty(n_rows + 1, np.int32)
        self.sums: Floats = np.empty(n_rows + 1, np.float32)


_ROOM = _Room()


class PostingLists:
    """The lists of a segment.

    Args:
        arrays: What `encode_postings` made, by the names of `POSTING_ARRAYS`.
        n_rows: The number of rows.

    Raises:
        ValueError: The arrays do not fit one another; rows are checked when they are read.
    """

    def __init__(self, arrays: Mapping[str, Array], n_rows: int) -> None:
        starts, data = _freeze(arrays["starts"], np.uint32), _freeze(arrays["data"], np.uint8)
        buckets, lengths = len(starts) - 1, arrays["prefixes"]
        if (
            not 0 < buckets <= 1 << _MAX_BUCKET_BITS
            or buckets & buckets - 1
            or (starts[1:] < starts[:-1]).any()
            or int(starts[-1]) + PADDING != len(data)
            or len(lengths) != GAP_CLASSES * GAP_SYMBOLS
            or n_rows > 1 << ROW_BITS
        ):
            raise ValueError("lists do not fit one another")
        lengths = lengths.reshape(GAP_CLASSES, -1)
        symbols = assign_prefixes(lengths)
        table = symbols << 4 | np.take_along_axis(lengths, symbols, axis=1)
        self._arrays = PostingArrays(starts, data, _freeze(table.ravel(), np.uint16), n_rows, *_split_code(buckets))

    def find(self, codes: Codes) -> FoundLists:
        """Look up the lists of terms; raises `ValueError` if lists are damaged."""
        found = np.empty((len(codes) * MAX_COUNT, 4), np.int64)
        count = kernels.find_lists(self._arrays, codes & _CODE_MASK, found)
        _require_rows(count >= 0)
        return found[:count]

    def read_rows(self, found: FoundLists) -> Rows:
        """Return the rows of lists, one after the other; raises `ValueError` if a row does not exist."""
        rows = np.empty(int(found[:, SIZE].sum()) + 1, np.int32)
        _require_rows(kernels.read_rows(self._arrays, found, rows))
        return rows[:-1]

    def find_best(self, found: FoundLists, weights: Floats, factors: Floats, k: int) -> tuple[Rows, Floats]:
        """Find rows by the weight of their terms, see `kernels.find_best`; raises `ValueError` if one is missing."""
        if len(_ROOM.scores) < len(factors):
            _ROOM.clear(len(factors))
        scores, buffer, best, sums = _ROOM.scores, _ROOM.buffer, _ROOM.rows, _ROOM.sums
        count = kernels.find_best(self._arrays, found, weights, factors, k, scores, buffer, best, sums)
        if count < 0:
            _ROOM.clear(0)
        _require_rows(count >= 0)
        return best[:count].copy(), sums[:count].copy()

    def count_terms(self, codes: Codes, rows: Integers) -> Bytes:
        """Return how often each term occurs in each of some rows, which are ascending: (terms, rows)."""
        _require_rows(not len(rows) or 0 <= rows[0] <= rows[-1] < self._arrays.n_rows)
        counts = np.zeros((len(codes), len(rows)), np.uint8)
        _require_rows(kernels.count_terms(self._arrays, self.find(codes), rows, counts))
        return counts

    def read_all(self) -> tuple[Rows, Codes, Bytes]:
        """Return all postings: row, last bits of the code, occurrences. Raises `ValueError` if a row does not exist."""
        count = kernels.list_all(self._arrays, np.empty((0, 4), np.int64))
        _require_rows(count >= 0)
        found = np.empty((count, 4), np.int64)
        kernels.list_all(self._arrays, found)
        codes, counts = found[:, TERM].astype(np.uint32), found[:, COUNT].astype(np.uint8)
        return self.read_rows(found), np.repeat(codes, found[:, SIZE]), np.repeat(counts, found[:, SIZE])


def count_rows(found: FoundLists, n_terms: int) -> Integers:
    """Return the number of rows of each term."""
    return np.bincount(found[:, TERM], found[:, SIZE], n_terms).astype(np.int64)


def _require_rows(exist: bool) -> None:
    if not exist:
        raise ValueError("a row is missing")


def _split_code(buckets: int) -> tuple[int, int]:
    """Return how many bits of a code do not say its bucket, and how many of a difference of codes are always there."""
    rest_bits = _CODE_BITS + 1 - buckets.bit_length()
    return rest_bits, rest_bits - _BUCKET_LIST_BITS


def encode_postings(
    rows: npt.NDArray[Any], codes: Codes, counts: npt.NDArray[np.uint8], n_rows: int
) -> dict[str, Array]:
    """Return the arrays of `POSTING_ARRAYS`.

    Args:
        rows: Row of each posting, below 2^28.
        codes: Its term.
        counts: How often it occurs there, from 1 to 16.
        n_rows: The number of rows.
    """
    row_bits = np.uint64(ROW_BITS)
    keys = (codes & _CODE_MASK).astype(np.uint64) << _COUNT_BITS | counts.astype(np.uint64) - np.uint64(1)
    keys <<= row_bits
    keys |= rows.astype(np.uint64)
    keys.sort()
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]  # two terms of a row may have the same code
    heads, ordered = keys >> row_bits, (keys & np.uint64((1 << ROW_BITS) - 1)).astype(np.int32)
    starts = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1], [True]))[: len(heads) + 1])
    heads = heads[starts[:-1]]
    symbols = np.zeros((GAP_CLASSES, GAP_SYMBOLS), np.int64)
    kernels.count_gaps(starts, ordered, n_rows, symbols)
    lengths = np.array([compute_prefix_lengths(own) for own in symbols], np.uint8)
    prefixes = assign_prefixes(lengths)
    first = [(prefixes == symbol).argmax(axis=1) for symbol in range(GAP_SYMBOLS)]  # the bits of the code itself
    bucket_bits = min(_MAX_BUCKET_BITS, _MAX_BUCKET_BITS - 5 + n_rows.bit_length())
    buckets = 1 << min(max(len(heads).bit_length() - _BUCKET_LIST_BITS, 0), bucket_bits)
    bucket_starts = np.zeros(buckets + 1, np.uint32)
    data = np.zeros(buckets + 20 * len(heads) + 5 * len(keys) + 2 * PADDING, np.uint8)
    size = kernels.write_lists(
        (heads >> _COUNT_BITS).astype(np.uint32),
        (heads & np.uint64(MAX_COUNT - 1)).astype(np.uint8) + np.uint8(1),
        starts,
        ordered,
        np.stack((lengths.astype(np.int64), np.stack(first, axis=1)), axis=1),
        (n_rows, *_split_code(buckets)),
        bucket_starts,
        data,
    )
    return {"starts": bucket_starts, "data": data[: size + PADDING].copy(), "prefixes": lengths.ravel()}
