"""The structure of equations: their operator trees, and an inverted index of terms of both kinds of trees.

A segment has its trees in ascending order; a tree's place among them is its row. The rows of a term are ascending and
divided into blocks of 65,536, so that 16 bits identify a row within its block. A list has the rows of one block in
which one term occurs equally often; lists are ordered by term, number of occurrences and block. Occurrences are counted
only where ranking needs them, of neighbours.

    trees    (trees,)           number of each tree
    norms    (trees, families)  sums of squared weights of its terms, by family (`trees.idf.encode_norms`)
    codes    (lists,)           term of each list
    blocks   (lists,)           its block, and 4,096 times the number of further occurrences
    offsets  (lists + 1,)       its first posting
    rows     (postings,)        rows, less the first row of their block

Arrays whose names begin with `operators.` describe the operator trees (`trees.operators.STORED_TYPES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.index.embedding import TreeTask
from eqkin.index.manifest import REBUILD_HINT, SETTINGS, IndexSettings, TermsEntry
from eqkin.index.vectors import Floats, Integers, TreeRows, find_members, find_positions
from eqkin.mathml.operators import parse_operators
from eqkin.storage.segments import Array, open_arrays, write_arrays
from eqkin.trees.idf import (
    MAX_COUNTED,
    compute_norms,
    decode_norms,
    encode_norms,
    load_bundled_frequencies,
    weigh_terms,
)
from eqkin.trees.operator_terms import (
    FIRST_OPERATOR_FAMILY,
    NEIGHBOUR_FAMILY,
    OPERATOR_TERM_FAMILIES,
    RANKED_FAMILIES,
    compute_form_codes,
    extract_structure_terms,
)
from eqkin.trees.operators import FORM_KINDS, STORED_TYPES, OperatorForest, StoredLabels, share_form
from eqkin.trees.terms import INDEXED_FAMILIES, TERM_FAMILIES, Terms, extract_terms

# Families of terms that are indexed. Of presentation trees: symbols, pairs of neighbours. Of operator trees: operators
# with all that is below them, paths without names, whole statements.
PRESENTATION_FAMILIES = tuple(map(TERM_FAMILIES.index, INDEXED_FAMILIES))
NAMED_FAMILIES = tuple(FIRST_OPERATOR_FAMILY + OPERATOR_TERM_FAMILIES.index(name) for name in ("subtree",))
NAMELESS_FAMILIES = tuple(FIRST_OPERATOR_FAMILY + OPERATOR_TERM_FAMILIES.index(name) for name in ("anypath", "form"))
PATTERN_FAMILIES = (*NAMED_FAMILIES, *NAMELESS_FAMILIES[:-1])  # of parts, not of whole statements
TERM_SCHEME = 5  # raise it when operator trees, the terms of a tree, their codes, or the indexed families change

MAX_POSTINGS_READ = 100_000  # per query and kind of terms
MIN_TERMS_READ = 3  # per query, however long their lists are
_MAX_GATHERED = 20_000  # postings that are gathered before their weights are added
_SAMPLE_STRIDE = 37  # one score of this many is sampled to guess which are among the best
_LENGTH_PIVOT = np.float32(0.35)  # how much a formula's size counts against it
_LENGTH_OFFSET = np.float32(5)  # nodes that every formula has in addition
_TERM_BITS = 16
_BLOCK_BITS = 16
_COUNT_SHIFT = np.uint16(12)  # of occurrences in `blocks`
_BLOCK_MASK = np.uint16((1 << 12) - 1)
_ROW_BITS = np.uint64(32)

Codes = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.uint32]


_OPERATOR_ARRAYS = {
    f"operators.{name}": (f"U{8 * np.dtype(kind).itemsize}", [-1, len(FORM_KINDS)] if name == "forms" else [-1])
    for name, kind in STORED_TYPES.items()
}


def select_codes(terms: Terms, families: Sequence[int]) -> Codes:
    """Return the codes of some families of the first tree's terms."""
    chosen = terms.select_families(families)
    return chosen.code[: chosen.offsets[1]]


