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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.storage.segments import Array
from eqkin.trees.operators import accumulate, gather_rows

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

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
_WINDOW = 8  # bytes that are read for a number of a few bits
_SIZE_BITS, _WIDTH_BITS, _COUNT_BITS = 11, 5, 4  # of an entry for few rows
_CACHED_LISTS = 1_024  # of many rows, of each segment
_STEP = 255  # a byte that stands for a part of a difference


def pack_bits(values: npt.NDArray[Any], widths: npt.NDArray[Any] | int) -> Bytes:
    """Return numbers with the given numbers of bits each, at most 57."""
    ends = np.cumsum(np.broadcast_to(np.asarray(widths, np.int64), values.shape))
    start = ends - widths
    data = np.zeros((int(ends[-1]) + 7 >> 3 if len(ends) else 0) + _WINDOW, np.uint8)
    shifted = values.astype(np.uint64) << (start & 7).astype(np.uint64)
    at = start >> 3
    for step in range(_WINDOW):
        part = shifted.astype(np.uint8)
        np.add.at(data, at + step, part)
        shifted >>= np.uint64(8)
        if not shifted.any():
            break
    return data


def open_windows(data: Bytes) -> npt.NDArray[np.uint64]:
    """Return the 64 bits that begin at each byte, as a view."""
    return np.ndarray(max(len(data) - _WINDOW + 1, 0), "<u8", data, strides=(1,))


def read_bits(windows: npt.NDArray[np.uint64], starts: Integers, masks: npt.NDArray[np.uint64] | np.uint64) -> Integers:
    """Return the numbers that begin at some bits, given ones for their bits; raises `IndexError`."""
    numbers = windows[starts >> 3]
    numbers >>= (starts & 7).view(np.uint64)
    numbers &= masks
    read: Integers = numbers.view(np.int64)
    return read


