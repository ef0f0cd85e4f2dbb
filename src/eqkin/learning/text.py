"""The words around equations: the text before and after each one, and the heading above it.

Formulas and commands are removed, and endings are cut off. A word is kept if it occurs in several papers, so that it
means something to more than one author, but not near every sixth equation, so that it means something at all.
Names such as "Cauchy-Schwarz inequality", which stand close to an equation, are collected in the same way.

The tables on the device are what the recipe "eqkin" compares embeddings with: terms of trees, and words around them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.formulas import Forest
from eqkin.formulas.engine import FormulaEngine
from eqkin.formulas.forest import accumulate
from eqkin.formulas.terms import extract_terms
from eqkin.latex.prose import EQUATION_MARK
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import read_sections

# The text around an equation.
CHARACTERS_BEFORE, CHARACTERS_AFTER = 450, 250
# If less text than this precedes an equation, some from before the previous equation is added.
_SHORT_CONTEXT, _EXTRA_CHARACTERS = 150, 200
# Papers that must contain a word (fewer in small libraries), or a name.
_MIN_PAPERS, _MIN_NAME_PAPERS = 8, 2
# Words near more of the equations than this are not kept.
_MAX_EQUATION_FRACTION = 0.15
# The rarest words are dropped.
_MAX_VOCABULARY = 1 << 16
_SECTIONS_PER_QUERY = 256
_MIN_STEM_LENGTH = 4
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "es", "ed", "s", "ly")
_FORMULA_PATTERN = re.compile(
    r"\$[^$]*\$|\\\(.*?\\\)|\\(?:label|ref|eqref|cite[a-z]*|begin|end|includegraphics)\*?(?:\[[^\]]*\])?\{[^}]*\}"
    r"|\\[a-zA-Z]+",
    re.DOTALL,
)
_WORD_PATTERN = re.compile(r"[^\W\d_]{3,40}")
# Characters in which the name of an equation is looked for.
_NAME_BEFORE, _NAME_AFTER, _NAME_HEADING = 260, 120, 60
# A noun has at most so many words of its name before it.
_NAME_WORDS = 3
_NAME_TOKENS = re.compile(r"[^\W\d_]+(?:['’\-–][^\W\d_]+)*|[.,;:()]")
# Stands between an equation and its name.
_SAYS_NAME = re.compile(r"\s*[,.]?\s*(?:which|this|known|called|is)\b")
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
COLUMN_BITS = 14
COLUMNS = 1 << COLUMN_BITS
MAX_TERMS = 256
MAX_WORDS = 48
# Added to the idf weight, so that a term of all trees still counts.
_IDF_FLOOR = 0.1
_BLOCK_TREES = 20_000
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ContextWords:
    """The words around each tree of a corpus, as indices into a vocabulary, in ascending order and without repeats."""

    vocabulary: list[str]
    # (trees + 1,) start of the words of each tree.
    offsets: Integers
    # Words of all trees, one tree after the other.
    word: npt.NDArray[np.uint16]

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

    def pad(self, trees: int) -> ContextWords:
        """Return the words of these trees and of more that have none."""
        return ContextWords(self.vocabulary, np.pad(self.offsets, (0, trees), "edge"), self.word)


def collect_contexts(library: LibraryFiles, equations: Integers) -> tuple[ContextWords, ContextWords]:
    """Collect words and names around equations, (n, 3) paper, section and mark, sorted, within `read_corpus`."""
    words, names = _WordCollector(), _WordCollector()
    for found_words, found_names in _iter_contexts(library, equations):
        # Words that differ in their endings are one word.
        words.add(map(stem, found_words))
        names.add(found_names)
    paper = equations[:, 0]
    min_papers = min(_MIN_PAPERS, 2 + len(np.unique(paper)) // 200)
    return words.build(paper, min_papers), names.build(paper, _MIN_NAME_PAPERS)


def _iter_contexts(library: LibraryFiles, equations: Integers) -> Iterator[tuple[list[str], set[str]]]:
    """Iterate over the words and the names of each equation."""
    rows = equations.tolist()
    order = list(dict.fromkeys(section for _, section, _ in rows))
    chunks = (order[start : start + _SECTIONS_PER_QUERY] for start in range(0, len(order), _SECTIONS_PER_QUERY))
    texts: dict[int, tuple[str, str]] = {}
    current, heading, pieces = -1, [""], [""]
    for _, section, mark in rows:
        if section != current:
            if section not in texts:
                texts = read_sections(library, next(chunks))
            title, prose = texts[section]
            current, heading, pieces = section, split_words(title[:CHARACTERS_BEFORE]), prose.split(EQUATION_MARK)
        before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
        yield heading + extract_context_words(pieces, mark), find_context_names(title, before, after)


def extract_context_words(pieces: list[str], mark: int) -> list[str]:
    """Return the words before and after an equation, given the text of its section, split at the equations."""
    before, after = (pieces[i] if i < len(pieces) else "" for i in (mark, mark + 1))
    if len(before) < _SHORT_CONTEXT and 0 < mark <= len(pieces):
        before = f"{pieces[mark - 1][-_EXTRA_CHARACTERS:]} {before}"
    before, after = before[-CHARACTERS_BEFORE:], after[:CHARACTERS_AFTER]
    # The limit may cut a formula in two.
    if before.count("$") % 2:
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


@lru_cache(1 << 20)
def stem(word: str) -> str:
    """Return a word without its ending, if enough of it remains."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_LENGTH:
            return word[: -len(ending)]
    return word


