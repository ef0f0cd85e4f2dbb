"""`TermIndex`: search for equations by terms of their trees, and for their operator trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas.idf import decode_norms
from eqkin.formulas.operators import OperatorForest, StoredLabels, share_form
from eqkin.formulas.terms import COMPARED_FAMILIES, compute_form_codes
from eqkin.index.manifest import TermsEntry
from eqkin.index.posting_kernels import TERM
from eqkin.index.postings import Codes, FoundLists, count_rows
from eqkin.index.term_segments import SEGMENT_SCHEME, TermSegment, normalise_length, open_segment
from eqkin.index.vectors import Floats, Integers, TreeRows, find_members, find_positions
from eqkin.library.references import EquationColumns

MIN_TERMS_READ = 3  # per query, however long their lists are
_POSTINGS_PART = 32  # one posting is read per so many equations, per query and kind of terms,
_MIN_POSTINGS_READ = 14_000  # but at least so many,
_MAX_POSTINGS_READ = 100_000  # and at most so many


def limit_postings(equations: int) -> int:
    """Return how many postings a search reads for one kind of terms; the rarest `MIN_TERMS_READ` terms always count."""
    return min(max(equations // _POSTINGS_PART, _MIN_POSTINGS_READ), _MAX_POSTINGS_READ)


class TermIndex:
    """The terms of a library's equations; comes with `VectorIndex`. Safe to share between threads.

    It keeps the state at which it was opened. Frequencies, and `count`, include equations that were removed after the
    segments were written.

    Args:
        segments: the opened segments.
        live: the trees of the library, ascending.
    """

    def __init__(self, segments: Sequence[TermSegment], live: Integers) -> None:
        self._segments = list(segments)
        self._rows = TreeRows([segment.trees for segment in segments])
        self.count: int = len(self._rows)
        self.trees: Integers = self._rows.select_live(live)  # trees of the library, ascending
        self.missing: int = len(live) - len(self.trees)  # equations whose terms are not indexed yet

    @classmethod
    def open(cls, folder: Path, entries: Sequence[TermsEntry], live: Integers) -> TermIndex | None:
        """Open an index's segments; None if their terms follow another scheme. Raises `CorruptData`."""
        if any(entry.scheme != SEGMENT_SCHEME for entry in entries):
            return None
        return cls([open_segment(folder, entry) for entry in entries], live)

    def __len__(self) -> int:
        return len(self.trees)

    def get_operators(self, trees: Integers) -> OperatorForest:
        """Return the operator trees of some trees, all of which must be there, in their order."""
        rows = self._rows.find_rows(trees)
        order = np.argsort(rows, kind="stable")
        forests = []
        for number, inside, _ in self._rows.iter_parts(rows[order]):
            segment = self._segments[number]
            with segment.check_damage():
                labels, starts = self._labels
                forests.append(segment.operators.read(inside, labels, starts[number]))
        forest = forests[0] if len(forests) == 1 else OperatorForest.concatenate(forests)
        return forest if (order[1:] > order[:-1]).all() else forest.select(np.argsort(order))

    def get_norms(self, trees: Integers) -> Floats:
        """Return the norms of some trees, all of which must be there: (families, trees)."""
        norms = np.zeros((len(trees), COMPARED_FAMILIES), np.uint8)
        for number, rows, places in self._rows.iter_parts(self._rows.find_rows(trees)):
            norms[places] = self._segments[number].norms[rows]
        return decode_norms(norms.T)

    def get_columns(self, trees: Integers) -> EquationColumns:
        """Return what tells trees apart, all of which must be there."""
        columns = np.zeros((len(trees), len(EquationColumns._fields) - 1), np.int64)
        for number, rows, places in self._rows.iter_parts(self._rows.find_rows(trees)):
            columns[places] = self._segments[number].get_columns(rows)
        return EquationColumns(trees, *columns.T)

    @cached_property
    def _labels(self) -> tuple[StoredLabels, list[int]]:
        """The labels of all segments, one segment after the other, and the first of each."""
        names = [segment.operators.names for segment in self._segments]
        return StoredLabels(chain.from_iterable(names)), [0, *accumulate(map(len, names))]

    def find_known(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Return which trees are indexed."""
        return self._rows.find_known(trees)

    def find_same_form(self, operators: OperatorForest) -> Integers:
        """Return the trees that have, as a whole, a form in common with the first operator tree, ascending.

        Forms are those of `SAME_FORM_KINDS`. Other trees that state the form only in a part are not returned.
        """
        whole = operators.formula_forms[:1]
        codes = compute_form_codes(whole)
        found = [np.zeros(0, np.int64)]
        for segment in self._segments:
            with segment.check_damage():
                rows = np.unique(segment.lists.read_rows(segment.lists.find(codes)))
            found.append(segment.trees[rows[share_form(segment.operators.forms[rows], whole)]])
        trees = np.sort(np.concatenate(found))
        return trees[find_members(trees, self.trees)]

    def count_frequencies(self, codes: Codes) -> Integers:
        """Return the number of equations that have each term."""
        codes = np.ascontiguousarray(codes, np.uint32)
        total = np.zeros(len(codes), np.int64)
        for segment in self._segments:
            with segment.check_damage():
                total += count_rows(segment.lists.find(codes), len(codes))
        return total

    def search(
        self,
        codes: Codes,
        weights: Floats,
        k: int,
        allowed: Integers | None = None,
        *,
        by_length: bool = False,
        max_postings: int | None = None,
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
            max_postings: how many postings are read at most, except for the rarest terms; by default as many as
                `limit_postings` says.

        Returns:
            Total weights, best first, equal ones by tree; and tree numbers. Equations without any of the terms are
            left out.

        Raises:
            BadInput: codes and weights do not fit together, or `k` is negative.
            CorruptData: a segment is damaged.
        """
        codes, weights = np.ascontiguousarray(codes, np.uint32), np.ascontiguousarray(weights, np.float32)
        if codes.ndim != 1 or codes.shape != weights.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise BadInput("each term needs one weight that is finite and not negative")
        if k < 0:
            raise BadInput(f"k must not be negative, got {k}")
        lists = self._choose_lists(codes, weights, limit_postings(self.count) if max_postings is None else max_postings)
        factors, starts = self._get_factors(allowed, by_length), self._rows.starts.tolist()
        best, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for segment, found, start, stop in zip(self._segments, lists, starts, starts[1:], strict=False):
            with segment.check_damage():
                rows, sums = segment.lists.find_best(found, weights, factors[start:stop], k)
            best.append(rows + start)
            scores.append(sums)
        total, trees = self._rows.sort_by_score(np.concatenate(best), np.concatenate(scores))
        return total[:k], trees[:k]

    def _get_factors(self, allowed: Integers | None, by_length: bool) -> Floats:
        """Return the factor of each row: 0 unless it is that of a tree of the library that is allowed."""
        if allowed is None and by_length:
            return self._length_factors
        rows = self._rows_of_trees if allowed is None else self._rows_of_trees[find_positions(self.trees, allowed)]
        factors = np.zeros(self.count, np.float32)
        factors[rows] = self._length_factors[rows] if by_length else 1
        return factors

    @cached_property
    def _length_factors(self) -> Floats:
        parts = [normalise_length(segment.operators.nodes) for segment in self._segments]
        factors, rows = np.zeros(self.count, np.float32), self._rows_of_trees
        factors[rows] = np.concatenate([factors[:0], *parts])[rows]
        return factors

    @cached_property
    def _rows_of_trees(self) -> Integers:
        return self._rows.find_rows(self.trees)

    def _choose_lists(self, codes: Codes, weights: Floats, max_postings: int) -> list[FoundLists]:
        """Return the lists of each segment that are read."""
        lists, total = [], np.zeros(len(codes), np.int64)
        for segment in self._segments:
            with segment.check_damage():
                lists.append(segment.lists.find(codes))
                total += count_rows(lists[-1], len(codes))
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), max_postings, "right"))
        is_chosen = np.zeros(len(codes), bool)
        is_chosen[order[: max(enough, MIN_TERMS_READ)]] = True
        return [found[is_chosen[found[:, TERM]]] for found in lists]
