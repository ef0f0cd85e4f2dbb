"""Compiled loops over the arrays of an index: what a search reads of thousands of equations.

They are compiled when this module is imported for the first time, and loaded from numba's cache afterwards. They run
without the interpreter's lock. Indices are not checked by the machine: whoever calls them has checked that arrays fit
one another (`postings.PostingLists` does when it is made), and what stored numbers lead to is checked here. Innermost
loops have unsigned indices: a signed one might be negative and mean to count from the end, which takes twice as long.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (the types are those of the signatures)

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from eqkin.compiler import njit

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

WINDOW = 8  # bytes that are read for a number of a few bits
SIZE_BITS, WIDTH_BITS, COUNT_BITS = 11, 5, 4  # of an entry for few rows
STEP = 255  # a byte that stands for a part of a difference
ONE, FEW, MANY = range(3)  # how a list is stored
TERM, KIND, PLACE, SIZE, WIDTH, COUNT = range(6)  # what is known of a list that was found
_SCORE_BINS, _BIN_SHIFT = 1 << 13, 18  # the leading bits of a positive 32-bit float
_BLOCK_BYTES = 32  # of differences that are skipped if none of the wanted rows is among them
_SAMPLE_STRIDE = 37  # one distance of this many is sampled to guess which are among the lowest
_MAX_COUNTED = 100_000  # distances; of more, a sample is counted
_FAR = np.uint16(0xFFFF)  # a distance that no code has


class CodeTable(NamedTuple):
    """Codes in ascending order, each with a value; see `eqkin.index.postings`."""

    starts: Integers  # (buckets + 1,) the first entry of each bucket, and the number of entries
    entries: npt.NDArray[np.uint8]  # values and the last bits of codes
    rest_bits: int  # of a code that its entry has
    value_bits: int


class PostingArrays(NamedTuple):
    """The arrays of a segment's lists; see `eqkin.index.postings`."""

    one: CodeTable
    few: CodeTable
    bits: npt.NDArray[np.uint32]  # where the differences of each bucket of `few` begin
    gaps: npt.NDArray[np.uint8]  # these differences
    codes: npt.NDArray[np.uint32]  # of lists of many rows, ascending
    counts: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.uint32]
    ends: npt.NDArray[np.uint32]
    data: npt.NDArray[np.uint8]
    n_rows: int