@dataclass(frozen=True)
class CodeTable:
    """Codes in ascending order, each with a value."""

    sizes: npt.NDArray[np.uint16]  # (buckets,) number of entries
    entries: Bytes  # values and the last bits of codes
    value_bits: int

    @classmethod
    def build(cls, codes: Codes, values: npt.NDArray[Any], value_bits: int) -> CodeTable:
        """Make a table; a code may occur several times."""
        bits = max(len(codes) // _BUCKET_ENTRIES, 1).bit_length() - 1
        numbers = codes.astype(np.int64)
        while (sizes := np.bincount(numbers >> _CODE_BITS - bits, minlength=1 << bits)).max() >= 1 << 16:
            bits += 1
        rest = _CODE_BITS - bits
        entries = (numbers & (1 << rest) - 1) << value_bits | values
        return cls(sizes.astype(np.uint16), pack_bits(entries, rest + value_bits), value_bits)

    @cached_property
    def starts(self) -> Integers:
        """The first entry of each bucket, and the number of entries: (buckets + 1,)."""
        return accumulate(self.sizes)

    @cached_property
    def rest_bits(self) -> int:
        """Bits of a code that its entry has."""
        return _CODE_BITS + 1 - len(self.sizes).bit_length()

    def is_valid(self) -> bool:
        """Return whether there are as many entries as the buckets have."""
        buckets, bits = len(self.sizes), int(self.starts[-1]) * (self.rest_bits + self.value_bits)
        return 0 < buckets <= 1 << 30 and buckets & buckets - 1 == 0 and len(self.entries) == (bits + 7 >> 3) + _WINDOW

    def find(self, codes: Codes) -> tuple[Integers, Integers, Integers, Integers]:
        """Look up codes.

        Returns:
            The bucket of each code; entries from the first of its bucket on, (codes, entries); the positions of entries
            with the codes in it.
        """
        numbers = codes.astype(np.int64)
        buckets = numbers >> self.rest_bits
        sizes = self.sizes[buckets]
        at = self.starts[buckets][:, None] + np.arange(int(sizes.max(initial=0)))
        entries = self._read(np.minimum(at, self.starts[-1] - 1, out=at))
        numbers &= (1 << self.rest_bits) - 1
        term, place = np.nonzero(entries >> self.value_bits == numbers[:, None])
        own = place < sizes[term]  # not in the next bucket
        return buckets, entries, term[own], place[own]

    def read_all(self) -> tuple[Codes, Integers]:
        """Return all codes and values."""
        entries = self._read(np.arange(int(self.starts[-1])))
        leading = np.repeat(np.arange(len(self.sizes)) << self.rest_bits, self.sizes)
        return (leading | entries >> self.value_bits).astype(np.uint32), entries & (1 << self.value_bits) - 1

    def _read(self, at: Integers) -> Integers:
        return read_bits(self._windows, at * self._width, self._mask)

    @cached_property
    def _width(self) -> int:
        return self.rest_bits + self.value_bits

    @cached_property
    def _mask(self) -> np.uint64:
        return np.uint64((1 << self._width) - 1)

    @cached_property
    def _windows(self) -> npt.NDArray[np.uint64]:
        return open_windows(self.entries)


@dataclass(frozen=True)
class FoundLists:
    """Lists of some terms. A term is given by its position among those that were looked up."""

    one_term: Integers
    one_row: Integers
    few_term: Integers
    few_start: Integers  # first bit
    few_value: Integers  # of the table's entry: rows less one, width, occurrences less one
    few_size: Integers
    many: Sequence[tuple[int, int]]  # term, number of the list

    def select(self, is_wanted: npt.NDArray[np.bool_]) -> FoundLists:
        """Return the lists of some terms."""
        one, few = np.flatnonzero(is_wanted[self.one_term]), np.flatnonzero(is_wanted[self.few_term])
        return FoundLists(
            *(self.one_term[one], self.one_row[one]),
            *(self.few_term[few], self.few_start[few], self.few_value[few], self.few_size[few]),
            [(term, number) for term, number in self.many if is_wanted[term]],
        )


class PostingLists:
    """The lists of a segment.

    Args:
        arrays: What `encode_postings` made, by the names of `POSTING_ARRAYS`.
        n_rows: The number of rows.
    """

    def __init__(self, arrays: Mapping[str, Array], n_rows: int) -> None:
        self.n_rows = n_rows
        self._one = CodeTable(arrays["one.sizes"], arrays["one.entries"], n_rows.bit_length())
        self._few = CodeTable(arrays["few.sizes"], arrays["few.entries"], _SIZE_BITS + _WIDTH_BITS + _COUNT_BITS)
        self._few_starts, self._gaps = arrays["few.starts"], open_windows(arrays["few.gaps"])
        self._codes, self._counts, self._sizes = (arrays[f"many.{name}"] for name in ("codes", "counts", "sizes"))
        self._ends, self._data = arrays["many.ends"], arrays["many.data"]
        self._read_many = lru_cache(_CACHED_LISTS)(self._decode_many)

    def is_valid(self) -> bool:
        """Return whether the arrays fit one another; rows are checked when they are read."""
        return (
            self._one.is_valid()
            and self._few.is_valid()
            and len(self._few_starts) == len(self._few.sizes)
            and len(self._codes) == len(self._counts) == len(self._sizes) == len(self._ends)
            and bool((self._codes[1:] >= self._codes[:-1]).all())
            and bool((self._ends[1:] > self._ends[:-1]).all())
            and (int(self._ends[-1]) if len(self._ends) else 0) == len(self._data)
        )

    def find(self, codes: Codes) -> FoundLists:
        """Look up the lists of terms."""
        _, entries, one, place = self._one.find(codes)
        rows = entries[one, place] & (1 << self._one.value_bits) - 1
        buckets, entries, term, place = self._few.find(codes)
        bits = _measure(entries)
        bits.cumsum(axis=1, out=bits)
        entries &= (1 << self._few.value_bits) - 1
        values = entries[term, place]
        starts = self._few_starts[buckets[term]] + bits[term, place] - _measure(values)
        bounds = zip(*(self._codes.searchsorted(codes, side).tolist() for side in ("left", "right")), strict=True)
        many = [(at, number) for at, (first, end) in enumerate(bounds) for number in range(first, end)]
        return FoundLists(one, rows, term, starts, values, (values & (1 << _SIZE_BITS) - 1) + 1, many)

    def count_rows(self, found: FoundLists, n_terms: int) -> Integers:
        """Return the number of rows of each term."""
        total = np.bincount(found.one_term, minlength=n_terms)
        np.add.at(total, found.few_term, found.few_size)
        for term, number in found.many:
            total[term] += self._sizes[number]
        return total

    def read_rows(self, found: FoundLists) -> tuple[Integers, Integers, Integers]:
        """Return all postings: row, term, occurrences. Raises `ValueError` if a row does not exist."""
        rows, term = ([part] for part in self._read_small(found))
        count = [self._read_counts(found)]
        for at, number in found.many:
            rows.append(self._read_many(number).astype(np.int64))
            term.append(np.full(len(rows[-1]), at))
            count.append(np.full(len(rows[-1]), self._counts[number], np.int64))
        return np.concatenate(rows), np.concatenate(term), np.concatenate(count)

    def add_weights(self, scores: Floats, found: FoundLists, weights: Floats) -> None:
        """Add the weight of each term to the scores of its rows; raises `ValueError` if a row does not exist."""
        rows, term = self._read_small(found)
        np.add.at(scores, rows, weights[term])
        for at, number in found.many:
            if (bitmap := self._get_bitmap(number)) is not None:
                scores += np.unpackbits(bitmap, count=len(scores), bitorder="little") * weights[at]
            else:
                np.add.at(scores, self._read_many(number), weights[at])

    def count_terms(self, found: FoundLists, n_terms: int, rows: Integers) -> npt.NDArray[np.uint8]:
        """Return how often each term occurs in each of some rows, which are ascending: (terms, rows)."""
        counts = np.zeros((n_terms, len(rows)), np.uint8)
        if not len(rows):
            return counts
        (row, term), count = self._read_small(found), self._read_counts(found)
        at = np.minimum(np.searchsorted(rows, row), len(rows) - 1)
        same = np.flatnonzero(rows[at] == row)
        counts[term[same], at[same]] += count[same].astype(np.uint8)
        for at_term, number in found.many:
            if (bitmap := self._get_bitmap(number)) is not None:
                has = bitmap[rows >> 3] >> (rows & 7).astype(np.uint8) & np.uint8(1)
            else:
                some = self._read_many(number)
                has = some.take(some.searchsorted(rows), mode="clip") == rows
            counts[at_term] += has * self._counts[number]
        return counts

    def read_all(self) -> tuple[Integers, Codes, npt.NDArray[np.uint8]]:
        """Return all postings: row, code, occurrences. Raises `ValueError` if a row does not exist."""
        one, row = self._one.read_all()
        few, values = self._few.read_all()
        starts = accumulate(_measure(values))[:-1]
        found = FoundLists(
            *(np.arange(len(one)), row),
            *(np.arange(len(few)) + len(one), starts, values, (values & (1 << _SIZE_BITS) - 1) + 1),
            [(number + len(one) + len(few), number) for number in range(len(self._codes))],
        )
        rows, term, count = self.read_rows(found)
        return rows, np.concatenate((one, few, self._codes))[term], count.astype(np.uint8)

    def _read_small(self, found: FoundLists) -> tuple[Integers, Integers]:
        """Return row and term of all postings in lists of one row and of few."""
        sizes = found.few_size
        width = found.few_value >> _SIZE_BITS & (1 << _WIDTH_BITS) - 1
        before = accumulate(sizes)
        bits = np.arange(before[-1])
        bits *= np.repeat(width, sizes)
        bits += np.repeat(found.few_start - before[:-1] * width, sizes)
        gaps = read_bits(self._gaps, bits, np.repeat(((1 << width) - 1).view(np.uint64), sizes))
        gaps += 1
        rows = gaps.cumsum()
        rows -= np.repeat(rows[before[:-1]] - gaps[before[:-1]] + 1, sizes)
        rows = np.concatenate((found.one_row, rows))
        if int(rows.max(initial=-1)) >= self.n_rows:
            raise ValueError("a row is missing")
        return rows, np.concatenate((found.one_term, np.repeat(found.few_term, sizes)))

    def _read_counts(self, found: FoundLists) -> Integers:
        """Return the occurrences in the postings of `_read_small`."""
        few = np.repeat((found.few_value >> _SIZE_BITS + _WIDTH_BITS) + 1, found.few_size)
        return np.concatenate((np.ones(len(found.one_row), np.int64), few))

    def _get_data(self, number: int) -> Bytes:
        data: Bytes = self._data[int(self._ends[number - 1]) if number else 0 : int(self._ends[number])]
        return data

    def _get_bitmap(self, number: int) -> Bytes | None:
        """Return the bitmap of a list of many rows; None if it is stored as differences."""
        data = self._get_data(number)
        return data if len(data) >= self.n_rows + 7 >> 3 else None

    def _decode_many(self, number: int) -> npt.NDArray[np.int32]:
        """Return the rows of a list of many."""
        data, bitmap = self._get_data(number), self._get_bitmap(number)
        if bitmap is not None:
            rows = np.flatnonzero(np.unpackbits(bitmap, count=self.n_rows, bitorder="little"))
        else:
            rows = data.cumsum(dtype=np.int64)[data < _STEP] - 1
        if len(rows) != self._sizes[number] or int(rows[-1]) >= self.n_rows:
            raise ValueError("a row is missing")
        return rows.astype(np.int32)


def _measure(values: Integers) -> Integers:
    """Return the number of bits of lists of few rows, given their entries."""
    return ((values & (1 << _SIZE_BITS) - 1) + 1) * (values >> _SIZE_BITS & (1 << _WIDTH_BITS) - 1)


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
    keys = codes.astype(np.uint64) << np.uint64(_COUNT_BITS) | counts.astype(np.uint64) - np.uint64(1)
    keys <<= row_bits
    keys |= rows.astype(np.uint64)
    keys.sort()
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]  # two terms of a row may have the same code
    heads, ordered = keys >> row_bits, (keys & np.uint64(MAX_ROWS - 1)).astype(np.int64)
    first = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1]))[: len(heads)])
    code, count = (heads[first] >> np.uint64(_COUNT_BITS)).astype(np.uint32), heads[first] & np.uint64(15)
    gaps = np.diff(ordered, prepend=-1) - 1
    gaps[first] = ordered[first]
    size = np.diff(first, append=len(keys))
    width = np.frexp(np.maximum.reduceat(gaps, first) if len(first) else gaps)[1].astype(np.int64)
    in_bytes = size + (np.add.reduceat((gaps + 1) // _STEP, first) if len(first) else gaps)
    is_one = (size == 1) & (count == 0)
    is_many = (size > 1 << _SIZE_BITS) | (8 * in_bytes <= size * width) & (size > 1)
    few = np.flatnonzero(~is_one & ~is_many)
    values = size[few] - 1 | width[few] << _SIZE_BITS | count[few].astype(np.int64) << _SIZE_BITS + _WIDTH_BITS
    one = CodeTable.build(code[is_one], ordered[first[is_one]], n_rows.bit_length())
    table = CodeTable.build(code[few], values, _SIZE_BITS + _WIDTH_BITS + _COUNT_BITS)
    in_few, _ = gather_rows(np.append(first, len(keys)), few)
    many = np.flatnonzero(is_many)
    data = [np.zeros(0, np.uint8)]
    for start, end in zip(first[many].tolist(), (first + size)[many].tolist(), strict=True):
        data.append(_encode_many(gaps[start:end] + 1, n_rows))
    return {
        "one.sizes": one.sizes,
        "one.entries": one.entries,
        "few.sizes": table.sizes,
        "few.entries": table.entries,
        "few.starts": accumulate(_measure(values))[table.starts[:-1]].astype(np.uint32),
        "few.gaps": pack_bits(gaps[in_few], np.repeat(width[few], size[few])),
        "many.codes": code[many],
        "many.counts": count[many].astype(np.uint8) + np.uint8(1),
        "many.sizes": size[many].astype(np.uint32),
        "many.ends": np.cumsum([len(part) for part in data])[1:].astype(np.uint32),
        "many.data": np.concatenate(data),
    }


def _encode_many(differences: Integers, n_rows: int) -> Bytes:
    """Return bytes for differences of rows, the first of which is counted from -1; or a bitmap if it is not longer."""
    steps, rest = np.divmod(differences, _STEP)
    ends = np.cumsum(steps + 1)
    if int(ends[-1]) >= n_rows + 7 >> 3:
        has = np.zeros(n_rows, bool)
        has[np.cumsum(differences) - 1] = True
        return np.packbits(has, bitorder="little")
    data = np.full(int(ends[-1]), _STEP, np.uint8)
    data[ends - 1] = rest
    return data
