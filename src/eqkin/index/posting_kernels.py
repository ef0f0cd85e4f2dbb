"""Compiled loops over inverted lists: writing, finding, reading and scoring them; see `eqkin.index.postings`.

Indices are not checked by the machine. Whoever calls them has checked that arrays fit one another (`PostingLists` does
when it is made); what stored numbers lead to is checked here. Innermost loops have unsigned indices: a signed one might
be negative and mean to count from the end, which takes twice as long.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (the types are those of the signatures)

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from eqkin.compiler import njit
from eqkin.storage.bits import (
    PREFIX_BITS,
    WINDOW,
    count_zeros,
    load_bits,
    measure_bits,
    read_number,
    write_bits,
    write_number,
)

ROW_BITS = 28  # at most
GAP_SYMBOLS = ROW_BITS + 1  # numbers of bits of a difference, less one
GAP_CLASSES = 2 * ROW_BITS  # of sizes of lists
PADDING = 40  # bytes after the last list: as many as are read from the beginning of an entry
TERM, SIZE, COUNT, PLACE = range(4)  # what is known of a list that was found
BITMAP_ROWS = 4  # a list that has one of so many rows, or more, is a bitmap
_UNMEASURED_SIZE = 32  # lists of more rows say how many bits they have
_LENGTH_BITS = 6  # of such a number, at least
_BLOCK_ROWS = 64  # of a list that can be skipped at once
_WIDTH_BITS = 5
_WORD_ROWS = 56  # of a bitmap that are read at once
_SCORE_BINS, _BIN_SHIFT = 1 << 13, 18  # the leading bits of a positive 32-bit float
_ONE = np.uint64(1)


class PostingArrays(NamedTuple):
    """The arrays of a segment's lists; see `eqkin.index.postings`."""

    starts: npt.NDArray[np.uint32]  # (buckets + 1,) the first byte of each bucket, and the end of the last
    data: npt.NDArray[np.uint8]
    table: npt.NDArray[np.uint16]  # (classes * 2^PREFIX_BITS,) number of bits of a difference, and of its code
    n_rows: int
    rest_bits: int  # of a code after those that say its bucket
    step_bits: int  # for differences of codes


_I, _U16 = types.int64, types.uint16
_BYTES, _U32, _I64, _F32, _TABLE = (
    types.Array(dtype, 1, "C", readonly=True) for dtype in (types.uint8, types.uint32, _I, types.float32, _U16)
)
_LISTS = types.NamedTuple((_U32, _BYTES, _TABLE, _I, _I, _I), PostingArrays)
_PARAMETERS = types.UniTuple(_I, 3)
_FOUND, _ROWS, _SCORES = _I[:, ::1], types.int32[::1], types.float32[::1]


@njit()
def _find_class(size):
    """Return the class of a list of two rows or more: the two leading bits of its size, and how many follow."""
    bits = measure_bits(size)
    return 2 * (bits - 2) + (size >> bits - 2 & 1)


@njit()
def _read_gap(lists, at, base):
    """Return the difference of two rows, less one, and where it ends."""
    word = load_bits(lists.data, at)
    known = lists.table[np.uint64(base) + (word & np.uint64((1 << PREFIX_BITS) - 1))]
    bits, length = np.int64(known >> _U16(4)), np.int64(known & _U16(15))
    return np.int64(_ONE << np.uint64(bits) | word >> np.uint64(length) & (_ONE << np.uint64(bits)) - _ONE) - 1, (
        at + length + bits
    )