class _WordCollector:
    """Collects the words of one equation after the other, each word of an equation once."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._found, self._counts = array("I"), array("I")

    def add(self, words: Iterable[str]) -> None:
        """Add the words of the next equation."""
        numbers = {self._number.setdefault(word, len(self._number)) for word in words}
        self._found.extend(numbers)
        self._counts.append(len(numbers))

    def build(self, paper: Integers, min_papers: int) -> ContextWords:
        """Return the words that are neither too rare nor too common; the vocabulary is sorted by frequency.

        Args:
            paper: The paper of each equation.
            min_papers: The least number of papers with a word that is kept.
        """
        counts, found = np.array(self._counts, np.int64), np.array(self._found, np.int64)
        equation = np.repeat(np.arange(len(counts)), counts)
        words, size = list(self._number), len(self._number)
        frequency = np.bincount(found, minlength=size)
        in_papers = np.unique(paper[equation] * max(size, 1) + found) % max(size, 1)
        is_kept = np.bincount(in_papers, minlength=size) >= min_papers
        is_kept &= frequency < _MAX_EQUATION_FRACTION * len(counts)
        kept = sorted(np.flatnonzero(is_kept).tolist(), key=lambda number: (-frequency[number], words[number]))
        kept = kept[:_MAX_VOCABULARY]

        place = np.full(size, -1, np.int64)
        place[kept] = np.arange(len(kept))
        word = place[found]
        equation, word = equation[word >= 0], word[word >= 0]
        order = np.lexsort((word, equation))
        offsets = np.searchsorted(equation, np.arange(len(counts) + 1))
        return ContextWords([words[number] for number in kept], offsets, word[order].astype(np.uint16))


class TermTables:
    r"""The term vectors of all trees of a forest.

    A tree is a vector of length 1 over 2^14 columns, to which the terms that a search compares are hashed. A term that
    occurs c times in the tree, in a column of d of the n trees, has the value

    $$ \frac{2c}{c + 1} \sqrt{\ln \frac{1 + n}{1 + d} + 0.1} $$

    The tables store the columns and values of the 256 terms of each tree that have the largest values.
    """

    def __init__(self, forest: Forest, device: torch.device, *, max_terms: int = MAX_TERMS) -> None:
        offsets, column, count = _count_terms(forest)
        idf = np.log((1 + len(forest)) / (1 + np.bincount(column, minlength=COLUMNS))) + _IDF_FLOOR
        value = (2 * count / (count + np.float32(1)) * np.sqrt(idf).astype(np.float32)[column]).astype(np.float32)
        columns = np.zeros((len(forest), max_terms), np.int16)
        values = np.zeros((len(forest), max_terms), np.float16)
        # A block at a time: the tables of all trees in full precision would take twice the memory.
        for start in range(0, len(forest), _BLOCK_TREES):
            part, rows = offsets[start : start + _BLOCK_TREES + 1], slice(start, start + _BLOCK_TREES)
            here = slice(int(part[0]), int(part[-1]))
            table, is_real = select_heaviest(part - part[0], value[here], max_terms)
            heaviest = np.append(value[here], np.float32(0))[table]
            heaviest[part[1:] == part[:-1]] = 0
            length = np.sqrt(np.where(is_real, heaviest**2, 0).sum(1, keepdims=True)).clip(1e-6)
            columns[rows] = np.append(column[here], np.uint16(0))[table]
            values[rows] = heaviest / length
        self._column = torch.from_numpy(columns).to(device)
        self._value = torch.from_numpy(values).to(device)

    def __len__(self) -> int:
        return len(self._column)

    def to_dense(self, trees: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the vectors of some trees, (trees, 2^14)."""
        rows = torch.zeros(len(trees), COLUMNS, dtype=dtype, device=trees.device)
        # A row with fewer terms than the table has columns repeats its first one: the same value is written again.
        return rows.scatter(1, self._column[trees].long(), self._value[trees].to(dtype))