def normalise_length(nodes: npt.NDArray[Any]) -> Floats:
    """Return by what total weights of terms are multiplied, given numbers of nodes of operator trees."""
    factors: Floats = (nodes.astype(np.float32) + _LENGTH_OFFSET) ** -_LENGTH_PIVOT
    return factors


@dataclass(frozen=True)
class Structure:
    """What is indexed of the structure of some trees."""

    owners: Rows  # (postings,) position of a tree that has a term
    codes: Codes  # (postings,) the term
    counts: npt.NDArray[np.uint8]  # (postings,) its occurrences; 1 if they are not counted
    norms: npt.NDArray[np.uint16]  # (trees, families) as `encode_norms` makes them
    operators: OperatorForest


def extract_structure(task: TreeTask) -> tuple[Integers, Structure]:
    """Parse trees and extract the terms that are indexed; return it with the numbers of the trees."""
    operators = parse_operators(task.forest)
    presentation = extract_terms(task.forest, families=INDEXED_FAMILIES)
    structure = extract_structure_terms(operators)
    ranked = presentation.select_families([NEIGHBOUR_FAMILY]).merge(structure)
    norms = compute_norms(ranked, weigh_terms(ranked, load_bundled_frequencies()))
    indexed = presentation.merge(structure).select_families(
        (*PRESENTATION_FAMILIES, *NAMED_FAMILIES, *NAMELESS_FAMILIES)
    )
    counts = np.where(indexed.family == NEIGHBOUR_FAMILY, np.minimum(indexed.count, MAX_COUNTED), 1).astype(np.uint8)
    owners = indexed.tree.astype(np.uint32)
    return task.numbers, Structure(owners, indexed.code, counts, encode_norms(norms.T), replace(operators))


