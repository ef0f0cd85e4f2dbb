"""The words around equations: what stands before and after each one, and the heading above it.

Formulas and commands are left out, endings are cut off. A word counts if it stands in several papers, so that it means
something to more than one author, and not around every sixth equation, so that it means something at all.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from eqkin.latex.prose import EQUATION_MARK
from eqkin.learning.corpus_words import ContextWords

BEFORE, AFTER = 450, 250  # characters of prose
_SHORT, _FURTHER = 150, 200  # if less stands before, so much from before the equation before it
_PAPERS = 8  # in which a word has to stand; fewer where there are few papers
_COMMON = 0.15  # of the equations: words around more of them say nothing
_MOST = 1 << 16  # words; the rarest are left out

_FORMULAS = re.compile(
    r"\$[^$]*\$|\\\(.*?\\\)|\\(?:label|ref|eqref|cite[a-z]*|begin|end|includegraphics)\*?(?:\[[^\]]*\])?\{[^}]*\}"
    r"|\\[a-zA-Z]+",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]{3,40}")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "es", "ed", "s", "ly")
_STEM = 4  # letters that stay

Integers = npt.NDArray[np.int64]


def gather_words(connection: sqlite3.Connection, equations: Integers) -> ContextWords:
    """The words around some equations of a library.

    Args:
        connection: Of the library, in a transaction.
        equations: (n, 3) paper, section and mark of each; those of a paper, and of a section, stand together.
    """
    gathered = _Gathered()
    for paper, words in _contexts(connection, equations):
        gathered.add(paper, words)
    return gathered.words(len(np.unique(equations[:, 0])))


def _contexts(connection: sqlite3.Connection, equations: Integers) -> Iterator[tuple[int, list[str]]]:
    """Paper and words of each equation."""
    current, heading, pieces = -1, [""], [""]
    for paper, section, mark in equations.tolist():
        if section != current:
            title, prose = connection.execute("SELECT title, latex FROM sections WHERE id = ?", (section,)).fetchone()
            current, heading, pieces = section, words_of(title[:BEFORE]), prose.split(EQUATION_MARK)
        yield paper, heading + words_around(pieces, mark)


def words_around(pieces: list[str], mark: int) -> list[str]:
    """Words before and after the equation that stands between two pieces of a section's prose."""
    before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
    if len(before) < _SHORT and 0 < mark <= len(pieces):
        before = f"{pieces[mark - 1][-_FURTHER:]} {before}"
    before, after = before[-BEFORE:], after[:AFTER]
    if before.count("$") % 2:  # the window cuts a formula in two
        before = before.partition("$")[2]
    if after.count("$") % 2:
        after = after.rpartition("$")[0]
    return words_of(before) + words_of(after)


def words_of(text: str) -> list[str]:
    """Words of at least three letters in lower case, without formulas and commands."""
    return _WORD.findall(_FORMULAS.sub(" ", text).lower())


def stem(word: str) -> str:
    """A word without its ending, if enough is left."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word[: -len(ending)]
    return word


class _Gathered:
    """Words of equations as they come, one paper's after the other's."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}  # of each word as it is written
        self._stems: dict[str, int] = {}
        self._last: list[int] = []  # paper in which each stem was seen last
        self._papers: list[int] = []  # in how many it was seen
        self._all, self._counts = array("I"), array("I")

    def add(self, paper: int, words: Iterable[str]) -> None:
        numbers = {self._number_of(word) for word in words}
        for number in numbers:
            if self._last[number] != paper:
                self._last[number] = paper
                self._papers[number] += 1
        self._all.extend(numbers)
        self._counts.append(len(numbers))

    def _number_of(self, word: str) -> int:
        number = self._number.get(word)
        if number is None:
            number = self._number[word] = self._stems.setdefault(stem(word), len(self._stems))
            if number == len(self._last):
                self._last.append(-1)
                self._papers.append(0)
        return number

    def words(self, papers: int) -> ContextWords:
        """Those that count, the most frequent first in the vocabulary."""
        counts, every = np.array(self._counts, np.int64), np.array(self._all, np.int64)
        frequency = np.bincount(every, minlength=len(self._stems))
        least = min(_PAPERS, 2 + papers // 200)
        counted = (np.array(self._papers, np.int64) >= least) & (frequency < _COMMON * len(counts))
        stems = list(self._stems)
        kept = sorted(np.flatnonzero(counted).tolist(), key=lambda number: (-frequency[number], stems[number]))[:_MOST]
        place = np.full(len(stems), -1, np.int64)
        place[kept] = np.arange(len(kept))
        equation = np.repeat(np.arange(len(counts)), counts)
        word = place[every]
        equation, word = equation[word >= 0], word[word >= 0]
        order = np.lexsort((word, equation))
        offsets = np.searchsorted(equation, np.arange(len(counts) + 1))
        return ContextWords([stems[number] for number in kept], offsets, word[order].astype(np.uint16))
