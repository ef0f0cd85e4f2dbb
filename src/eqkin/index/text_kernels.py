"""Compiled loops over the lists of a text index.

They are compiled when this module is imported for the first time, and loaded from numba's cache afterwards. Stored
numbers are checked before they are used as places: a damaged list is a `ValueError`.
"""
# ruff: noqa: ANN001, ANN201 (the types are those of the signatures)

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from eqkin.compiler import njit

_BYTES: Any = types.Array(types.uint8, 1, "C", readonly=True)
_INTEGERS: Any = types.int64[::1]


@njit(types.UniTuple(types.int64, 2)(_BYTES, types.int64), cache=True, nogil=True)
def read_varint(data, at):
    """Return the number that SQLite stores at a position, 7 bits per byte, the highest first, and the next position."""
    value = 0
    for place in range(at, min(at + 5, len(data))):
        value = value << 7 | data[place] & 127
        if data[place] < 128:
            return value, place + 1
    raise ValueError("a number has no end")


@njit(types.UniTuple(types.int64, 2)(_BYTES, _BYTES), cache=True, nogil=True)
def find_list(page, word):
    """Return where the list of a word begins and ends in a page of FTS5; the end is -1 if it goes on in the next page.

    Both are -1 if the page does not have the word.
    """
    body = np.int64(page[2]) << 8 | page[3]
    if body > len(page):
        raise ValueError("a page is too short")
    term, length, matching = 0, 0, np.int64(0)  # matching: first bytes that the word and the term before have in common
    index = body
    while index < len(page):
        step, index = read_varint(page, index)
        first = term == 0
        term += step
        shared, at = (np.int64(0), term) if first else read_varint(page, term)
        length, at = read_varint(page, at)
        if at + length > body:
            raise ValueError("a word has no end")
        if shared <= matching:
            matching = shared
            while matching < min(shared + length, len(word)) and page[at + matching - shared] == word[matching]:
                matching += 1
        if matching == len(word) == shared + length:
            if index == len(page):
                return at + length, np.int64(-1)
            return at + length, term + read_varint(page, index)[0]
    return np.int64(-1), np.int64(-1)


@njit(types.UniTuple(types.int32[::1], 3)(_BYTES, _INTEGERS), cache=True, nogil=True)
def read_list(data, resets):
    """Return the rows of a word, ascending, how often each has it, and where in the list its positions begin.

    Row numbers are differences, except for those at some places of the list (`resets`).
    """
    most = len(data) // 3 + 1
    rows, counts, starts = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    found, reset, end = 0, 0, len(data)
    at, row = np.int64(0), np.int64(-1)
    while at < end:
        before = row
        if reset < len(resets) and resets[reset] == at:
            row, reset = np.int64(0), reset + 1
        step = size = np.int64(0)
        byte = np.int64(128)
        while byte >= 128 and at < end:
            byte = np.int64(data[at])
            step, at = step << 7 | byte & 127, at + 1
        byte = np.int64(128)
        while byte >= 128 and at < end:
            byte = np.int64(data[at])
            size, at = size << 7 | byte & 127, at + 1
        row += step
        if row <= before or row >= 1 << 31 or size & 1 or not at < at + (size >> 1) <= end:
            raise ValueError("rows are not in order")
        count = 0
        for place in range(at, at + (size >> 1)):
            count += data[place] < 128
        rows[found], counts[found], starts[found] = row, count, at
        at += size >> 1
        found += 1
    return rows[:found], counts[:found], starts[:found]


@njit(_INTEGERS(_BYTES, types.int32[::1], types.int32[::1]), cache=True, nogil=True)
def list_places(data, starts, counts):
    """Return all places of a word in some rows, ascending: number of the row among them << 32 | position in the row."""
    places = np.empty(counts.sum(), np.int64)
    found = 0
    for row in range(len(starts)):
        at, position = np.int64(starts[row]), np.int64(0)
        for _ in range(counts[row]):
            step, at = read_varint(data, at)
            position += step - 2
            places[found] = row << 32 | position
            found += 1
    return places


@njit(_INTEGERS(_BYTES, types.int32[::1], types.int32[::1], _INTEGERS, types.int64), cache=True, nogil=True)
def select_places(data, starts, counts, places, distance):
    """Return those of `list_places` of another word which have a word at a distance in the same row."""
    kept = np.empty(len(places), np.int64)
    found, row = 0, -1
    at = left = position = np.int64(0)
    for place in places:
        if place >> 32 > row:
            row = place >> 32
            at, left, position = np.int64(starts[row]), np.int64(counts[row]), np.int64(0)
            step, at = read_varint(data, at)
            position += step - 2
        wanted = (place & 0xFFFFFFFF) + distance
        while position < wanted and left > 1:
            step, left = np.int64(data[at]), left - 1
            if step < 128:
                at += 1
            else:
                step, at = read_varint(data, at)
            position += step - 2
        if position == wanted:
            kept[found] = place
            found += 1
    return kept[:found]


@njit(
    types.Tuple((types.int32[::1], types.float64[::1]))(
        *(types.int32[::1], types.int32[::1], _INTEGERS, _INTEGERS, types.boolean[::1], _INTEGERS, types.float64[::1])
    ),
    cache=True,
    nogil=True,
)
def weigh_sections(rows, counts, first, front, is_front, size, weights):
    """Return the sections that have a phrase, and its weighted frequency in each.

    Args:
        rows: Of FTS5, two of each document.
        counts: How often each row has the phrase.
        first: First section of each paper.
        front: Document after the last section of each paper: what it has counts for all of them.
        is_front: Of each document.
        size: Of each section; others have 0.
        weights: Of a row, by what it is of.
    """
    frequency = np.zeros(len(size), np.float64)
    for at in range(len(rows)):
        document = rows[at] >> 1
        if document < len(size):  # otherwise of a removed paper
            frequency[document] += weights[(rows[at] & 1) + 2 * is_front[document]] * counts[at]
    for paper in range(len(first)):
        of_paper = frequency[front[paper]]
        if of_paper > 0:
            for section in range(first[paper], front[paper]):
                frequency[section] += of_paper
    found = 0
    sections = np.empty(len(size), np.int32)
    for document in range(len(size)):
        if frequency[document] > 0 and size[document] > 0:
            sections[found], frequency[found] = document, frequency[document]
            found += 1
    return sections[:found].copy(), frequency[:found].copy()


@njit(
    types.void(types.float64[::1], types.int32[::1], types.float64[::1], types.float64[::1], types.float64),
    cache=True,
    nogil=True,
)
def add_scores(scores, sections, frequency, norms, limit) -> None:
    """Add the BM25 of a phrase to the scores of the sections that have it."""
    for at in range(len(sections)):
        section = sections[at]
        scores[section] += limit * frequency[at] / (frequency[at] + norms[section])