@dataclass(frozen=True)
class TermSegment:
    """An opened segment."""

    path: Path
    trees: Integers
    norms: npt.NDArray[np.uint16]
    codes: Codes
    blocks: npt.NDArray[np.uint16]
    offsets: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint16]
    operators: Mapping[str, Array]  # as `OperatorForest.to_arrays` makes them

    def get_operators(
        self, rows: Integers | None = None, labels: StoredLabels | None = None, first_label: int = 0
    ) -> OperatorForest:
        """Return the operator trees of some rows, or of all; see `OperatorForest.from_arrays`."""
        try:
            return OperatorForest.from_arrays(self.operators, rows, labels, first_label)
        except (IndexError, ValueError) as error:
            raise self.make_damage_error() from error

    def find_lists(self, codes: Codes) -> tuple[Integers, Integers]:
        """Return the first list of each term, and the list after its last one."""
        return np.searchsorted(self.codes, codes, "left"), np.searchsorted(self.codes, codes, "right")

    def count_rows(self, first: Integers, end: Integers) -> Integers:
        """Return the number of rows in ranges of lists."""
        sizes: Integers = self.offsets[end].astype(np.int64) - self.offsets[first]
        return sizes

    def add_weights(self, scores: Floats, first: Integers, end: Integers, weights: Floats) -> None:
        """Add the weight of each range of lists to the scores of its rows.

        Many postings are added one list at a time: gathering all rows first is five times slower because of the extra
        allocation.
        """
        if int(self.count_rows(first, end).sum()) <= _MAX_GATHERED:
            rows, term = self.read_rows(first, end)
            np.add.at(scores, rows, weights[term])
            return
        try:
            for one, after, weight in zip(first.tolist(), end.tolist(), weights, strict=True):
                starts = self.offsets[one : after + 1].tolist()
                blocks = (self.blocks[one:after] & _BLOCK_MASK).tolist()
                for block, a, b in zip(blocks, starts, starts[1:], strict=False):
                    start = block << _BLOCK_BITS
                    np.add.at(scores[start : start + (1 << _BLOCK_BITS)], self.rows[a:b], weight)
        except IndexError as error:
            raise self.make_damage_error() from error

    def read_rows(self, first: Integers, end: Integers) -> tuple[Integers, Integers]:
        """Return the rows of all postings in ranges of lists, and the range of each."""
        lists = _expand_ranges(first, end)
        starts, ends = self.offsets[lists].astype(np.int64), self.offsets[lists + 1].astype(np.int64)
        rows = np.repeat((self.blocks[lists] & _BLOCK_MASK).astype(np.int64) << _BLOCK_BITS, ends - starts)
        rows += self.rows[_expand_ranges(starts, ends)]
        if int(rows.max(initial=-1)) >= len(self.trees):
            raise self.make_damage_error()
        return rows, np.repeat(np.arange(len(first)), self.count_rows(first, end))

    def count_terms(self, codes: Codes, rows: Integers) -> npt.NDArray[np.uint8]:
        """Return how often each term occurs in each of some rows, which are ascending: (terms, rows)."""
        counts = np.zeros((len(codes), len(rows)), np.uint8)
        blocks = (rows >> _BLOCK_BITS).tolist()
        spans = {block: slice(blocks.index(block), len(blocks) - blocks[::-1].index(block)) for block in set(blocks)}
        low = rows.astype(np.uint16)
        for term, (one, after) in enumerate(zip(*(bound.tolist() for bound in self.find_lists(codes)), strict=True)):
            starts = self.offsets[one : after + 1].tolist()
            for part, a, b in zip(self.blocks[one:after].tolist(), starts, starts[1:], strict=False):
                span = spans.get(part & int(_BLOCK_MASK))
                if span is not None:
                    some, wanted = self.rows[a:b], low[span]
                    found = some.take(some.searchsorted(wanted), mode="clip") == wanted
                    counts[term, span] += found * np.uint8((part >> int(_COUNT_SHIFT)) + 1)
        return counts

    def read_postings(self) -> tuple[Integers, Codes, npt.NDArray[np.uint8]]:
        """Return the row, the term and its occurrences of all postings."""
        sizes = np.diff(self.offsets)
        rows = np.repeat((self.blocks & _BLOCK_MASK).astype(np.int64) << _BLOCK_BITS, sizes)
        rows += self.rows
        if int(rows.max(initial=-1)) >= len(self.trees):
            raise self.make_damage_error()
        counts = np.repeat((self.blocks >> _COUNT_SHIFT).astype(np.uint8) + np.uint8(1), sizes)
        return rows, np.repeat(self.codes, sizes), counts

    def validate(self) -> TermSegment:
        """Return this segment; raises `CorruptData` if its arrays contradict each other."""
        blocks = -(-len(self.trees) >> _BLOCK_BITS)
        right = (
            len(self.codes) == len(self.blocks) == len(self.offsets) - 1
            and self.offsets[0] == 0
            and self.offsets[-1] == len(self.rows)
            and bool((self.offsets[1:] > self.offsets[:-1]).all())
            and bool((self.codes[1:] >= self.codes[:-1]).all())
            and bool((self.trees[1:] > self.trees[:-1]).all())
            and int((self.blocks & _BLOCK_MASK).max(initial=0)) < max(blocks, 1)
            and self._has_valid_operators()
        )
        if not right:
            raise self.make_damage_error()
        return self

    def _has_valid_operators(self) -> bool:
        """Return whether each tree has its nodes and statements, and labels are text."""
        arrays = self.operators
        try:
            arrays["label_text"].tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return False
        members = (("offsets", "label"), ("form_offsets", "forms"))
        return (
            all(
                len(arrays[offsets]) == len(self.trees) + 1
                and arrays[offsets][0] == 0
                and arrays[offsets][-1] == len(arrays[items])
                and bool((arrays[offsets][1:] >= arrays[offsets][:-1]).all())
                for offsets, items in members
            )
            and len(arrays["label"]) == len(arrays["origin"]) == len(arrays["depth"])
            and len(arrays["unparsed"]) == len(self.trees)
        )

    def make_damage_error(self) -> CorruptData:
        """Return the error to raise when the segment is damaged."""
        return CorruptData(f"{self.path}: damaged (its lists do not fit its trees); {REBUILD_HINT}")