def _stored(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


_I = types.int64
_BYTES, _U32, _I64, _F32, _BOOL = map(_stored, (types.uint8, types.uint32, _I, types.float32, types.boolean))
_TABLE = types.NamedTuple((_I64, _BYTES, _I, _I), CodeTable)
_LISTS = types.NamedTuple((_TABLE, _TABLE, _U32, _BYTES, _U32, _BYTES, _U32, _U32, _BYTES, _I), PostingArrays)
_FOUND, _I32M, _F32M, _F32M2 = _I[:, ::1], types.int32[::1], types.float32[::1], types.float32[:, ::1]


@njit(_I(_BYTES, _I, _I), nogil=True, cache=True)
def read_bits(data, start, width):
    """Return the number of `width` bits, at most 57, that begins at a bit; `WINDOW` bytes are read."""
    at, number = np.uint64(start >> 3), np.uint64(0)
    for step in range(np.uint64(WINDOW)):
        number |= np.uint64(data[at + step]) << (np.uint64(8) * step)
    return np.int64(number >> np.uint64(start & 7)) & (1 << width) - 1


@njit(types.void(_TABLE, _I[::1]), nogil=True, cache=True)
def read_codes(table, codes):
    """Write all codes of a table."""
    width = table.rest_bits + table.value_bits
    for bucket in range(len(table.starts) - 1):
        for entry in range(table.starts[bucket], table.starts[bucket + 1]):
            number = read_bits(table.entries, entry * width, width)
            codes[entry] = bucket << table.rest_bits | number >> table.value_bits


@njit(types.void(_FOUND, _I, _I, _I, _I, _I, _I, _I), nogil=True, cache=True)
def _put(found, n, term, kind, place, size, width, count):
    found[n, TERM] = term
    found[n, KIND] = kind
    found[n, PLACE] = place
    found[n, SIZE] = size
    found[n, WIDTH] = width
    found[n, COUNT] = count


@njit(types.UniTuple(_I, 3)(_TABLE, _I), nogil=True, cache=True)
def _split_code(table, code):
    """Return the width of a table's entries, the bucket of a code, and the bits of the code that its entry has."""
    return table.rest_bits + table.value_bits, code >> table.rest_bits, code & (1 << table.rest_bits) - 1


@njit(_I(_LISTS, _U32, _FOUND), nogil=True, cache=True)
def find_lists(lists, codes, found):
    """Write the lists of terms: those of one row, of few, of many, each by the position of the term.

    The place of a list is its row, its first bit, or its number.

    Args:
        lists: The lists of a segment.
        codes: The terms.
        found: (lists, 6); more lists than it has room for are left out.

    Returns:
        How many there are.
    """
    n, room = 0, len(found)
    for term in range(len(codes)):
        table = lists.one
        bits, bucket, last = _split_code(table, np.int64(codes[term]))
        for entry in range(table.starts[bucket], table.starts[bucket + 1]):
            number = read_bits(table.entries, entry * bits, bits)
            if number >> table.value_bits == last and n < room:
                _put(found, n, term, ONE, number & (1 << table.value_bits) - 1, 1, 0, 1)
                n += 1
    for term in range(len(codes)):
        table = lists.few
        bits, bucket, last = _split_code(table, np.int64(codes[term]))
        start = np.int64(lists.bits[bucket])
        for entry in range(table.starts[bucket], table.starts[bucket + 1]):
            number = read_bits(table.entries, entry * bits, bits)
            size, width = (number & (1 << SIZE_BITS) - 1) + 1, number >> SIZE_BITS & (1 << WIDTH_BITS) - 1
            if number >> table.value_bits == last and n < room:
                count = (number >> SIZE_BITS + WIDTH_BITS & (1 << COUNT_BITS) - 1) + 1
                _put(found, n, term, FEW, start, size, width, count)
                n += 1
            start += size * width
    for term in range(len(codes)):
        at, end = 0, len(lists.codes)
        while at < end:
            middle = at + end >> 1
            if lists.codes[middle] < codes[term]:
                at = middle + 1
            else:
                end = middle
        while at < len(lists.codes) and lists.codes[at] == codes[term] and n < room:
            _put(found, n, term, MANY, at, lists.sizes[at], 0, lists.counts[at])
            n += 1
            at += 1
    return n


@njit(types.UniTuple(_I, 2)(_LISTS, _I), nogil=True, cache=True)
def _find_data(lists, number):
    """Return where the data of a list of many rows are, and whether they are a bitmap."""
    start = np.int64(lists.ends[number - 1]) if number else 0
    return start, np.int64(lists.ends[number] - start >= lists.n_rows + 7 >> 3)


@njit(types.boolean(_LISTS, _FOUND, _I, _I, types.int32[::1]), nogil=True, cache=True)
def _decode(lists, found, at, first, rows):
    """Write the rows of a list, ascending, from a place on; there must be room for one more.

    Returns:
        Whether all of them exist, and as many as there should be.
    """
    n_rows, place, end, row = lists.n_rows, found[at, PLACE], first + found[at, SIZE], np.int64(-1)
    if found[at, KIND] == ONE:
        rows[first] = place
        return place < n_rows
    if found[at, KIND] == FEW:
        gaps, width = lists.gaps, found[at, WIDTH]
        if (place + found[at, SIZE] * width + 7 >> 3) + WINDOW > len(gaps):
            return False
        for n in range(first, end):
            row += 1 + read_bits(gaps, place, width)
            rows[n] = row
            place += width
        return row < n_rows
    (start, is_bitmap), stop, data, n = _find_data(lists, place), np.int64(lists.ends[place]), lists.data, first
    if is_bitmap:
        for bit in range(n_rows):
            rows[n] = bit
            n += data[start + (bit >> 3)] >> (bit & 7) & 1
            if n > end:
                return False
        return n == end
    for byte in range(start, stop):
        row += data[byte]
        rows[n] = row
        n += data[byte] != STEP
        if n > end:
            return False
    is_ascending = rows[first] >= 0
    for n_next in range(first + 1, end):
        is_ascending &= rows[n_next - 1] < rows[n_next]
    return is_ascending and n == end and row < n_rows


@njit(types.boolean(_LISTS, _FOUND, types.int32[::1]), nogil=True, cache=True)
def read_rows(lists, found, rows):
    """Write the rows of lists, one after the other, in room for one more; return whether all exist."""
    start = 0
    for at in range(len(found)):
        if not _decode(lists, found, at, start, rows):
            return False
        start += found[at, SIZE]
    return True


@njit(types.boolean(_LISTS, _FOUND, _I64, types.int32[::1], types.uint8[:, ::1]), nogil=True, cache=True)
def count_terms(lists, found, rows, buffer, counts):
    """Count terms in rows.

    Args:
        lists: The lists of a segment.
        found: Those of the terms.
        rows: Ascending.
        buffer: Room for the rows of the longest list of few, and one more.
        counts: (terms, rows) to which is added how often each term occurs in each row.

    Returns:
        Whether all rows of the lists exist.
    """
    for at in range(len(found) if len(rows) else 0):
        term, count, place = found[at, TERM], np.uint8(found[at, COUNT]), 0
        if found[at, KIND] == MANY:
            data, (start, is_bitmap) = lists.data, _find_data(lists, found[at, PLACE])
            if is_bitmap:
                for place in range(len(rows)):
                    if data[start + (rows[place] >> 3)] >> (rows[place] & 7) & 1:
                        counts[term, place] += count
                continue
            end, stop = np.int64(0), np.int64(lists.ends[found[at, PLACE]])
            for block in range(start, stop, _BLOCK_BYTES):
                total, after = np.int64(0), block + _BLOCK_BYTES if block + _BLOCK_BYTES < stop else stop
                for byte in range(block, after):
                    total += data[byte]
                if end + total <= rows[place]:  # none of the rows is in this block
                    end += total
                    continue
                for byte in range(block, after):
                    end += data[byte]
                    if data[byte] != STEP and end > rows[place]:
                        while place < len(rows) - 1 and rows[place] < end - 1:
                            place += 1
                        if rows[place] == end - 1:
                            counts[term, place] += count
                if place == len(rows) - 1 and rows[place] < end:
                    break
            continue
        if not _decode(lists, found, at, 0, buffer):
            return False
        for n in range(found[at, SIZE]):
            while place < len(rows) - 1 and rows[place] < buffer[n]:
                place += 1
            if rows[place] == buffer[n]:
                counts[term, place] += count
    return True


@njit(_I(_LISTS, _FOUND, _F32, _F32, _I, _F32M, _I32M, _I32M, _F32M), nogil=True, cache=True)
def find_best(lists, found, weights, factors, k, scores, buffer, rows, sums):
    """Find the rows with the largest total weight of terms.

    Args:
        lists: The lists of a segment.
        found: Those of the terms.
        weights: The weight of each term, above 0.
        factors: By what the total weight of each row is multiplied; 0 for those that may not be found.
        k: How many.
        scores: 0 for each row, before and, unless -1 is returned, after.
        buffer: Room for the rows of the longest list, and one more.
        rows: Room for all rows and one more; those found are written here in any order: at least the `k` best, or all.
        sums: The same, for their total weights.

    Returns:
        How many are found; -1 if a row of the lists does not exist.
    """
    touched, n, best, n_rows = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(lists.n_rows)
    for at in range(len(found)):
        weight, place, missing, is_bitmap = weights[found[at, TERM]], found[at, PLACE], found[at, SIZE], 1
        if found[at, KIND] == MANY:
            start, is_bitmap = _find_data(lists, place)
        if not is_bitmap:  # most postings: their rows are not written first
            data, end = lists.data, np.uint64(0)
            for byte in range(np.uint64(start), np.uint64(lists.ends[place])):
                end += np.uint64(data[byte])
                if data[byte] != STEP:
                    row = end - np.uint64(1)
                    if row >= n_rows:
                        return -1
                    rows[touched] = row
                    touched += np.uint64(scores[row] == 0)
                    scores[row] += weight
                    missing -= 1
            if missing:
                return -1
            continue
        if not _decode(lists, found, at, 0, buffer):
            return -1
        for place in range(found[at, SIZE]):
            row = np.uint64(buffer[place])
            rows[touched] = row
            touched += np.uint64(scores[row] == 0)
            scores[row] += weight
    bins, bits = np.zeros(_SCORE_BINS, np.int32), sums.view(np.int32)
    for place in range(touched):
        row = np.uint64(rows[place])
        rows[n], sums[n] = row, scores[row] * factors[row]
        scores[row] = 0
        bins[np.uint64(bits[n] >> _BIN_SHIFT) & np.uint64(_SCORE_BINS - 1)] += 1
        n += np.uint64(sums[n] > 0)
    least, above = _SCORE_BINS, 0
    while least > 0 and above < k:
        least -= 1
        above += bins[least]
    for place in range(n):
        rows[best], bits[best] = rows[place], bits[place]
        best += np.uint64(bits[best] >= least << _BIN_SHIFT)
    return np.int64(best)


@njit(types.uint64(types.uint64), nogil=True, cache=True)
def _count_bits(word):
    """Return the number of ones; compilers know this way to count them and use the machine's."""
    word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (word >> np.uint64(2) & np.uint64(0x3333333333333333))
    word = word + (word >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return word * np.uint64(0x0101010101010101) >> np.uint64(56)


@njit(_I(_stored(types.uint16), _I, _I, _I), nogil=True, cache=True)
def _find_quantile(distance, stride, place, most):
    """Return which distance has a place, from 0 on, among one of `stride`; the largest possible if it is none."""
    counts = np.zeros(most + 1, np.int64)
    for row in range(0, len(distance), stride):
        if distance[row] <= most:
            counts[distance[row]] += 1
    limit, below = 0, counts[0]
    while below <= place and limit < most:
        limit += 1
        below += counts[limit]
    return limit


@njit(_I(_stored(types.uint16), _I, _I[::1]), nogil=True, cache=True)
def _list_near(distance, limit, rows):
    """Write the rows up to a distance; return how many there are."""
    n = np.uint64(0)
    for row in range(len(distance)):
        if distance[row] <= limit:
            rows[n] = row
            n += np.uint64(1)
    return np.int64(n)


@njit(
    _I(_stored(types.uint64, 2), _stored(types.uint64), _I, _BOOL, types.uint16[::1], _I[::1]), nogil=True, cache=True
)
def find_near_codes(codes, query, count, usable, distance, rows):
    """Find about `count` rows of binary codes that differ from a query's in the fewest bits.

    Args:
        codes: (words, rows) of 64 bits.
        query: (words,) that of the query.
        count: How many.
        usable: Which rows may be found; if it is empty, all.
        distance: 0 for each row.
        rows: Room for all rows; those found are written here, ascending.

    Returns:
        How many are found.
    """
    n_rows, most = codes.shape[1], 64 * len(query)
    for word in range(len(query)):
        asked = query[word]
        for row in range(n_rows):
            distance[row] += np.uint16(_count_bits(codes[word, row] ^ asked))
    for row in range(len(usable)):
        if not usable[row]:
            distance[row] = _FAR
    stride = _SAMPLE_STRIDE if n_rows > _MAX_COUNTED else 1
    limit = _find_quantile(distance, stride, count * ((n_rows + stride - 1) // stride) // max(n_rows, 1), most)
    n = _list_near(distance, limit, rows)
    if n < count // 2 and count <= n_rows:  # the guess was too low
        n = _list_near(distance, _find_quantile(distance, 1, count - 1, most), rows)
    return n


@njit(
    types.void(_stored(types.int8, 2), _I64, _stored(types.float32, 2), types.float32[:, ::1]),
    nogil=True,
    cache=True,
    fastmath=True,
)
def multiply_codes(codes, rows, queries, products):
    """Write the products of queries with the codes of some rows: (queries, rows)."""
    for query in range(len(queries)):
        asked, result = queries[query], products[query]
        for at in range(len(rows)):
            own, total = codes[rows[at]], np.float32(0)
            for place in range(len(asked)):
                total += np.float32(own[place]) * asked[place]
            result[at] = total


@njit(
    types.void(_stored(types.int8, 2), _I64, _F32, _stored(types.uint16), _stored(types.float32, 2), _F32M2),
    nogil=True,
    cache=True,
)
def decode_vectors(codes, rows, scale, cell, centres, vectors):
    """Write the vectors of some rows, given the scale and the centre of each."""
    for at in range(len(rows)):
        own, centre, factor, vector = codes[rows[at]], centres[cell[at]], scale[at], vectors[at]
        for place in range(codes.shape[1]):
            vector[place] = np.float32(own[place]) * factor + centre[place]
