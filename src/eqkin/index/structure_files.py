"""Files of structure: for each term the trees that have it, written once, mapped into memory, never changed.

A file has its trees in ascending order; a tree's place among them is its row. The rows of a term are in ascending order
and parted into blocks of 65,536, so that 16 bits say which one of its block a row is. A list is the rows of one term in
one block; lists are in order by term and block.

    trees    (trees,)      number of each tree
    codes    (lists,)      term of each list
    blocks   (lists,)      its block
    offsets  (lists + 1,)  its first row
    rows     (postings,)   rows, less the first one of their block
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.index.arrays import Array, open_arrays, write_arrays
from eqkin.index.state import REBUILD_HINT, TermsEntry
from eqkin.index.vectors import Floats, Integers
from eqkin.trees.terms import TERM_FAMILIES, Terms

# Kinds of terms that are indexed: symbols, what two neighbours are, what three of them look like whatever their names.
INDEXED_FAMILIES = tuple(map(TERM_FAMILIES.index, ("label", "sibling", "renamed3")))
TERM_SCHEME = 3  # to be raised when the terms of a tree, their codes, or the kinds indexed become others

_BLOCK_BITS = 16
_ROW_BITS = np.uint64(32)

Codes = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.uint32]


def is_indexed(terms: Terms) -> npt.NDArray[np.bool_]:
    """Which terms are of a kind that is indexed."""
    return np.isin(terms.family, INDEXED_FAMILIES)


@dataclass(frozen=True)
class TermSegment:
    """An opened file."""

    path: Path
    trees: Integers
    codes: Codes
    blocks: npt.NDArray[np.uint16]
    offsets: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint16]

    def find_lists(self, codes: Codes) -> tuple[Integers, Integers]:
        """The first list of each term, and the one after its last."""
        return np.searchsorted(self.codes, codes, "left"), np.searchsorted(self.codes, codes, "right")

    def count_rows(self, first: Integers, end: Integers) -> Integers:
        """How many rows there are in ranges of lists."""
        sizes: Integers = self.offsets[end].astype(np.int64) - self.offsets[first]
        return sizes

    def add_weights(self, scores: Floats, first: Integers, end: Integers, weights: Floats) -> None:
        """Add the weight of each range of lists to the scores of its rows.

        One list at a time: to gather all rows first takes five times as long, for the memory has to be got anew.
        """
        try:
            for one, after, weight in zip(first.tolist(), end.tolist(), weights, strict=True):
                starts = self.offsets[one : after + 1].tolist()
                for block, a, b in zip(self.blocks[one:after].tolist(), starts, starts[1:], strict=False):
                    start = block << _BLOCK_BITS
                    np.add.at(scores[start : start + (1 << _BLOCK_BITS)], self.rows[a:b], weight)
        except IndexError as error:
            raise self.make_damage_error() from error

    def read_rows(self, first: Integers, end: Integers) -> tuple[Integers, Integers]:
        """The rows of all postings in ranges of lists, and which range each is of."""
        lists = _expand_ranges(first, end)
        starts, ends = self.offsets[lists].astype(np.int64), self.offsets[lists + 1].astype(np.int64)
        rows = np.repeat(self.blocks[lists].astype(np.int64) << _BLOCK_BITS, ends - starts)
        rows += self.rows[_expand_ranges(starts, ends)]
        if int(rows.max(initial=-1)) >= len(self.trees):
            raise self.make_damage_error()
        return rows, np.repeat(np.arange(len(first)), self.count_rows(first, end))

    def read_postings(self) -> tuple[Integers, Codes]:
        """The row and the term of all postings."""
        sizes = np.diff(self.offsets)
        rows = np.repeat(self.blocks.astype(np.int64) << _BLOCK_BITS, sizes)
        rows += self.rows
        if int(rows.max(initial=-1)) >= len(self.trees):
            raise self.make_damage_error()
        return rows, np.repeat(self.codes, sizes)

    def validate(self) -> TermSegment:
        """This segment; raises `CorruptData` if using it would go astray."""
        blocks = -(-len(self.trees) >> _BLOCK_BITS)
        right = (
            len(self.codes) == len(self.blocks) == len(self.offsets) - 1
            and self.offsets[0] == 0
            and self.offsets[-1] == len(self.rows)
            and bool((self.offsets[1:] > self.offsets[:-1]).all())
            and bool((self.codes[1:] >= self.codes[:-1]).all())
            and bool((self.trees[1:] > self.trees[:-1]).all())
            and int(self.blocks.max(initial=0)) < max(blocks, 1)
        )
        if not right:
            raise self.make_damage_error()
        return self

    def make_damage_error(self) -> CorruptData:
        """What to raise when it is."""
        return CorruptData(f"{self.path}: damaged (its lists do not fit its trees); {REBUILD_HINT}")


def _expand_ranges(starts: Integers, ends: Integers) -> Integers:
    """All numbers from each start to its end, which is left out, one after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def open_segment(folder: Path, entry: TermsEntry) -> TermSegment:
    """Open a file; raises `CorruptData`."""
    kinds = {
        "trees": ("I64", [entry.count]),
        "codes": ("U32", [-1]),
        "blocks": ("U16", [-1]),
        "offsets": ("U32", [-1]),
        "rows": ("U16", [entry.postings]),
    }
    return TermSegment(folder / entry.file, *open_arrays(folder, entry, kinds)).validate()


def write_segment(folder: Path, trees: Integers, owners: Rows, codes: Codes) -> TermsEntry:
    """Write a file of trees in ascending order, named by its content; each pair of owner and code is there once.

    Args:
        folder: the index's folder.
        trees: numbers of the trees.
        owners: the place in `trees` of the tree that has each of `codes`.
        codes: terms.
    """
    keys = codes.astype(np.uint64) << _ROW_BITS
    keys |= owners.astype(np.uint64)
    keys.sort()
    heads = keys >> np.uint64(_BLOCK_BITS)
    first = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1]))[: len(heads)])
    arrays: dict[str, Array] = {
        "trees": np.asarray(trees, np.int64),
        "codes": (keys[first] >> _ROW_BITS).astype(np.uint32),
        "blocks": heads[first].astype(np.uint16),
        "offsets": np.append(first, len(keys)).astype(np.uint32),
        "rows": keys.astype(np.uint16),
    }
    return TermsEntry(*write_arrays(folder, "terms", arrays), len(trees), len(keys), TERM_SCHEME)


def merge_segments(folder: Path, entries: Iterable[TermsEntry], live: Integers) -> TermsEntry:
    """One file of several, without the trees that are not among `live`, which are in ascending order."""
    segments = [open_segment(folder, entry) for entry in entries]
    trees = np.intersect1d(np.concatenate([segment.trees for segment in segments]), live)
    owners, codes = [], []
    for segment in segments:
        places = np.searchsorted(trees, segment.trees)
        alive = np.isin(segment.trees, trees, assume_unique=True)
        rows, terms = segment.read_postings()
        kept = alive[rows]
        owners.append(places[rows[kept]].astype(np.uint32))
        codes.append(terms[kept])
    return write_segment(folder, trees, np.concatenate(owners), np.concatenate(codes))
