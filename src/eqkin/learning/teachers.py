r"""Tables on the device of what the recipe "eqkin" compares embeddings with: terms of trees, and words around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.formulas import Forest
from eqkin.formulas.engine import FormulaEngine
from eqkin.formulas.forest import accumulate
from eqkin.formulas.terms import extract_terms
from eqkin.learning.text import ContextWords

COLUMN_BITS = 14
COLUMNS = 1 << COLUMN_BITS
MAX_TERMS = 256
MAX_WORDS = 48
# Added to the idf weight, so that a term of all trees still counts.
_IDF_FLOOR = 0.1
_BLOCK_TREES = 20_000

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


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

    paper: Tensor  # (trees,) paper of each tree
    terms: TermTables
    words: WordTables | None  # None if the corpus has no words, or the recipe does not use them


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
