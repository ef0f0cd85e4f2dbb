"""Inverted lists in few bits: which rows have a term, and how often.

Rows of a term in which it occurs equally often are a list. Differences of neighbouring rows are stored, less one. A
list is stored in one of three ways, and can be read without reading others:

    one row      the row is the value of an entry of the table `one`
    few rows     an entry of the table `few` has the number of rows and the number of bits of each difference
    many rows    one byte for each difference, after one of 255 for each multiple of it; or a bitmap of all rows

A table has the codes of terms in ascending order. Leading bits of a code are the number of its bucket, so that an entry
needs only the other bits and a value. Numbers of a few bits follow one another without gaps, the lowest bit first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.index import kernels
from eqkin.index.kernels import (
    COUNT,
    COUNT_BITS,
    SIZE,
    SIZE_BITS,
    STEP,
    TERM,
    WIDTH_BITS,
    WINDOW,
    CodeTable,
    PostingArrays,
)
from eqkin.storage.segments import Array
from eqkin.trees.operators import accumulate, gather_rows

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int32]
FoundLists = Integers  # (lists, 6), see `kernels.find_lists`

POSTING_ARRAYS = {
    "one.sizes": "U16",
    "one.entries": "U8",
    "few.sizes": "U16",
    "few.entries": "U8",
    "few.starts": "U32",
    "few.gaps": "U8",
    "many.codes": "U32",
    "many.counts": "U8",
    "many.sizes": "U32",
    "many.ends": "U32",
    "many.data": "U8",
}
MAX_ROWS = 1 << 28
_CODE_BITS = 32
_BUCKET_ENTRIES = 8  # on average
_FEW_BITS = SIZE_BITS + WIDTH_BITS + COUNT_BITS


def pack_bits(values: npt.NDArray[Any], widths: npt.NDArray[Any] | int) -> Bytes:
    """Return numbers with the given numbers of bits each, at most 57."""
    ends = np.cumsum(np.broadcast_to(np.asarray(widths, np.int64), values.shape))
    start = ends - widths
    data = np.zeros((int(ends[-1]) + 7 >> 3 if len(ends) else 0) + WINDOW, np.uint8)
    shifted = values.astype(np.uint64) << (start & 7).astype(np.uint64)
    at = start >> 3
    for step in range(WINDOW):
        part = shifted.astype(np.uint8)
        np.add.at(data, at + step, part)
        shifted >>= np.uint64(8)
        if not shifted.any():
            break
    return data


def build_table(codes: Codes, values: npt.NDArray[Any], value_bits: int) -> tuple[npt.NDArray[np.uint16], Bytes]:
    """Return the number of entries of each bucket of a table, and its entries; a code may occur several times."""
    bits = max(len(codes) // _BUCKET_ENTRIES, 1).bit_length() - 1
    numbers = codes.astype(np.int64)
    while (sizes := np.bincount(numbers >> _CODE_BITS - bits, minlength=1 << bits)).max() >= 1 << 16:
        bits += 1
    rest = _CODE_BITS - bits
    entries = (numbers & (1 << rest) - 1) << value_bits | values
    return sizes.astype(np.uint16), pack_bits(entries, rest + value_bits)


def open_table(sizes: npt.NDArray[np.uint16], entries: Bytes, value_bits: int) -> CodeTable:
    """Return a table that kernels can read; raises `ValueError` if it has not as many entries as its buckets say."""
    buckets, starts = len(sizes), accumulate(sizes)
    rest_bits = _CODE_BITS + 1 - buckets.bit_length()
    bits = int(starts[-1]) * (rest_bits + value_bits)
    if not 0 < buckets <= 1 << 30 or buckets & buckets - 1 or len(entries) != (bits + 7 >> 3) + WINDOW:
        raise ValueError("a table of codes is not complete")
    return CodeTable(_freeze(starts, np.int64), _freeze(entries, np.uint8), rest_bits, value_bits)


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
        codes, counts, sizes, ends, data = (
            _freeze(arrays[f"many.{name}"], dtype)
            for name, dtype in zip(
                ("codes", "counts", "sizes", "ends", "data"),
                (np.uint32, np.uint8, np.uint32, np.uint32, np.uint8),
                strict=True,
            )
        )
        one = open_table(arrays["one.sizes"], arrays["one.entries"], n_rows.bit_length())
        few = open_table(arrays["few.sizes"], arrays["few.entries"], _FEW_BITS)
        bits, gaps = _freeze(arrays["few.starts"], np.uint32), _freeze(arrays["few.gaps"], np.uint8)
        if (
            len(bits) != len(few.starts) - 1
            or not len(codes) == len(counts) == len(sizes) == len(ends)
            or (codes[1:] < codes[:-1]).any()
            or (ends[1:] <= ends[:-1]).any()
            or (int(ends[-1]) if len(ends) else 0) != len(data)
            or int(sizes.max(initial=0)) > n_rows
        ):
            raise ValueError("lists do not fit one another")
        self._arrays = PostingArrays(one, few, bits, gaps, codes, counts, sizes, ends, data, n_rows)

    def find(self, codes: Codes) -> FoundLists:
        """Look up the lists of terms."""
        arrays = self._arrays
        entries = int(arrays.one.starts[-1] + arrays.few.starts[-1]) + len(arrays.codes)
        found = np.empty((min(len(codes) * (1 + (1 << COUNT_BITS)), entries), 6), np.int64)
        return found[: kernels.find_lists(arrays, codes, found)]

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
        found, counts = self.find(codes), np.zeros((len(codes), len(rows)), np.uint8)
        buffer = np.empty((1 << SIZE_BITS) + 1, np.int32)
        _require_rows(kernels.count_terms(self._arrays, found, rows, buffer, counts))
        return counts

    def read_all(self) -> tuple[Rows, Codes, Bytes]:
        """Return all postings: row, code, occurrences. Raises `ValueError` if a row does not exist."""
        codes = [self._arrays.codes.astype(np.int64)]
        for table in (self._arrays.one, self._arrays.few):
            codes.append(np.empty(table.starts[-1], np.int64))
            kernels.read_codes(table, codes[-1])
        known = np.unique(np.concatenate(codes)).astype(np.uint32)
        found = self.find(known)
        counts = np.repeat(found[:, COUNT].astype(np.uint8), found[:, SIZE])
        return self.read_rows(found), np.repeat(known[found[:, TERM]], found[:, SIZE]), counts


def count_rows(found: FoundLists, n_terms: int) -> Integers:
    """Return the number of rows of each term."""
    return np.bincount(found[:, TERM], found[:, SIZE], n_terms).astype(np.int64)


def _require_rows(exist: bool) -> None:
    if not exist:
        raise ValueError("a row is missing")


def _measure(values: Integers) -> Integers:
    """Return the number of bits of lists of few rows, given their entries."""
    return ((values & (1 << SIZE_BITS) - 1) + 1) * (values >> SIZE_BITS & (1 << WIDTH_BITS) - 1)


def encode_postings(
    rows: npt.NDArray[Any], codes: Codes, counts: npt.NDArray[np.uint8], n_rows: int
) -> dict[str, Array]:
    """Return the arrays of `POSTING_ARRAYS`.

    Args:
        rows: Row of each posting, below `MAX_ROWS`.
        codes: Its term.
        counts: How often it occurs there, from 1 to 16.
        n_rows: The number of rows.
    """
    row_bits = np.uint64(MAX_ROWS.bit_length() - 1)
    keys = codes.astype(np.uint64) << np.uint64(COUNT_BITS) | counts.astype(np.uint64) - np.uint64(1)
    keys <<= row_bits
    keys |= rows.astype(np.uint64)
    keys.sort()
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]  # two terms of a row may have the same code
    heads, ordered = keys >> row_bits, (keys & np.uint64(MAX_ROWS - 1)).astype(np.int64)
    first = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1]))[: len(heads)])
    code, count = (heads[first] >> np.uint64(COUNT_BITS)).astype(np.uint32), heads[first] & np.uint64(15)
    gaps = np.diff(ordered, prepend=-1) - 1
    gaps[first] = ordered[first]
    size = np.diff(first, append=len(keys))
    width = np.frexp(np.maximum.reduceat(gaps, first) if len(first) else gaps)[1].astype(np.int64)
    in_bytes = size + (np.add.reduceat((gaps + 1) // STEP, first) if len(first) else gaps)
    is_one = (size == 1) & (count == 0)
    is_many = (size > 1 << SIZE_BITS) | (8 * in_bytes <= size * width) & (size > 1)
    few = np.flatnonzero(~is_one & ~is_many)
    values = size[few] - 1 | width[few] << SIZE_BITS | count[few].astype(np.int64) << SIZE_BITS + WIDTH_BITS
    one = build_table(code[is_one], ordered[first[is_one]], n_rows.bit_length())
    sizes, entries = build_table(code[few], values, _FEW_BITS)
    in_few, _ = gather_rows(np.append(first, len(keys)), few)
    many = np.flatnonzero(is_many)
    data = [np.zeros(0, np.uint8)]
    for start, end in zip(first[many].tolist(), (first + size)[many].tolist(), strict=True):
        data.append(_encode_many(gaps[start:end] + 1, n_rows))
    return {
        "one.sizes": one[0],
        "one.entries": one[1],
        "few.sizes": sizes,
        "few.entries": entries,
        "few.starts": accumulate(_measure(values))[accumulate(sizes)[:-1]].astype(np.uint32),
        "few.gaps": pack_bits(gaps[in_few], np.repeat(width[few], size[few])),
        "many.codes": code[many],
        "many.counts": count[many].astype(np.uint8) + np.uint8(1),
        "many.sizes": size[many].astype(np.uint32),
        "many.ends": np.cumsum([len(part) for part in data])[1:].astype(np.uint32),
        "many.data": np.concatenate(data),
    }


def _encode_many(differences: Integers, n_rows: int) -> Bytes:
    """Return bytes for differences of rows, the first of which is counted from -1; or a bitmap if it is not longer."""
    steps, rest = np.divmod(differences, STEP)
    ends = np.cumsum(steps + 1)
    if int(ends[-1]) >= n_rows + 7 >> 3:
        has = np.zeros(n_rows, bool)
        has[np.cumsum(differences) - 1] = True
        return np.packbits(has, bitorder="little")
    data = np.full(int(ends[-1]), STEP, np.uint8)
    data[ends - 1] = rest
    return data
