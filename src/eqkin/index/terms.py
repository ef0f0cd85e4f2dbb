"""`TermIndex`: search for equations by terms of their trees, and for their operator trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.index.manifest import SETTINGS, IndexSettings, TermsEntry
from eqkin.index.postings import Codes, FoundLists
from eqkin.index.term_segments import SEGMENT_SCHEME, TermSegment, normalise_length, open_segment
from eqkin.index.vectors import Floats, Integers, TreeRows, find_members, find_positions
from eqkin.trees.idf import decode_norms
from eqkin.trees.operator_terms import RANKED_FAMILIES, compute_form_codes
from eqkin.trees.operators import OperatorForest, StoredLabels, share_form

MAX_POSTINGS_READ = 100_000  # per query and kind of terms
MIN_TERMS_READ = 3  # per query, however long their lists are
_SAMPLE_STRIDE = 37  # one score of this many is sampled to guess which are among the best
_TERM_BITS = 16


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
        if any(entry.scheme != SEGMENT_SCHEME for entry in entries):
            return None
        return cls([open_segment(folder, entry) for entry in entries], live, settings)

    def __len__(self) -> int:
        return len(self.trees)

    def get_operators(self, trees: Integers) -> OperatorForest:
        """Return the operator trees of some trees, all of which must be there, in their order."""
        forests, order = [], []
        for number, segment, rows, places in self._iter_segments(trees):
            with segment.check_damage():
                labels, starts = self._labels
                forests.append(segment.operators.read(rows, labels, starts[number]))
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
            with segment.check_damage():
                found = segment.lists.find(codes)
                counts[:, places[order]] = segment.lists.count_terms(found, len(codes), rows[order])
        return counts

    def _iter_segments(self, trees: Integers) -> Iterator[tuple[int, TermSegment, Integers, Integers]]:
        """Yield the segments that have some of the trees: number, segment, rows in it, positions of the trees."""
        rows = self._rows.find_rows(trees)
        part = np.searchsorted(self._rows.starts, rows, "right") - 1
        for number in np.unique(part).tolist():
            places = np.flatnonzero(part == number)
            yield number, self._segments[number], rows[places] - self._rows.starts[number], places

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
        whole = operators.forms[operators.form_offsets[0] :][:1]
        codes = np.unique(compute_form_codes(whole))
        found = [np.zeros(0, np.int64)]
        for segment in self._segments:
            with segment.check_damage():
                rows = np.unique(segment.lists.read_rows(segment.lists.find(codes))[0])
            found.append(segment.trees[rows[share_form(segment.operators.forms[rows], whole)]])
        trees = np.sort(np.concatenate(found))
        return trees[find_members(trees, self.trees)]

    def count_frequencies(self, codes: Codes) -> Integers:
        """Return the number of equations that have each term."""
        codes = np.asarray(codes, np.uint32)
        total = np.zeros(len(codes), np.int64)
        for segment in self._segments:
            with segment.check_damage():
                total += segment.lists.count_rows(segment.lists.find(codes), len(codes))
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
        lists = self._choose_lists(codes, weights, max_postings)
        if self.count > self._settings.max_dense_scores and len(codes) < 1 << _TERM_BITS:
            return self._search_sparse(lists, weights, k, allowed, by_length)
        scores = np.zeros(self.count, np.float32)
        starts = self._rows.starts.tolist()
        for segment, found, start, stop in zip(self._segments, lists, starts, starts[1:], strict=False):
            with segment.check_damage():
                segment.lists.add_weights(scores[start:stop], found, weights)
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
        parts = [normalise_length(segment.operators.nodes) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    @cached_property
    def _rows_of_trees(self) -> Integers:
        return self._rows.find_rows(self.trees)

    @cached_property
    def _dead_trees(self) -> Integers:
        return np.sort(self._rows.get_trees(self._dead))

    def _choose_lists(self, codes: Codes, weights: Floats, max_postings: int) -> list[FoundLists]:
        """Return the lists of each segment that are read."""
        lists, total = [], np.zeros(len(codes), np.int64)
        for segment in self._segments:
            with segment.check_damage():
                lists.append(segment.lists.find(codes))
                total += segment.lists.count_rows(lists[-1], len(codes))
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), max_postings, "right"))
        is_chosen = np.zeros(len(codes), bool)
        is_chosen[order[: max(enough, MIN_TERMS_READ)]] = True
        return [found.select(is_chosen) for found in lists]

    def _search_sparse(
        self,
        lists: Sequence[FoundLists],
        weights: Floats,
        k: int,
        allowed: Integers | None,
        by_length: bool,
    ) -> tuple[Floats, Integers]:
        """Search in time and memory that grow with the postings read, not with the collection."""
        parts = [np.zeros(0, np.int64)]
        for segment, found in zip(self._segments, lists, strict=True):
            with segment.check_damage():
                rows, term, _ = segment.lists.read_rows(found)
            parts.append(segment.trees[rows] << _TERM_BITS | term)
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
    found = np.flatnonzero(scores >= threshold) if threshold > 0 else np.flatnonzero(scores > 0)
    if len(found) < k and threshold > 0:  # the guess was too high
        found = np.flatnonzero(scores > 0)
    if len(found) > k:
        values = scores[found]
        last = np.partition(values, len(values) - k)[len(values) - k] if k else np.inf
        above, equal = found[values > last], found[values == last]
        found = np.concatenate((above, equal[: k - len(above)]))
    return found[np.argsort(-scores[found], kind="stable")]
