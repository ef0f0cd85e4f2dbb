"""Reading the inverted lists of an FTS5 table as SQLite stores them.

FTS5 itself hands out one position or one row at a time, millions of them for a frequent word. Here the pages of a list
are read as they are and decoded at once. The format is version 4, which the comments of SQLite's `fts5_index.c`
describe: of the table `text_data`, row 10 names the segments, and other rows are their pages. A page has a header of
four bytes (where its first whole row number is, and where its last list ends), words with their lists, and the places
of these words. `text_idx` has the first word of each page. The table must have one column, and no row is ever deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import error as StructError
from struct import unpack_from

import numpy as np
import numpy.typing as npt

from eqkin.index.text_kernels import find_list, list_places, read_list, select_places
from eqkin.library.database import read_varints

_FORMAT = 4
_STRUCTURE_ROW = 10
_SEGMENT_BITS = 37  # the number of a page is below so many bits of the number of its segment
_HEADER_BYTES, _MAX_VARINT_BYTES = 4, 3  # of a page
_MAIN_INDEX = b"0"  # begins every word; prefix indexes have other digits

Rows = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class InvertedLists:
    """The lists of the table `text`, within one transaction."""

    database: sqlite3.Connection
    segments: Sequence[tuple[int, int, int]]  # number, first and last page; rows of one are below those of the next

    @classmethod
    def open(cls, database: sqlite3.Connection) -> InvertedLists:
        """Read which segments there are; raises `sqlite3.DatabaseError`."""
        try:
            (version,) = database.execute("SELECT v FROM text_config WHERE k = 'version'").fetchone()
            (block,) = database.execute("SELECT block FROM text_data WHERE id = ?", (_STRUCTURE_ROW,)).fetchone()
            if version != _FORMAT:
                raise ValueError(f"lists of format {version}")
            numbers = iter(read_varints(block[_HEADER_BYTES:]))
            n_levels, _, _ = next(numbers), next(numbers), next(numbers)
            levels = [
                [(next(numbers), next(numbers), next(numbers)) for _ in range((next(numbers), next(numbers))[1])]
                for _ in range(n_levels)
            ]
        except (StopIteration, TypeError, ValueError) as error:
            raise sqlite3.DatabaseError(f"its lists cannot be read ({error})") from error
        return cls(database, [segment for level in reversed(levels) for segment in level])

    def count_phrase(self, words: Sequence[str]) -> tuple[Rows, Rows]:
        """Return the rows that have all words, one after the other, ascending, and how often each has them.

        Raises:
            sqlite3.DatabaseError: the lists are damaged.
        """
        try:
            data = [self._read_list(word) for word in words]
            lists = [read_list(*part) for part in data]
            if len(lists) < 2:
                rows, counts, _ = lists[0] if lists else np.zeros((3, 0), np.int32)
                return rows, counts
            words_in_row = np.zeros(max(int(rows[-1]) if len(rows) else 0 for rows, *_ in lists) + 1, np.uint8)
            for rows, *_ in lists:
                words_in_row[rows] += 1
            common = [np.flatnonzero(words_in_row[rows] == len(words)) for rows, *_ in lists]
            occurrences = [
                (part, starts[chosen], counts[chosen])
                for (part, _), (_, counts, starts), chosen in zip(data, lists, common, strict=True)
            ]
            rarest = min(range(len(words)), key=lambda at: int(occurrences[at][2].sum()))
            places = list_places(*occurrences[rarest])
            for at in range(len(words)):
                if at != rarest:
                    places = select_places(*occurrences[at], places, at - rarest)
            counted = np.bincount(places >> 32, minlength=1).astype(np.int32)
            found = np.flatnonzero(counted)
            return lists[0][0][common[0][found]], counted[found]
        except (IndexError, StructError, ValueError) as error:
            raise sqlite3.DatabaseError(f"a list of rows is damaged ({error})") from error

    def _read_list(self, word: str) -> tuple[Bytes, Integers]:
        """Return the list of a word in all segments, and where in it row numbers are whole instead of differences."""
        key = _MAIN_INDEX + word.encode()
        chunks, resets, size = [], [], 0
        for segment, first, last in self.segments:
            for chunk, reset in self._iter_chunks(segment << _SEGMENT_BITS, first, last, key):
                if 0 <= reset < len(chunk):
                    resets.append(size + reset)
                chunks.append(chunk)
                size += len(chunk)
        return np.frombuffer(b"".join(chunks), np.uint8), np.array(resets, np.int64)

    def _iter_chunks(self, segment: int, first: int, last: int, key: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the part of a word's list in each page of a segment, and where its first whole row number is."""
        start = self.database.execute(
            "SELECT pgno >> 1 FROM text_idx WHERE segid = ? AND term <= ? ORDER BY term DESC LIMIT 1",
            (segment >> _SEGMENT_BITS, key),
        ).fetchone()
        pages = self.database.execute(
            "SELECT block FROM text_data WHERE id BETWEEN ? AND ? ORDER BY id",
            (segment + max(start[0] if start else 0, first), segment + last),
        )
        end = 0
        for number, (page,) in enumerate(pages):
            row, body = unpack_from(">HH", page)
            if number == 0:
                begin, end = find_list(np.frombuffer(page, np.uint8), np.frombuffer(key, np.uint8))
                row = begin
            else:
                begin, end = _HEADER_BYTES, next(iter(read_varints(page[body : body + _MAX_VARINT_BYTES])), -1)
            if begin >= 0:
                yield page[begin : body if end < 0 else end], row - begin
            if begin < 0 or end >= 0:
                return