@njit()
def _read_entry(lists, at):
    """Read what comes before the rows of a list.

    Returns:
        The difference from the code before; number of rows, -1 if it cannot be; occurrences; the row, or where rows
        begin; and where the next list begins.
    """
    data, n_rows, count = lists.data, lists.n_rows, 1
    step, at = read_number(data, at, lists.step_bits)
    size, at = read_number(data, at, 0)
    if size > 0:  # one row with several occurrences, or several rows
        more, at = read_number(data, at, 0)
        count += more + (size == 1)
    if size < 2:
        bits = measure_bits(n_rows - 1)
        short = (1 << bits) - n_rows  # so many rows take one bit less
        row = np.int64(load_bits(data, at)) & (1 << bits) - 1
        first = row & (1 << bits >> 1) - 1
        if bits > 0 and first < short:
            return step, 1, count, first, at + bits - 1
        row = (first << 1 | row >> max(bits - 1, 0)) - short
        return step, 1 if row < n_rows else -1, count, row, at + bits
    limit = 8 * (len(data) - WINDOW)
    if size * BITMAP_ROWS >= n_rows or size > _UNMEASURED_SIZE:
        length = n_rows
        if size * BITMAP_ROWS < n_rows:
            length, at = read_number(data, at, _LENGTH_BITS)
        return step, size if size <= min(length, n_rows) and at + length <= limit else -1, count, at, at + length
    place, base = at, _find_class(size) << PREFIX_BITS
    for _ in range(size):
        if at > limit:
            return step, -1, count, place, at
        _, at = _read_gap(lists, at, base)
    return step, size, count, place, at


@njit(_I(_LISTS, _U32, _FOUND), nogil=True, cache=True)
def find_lists(lists, codes, found):
    """Write the lists of terms, by the position of the term.

    Args:
        lists: The lists of a segment.
        codes: The terms.
        found: (lists, 4); more lists than it has room for are left out.

    Returns:
        How many there are; -1 if the lists are damaged.
    """
    n = 0
    for term in range(len(codes)):
        wanted = np.int64(codes[term])
        bucket = wanted >> lists.rest_bits
        at, end = 8 * np.int64(lists.starts[bucket]), 8 * np.int64(lists.starts[bucket + 1])
        code = bucket << lists.rest_bits
        while at + 8 <= end:
            step, size, count, place, at = _read_entry(lists, at)
            code += step
            if size < 0:
                return -1
            if code > wanted:
                break
            if code == wanted and n < len(found):
                found[n, TERM], found[n, SIZE], found[n, COUNT], found[n, PLACE] = term, size, count, place
                n += 1
    return n


@njit(_I(_LISTS, _FOUND), nogil=True, cache=True)
def list_all(lists, found):
    """Write all lists, with the code of the term as `TERM`, as far as there is room; return their number or -1."""
    n = 0
    for bucket in range(len(lists.starts) - 1):
        at, end = 8 * np.int64(lists.starts[bucket]), 8 * np.int64(lists.starts[bucket + 1])
        code = bucket << lists.rest_bits
        while at + 8 <= end:
            step, size, count, place, at = _read_entry(lists, at)
            code += step
            if size < 0:
                return -1
            if n < len(found):
                found[n, TERM], found[n, SIZE], found[n, COUNT], found[n, PLACE] = code, size, count, place
            n += 1
    return n


@njit()
def _find_gaps(lists, size, place):
    """Return where the differences of a list begin, how many blocks can be skipped, and the widths of what they say."""
    blocks, bits, rows = (size - 1) // _BLOCK_ROWS, np.int64(0), np.int64(0)
    if blocks > 0 and place <= 8 * (len(lists.data) - WINDOW):
        word = np.int64(load_bits(lists.data, place))
        bits, rows = word & (1 << _WIDTH_BITS) - 1, word >> _WIDTH_BITS & (1 << _WIDTH_BITS) - 1
        place += 2 * _WIDTH_BITS + blocks * (bits + rows)
    return place, blocks, bits, rows


@njit(types.boolean(_LISTS, _FOUND, _I, _I, _ROWS), nogil=True, cache=True)
def _decode(lists, found, at, first, rows):
    """Write the rows of a list, ascending, from a place on; there must be room for one more.

    Returns:
        Whether all of them exist, and as many as there should be.
    """
    size, place, n_rows, data, n = found[at, SIZE], found[at, PLACE], lists.n_rows, lists.data, np.uint64(first)
    limit = 8 * (len(data) - WINDOW)
    if size == 1:
        rows[n] = place
        return True
    if size * BITMAP_ROWS >= n_rows:
        for start in range(0, n_rows, _WORD_ROWS):
            word = load_bits(data, place + start) & (_ONE << np.uint64(min(_WORD_ROWS, n_rows - start))) - _ONE
            while word:
                if n == np.uint64(first + size):
                    return False
                rows[n] = start + count_zeros(word)
                n += _ONE
                word &= word - _ONE
        return n == np.uint64(first + size)
    place, row, base = _find_gaps(lists, size, place)[0], np.int64(-1), _find_class(size) << PREFIX_BITS
    for _ in range(size):
        if place > limit:
            return False
        gap, place = _read_gap(lists, place, base)
        row += gap + 1
        rows[n] = row
        n += _ONE
    return row < n_rows


