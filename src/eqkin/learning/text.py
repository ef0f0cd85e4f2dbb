"""The words around equations: the text before and after each one, and the heading above it.

Formulas and commands are removed, and endings are cut off. A word is kept if it occurs in several papers, so that it
means something to more than one author, but not near every sixth equation, so that it means something at all.
Names such as "Cauchy-Schwarz inequality", which stand close to an equation, are collected in the same way.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas.forest import Array
from eqkin.formulas.operators import accumulate
from eqkin.latex.prose import EQUATION_MARK
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import read_sections

CHARACTERS_BEFORE, CHARACTERS_AFTER = 450, 250  # of the text around an equation
_SHORT_CONTEXT, _EXTRA_CHARACTERS = 150, 200  # after less text than this, add some from before the previous equation
_MIN_PAPERS = 8  # that contain a word; fewer in small libraries
_MIN_NAME_PAPERS = 2  # that contain a name
_MAX_EQUATION_FRACTION = 0.15  # words near more of the equations are not kept
_MAX_VOCABULARY = 1 << 16  # the rarest words are dropped
_SECTIONS_PER_QUERY = 256
_MIN_STEM_LENGTH = 4
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "es", "ed", "s", "ly")
_FORMULA_PATTERN = re.compile(
    r"\$[^$]*\$|\\\(.*?\\\)|\\(?:label|ref|eqref|cite[a-z]*|begin|end|includegraphics)\*?(?:\[[^\]]*\])?\{[^}]*\}"
    r"|\\[a-zA-Z]+",
    re.DOTALL,
)
_WORD_PATTERN = re.compile(r"[^\W\d_]{3,40}")
_NAME_BEFORE, _NAME_AFTER, _NAME_HEADING = 260, 120, 60  # characters in which an equation's name is looked for
_NAME_WORDS = 3  # before the noun
_NAME_TOKENS = re.compile(r"[^\W\d_]+(?:['’\-–][^\W\d_]+)*|[.,;:()]")
_SAYS_NAME = re.compile(r"\s*[,.]?\s*(?:which|this|known|called|is)\b")  # after an equation, before its name
_SINGULAR = {
    "brackets": "bracket", "coefficients": "coefficient", "conditions": "condition", "connections": "connection",
    "constants": "constant", "equations": "equation", "formulae": "formula", "formulas": "formula",
    "identities": "identity", "laws": "law", "numbers": "number", "polynomials": "polynomial",
    "relations": "relation", "symbols": "symbol",
}  # fmt: skip
_NOUNS = frozenset(
    """action algorithm approximation bound bracket coefficient commutator condition connection constant coordinates
    covariance criterion curvature decomposition density derivative distribution divergence effect energy entropy
    equation estimator expansion expectation factorisation factorization flow force formula frequency function
    functional gradient hamiltonian identity inequality integral kernel lagrangian law lemma length likelihood loss
    matrix method metric model momentum norm number operator polynomial potential pressure principle probability
    process product radius rate ratio relation rule scheme score series statistic symbol temperature tensor test
    theorem time transform transformation update variance velocity""".split()
)
_NO_NAMES = frozenset(
    """a above actual all also an and another any are as at basic be because become becomes below both by called can
    case consider corresponding define definition differential e.g each eq equation equations every example figure
    final first following follows for from full general get given has have hence her his i.e if in into is it its
    known last lemma let linear main more most new next no nonlinear not obtain of on one only or original other our
    previous proposition resulting same satisfies second section simple since so some standard such table that the
    their then theorem therefore these third this those three thus to total two use using usual very was we well when
    where which while whose with write""".split()
)

Integers = npt.NDArray[np.int64]

WORD_ARRAYS = ("vocabulary", "word", "words")  # names of the arrays in a corpus file
NAME_ARRAYS = ("name_vocabulary", "name", "names")


@dataclass(frozen=True, eq=False)
class ContextWords:
    """The words around each tree of a corpus, as indices into a vocabulary, in ascending order and without repeats."""

    vocabulary: list[str]
    offsets: Integers  # (trees + 1,) start of the words of each tree
    word: npt.NDArray[np.uint16]  # of all trees, one after the other

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def counts(self) -> Integers:
        """Number of words of each tree."""
        return np.diff(self.offsets)

    def select(self, trees: npt.NDArray[np.bool_]) -> ContextWords:
        """Return the words of some trees, given as a mask; the vocabulary is unchanged."""
        counts = self.counts
        return ContextWords(self.vocabulary, accumulate(counts[trees]), self.word[np.repeat(trees, counts)])

    def validate(self, trees: int) -> None:
        """Check that this belongs to a corpus of `trees` trees; raises `CorruptData`."""
        ends = self.offsets[1:-1]
        rising = np.diff(self.word.astype(np.int64)) > 0
        rising[ends[(ends > 0) & (ends < len(self.word))] - 1] = True  # from one tree to the next
        if len(self) != trees or self.offsets[-1] != len(self.word) or not rising.all():
            raise CorruptData("words do not fit the trees, or are not in order")
        if self.word.max(initial=0) >= max(len(self.vocabulary), 1) or (len(self.word) and not self.vocabulary):
            raise CorruptData("words are not in their vocabulary")

    def to_arrays(self, names: tuple[str, str, str] = WORD_ARRAYS) -> dict[str, Array]:
        """Return the arrays of a corpus file."""
        counts = self.counts
        counts = counts.astype(np.min_scalar_type(counts.max(initial=0)))
        return dict(zip(names, (pack_strings(self.vocabulary), self.word, counts), strict=True))

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], names: tuple[str, str, str] = WORD_ARRAYS) -> ContextWords | None:
        """Read what `to_arrays` returned; None if there are no such arrays. Raises `KeyError` or `ValueError`."""
        if not arrays.keys() & set(names):
            return None
        vocabulary, word, counts = (arrays[name] for name in names)
        if word.dtype != np.uint16 or counts.max(initial=0) > len(word):
            raise ValueError("words do not fit the trees")
        return cls(unpack_strings(vocabulary), accumulate(counts), word.astype(np.uint16, copy=False))

    def pad(self, trees: int) -> ContextWords:
        """Return the words of these trees and of more that have none."""
        return ContextWords(self.vocabulary, np.pad(self.offsets, (0, trees), "edge"), self.word)


def collect_contexts(library: LibraryFiles, equations: Integers) -> tuple[ContextWords, ContextWords]:
    """Collect words and names around equations, (n, 3) paper, section and mark, sorted, within `read_corpus`."""
    words, names = WordCollector(), WordCollector(keep_endings=True)
    for paper, found_words, found_names in _iter_contexts(library, equations):
        words.add(paper, found_words)
        names.add(paper, found_names)
    papers = len(np.unique(equations[:, 0]))
    return words.build(min(_MIN_PAPERS, 2 + papers // 200)), names.build(_MIN_NAME_PAPERS)


def _iter_contexts(library: LibraryFiles, equations: Integers) -> Iterator[tuple[int, list[str], set[str]]]:
    """Iterate over the paper, the words and the names of each equation."""
    rows = equations.tolist()
    order = list(dict.fromkeys(section for _, section, _ in rows))
    chunks = (order[start : start + _SECTIONS_PER_QUERY] for start in range(0, len(order), _SECTIONS_PER_QUERY))
    texts: dict[int, tuple[str, str]] = {}
    current, heading, pieces = -1, [""], [""]
    for paper, section, mark in rows:
        if section != current:
            if section not in texts:
                texts = read_sections(library, next(chunks))
            title, prose = texts[section]
            current, heading, pieces = section, split_words(title[:CHARACTERS_BEFORE]), prose.split(EQUATION_MARK)
        before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
        yield paper, heading + extract_context_words(pieces, mark), find_context_names(title, before, after)


def extract_context_words(pieces: list[str], mark: int) -> list[str]:
    """Return the words before and after an equation, given the text of its section, split at the equations."""
    before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
    if len(before) < _SHORT_CONTEXT and 0 < mark <= len(pieces):
        before = f"{pieces[mark - 1][-_EXTRA_CHARACTERS:]} {before}"
    before, after = before[-CHARACTERS_BEFORE:], after[:CHARACTERS_AFTER]
    if before.count("$") % 2:  # the limit cuts a formula in two
        before = before.partition("$")[2]
    if after.count("$") % 2:
        after = after.rpartition("$")[0]
    return split_words(before) + split_words(after)


def split_words(text: str) -> list[str]:
    """Return the words of at least three letters in lower case, without formulas and commands."""
    return _WORD_PATTERN.findall(_FORMULA_PATTERN.sub(" ", text).lower())


def find_context_names(heading: str, before: str, after: str) -> set[str]:
    """Return names such as "jensen inequality" or "law of large numbers" in a short heading and close to an equation.

    After an equation only the rest of a sentence like "which is known as ..." counts.
    """
    texts = [before[-_NAME_BEFORE:]]
    texts += [heading] if len(heading) < _NAME_HEADING else []
    texts += [after[:_NAME_AFTER]] if _SAYS_NAME.match(after) else []
    return {name for text in texts for name in _find_names(text)}


def _find_names(text: str) -> Iterator[str]:
    """Iterate over nouns with one to three words before them, or with "of" and one or two words after them."""
    tokens = _NAME_TOKENS.findall(re.sub(r"[{}~]", " ", _FORMULA_PATTERN.sub(" , ", text)).lower())
    tokens = [token.replace("’", "'").replace("–", "-").removesuffix("'s") for token in tokens]
    for at, token in enumerate(tokens):
        noun = _SINGULAR.get(token, token)
        if noun not in _NOUNS:
            continue
        words: list[str] = []
        for word in tokens[max(at - _NAME_WORDS, 0) : at][::-1]:
            if len(word) < 2 or word in _NO_NAMES:
                break
            words.insert(0, word)
            yield " ".join([*words, noun])
        if tokens[at + 1 : at + 2] == ["of"]:
            following = [word for word in tokens[at + 2 : at + 4] if len(word) > 1 and word not in _NO_NAMES]
            if following and following[0] == tokens[at + 2]:
                yield f"{noun} of {' '.join(following)}"


def stem(word: str) -> str:
    """Return a word without its ending, if enough of it remains."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_LENGTH:
            return word[: -len(ending)]
    return word


