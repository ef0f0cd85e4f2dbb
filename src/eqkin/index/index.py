"""`Index`: read-only search over the vectors, the terms and the operator trees of a library's equations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas.idf import decode_norms
from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.formulas.terms import compute_form_codes
from eqkin.index.features import Codes, Floats, Integers, normalise
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, IndexManifest, PartEntry
from eqkin.index.parts import Part
from eqkin.library.files import LibraryFiles
from eqkin.library.references import EquationColumns
from eqkin.limits import check_cancelled

MIN_TERMS_READ = 3  # per query, however long their lists are
_POSTINGS_PART = 32  # one posting is read per so many equations,
_MIN_POSTINGS_READ = 14_000  # but at least so many,
_MAX_POSTINGS_READ = 100_000  # and at most so many
_MAX_ATTEMPTS = 10  # while an update replaces files
_QUERIES_AT_ONCE = 64  # compared with all vectors together
_BLOCK_VECTORS = 4_096  # converted to 32 bits together
_MANY_QUERIES = 4  # from which on a product of matrices is faster

Mask = npt.NDArray[np.bool_]


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
        self.generation: int = library.read_generation()  # of the library when its equations were listed
        self.dimensions: int = manifest.dimensions  # numbers per vector
        opened: dict[PartEntry, Part] = known._parts if known is not None else {}
        folder = library.folder / INDEX_FOLDER
        self._parts = {
            entry: opened[entry] if entry in opened else Part.open(folder, entry) for entry in manifest.parts
        }
        live = library.list_tree_keys()
        every = np.concatenate([np.zeros(0, np.int64), *(part.keys for part in self._parts.values())])
        self._starts: Integers = np.cumsum([0, *map(len, self._parts.values())])  # first row of each part
        self._order: Integers | None = None  # rows by ascending key, unless that is their order
        if (every[1:] <= every[:-1]).any():
            self._order = np.argsort(every, kind="stable")
            every = every[self._order]
        self._every = every
        self._alive: Mask | None = None  # rows that may be found; None: all
        self.keys: Integers = live  # of equations that can be found, ascending
        if not np.array_equal(every, live):
            alive = find_members(every, live)
            self.keys = every[alive]
            self._alive = alive[np.argsort(self._order)] if self._order is not None else alive
        self.missing: int = len(live) - len(self.keys)  # equations that are not indexed yet

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
        folder = library.folder / INDEX_FOLDER
        for attempt in range(_MAX_ATTEMPTS):
            manifest = IndexManifest.load(folder)
            if manifest is None:
                raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
            if manifest.model != model_digest:
                raise BadInput(f"{library.folder}: its vectors are of another model; run `eqkin index`")
            if not manifest.has_current_terms:
                raise BadInput(f"{library.folder}: its index was made by another eqkin; run `eqkin index`")
            if manifest.generation > library.read_generation():
                raise BadInput(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
            try:
                return cls(library, manifest, known)
            except CorruptData:
                # An update may have replaced the files.
                if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(folder) == manifest:
                    raise
        raise AssertionError

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
        usable = np.flatnonzero(queries.any(axis=1))
        cosines = np.zeros((len(queries), k), np.float32)
        keys = np.full((len(queries), k), -1, np.int64)
        able = self._select_rows(allowed)
        for at in range(0, len(usable), _QUERIES_AT_ONCE):
            check_cancelled()
            chosen = usable[at : at + _QUERIES_AT_ONCE]
            found = [_Best(k) for _ in chosen]
            for part, start in zip(self._parts.values(), self._starts.tolist(), strict=False):
                rows = None if able is None else np.flatnonzero(able[start : start + len(part)])
                products = _compute_cosines(part, queries[chosen], rows)
                own_keys = part.keys if rows is None else part.keys[rows]
                for best, product in zip(found, products, strict=True):
                    best.add(product, own_keys)
            for query, best in zip(chosen.tolist(), found, strict=True):
                scores, numbers = best.sort()
                cosines[query, : len(scores)] = np.clip(scores, -1, 1)
                keys[query, : len(scores)] = numbers
        return cosines, keys

    def search_terms(
        self,
        codes: Codes,
        weights: Floats,
        k: int,
        allowed: Integers | None = None,
        *,
        by_length: bool = True,
        max_postings: int | None = None,
    ) -> tuple[Floats, Integers]:
        """Return the equations that have the largest total weight of some terms.

        Terms are looked up from the rarest to the most frequent until `max_postings` are read: a term that almost all
        equations have says little about any.

        Args:
            codes: terms of the query, each once.
            weights: the weight of each, at least 0.
            k: hits.
            allowed: keys of the equations that may be found, in any order, unknown ones included; `None`: all.
            by_length: multiply total weights by `normalise_length`: long formulas have more of any terms.
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
        limit = limit_postings(len(self._every)) if max_postings is None else max_postings
        order: Integers = np.lexsort((codes, total))
        order = order[(total[order] > 0) & (weights[order] > 0)]
        enough = int(np.searchsorted(np.cumsum(total[order]), limit, "right"))
        read = order[: max(enough, MIN_TERMS_READ)].tolist()
        able = self._select_rows(allowed)
        best = _Best(k)
        for part, first_row, (starts, ends) in zip(self._parts.values(), self._starts.tolist(), lists, strict=False):
            scores = np.zeros(len(part), np.float32)
            for term in read:
                # Each row is there once.
                scores[part.rows[starts[term] : ends[term]]] += weights[term]
            if able is not None:
                scores *= able[first_row : first_row + len(part)]
            rows = np.flatnonzero(scores)
            factors = part.length_factors[rows] if by_length else np.float32(1)
            best.add(scores[rows] * factors, part.keys[rows])
        return best.sort()

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
        order = [np.zeros(0, np.int64)]
        for part, rows, places in self._locate(keys):
            forests.append(part.read_operators(rows))
            order.append(places)
        if len(forests) == 1:
            return forests[0]
        return OperatorForest.concatenate(forests).select(np.argsort(np.concatenate(order)))

    def get_norms(self, keys: Integers) -> Floats:
        """Return the norms of some equations, all of which must be there: (families, equations)."""
        found = [np.zeros((0, 1), np.uint8)]
        order = [np.zeros(0, np.int64)]
        for part, rows, places in self._locate(keys):
            found.append(part.norms[rows])
            order.append(places)
        norms = np.concatenate(found[1:]) if len(found) > 1 else found[0]
        return decode_norms(norms[np.argsort(np.concatenate(order))].T)

    def get_columns(self, keys: Integers) -> EquationColumns:
        """Return what tells equations apart, all of which must be there."""
        columns = np.zeros((3, len(keys)), np.int64)
        for part, rows, places in self._locate(keys):
            columns[:, places] = part.paper[rows], part.display[rows], part.latex[rows]
        return EquationColumns(keys, *columns)

    def find_known(self, keys: Integers) -> Mask:
        """Return which equations are indexed."""
        return find_members(keys, self._every)

    def count_frequencies(self, codes: Codes) -> Integers:
        """Return the number of equations that have each term; removed ones are counted until they are dropped."""
        total = np.zeros(len(codes), np.int64)
        for part in self._parts.values():
            starts, ends = part.find_lists(np.ascontiguousarray(codes, np.uint32))
            total += ends - starts
        return total

    def _find_rows(self, keys: Integers) -> Integers:
        """Return the rows of equations, all of which must be there."""
        places = np.searchsorted(self._every, keys)
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
        able = np.zeros(len(self._every), bool)
        able[self._find_rows(allowed[find_members(allowed, self.keys)])] = True
        return able