@njit(types.boolean(_LISTS, _FOUND, _ROWS), nogil=True, cache=True)
def read_rows(lists, found, rows):
    """Write the rows of lists, one after the other, in room for one more; return whether all exist."""
    start = 0
    for at in range(len(found)):
        if not _decode(lists, found, at, start, rows):
            return False
        start += found[at, SIZE]
    return True


@njit(types.boolean(_LISTS, _FOUND, _I64, types.uint8[:, ::1]), nogil=True, cache=True)
def count_terms(lists, found, rows, counts):
    """Count terms in rows.

    Args:
        lists: The lists of a segment.
        found: Those of the terms.
        rows: Ascending.
        counts: (terms, rows) to which is added how often each term occurs in each row.

    Returns:
        Whether all rows of the lists exist.
    """
    limit, last = 8 * (len(lists.data) - WINDOW), len(rows) - 1
    for at in range(len(found) if len(rows) else 0):
        term, size, count, place = found[at, TERM], found[at, SIZE], np.uint8(found[at, COUNT]), found[at, PLACE]
        if size > 1 and size * BITMAP_ROWS >= lists.n_rows:
            for wanted in range(len(rows)):
                counts[term, wanted] += count * np.uint8(load_bits(lists.data, place + rows[wanted]) & _ONE)
            continue
        wanted, row, base, skip = 0, np.int64(-1), _find_class(size) << PREFIX_BITS if size > 1 else 0, place
        place, blocks, width, row_width = _find_gaps(lists, size, place)
        for block in range(blocks + 1):
            end, following = lists.n_rows, place
            if block < blocks:
                bit = skip + 2 * _WIDTH_BITS + block * (width + row_width)
                if bit > limit:
                    return False
                known = np.int64(load_bits(lists.data, bit))
                end = row + (known >> width & (1 << row_width) - 1)
                following += known & (1 << width) - 1
            for _ in range(min(size - block * _BLOCK_ROWS, _BLOCK_ROWS)):
                if rows[wanted] > end:  # all other rows of this block come before
                    place, row = following, end
                    break
                if size == 1:
                    row = place
                else:
                    if place > limit:
                        return False
                    gap, place = _read_gap(lists, place, base)
                    row += gap + 1
                while wanted < last and rows[wanted] < row:
                    wanted += 1
                if rows[wanted] == row:
                    counts[term, wanted] += count
                    wanted += wanted < last
            if rows[last] <= row:
                break
    return True


@njit(_I(_LISTS, _FOUND, _F32, _F32, _I, _SCORES, _ROWS, _ROWS, _SCORES), nogil=True, cache=True)
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
    limit = 8 * (len(lists.data) - WINDOW)
    for at in range(len(found)):
        weight, size = weights[found[at, TERM]], found[at, SIZE]
        if size > 1 and size * BITMAP_ROWS < lists.n_rows:  # most postings: their rows are not written first
            place, base = _find_gaps(lists, size, found[at, PLACE])[0], _find_class(size) << PREFIX_BITS
            row = ~np.uint64(0)
            for _ in range(size):
                if place > limit:
                    return -1
                gap, place = _read_gap(lists, place, base)
                row += np.uint64(gap) + _ONE
                if row >= n_rows:
                    return -1
                rows[touched] = row
                touched += np.uint64(scores[row] == 0)
                scores[row] += weight
            continue
        if not _decode(lists, found, at, 0, buffer):
            return -1
        for place in range(np.uint64(size)):
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


@njit(types.void(_I64, _ROWS, _I, _I[:, ::1]), nogil=True, cache=True)
def count_gaps(starts, rows, n_rows, counts):
    """Count how often differences of rows have how many bits: (classes, symbols).

    Args:
        starts: The first row of each list, and the end of the last.
        rows: The rows of all lists.
        n_rows: The number of rows there are.
        counts: To which is added.
    """
    for at in range(len(starts) - 1):
        size, before = starts[at + 1] - starts[at], -1
        if size > 1 and size * BITMAP_ROWS < n_rows:
            own = counts[_find_class(size)]
            for place in range(starts[at], starts[at + 1]):
                own[measure_bits(rows[place] - before) - 1] += 1
                before = rows[place]


