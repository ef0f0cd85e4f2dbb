"""`Index`: read-only search over the vectors, the terms and the operator trees of a library's equations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.formulas.terms import COMPARED_FAMILIES, compute_form_codes, decode_norms
from eqkin.index.features import Codes, Floats, Integers, normalise
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, IndexManifest, PartEntry, read_current
from eqkin.index.parts import LabelTable, Part
from eqkin.library.files import LibraryFiles
from eqkin.library.references import EquationColumns
from eqkin.limits import check_cancelled

# A query reads one posting for every 32 equations, within limits, but always all postings of its three rarest terms.
_EQUATIONS_PER_POSTING = 32
_MIN_POSTINGS_READ = 14_000
_MAX_POSTINGS_READ = 100_000
MIN_TERMS_READ = 3

Mask = npt.NDArray[np.bool_]


class EquationFeatures(NamedTuple):
    """All that a search compares of some equations."""

    # What tells them apart.
    columns: EquationColumns
    # (equations, dimensions), of length 1
    vectors: Floats
    # Empty if they are not wanted.
    operators: OperatorForest
    # (COMPARED_FAMILIES, equations): sums of squared weights of their terms.
    norms: Floats


class Index:
    """The index of a library's equations; open it with `Index.open`. Safe to share between threads.

    It keeps the state at which it was opened: it lacks equations added later, and still has removed ones.

    Args:
        library: the library.
        manifest: the manifest of its index.
        known: an index opened before, whose parts need not be opened again.
    """

    _parts: dict[PartEntry, Part]

    def __init__(self, library: LibraryFiles, manifest: IndexManifest, known: Index | None = None) -> None:
        # Read before the equations are listed: what was added meanwhile is seen as a change.
        self.generation: int = library.read_generation()
        self.dimensions: int = manifest.dimensions
        opened: dict[PartEntry, Part] = known._parts if known is not None else {}
        folder = library.folder / INDEX_FOLDER
        self._parts = {
            entry: opened[entry] if entry in opened else Part.open(folder, entry) for entry in manifest.parts
        }
        parts = self._parts.values()
        # The equations of all parts are numbered as rows, one part after the other.
        self._row_keys: Integers = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in parts)])
        self._starts: Integers = np.cumsum([0, *map(len, parts)])
        self._sorted_keys = self._row_keys
        # The row of each sorted key. None if rows are sorted, as they are unless a damaged part was written again.
        self._order: Integers | None = None
        if (self._row_keys[1:] <= self._row_keys[:-1]).any():
            self._order = np.argsort(self._row_keys, kind="stable")
            self._sorted_keys = self._row_keys[self._order]
        live = library.list_tree_keys()
        # The rows that may be found, None for all, and the keys of these equations, ascending.
        self._alive: Mask | None = None
        self.keys: Integers = live
        if not np.array_equal(self._sorted_keys, live):
            self._alive = find_members(self._row_keys, live)
            self.keys = np.sort(self._row_keys[self._alive])
        # How many equations of the library are not indexed yet.
        self.missing: int = len(live) - len(self.keys)

    @classmethod
    def open(cls, library: LibraryFiles, model_digest: str, known: Index | None = None) -> Index:
        """Open a library's index for queries of a model.

        Args:
            library: the library.
            model_digest: identifies the model.
            known: an index opened before, whose parts need not be opened again.

        Raises:
            BadInput: there is no index, or its vectors are of another model.
            CorruptData: a part is damaged.
        """

        def read(manifest: IndexManifest) -> Index:
            if manifest.model != model_digest:
                raise BadInput(f"{library.folder}: its vectors are of another model; run `eqkin index`")
            if not manifest.has_current_terms:
                raise BadInput(f"{library.folder}: its index was made by another eqkin; run `eqkin index`")
            if manifest.generation > library.read_generation():
                raise BadInput(f"{library.folder}: its index is of another library, or a later state; {REBUILD_HINT}")
            return cls(library, manifest, known)

        return read_current(library.folder, read)

    def __len__(self) -> int:
        return len(self.keys)

    def search_vectors(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """Return the nearest equations of each query.

        Args:
            vectors: (q, d), of any length; a vector that is zero or not finite finds nothing.
            k: hits per query.
            allowed: keys of the equations that may be found, in any order, unknown ones included; `None`: all.

        Returns:
            Cosines (q, k), best first, and keys (q, k); 0 and -1 where there are fewer hits than `k`.

        Raises:
            BadInput: the vectors have another shape, or `k` is negative.
        """
        queries = np.asarray(vectors, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimensions:
            raise BadInput(f"queries have the shape {queries.shape}; it must be (any number, {self.dimensions})")
        if k < 0:
            raise BadInput(f"k must not be negative, got {k}")
        queries = normalise(queries)
        cosines = np.zeros((len(queries), k), np.float32)
        keys = np.full((len(queries), k), -1, np.int64)
        able = self._select_rows(allowed)
        rows = None if able is None else np.flatnonzero(able)
        for query in np.flatnonzero(queries.any(axis=1)).tolist():
            check_cancelled()
            every = self._compute_cosines(queries[query])
            scores, found = self._select_best(every if rows is None else every[rows], rows, k)
            cosines[query, : len(scores)] = np.clip(scores, -1, 1)
            keys[query, : len(found)] = found
        return cosines, keys

    def _compute_cosines(self, query: Floats) -> Floats:
        """Return the cosines of a query with the vectors of all rows."""
        # Loading compiled code takes a moment, which only searches need.
        from eqkin.index.kernels import multiply_codes

        cosines = np.empty(len(self._row_keys), np.float32)
        for part, start in zip(self._parts.values(), self._starts.tolist(), strict=False):
            products = cosines[start : start + len(part)]
            multiply_codes(part.vectors, query, products)
            products *= part.scales
        return cosines

    def search_terms(
        self,
        codes: Codes,
        weights: Floats,
        k: int,
        allowed: Integers | None = None,
        *,
        max_postings: int | None = None,
    ) -> tuple[Floats, Integers]:
        """Return the equations that have the largest total weight of some terms, for their length.

        Total weights are multiplied by `normalise_length`: long formulas have more of any terms.
        Terms are looked up from the rarest to the most frequent until `max_postings` are read: a term that almost all
        equations have says little about any.

        Args:
            codes: terms of the query, each once.
            weights: the weight of each, at least 0.
            k: hits.
            allowed: keys of the equations that may be found, in any order, unknown ones included; `None`: all.
            max_postings: how many postings are read at most, except for the rarest terms; by default as many as
                `limit_postings` says.

        Returns:
            Total weights, best first, equal ones by key; and keys. Equations without any of the terms are left out.

        Raises:
            BadInput: codes and weights do not fit together, or `k` is negative.
        """
        codes = np.ascontiguousarray(codes, np.uint32)
        weights = np.ascontiguousarray(weights, np.float32)
        if codes.ndim != 1 or codes.shape != weights.shape or not (np.isfinite(weights) & (weights >= 0)).all():
            raise BadInput("each term needs one weight that is finite and not negative")
        if k < 0:
            raise BadInput(f"k must not be negative, got {k}")
        lists = [part.find_lists(codes) for part in self._parts.values()]
        total = np.zeros(len(codes), np.int64)
        for starts, ends in lists:
            total += ends - starts
        limit = limit_postings(len(self._row_keys)) if max_postings is None else max_postings
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), limit, "right"))
        read = order[: max(enough, MIN_TERMS_READ)].tolist()
        able = self._select_rows(allowed)
        found = [np.zeros(0, np.int64)]
        scores = [np.zeros(0, np.float32)]
        for part, first_row, (starts, ends) in zip(self._parts.values(), self._starts.tolist(), lists, strict=False):
            sums = np.zeros(len(part), np.float32)
            for term in read:
                # A list has no row twice, so that `+=` adds each weight.
                sums[part.rows[starts[term] : ends[term]]] += weights[term]
            has_terms = sums > 0
            if able is not None:
                has_terms &= able[first_row : first_row + len(part)]
            rows = np.flatnonzero(has_terms)
            found.append(rows + first_row)
            scores.append(sums[rows] * part.length_factors[rows])
        return self._select_best(np.concatenate(scores), np.concatenate(found), k)

    def find_same_form(self, operators: OperatorForest) -> Integers:
        """Return the equations that have, as a whole, a form in common with the first operator tree, ascending.

        Forms are those of `SAME_FORM_KINDS`. Other equations that state the form only in a part are not returned.
        """
        whole = operators.formula_forms[:1]
        codes = compute_form_codes(whole)
        found = [np.zeros(0, np.int64)]
        for part in self._parts.values():
            starts, ends = part.find_lists(codes)
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
                rows = part.rows[start:end]
                found.append(part.keys[rows[share_form(part.forms[rows], whole)]])
        keys = np.unique(np.concatenate(found))
        return keys[find_members(keys, self.keys)]

    def get_vectors(self, keys: Integers) -> Floats:
        """Return the unit vectors of some equations; raises `BadInput` if one is not indexed."""
        keys = np.asarray(keys, np.int64)
        known = find_members(keys, self.keys)
        if not known.all():
            raise BadInput(f"tree {int(keys[~known][0])} has no vector; run `eqkin index`")
        vectors = np.empty((len(keys), self.dimensions), np.float32)
        for part, rows, places in self._locate(keys):
            vectors[places] = part.read_vectors(rows)
        return vectors

    def get_operators(self, keys: Integers) -> OperatorForest:
        """Return the operator trees of some equations, all of which must be there, in their order."""
        forests = []
        places = np.zeros(0, np.int64)
        for part, rows, here in self._locate(keys):
            forests.append((part, part.read_operators(rows)))
            places = np.append(places, here)
        operators = self._labels.join(forests)
        # Keys that ascend are found in their order.
        return operators if (np.diff(places) > 0).all() else operators.select(np.argsort(places))

    def get_features(self, keys: Integers, *, operators: bool = True) -> EquationFeatures:
        """Return all that a search compares of some equations, all of which must be there, in their order.

        Args:
            keys: of the equations.
            operators: whether operator trees and norms are wanted.
        """
        columns = np.zeros((3, len(keys)), np.int64)
        vectors = np.zeros((len(keys), self.dimensions), np.float32)
        norms = np.zeros((len(keys), COMPARED_FAMILIES), np.uint8)
        for part, rows, places in self._locate(keys):
            columns[:, places] = part.paper[rows], part.display[rows], part.latex[rows]
            vectors[places] = part.read_vectors(rows)
            norms[places] = part.norms[rows]
        return EquationFeatures(
            columns=EquationColumns(keys, *columns),
            vectors=vectors,
            operators=self.get_operators(keys if operators else keys[:0]),
            norms=decode_norms(norms.T),
        )

    def find_known(self, keys: Integers) -> Mask:
        """Return which equations are indexed."""
        return find_members(keys, self._sorted_keys)

    @cached_property
    def _labels(self) -> LabelTable:
        return LabelTable(list(self._parts.values()))

    def _find_rows(self, keys: Integers) -> Integers:
        """Return the rows of equations, all of which must be there."""
        places = np.searchsorted(self._sorted_keys, keys)
        return places if self._order is None else self._order[places]

    def _locate(self, keys: Integers) -> Iterator[tuple[Part, Integers, Integers]]:
        """Yield the parts that have some of the equations: rows within the part, places in `keys`."""
        rows = self._find_rows(keys)
        numbers = np.searchsorted(self._starts, rows, "right") - 1
        parts = list(self._parts.values())
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            yield parts[number], rows[places] - self._starts[number], places

    def _select_rows(self, allowed: Integers | None) -> Mask | None:
        """Return which rows may be found; None for all."""
        if allowed is None:
            return self._alive
        allowed = np.asarray(allowed, np.int64)
        able = np.zeros(len(self._row_keys), bool)
        able[self._find_rows(allowed[find_members(allowed, self.keys)])] = True
        return able

    def _select_best(self, scores: Floats, rows: Integers | None, k: int) -> tuple[Floats, Integers]:
        """Return the `k` highest scores of some rows (None: of all), equal ones by key, and the keys of the rows."""
        if len(scores) > k > 0:
            # All that are as good as the last one. A partition of scores is faster than one of their places.
            best = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
            scores = scores[best]
            rows = best if rows is None else rows[best]
        keys = self._row_keys if rows is None else self._row_keys[rows]
        order = np.lexsort((keys, -scores))[:k]
        return scores[order], keys[order]


def limit_postings(equations: int) -> int:
    """Return how many postings a search reads; the rarest `MIN_TERMS_READ` terms always count."""
    return min(max(equations // _EQUATIONS_PER_POSTING, _MIN_POSTINGS_READ), _MAX_POSTINGS_READ)


def find_members(keys: Integers, known: Integers) -> Mask:
    """Return which keys are among `known`, which are ascending."""
    if not len(known):
        return np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.asarray(known[at] == keys)
