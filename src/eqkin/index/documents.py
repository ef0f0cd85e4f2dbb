"""The documents of a text index and their scores.

FTS5 has the lists of positions, but its own BM25 would need title and abstract in the lists of every section, and looks
up the length of each document in a table. Here all sections with a word are scored at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

_FREQUENCY_WEIGHTS = np.array([1.0, 4.0, 1.5, 3.0])  # of a word in prose, heading, abstract and title
_K1, _B = 1.2, 0.75  # of BM25
_SATURATION = _K1 + 1  # the most that a word adds to BM25, in units of its idf

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Frequencies = tuple[Integers, Floats]  # sections, how often each has a phrase


@dataclass(frozen=True)
class DocumentTable:
    """The documents of a text database."""

    first: Integers  # first section of each paper, ascending
    front: Integers  # title and abstract of each paper
    is_front: npt.NDArray[np.bool_]  # of each document
    size: Integers  # words of each section with title and abstract of its paper; of other and dead documents 0
    count: int  # sections

    @classmethod
    def load(cls, database: sqlite3.Connection) -> DocumentTable:
        """Read the table from a text database."""
        rows = database.execute("SELECT first, sizes FROM papers ORDER BY first").fetchall()
        first = np.array([row[0] for row in rows], np.int64)
        counts = np.array([len(row[1]) // 4 for row in rows], np.int64)
        sizes, front = np.frombuffer(b"".join(row[1] for row in rows), "<u4"), first + counts - 1
        documents = _concatenate_ranges(first, counts)
        is_front = np.zeros(documents.max(initial=-1) + 1, bool)
        is_front[front] = True
        size = np.zeros(len(is_front), np.int64)
        size[documents] = sizes + np.repeat(sizes[np.cumsum(counts) - 1], counts)
        size[front] = 0
        return cls(first, front, is_front, size, len(documents) - len(rows))

    def count_in_sections(self, rows: npt.NDArray[np.int32], counts: npt.NDArray[np.int32]) -> Frequencies:
        """Return the sections that have a phrase, or whose paper has it in title or abstract, and weighted counts.

        Args:
            rows: Of FTS5, with the phrase.
            counts: How often each has it.
        """
        known = rows < 2 * len(self.size)  # others are of removed papers
        rows, documents = rows[known], rows[known] >> 1
        weights = _FREQUENCY_WEIGHTS[(rows & 1) + 2 * self.is_front[documents]]
        frequency: Floats = np.bincount(documents, weights * counts[known], len(self.size)).astype(
            np.float64, copy=False
        )
        papers = np.flatnonzero(frequency[self.front])
        sections = self.front[papers] - self.first[papers]
        of_papers = np.repeat(frequency[self.front[papers]], sections)
        frequency[_concatenate_ranges(self.first[papers], sections)] += of_papers
        found_in: Integers = np.flatnonzero((frequency > 0) & (self.size > 0))
        return found_in, frequency[found_in]

    def score_phrases(self, phrases: Iterable[Frequencies]) -> tuple[Floats, float]:
        """Return the BM25 of each document for some phrases, and the highest that there can be."""
        scores, highest = np.zeros(len(self.size)), 0.0
        mean = self.size.sum() / max(self.count, 1)
        for sections, frequency in phrases:
            limit = _SATURATION * _compute_idf(len(sections), self.count)
            scores[sections] += limit * frequency / (frequency + _K1 * (1 - _B + _B * self.size[sections] / mean))
            highest += limit
        return scores, highest

    def mark_papers(self, database: sqlite3.Connection, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return which documents are of papers, given by their keys."""
        rows = database.execute(
            "SELECT first FROM papers WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
        )
        chosen = np.isin(self.first, [first for (first,) in rows.fetchall()])
        marked = np.zeros(len(self.size), bool)
        marked[_concatenate_ranges(self.first[chosen], self.front[chosen] - self.first[chosen])] = True
        return marked


def _compute_idf(count: int, total: int) -> float:
    """Return the inverse document frequency as FTS5 computes it: of a phrase in most documents next to nothing."""
    return max(log(max(total - count, 0) + 0.5) - log(count + 0.5), 1e-6)


def _concatenate_ranges(first: Integers, counts: Integers) -> Integers:
    """Return the numbers first, first + 1, ... of each range."""
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def select_best(scores: Floats, count: int) -> Integers:
    """Return the positions of the highest scores, best first, the first of equal ones first."""
    if count >= len(scores):
        return np.argsort(-scores, kind="stable")
    able = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    best: Integers = able[np.argsort(-scores[able], kind="stable")[:count]]
    return best


def find_last_document(connection: sqlite3.Connection) -> int:
    """Return the number of the last document that was ever added."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM text_docsize").fetchone()[0]) // 2


def read_varints(packed: bytes) -> list[int]:
    """Return numbers as SQLite stores them: 7 bits per byte, the highest first."""
    values = [0]
    for byte in packed:
        values[-1] = values[-1] << 7 | byte & 127
        if byte < 128:
            values.append(0)
    return values[:-1]
