"""The words around equations: what stands before and after each one, and the heading above it.

Formulas and commands are left out, endings are cut off. A word counts if it stands in several papers, so that it means
something to more than one author, and not around every sixth equation, so that it means something at all.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from eqkin.latex.prose import EQUATION_MARK
from eqkin.library import LibraryFiles
from eqkin.library.queries import read_sections
from eqkin.training.corpus_words import ContextWords

CHARACTERS_BEFORE, CHARACTERS_AFTER = 450, 250  # characters of prose
_SHORT_CONTEXT, _EXTRA_CHARACTERS = 150, 200  # if less stands before, so much from before the equation before it
_MIN_PAPERS = 8  # in which a word has to stand; fewer where there are few papers
_MAX_EQUATION_FRACTION = 0.15  # of the equations: words around more of them say nothing
_MAX_VOCABULARY = 1 << 16  # words; the rarest are left out

_FORMULA_PATTERN = re.compile(
    r"\$[^$]*\$|\\\(.*?\\\)|\\(?:label|ref|eqref|cite[a-z]*|begin|end|includegraphics)\*?(?:\[[^\]]*\])?\{[^}]*\}"
    r"|\\[a-zA-Z]+",
    re.DOTALL,
)
_WORD_PATTERN = re.compile(r"[^\W\d_]{3,40}")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "es", "ed", "s", "ly")
_MIN_STEM_LENGTH = 4  # letters that stay

Integers = npt.NDArray[np.int64]


def gather_words(library: LibraryFiles, equations: Integers) -> ContextWords:
    """The words around some equations of a library.

    Args:
        library: The library, in a transaction.
        equations: (n, 3) paper, section and mark of each; those of a paper, and of a section, stand together.
    """
    gathered = _WordCollector()
    for paper, words in _iter_contexts(library, equations):
        gathered.add(paper, words)
    return gathered.build(len(np.unique(equations[:, 0])))


def _iter_contexts(library: LibraryFiles, equations: Integers) -> Iterator[tuple[int, list[str]]]:
    """Paper and words of each equation."""
    current, heading, pieces = -1, [""], [""]
    for paper, section, mark in equations.tolist():
        if section != current:
            title, prose = read_sections(library, [section])[section]
            current, heading, pieces = section, split_words(title[:CHARACTERS_BEFORE]), prose.split(EQUATION_MARK)
        yield paper, heading + extract_context_words(pieces, mark)


def extract_context_words(pieces: list[str], mark: int) -> list[str]:
    """Words before and after the equation that stands between two pieces of a section's prose."""
    before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
    if len(before) < _SHORT_CONTEXT and 0 < mark <= len(pieces):
        before = f"{pieces[mark - 1][-_EXTRA_CHARACTERS:]} {before}"
    before, after = before[-CHARACTERS_BEFORE:], after[:CHARACTERS_AFTER]
    if before.count("$") % 2:  # the window cuts a formula in two
        before = before.partition("$")[2]
    if after.count("$") % 2:
        after = after.rpartition("$")[0]
    return split_words(before) + split_words(after)


def split_words(text: str) -> list[str]:
    """Words of at least three letters in lower case, without formulas and commands."""
    return _WORD_PATTERN.findall(_FORMULA_PATTERN.sub(" ", text).lower())


def stem(word: str) -> str:
    """A word without its ending, if enough is left."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_LENGTH:
            return word[: -len(ending)]
    return word


class _WordCollector:
    """Words of equations as they come, one paper's after the other's."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}  # of each word as it is written
        self._stems: dict[str, int] = {}
        self._last: list[int] = []  # paper in which each stem was seen last
        self._papers: list[int] = []  # in how many it was seen
        self._all, self._counts = array("I"), array("I")

    def add(self, paper: int, words: Iterable[str]) -> None:
        numbers = {self._get_stem_number(word) for word in words}
        for number in numbers:
            if self._last[number] != paper:
                self._last[number] = paper
                self._papers[number] += 1
        self._all.extend(numbers)
        self._counts.append(len(numbers))

    def _get_stem_number(self, word: str) -> int:
        number = self._number.get(word)
        if number is None:
            number = self._number[word] = self._stems.setdefault(stem(word), len(self._stems))
            if number == len(self._last):
                self._last.append(-1)
                self._papers.append(0)
        return number

    def build(self, papers: int) -> ContextWords:
        """Those that count, the most frequent first in the vocabulary."""
        counts, every = np.array(self._counts, np.int64), np.array(self._all, np.int64)
        frequency = np.bincount(every, minlength=len(self._stems))
        least = min(_MIN_PAPERS, 2 + papers // 200)
        counted = (np.array(self._papers, np.int64) >= least) & (frequency < _MAX_EQUATION_FRACTION * len(counts))
        stems = list(self._stems)
        kept = sorted(np.flatnonzero(counted).tolist(), key=lambda number: (-frequency[number], stems[number]))[
            :_MAX_VOCABULARY
        ]
        place = np.full(len(stems), -1, np.int64)
        place[kept] = np.arange(len(kept))
        equation = np.repeat(np.arange(len(counts)), counts)
        word = place[every]
        equation, word = equation[word >= 0], word[word >= 0]
        order = np.lexsort((word, equation))
        offsets = np.searchsorted(equation, np.arange(len(counts) + 1))
        return ContextWords([stems[number] for number in kept], offsets, word[order].astype(np.uint16))