@njit()
def _write_rows(rows, first, size, prefixes, data, at):
    """Write the rows of a list in the codes of its class; return where they end."""
    lengths, codes = prefixes[_find_class(size)]
    blocks, block = (size - 1) // _BLOCK_ROWS, 0
    before, total, bits, last = -1, 0, np.zeros(blocks + 1, np.int64), np.zeros(blocks + 1, np.int64)
    for place in range(size):
        symbol = measure_bits(rows[first + place] - before) - 1
        before = rows[first + place]
        bits[place // _BLOCK_ROWS] += lengths[symbol] + symbol
        last[place // _BLOCK_ROWS] = before
    width, row_width = 0, 0
    for block in range(blocks):
        advance = last[block] - last[block - 1] if block else last[0] + 1
        width, row_width = max(width, measure_bits(bits[block])), max(row_width, measure_bits(advance))
    if size > _UNMEASURED_SIZE:
        total = bits.sum() + (2 * _WIDTH_BITS + blocks * (width + row_width) if blocks else 0)
        at = write_number(data, at, total, _LENGTH_BITS)
    if blocks:
        at = write_bits(data, at, width | row_width << _WIDTH_BITS, 2 * _WIDTH_BITS)
    for block in range(blocks):
        advance = last[block] - last[block - 1] if block else last[0] + 1
        at = write_bits(data, at, bits[block] | advance << width, width + row_width)
    before = -1
    for place in range(size):
        gap = rows[first + place] - before
        before = rows[first + place]
        symbol = measure_bits(gap) - 1
        at = write_bits(data, at, codes[symbol] | (gap - (1 << symbol)) << lengths[symbol], lengths[symbol] + symbol)
    return at


@njit(
    _I(_U32, _BYTES, _I64, _ROWS, _I[:, :, ::1], _PARAMETERS, types.uint32[::1], types.uint8[::1]),
    nogil=True,
    cache=True,
)
def write_lists(codes, counts, starts, rows, prefixes, parameters, bucket_starts, data):
    """Write lists.

    Args:
        codes: The term of each, ascending.
        counts: How often it occurs in the rows of the list; ascending for the same code.
        starts: The first row of each list, and the end of the last.
        rows: The rows of all lists.
        prefixes: (classes, 2, symbols) length and code of each number of bits of a difference.
        parameters: `n_rows`, `rest_bits` and `step_bits` of `PostingArrays`.
        bucket_starts: (buckets + 1,) what is written.
        data: Zeros, enough.

    Returns:
        The number of bytes that are written.
    """
    n_rows, rest_bits, step_bits = parameters
    row_bits, at, n, code = measure_bits(n_rows - 1), 0, 0, np.int64(0)
    short = (1 << row_bits) - n_rows
    for bucket in range(len(bucket_starts) - 1):
        bucket_starts[bucket], code = at >> 3, np.int64(bucket << rest_bits)
        while n < len(codes) and codes[n] >> rest_bits == bucket:
            first, size = starts[n], starts[n + 1] - starts[n]
            at = write_number(data, at, np.int64(codes[n]) - code, step_bits)
            code = np.int64(codes[n])
            at = write_number(data, at, size if size > 1 else np.int64(counts[n] > 1), 0)
            if size > 1 or counts[n] > 1:
                at = write_number(data, at, np.int64(counts[n]) - 1 - (size == 1), 0)
            row = np.int64(rows[first])
            if size == 1 and row < short:
                at = write_bits(data, at, row, row_bits - 1)
            elif size == 1:
                row += short
                at = write_bits(data, at, row >> 1 | (row & 1) << max(row_bits - 1, 0), row_bits)
            elif size * BITMAP_ROWS >= n_rows:
                for place in range(first, first + size):
                    write_bits(data, at + rows[place], 1, 1)
                at += n_rows
            else:
                at = _write_rows(rows, first, size, prefixes, data, at)
            n += 1
        at = at + 7 & ~7
    bucket_starts[-1] = at >> 3
    return at >> 3