def _expand_ranges(starts: Integers, ends: Integers) -> Integers:
    """Return all numbers of the ranges from each start up to its end, one range after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.repeat(starts - before, sizes) + np.arange(sizes.sum())


def open_segment(folder: Path, entry: TermsEntry) -> TermSegment:
    """Open a segment; raises `CorruptData`."""
    wanted = {
        "trees": ("I64", [entry.count]),
        "norms": ("U16", [entry.count, len(RANKED_FAMILIES)]),
        "codes": ("U32", [-1]),
        "blocks": ("U16", [-1]),
        "offsets": ("U32", [-1]),
        "rows": ("U16", [entry.postings]),
    }
    arrays = open_arrays(folder, entry, wanted | _OPERATOR_ARRAYS, REBUILD_HINT)
    trees, norms, codes, blocks, offsets, rows, *rest = arrays
    operators = dict(zip(STORED_TYPES, rest, strict=True))
    return TermSegment(folder / entry.file, trees, norms, codes, blocks, offsets, rows, operators).validate()


def write_segment(folder: Path, trees: Integers, structure: Structure) -> TermsEntry:
    """Write a segment with the structure of trees, whose numbers are ascending."""
    keys = structure.codes.astype(np.uint64) << _ROW_BITS
    keys |= (structure.counts.astype(np.uint64) - np.uint64(1)) << np.uint64(_COUNT_SHIFT + _BLOCK_BITS)
    keys |= structure.owners.astype(np.uint64)
    keys.sort()
    heads = keys >> np.uint64(_BLOCK_BITS)
    first = np.flatnonzero(np.concatenate(([True], heads[1:] != heads[:-1]))[: len(heads)])
    arrays: dict[str, Array] = {
        "trees": np.asarray(trees, np.int64),
        "norms": structure.norms,
        "codes": (keys[first] >> _ROW_BITS).astype(np.uint32),
        "blocks": heads[first].astype(np.uint16),
        "offsets": np.append(first, len(keys)).astype(np.uint32),
        "rows": keys.astype(np.uint16),
    }
    arrays |= {f"operators.{name}": array for name, array in structure.operators.to_arrays().items()}
    return TermsEntry(*write_arrays(folder, "terms", arrays), len(trees), len(keys), TERM_SCHEME)


def read_trees(folder: Path, entries: Sequence[TermsEntry]) -> Integers:
    """Return the trees of all segments."""
    return np.concatenate([np.zeros(0, np.int64), *(open_segment(folder, entry).trees for entry in entries)])


def count_unparsed(folder: Path, entries: Sequence[TermsEntry]) -> int:
    """Count the equations of an index's segments that could not be parsed completely."""
    segments = [open_segment(folder, entry) for entry in entries if entry.scheme == TERM_SCHEME]
    return sum(int(np.count_nonzero(segment.operators["unparsed"])) for segment in segments)


@dataclass
class TermCodec:
    """Merges segments of terms; dead trees are always dropped."""

    folder: Path
    live: Integers  # ascending
    settings: IndexSettings = SETTINGS

    def fits(self, run: Sequence[TermsEntry]) -> bool:
        """Return whether neighbouring segments may become one."""
        trees, postings = sum(entry.count for entry in run), sum(entry.postings for entry in run)
        return trees <= self.settings.max_segment_trees and postings <= self.settings.max_segment_postings

    def merge(self, run: Sequence[TermsEntry], drop_dead: bool = True) -> TermsEntry | None:
        """Write one segment with the live trees of several."""
        segments = [open_segment(self.folder, entry) for entry in run]
        trees = np.intersect1d(np.concatenate([segment.trees for segment in segments]), self.live)
        parts, order = [], []
        for segment in segments:
            positions = np.searchsorted(trees, segment.trees)
            alive = np.isin(segment.trees, trees, assume_unique=True)
            rows, codes, counts = segment.read_postings()
            kept = alive[rows]
            owners = positions[rows[kept]].astype(np.uint32)
            operators = segment.get_operators(np.flatnonzero(alive))
            parts.append(Structure(owners, codes[kept], counts[kept], segment.norms[alive], operators))
            order.append(positions[alive])
        if not len(trees):
            return None
        merged, places = _concatenate(parts), np.argsort(np.concatenate(order))
        merged = replace(merged, norms=merged.norms[places], operators=merged.operators.select(places))
        return write_segment(self.folder, trees, merged)