class _Best:
    """The best equations of one query so far."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._scores: list[Floats] = [np.zeros(0, np.float32)]
        self._keys: list[Integers] = [np.zeros(0, np.int64)]

    def add(self, scores: Floats, keys: Integers) -> None:
        """Add the best of some equations, and all that are as good as the last of them."""
        if len(scores) > self._k > 0:
            # A partition of the numbers themselves is faster than one of their places.
            rows = np.flatnonzero(scores >= np.partition(scores, -self._k)[-self._k])
            scores = scores[rows]
            keys = keys[rows]
        self._scores.append(scores)
        self._keys.append(keys)

    def sort(self) -> tuple[Floats, Integers]:
        """Return scores and keys, best first, equal ones by key."""
        scores = np.concatenate(self._scores)
        keys = np.concatenate(self._keys)
        order = np.lexsort((keys, -scores))[: self._k]
        return scores[order], keys[order]


def limit_postings(equations: int) -> int:
    """Return how many postings a search reads; the rarest `MIN_TERMS_READ` terms always count."""
    return min(max(equations // _POSTINGS_PART, _MIN_POSTINGS_READ), _MAX_POSTINGS_READ)


def find_members(keys: Integers, known: Integers) -> Mask:
    """Return which keys are among `known`, which are ascending."""
    if not len(known):
        return np.zeros(len(keys), bool)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.asarray(known[at] == keys)


def _compute_cosines(part: Part, queries: Floats, rows: Integers | None) -> Floats:
    """Return the cosines of queries with the vectors of some rows, or of all: (queries, rows)."""
    from eqkin.index.kernels import multiply_codes

    vectors = part.vectors if rows is None else part.vectors[rows]
    scales = part.scales if rows is None else part.scales[rows]
    cosines = np.empty((len(queries), len(vectors)), np.float32)
    if len(queries) < _MANY_QUERIES:
        for query, products in zip(queries, cosines, strict=True):
            multiply_codes(vectors, query, products)
    else:
        for at in range(0, len(vectors), _BLOCK_VECTORS):
            block = vectors[at : at + _BLOCK_VECTORS].astype(np.float32)
            np.matmul(queries, block.T, out=cosines[:, at : at + len(block)])
    cosines *= scales
    return cosines
