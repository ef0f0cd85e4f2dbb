"""The documents of a text index and their scores.

FTS5 has the lists of positions, but its own BM25 would need title and abstract in the lists of every section, and looks
up the length of each document in a table. Here all sections with a word are scored at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np
import numpy.typing as npt

from eqkin.index.text_kernels import add_scores, weigh_sections

_FREQUENCY_WEIGHTS = np.array([1.0, 4.0, 1.5, 3.0])  # of a word in prose, heading, abstract and title
_K1, _B = 1.2, 0.75  # of BM25
_SATURATION = _K1 + 1  # the most that a word adds to BM25, in units of its idf

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Frequencies = tuple[npt.NDArray[np.int32], Floats]  # sections, how often each has a phrase


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
        found: Frequencies = weigh_sections(
            rows, counts, self.first, self.front, self.is_front, self.size, _FREQUENCY_WEIGHTS
        )
        return found

    def score_phrases(self, phrases: Iterable[Frequencies]) -> tuple[Floats, float]:
        """Return the BM25 of each document for some phrases, and the highest that there can be."""
        scores, highest = np.zeros(len(self.size)), 0.0
        for sections, frequency in phrases:
            limit = _SATURATION * _compute_idf(len(sections), self.count)
            add_scores(scores, sections, frequency, self._norms, limit)
            highest += limit
        return scores, highest

    @cached_property
    def _norms(self) -> Floats:
        """What BM25 adds to a frequency, by the length of a document: K1 (1 - B + B size / mean size)."""
        mean = max(self.size.sum(), 1) / max(self.count, 1)
        norms: Floats = _K1 * (1 - _B + _B * self.size / mean)
        return norms

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