def _concatenate(parts: Sequence[Structure]) -> Structure:
    """Return the structure of all parts, whose owners have different positions."""
    owners, codes, counts, norms = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("owners", "codes", "counts", "norms")
    )
    return Structure(owners, codes, counts, norms, OperatorForest.concatenate([part.operators for part in parts]))


@dataclass
class TermBuffer:
    """The content of the next segment. An interrupted `add` leaves it as it was."""

    settings: IndexSettings
    _parts: list[tuple[Integers, Structure]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of trees."""
        return sum(len(trees) for trees, _ in self._parts)

    @property
    def is_full(self) -> bool:
        """True if it is time to write a segment."""
        postings = sum(len(structure.codes) for _, structure in self._parts)
        return self.count >= self.settings.max_segment_trees or postings >= self.settings.max_segment_postings

    def add(self, trees: Integers, structure: Structure) -> None:
        """Add the structure of trees, whose numbers must be higher than those added before."""
        self._parts.append((trees, structure))

    def write(self, folder: Path) -> TermsEntry:
        """Write the segment."""
        trees, parts = zip(*self._parts, strict=True)
        before = np.cumsum([0, *map(len, trees)])
        moved = [
            replace(part, owners=part.owners + np.uint32(start)) for part, start in zip(parts, before, strict=False)
        ]
        return write_segment(folder, np.concatenate(trees), _concatenate(moved))


class TermIndex:
    """The terms of a library's equations; comes with `VectorIndex`. Safe to share between threads.

    It keeps the state at which it was opened. Frequencies, and `count`, include equations that were removed after the
    segments were written.

    Args:
        segments: the opened segments.
        live: the trees of the library, ascending.
        settings: sizes at which it changes its way of working.
    """

    def __init__(self, segments: Sequence[TermSegment], live: Integers, settings: IndexSettings = SETTINGS) -> None:
        self._segments, self._settings = list(segments), settings
        self._rows = TreeRows([segment.trees for segment in segments])
        self.count: int = len(self._rows)
        self.trees: Integers
        self.trees, self._dead = self._rows.select_live(live)  # trees of the library, ascending; rows of all others
        self.missing: int = len(live) - len(self.trees)  # equations whose terms are not indexed yet

    @classmethod
    def open(
        cls, folder: Path, entries: Sequence[TermsEntry], live: Integers, settings: IndexSettings = SETTINGS
    ) -> TermIndex | None:
        """Open an index's segments; None if their terms follow another scheme. Raises `CorruptData`."""
        if any(entry.scheme != TERM_SCHEME for entry in entries):
            return None
        return cls([open_segment(folder, entry) for entry in entries], live, settings)

    def __len__(self) -> int:
        return len(self.trees)

    def get_operators(self, trees: Integers) -> OperatorForest:
        """Return the operator trees of some trees, all of which must be there, in their order."""
        starts = np.cumsum([0, *(len(segment.operators["label_end"]) for segment in self._segments)])
        forests, order = [], []
        for number, segment, rows, places in self._iter_segments(trees):
            forests.append(segment.get_operators(rows, self._labels, int(starts[number])))
            order.append(places)
        forest = forests[0] if len(forests) == 1 else OperatorForest.concatenate(forests)
        places = np.concatenate([np.zeros(0, np.int64), *order])
        return forest if (np.diff(places) > 0).all() else forest.select(np.argsort(places))

    def get_norms(self, trees: Integers) -> Floats:
        """Return the norms of some trees, all of which must be there: (families, trees)."""
        norms = np.zeros((len(trees), len(RANKED_FAMILIES)), np.uint16)
        for _, segment, rows, places in self._iter_segments(trees):
            norms[places] = segment.norms[rows]
        return decode_norms(norms.T)

    def count_terms(self, codes: Codes, trees: Integers) -> npt.NDArray[np.uint8]:
        """Return how often terms occur in some trees, all of which must be there: (terms, trees).

        Args:
            codes: Terms of families whose occurrences are counted.
            trees: Numbers of the trees.
        """
        counts = np.zeros((len(codes), len(trees)), np.uint8)
        for _, segment, rows, places in self._iter_segments(trees):
            order = np.argsort(rows, kind="stable")
            counts[:, places[order]] = segment.count_terms(codes, rows[order])
        return counts

    def _iter_segments(self, trees: Integers) -> Iterator[tuple[int, TermSegment, Integers, Integers]]:
        """Yield the segments that have some of the trees: number, segment, rows in it, positions of the trees."""
        rows = self._rows.find_rows(trees)
        part = np.searchsorted(self._rows.starts, rows, "right") - 1
        for number in np.unique(part).tolist():
            places = np.flatnonzero(part == number)
            yield number, self._segments[number], rows[places] - self._rows.starts[number], places

    @cached_property
    def _labels(self) -> StoredLabels:
        """The labels of all segments, one segment after the other."""
        return StoredLabels.concatenate([segment.operators for segment in self._segments])

    def find_known(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Return which trees are indexed."""
        return self._rows.find_known(trees)

    def find_same_form(self, operators: OperatorForest) -> Integers:
        """Return the trees that have, as a whole, a form in common with the first operator tree, ascending.

        Forms are those of `SAME_FORM_KINDS`. Other trees that state the form only in a part are not returned.
        """
        whole = operators.forms[operators.form_offsets[0] :][:1]
        codes = np.unique(compute_form_codes(whole))
        found = [np.zeros(0, np.int64)]
        for segment in self._segments:
            rows = np.unique(segment.read_rows(*segment.find_lists(codes))[0])
            forms = segment.operators["forms"][segment.operators["form_offsets"][rows]]
            found.append(segment.trees[rows[share_form(forms, whole)]])
        trees = np.sort(np.concatenate(found))
        return trees[find_members(trees, self.trees)]

    def count_frequencies(self, codes: Codes) -> Integers:
        """Return the number of equations that have each term."""
        codes = np.asarray(codes, np.uint32)
        total = np.zeros(len(codes), np.int64)
        for segment in self._segments:
            total += segment.count_rows(*segment.find_lists(codes))
        return total

    def search(
        self,
        codes: Codes,
        weights: Floats,
        k: int,
        allowed: Integers | None = None,
        *,
        by_length: bool = False,
        max_postings: int = MAX_POSTINGS_READ,
    ) -> tuple[Floats, Integers]:
        """Return the equations that have the largest total weight of some terms.

        Terms are looked up from the rarest to the most frequent until `max_postings` are read: a term that almost all
        equations have says little about any.

        Args:
            codes: terms of the query, each once, of indexed families.
            weights: the weight of each, at least 0.
            k: hits.
            allowed: numbers of the trees that may be found, in any order, unknown ones included; `None`: all.
            by_length: multiply total weights by `normalise_length`: long formulas have more of any terms.
            max_postings: how many postings are read at most, except for the rarest terms.

        Returns:
            Total weights, best first, equal ones by tree; and tree numbers. Equations without any of the terms are
            left out.

        Raises:
            BadInput: codes and weights do not fit together, or `k` is negative.
            CorruptData: a segment is damaged.
        """
        codes, weights = np.asarray(codes, np.uint32), np.asarray(weights, np.float32)
        if codes.ndim != 1 or codes.shape != weights.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise BadInput("each term needs one weight that is finite and not negative")
        if k < 0:
            raise BadInput(f"k must not be negative, got {k}")
        chosen, lists = self._choose_terms(codes, weights, max_postings)
        if self.count > self._settings.max_dense_scores and len(codes) < 1 << _TERM_BITS:
            return self._search_sparse(chosen, lists, weights, k, allowed, by_length)
        scores = np.zeros(self.count, np.float32)
        starts = self._rows.starts.tolist()
        for segment, (first, end), start, stop in zip(self._segments, lists, starts, starts[1:], strict=False):
            segment.add_weights(scores[start:stop], first[chosen], end[chosen], weights[chosen])
        if by_length:
            scores *= self._length_factors
        if allowed is None and self._rows.ascending:
            scores[self._dead] = 0
            best = _find_best(scores, k)
            return scores[best], self._rows.get_trees(best)
        within = np.arange(len(self.trees)) if allowed is None else find_positions(self.trees, allowed)
        scores = scores[self._rows_of_trees[within]]
        best = _find_best(scores, k)
        return scores[best], self.trees[within[best]]

    @cached_property
    def _length_factors(self) -> Floats:
        """The factor of each row."""
        parts = [normalise_length(np.diff(segment.operators["offsets"])) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    @cached_property
    def _rows_of_trees(self) -> Integers:
        return self._rows.find_rows(self.trees)

    @cached_property
    def _dead_trees(self) -> Integers:
        return np.sort(self._rows.get_trees(self._dead))

    def _choose_terms(
        self, codes: Codes, weights: Floats, max_postings: int
    ) -> tuple[Integers, list[tuple[Integers, Integers]]]:
        """Return which terms are looked up, and the lists of all terms in each segment."""
        lists = [segment.find_lists(codes) for segment in self._segments]
        sizes = [segment.count_rows(*found) for segment, found in zip(self._segments, lists, strict=True)]
        total = sum(sizes, np.zeros(len(codes), np.int64))
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), max_postings, "right"))
        return order[: max(enough, MIN_TERMS_READ)], lists

    def _search_sparse(
        self,
        chosen: Integers,
        lists: list[tuple[Integers, Integers]],
        weights: Floats,
        k: int,
        allowed: Integers | None,
        by_length: bool,
    ) -> tuple[Floats, Integers]:
        """Search in time and memory that grow with the postings read, not with the collection."""
        parts = [np.zeros(0, np.int64)]
        for segment, (first, end) in zip(self._segments, lists, strict=True):
            rows, which = segment.read_rows(first[chosen], end[chosen])
            parts.append(segment.trees[rows] << _TERM_BITS | chosen[which])
        pairs = np.concatenate(parts)
        pairs.sort()
        trees = pairs >> _TERM_BITS
        heads = np.flatnonzero(np.concatenate(([True], trees[1:] != trees[:-1]))[: len(trees)])
        scores = np.add.reduceat(weights[pairs & (1 << _TERM_BITS) - 1], heads) if len(heads) else weights[:0]
        trees = trees[heads]
        if by_length and len(trees):
            scores = scores * self._length_factors[self._rows.find_rows(trees)]
        kept = np.ones(len(trees), bool) if allowed is None else np.isin(trees, allowed)
        if len(self._dead):
            dead = self._dead_trees
            kept &= dead[np.minimum(np.searchsorted(dead, trees), len(dead) - 1)] != trees
        scores, trees = scores[kept], trees[kept]
        best = _find_best(scores, k)
        return scores[best], trees[best]


def _find_best(scores: Floats, k: int) -> Integers:
    """Return the positions of the `k` highest scores above 0, best first, equal ones in their order."""
    sample = np.sort(scores[::_SAMPLE_STRIDE])[::-1]
    threshold = sample[min(3 * k // _SAMPLE_STRIDE + 20, len(sample) - 1)] if len(sample) else 0
    found = np.flatnonzero(scores >= threshold) if threshold > 0 else np.flatnonzero(scores)
    if len(found) < k and threshold > 0:  # the guess was too high
        found = np.flatnonzero(scores)
    if len(found) > k:
        values = scores[found]
        last = np.sort(values)[len(values) - k] if k else np.inf
        above, equal = found[values > last], found[values == last]
        found = np.concatenate((above, equal[: k - len(above)]))
    return found[np.argsort(-scores[found], kind="stable")]
