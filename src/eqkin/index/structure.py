"""`StructureIndex`: which equations have which terms, as one that searches sees it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from eqkin.errors import BadInput
from eqkin.index.rows import TreeRows
from eqkin.index.state import TermsEntry
from eqkin.index.structure_files import TERM_SCHEME, Codes, TermSegment, open_segment
from eqkin.index.vectors import Floats, Integers, find_positions

MAX_POSTINGS_READ = 150_000  # postings read for a query
MIN_TERMS_READ = 3  # terms that are always looked up, however many equations have them
_SAMPLE_STRIDE = 37  # one score of so many is looked at to guess which ones are among the best
_MAX_DENSE_SCORES = (
    8_000_000  # equations up to which each has its own score; of more, only those are scored that have a term
)
_TERM_BITS = 16


class TermIndex:
    """The terms of a library's equations; comes with `VectorIndex`. May be shared between threads.

    It answers for the moment at which it was opened. Frequencies, and `count`, include equations removed since the
    files were written, until most of a library's are removed.
    """

    def __init__(self, segments: Sequence[TermSegment], live: Integers) -> None:
        self._segments = list(segments)
        self._rows = TreeRows([segment.trees for segment in segments])
        self.count = len(self._rows)
        self.trees, self._dead = self._rows.select_live(live)  # those of the library, ascending; the rows of others
        self.missing = len(live) - len(self.trees)  # equations whose terms are not in it

    @classmethod
    def open(cls, folder: Path, entries: Sequence[TermsEntry], live: Integers) -> TermIndex | None:
        """Open an index's files; None if they were made by an eqkin that counted in another way.

        Raises:
            CorruptData: a file is damaged.
        """
        if any(entry.scheme != TERM_SCHEME for entry in entries):
            return None
        return cls([open_segment(folder, entry) for entry in entries], live)

    def __len__(self) -> int:
        return len(self.trees)

    def count_frequencies(self, codes: Codes) -> Integers:
        """In how many equations each term is."""
        codes = np.asarray(codes, np.uint32)
        total = np.zeros(len(codes), np.int64)
        for segment in self._segments:
            total += segment.count_rows(*segment.find_lists(codes))
        return total

    def search(self, codes: Codes, weights: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """The equations that have most of some terms.

        Terms are looked up from the rarest on, until the lists of equations are too long together: what almost all
        equations have says little about any.

        Args:
            codes: terms of the query, each once, of the kinds that are indexed (`structure_files.indexed`).
            weights: what each counts, at least 0.
            k: hits.
            allowed: numbers of the trees a hit may have, in any order; unknown ones do no harm. `None`: all.

        Returns:
            The sums of the weights of the terms an equation has, best first, equal ones by number; and tree numbers.
            Equations without any of the terms are left out.

        Raises:
            BadInput: codes and weights do not fit together, or `k` is negative.
            CorruptData: a file is damaged.
        """
        codes, weights = np.asarray(codes, np.uint32), np.asarray(weights, np.float32)
        if codes.ndim != 1 or codes.shape != weights.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise BadInput("each term needs one weight that is finite and not below 0")
        if k < 0:
            raise BadInput(f"{k} hits cannot be searched for")
        if self.count > _MAX_DENSE_SCORES and len(codes) < 1 << _TERM_BITS:
            return self._search_sparse(codes, weights, k, allowed)
        scores = self._score_rows(codes, weights)
        if allowed is None and self._rows.ascending:
            scores[self._dead] = 0
            best = _find_best(scores, k)
            return scores[best], self._rows.get_trees(best)
        chosen = np.arange(len(self.trees)) if allowed is None else find_positions(self.trees, allowed)
        scores = scores[self._rows_of_trees[chosen]]
        best = _find_best(scores, k)
        return scores[best], self.trees[chosen[best]]

    @cached_property
    def _rows_of_trees(self) -> Integers:
        """The row of each of the trees; made when it is needed."""
        return self._rows.find_rows(self.trees)

    def _search_sparse(
        self, codes: Codes, weights: Floats, k: int, allowed: Integers | None
    ) -> tuple[Floats, Integers]:
        """The same as `search`, in time and memory that do not grow with the collection but with the lists read."""
        chosen, lists = self._choose_terms(codes, weights)
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
        known = self._mask_allowed(trees, allowed)
        scores, trees = scores[known], trees[known]
        best = _find_best(scores, k)
        return scores[best], trees[best]

    def _mask_allowed(self, trees: Integers, allowed: Integers | None) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which trees are in the library, and allowed."""
        known = np.ones(len(trees), bool) if allowed is None else np.isin(trees, allowed)
        if len(self._dead):
            gone = self._dead_trees
            known &= gone[np.minimum(np.searchsorted(gone, trees), len(gone) - 1)] != trees
        return known

    @cached_property
    def _dead_trees(self) -> Integers:
        """The trees that are not in the library any more, ascending."""
        return np.sort(self._rows.get_trees(self._dead))

    def _choose_terms(self, codes: Codes, weights: Floats) -> tuple[Integers, list[tuple[Integers, Integers]]]:
        """Which terms are looked up, and the lists of all terms in each file."""
        lists = [segment.find_lists(codes) for segment in self._segments]
        sizes = [segment.count_rows(*found) for segment, found in zip(self._segments, lists, strict=True)]
        total = sum(sizes, np.zeros(len(codes), np.int64))
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), MAX_POSTINGS_READ, "right"))
        return order[: max(enough, MIN_TERMS_READ)], lists

    def _score_rows(self, codes: Codes, weights: Floats) -> Floats:
        """Of all trees, in the order of the files."""
        chosen, lists = self._choose_terms(codes, weights)
        scores = np.zeros(self.count, np.float32)
        start = 0
        for segment, (first, end) in zip(self._segments, lists, strict=True):
            stop = start + len(segment.trees)
            segment.add_weights(scores[start:stop], first[chosen], end[chosen], weights[chosen])
            start = stop
        return scores


def _find_best(scores: Floats, k: int) -> Integers:
    """Places of the `k` highest scores above 0, best first, equal ones in their order."""
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