class WordCollector:
    """Collects the words of equations, one paper after the other; those that differ in their endings are one word."""

    def __init__(self, *, keep_endings: bool = False) -> None:
        self._stem = str if keep_endings else stem
        self._number: dict[str, int] = {}  # number of each word's stem
        self._stems: dict[str, int] = {}
        self._last_paper: list[int] = []  # in which each stem occurred
        self._papers: list[int] = []  # number of papers in which each stem occurred
        self._all, self._counts = array("I"), array("I")

    def add(self, paper: int, words: Iterable[str]) -> None:
        """Add the words of the next equation."""
        numbers = {self._get_stem_number(word) for word in words}
        for number in numbers:
            if self._last_paper[number] != paper:
                self._last_paper[number] = paper
                self._papers[number] += 1
        self._all.extend(numbers)
        self._counts.append(len(numbers))

    def _get_stem_number(self, word: str) -> int:
        number = self._number.get(word)
        if number is None:
            number = self._number[word] = self._stems.setdefault(self._stem(word), len(self._stems))
            if number == len(self._last_paper):
                self._last_paper.append(-1)
                self._papers.append(0)
        return number

    def build(self, min_papers: int) -> ContextWords:
        """Return the words that are neither too rare nor too common; the vocabulary is sorted by frequency."""
        counts, numbers = np.array(self._counts, np.int64), np.array(self._all, np.int64)
        frequency = np.bincount(numbers, minlength=len(self._stems))
        is_kept = np.array(self._papers, np.int64) >= min_papers
        is_kept &= frequency < _MAX_EQUATION_FRACTION * len(counts)
        stems = list(self._stems)
        kept = sorted(np.flatnonzero(is_kept).tolist(), key=lambda number: (-frequency[number], stems[number]))
        kept = kept[:_MAX_VOCABULARY]
        index = np.full(len(stems), -1, np.int64)
        index[kept] = np.arange(len(kept))
        equation, word = np.repeat(np.arange(len(counts)), counts), index[numbers]
        equation, word = equation[word >= 0], word[word >= 0]
        order = np.lexsort((word, equation))
        offsets = np.searchsorted(equation, np.arange(len(counts) + 1))
        return ContextWords([stems[number] for number in kept], offsets, word[order].astype(np.uint16))


def pack_strings(strings: list[str]) -> npt.NDArray[np.uint8]:
    """Encode strings as UTF-8 with a zero byte after each; raises `BadInput` if one contains a zero character."""
    joined = "".join(f"{string}\0" for string in strings)
    if joined.count("\0") != len(strings):
        raise BadInput("a corpus cannot be stored: one of its strings contains a zero character")
    return np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8)


def unpack_strings(packed: Array) -> list[str]:
    """Return what `pack_strings` was given; raises `ValueError`."""
    *strings, rest = packed.tobytes().decode("utf-8", "surrogatepass").split("\0")
    if rest:
        raise ValueError("a list of strings is not terminated")
    return strings