def _count_terms(forest: Forest) -> tuple[Integers, npt.NDArray[np.uint16], Floats]:
    """Return where the columns of each tree begin, the columns in ascending order, and how many terms each has."""
    engine = FormulaEngine()
    sizes, columns, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint16)], [np.zeros(0, np.float32)]
    for start in range(0, len(forest), _BLOCK_TREES):
        trees = np.arange(start, min(start + _BLOCK_TREES, len(forest)))
        terms = extract_terms(engine.parse(forest.select(trees)))
        # The codes of a tree are sorted, so their first bits are.
        key = terms.tree << COLUMN_BITS | (terms.code >> np.uint32(32 - COLUMN_BITS)).astype(np.int64)
        first = np.flatnonzero(np.diff(key, prepend=-1))
        sizes.append(np.bincount(key[first] >> COLUMN_BITS, minlength=len(trees)))
        columns.append((key[first] & (COLUMNS - 1)).astype(np.uint16))
        counts.append(np.add.reduceat(terms.count, first, dtype=np.float32) if len(first) else counts[0])
    return accumulate(np.concatenate(sizes)), np.concatenate(columns), np.concatenate(counts)


class WordTables:
    """The words around all trees of a corpus, the rarest 48 of each: `word` and `weight`, (trees, 48)."""

    def __init__(self, words: ContextWords, device: torch.device, *, max_words: int = MAX_WORDS) -> None:
        self.vocabulary = len(words.vocabulary)
        frequency = np.bincount(words.word, minlength=self.vocabulary)
        idf = np.log(max(len(words), 1) / np.maximum(frequency, 1)).astype(np.float32)
        table, is_real = select_heaviest(words.offsets, idf[words.word], max_words)
        word = np.append(words.word, np.uint16(0))[table]
        # Padding weighs nothing.
        weight = np.where(is_real, np.append(idf, np.float32(0))[word], np.float32(0))
        self.word = torch.from_numpy(word.astype(np.int32)).to(device)
        self.weight = torch.from_numpy(weight.astype(np.float16)).to(device)


@dataclass(frozen=True)
class Teachers:
    """The targets with which the recipe "eqkin" compares embeddings."""

    # (trees,) paper of each tree.
    paper: Tensor
    terms: TermTables
    # None if the corpus has no words, or the recipe does not use them.
    words: WordTables | None


def select_heaviest(offsets: Integers, weight: Floats, width: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Arrange rows of different lengths as a table; of rows that are too long, select the entries with most weight.

    Args:
        offsets: (rows + 1,) start of each row's entries.
        weight: Of all entries, row after row; of equal weights the first counts as larger.
        width: Entries per row of the table.

    Returns:
        (rows, width) numbers of entries in their order, and whether there is one. Where there is none, the number is
        that of the row's first selected entry, or 0 in an empty row.
    """
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(len(lengths)), lengths)
    # Sorting moves entries only within their row, so the rank of a place in its row stays.
    rank = np.arange(len(row)) - offsets[row]
    kept = np.sort(np.lexsort((-weight, row))[rank < width])

    counts = np.minimum(lengths, width)
    starts = np.cumsum(counts) - counts
    row = np.repeat(np.arange(len(counts)), counts)
    table = np.zeros((len(counts), width), np.int64)
    table[counts > 0] = kept[starts[counts > 0], None]
    table[row, np.arange(len(kept)) - starts[row]] = kept
    return table, np.arange(width) < counts[:, None]
