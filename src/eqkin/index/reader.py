"""`VectorIndex`: read-only search over the vectors of a library."""

from __future__ import annotations

import numpy as np

from eqkin.errors import BadInput, CorruptData
from eqkin.index.manifest import INDEX_FOLDER, INDEX_VERSION, REBUILD_HINT, SETTINGS, IndexManifest, IndexSettings
from eqkin.index.signs import BinaryCodes
from eqkin.index.terms import TermIndex
from eqkin.index.vectors import Floats, Integers, VectorFiles, find_members, find_positions, normalise
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import list_tree_ids
from eqkin.limits import check_cancelled
from eqkin.storage.segments import is_intact

_MAX_ATTEMPTS = 10  # while an update replaces files
_COMPARED_PART = 50  # one of so many vectors is compared with a query: those with the nearest binary codes
_QUERIES_AT_ONCE = 64  # compared with all vectors together
_ROUGH_PART = 3  # one of so many of these vectors is compared in a rough search


class VectorIndex:
    """The vectors of a library's equations; open it with `VectorIndex.open`. Safe to share between threads.

    It keeps the state at which it was opened: it lacks equations added later, and still has removed ones.

    Args:
        library: the library.
        manifest: the manifest of its index.
        settings: sizes at which it changes its way of working.
    """

    def __init__(self, library: LibraryFiles, manifest: IndexManifest, settings: IndexSettings = SETTINGS) -> None:
        self._folder, self._manifest, self._settings = library.folder / INDEX_FOLDER, manifest, settings
        for entry in (*manifest.files, *(manifest.terms or ())):
            if not is_intact(self._folder, entry):
                raise CorruptData(f"{self._folder / entry.file}: does not match its hash; {REBUILD_HINT}")
        self._files = VectorFiles(self._folder, manifest.files, manifest.dimensions)
        self.generation: int = library.read_generation()  # of the library when its trees were listed
        live = list_tree_ids(library)
        self._codes = BinaryCodes(self._files) if len(self._files) > settings.max_flat_vectors else None
        # of the same state; None: there are none yet, or of another scheme
        entries = manifest.terms
        self.terms: TermIndex | None = None if entries is None else TermIndex.open(self._folder, entries, live)
        self.trees: Integers = self._files.rows.select_live(live)  # ascending
        self._alive = None  # rows that may be found; None: all
        if len(self.trees) < len(self._files):
            self._alive = np.zeros(len(self._files), bool)
            self._alive[self._files.rows.find_rows(self.trees)] = True
        self.missing: int = len(live) - len(self.trees)  # equations that have no vector yet

    @classmethod
    def open(cls, library: LibraryFiles, model_digest: str, settings: IndexSettings = SETTINGS) -> VectorIndex:
        """Open a library's index for queries of a model.

        Raises:
            BadInput: there is no index, or its vectors are of another model.
            CorruptData: a segment is damaged.
        """
        folder = library.folder / INDEX_FOLDER
        for attempt in range(_MAX_ATTEMPTS):
            manifest = IndexManifest.load(folder)
            if manifest is None:
                raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
            if manifest.version != INDEX_VERSION:
                raise BadInput(f"{library.folder}: its index was made by an older eqkin; run `eqkin index`")
            if manifest.model != model_digest:
                raise BadInput(f"{library.folder}: its vectors are of another model; run `eqkin index`")
            if manifest.generation > library.read_generation():
                raise BadInput(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
            try:
                return cls(library, manifest, settings)
            except CorruptData:  # an update may have replaced the files
                if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(folder) == manifest:
                    raise
        raise AssertionError

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def dimensions(self) -> int:
        """Numbers per vector."""
        return self._manifest.dimensions

    def search(
        self, vectors: Floats, k: int, allowed: Integers | None = None, *, rough: bool = False
    ) -> tuple[Floats, Integers]:
        """Return the nearest equations of each query.

        Args:
            vectors: (q, d), of any length; a vector that is zero or not finite finds nothing.
            k: hits per query.
            allowed: numbers of the trees that may be found, in any order, unknown ones included; `None`: all.
            rough: be faster, and miss some of the nearest in a large collection.

        Returns:
            Cosines (q, k), best first, and tree numbers (q, k); 0 and -1 where there are fewer hits than `k`.

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
        similarities = np.zeros((len(queries), k), np.float32)
        trees = np.full((len(queries), k), -1, np.int64)
        rows = None if allowed is None else np.sort(self._find_rows(allowed))
        limit = min(k, len(self) if rows is None else len(rows))
        if not limit or not len(usable):
            return similarities, trees
        if self._codes is None or (rows is not None and len(rows) <= self._settings.max_compared_trees):
            if rows is None and self._alive is not None:
                rows = np.flatnonzero(self._alive)
            parts = np.split(usable, range(_QUERIES_AT_ONCE, len(usable), _QUERIES_AT_ONCE))
            compared = [(part, rows) for part in parts]
        else:
            able = self._alive
            count = max(self._settings.compared_vectors, len(self._files) // _COMPARED_PART)
            count = max(count // _ROUGH_PART if rough else count, 2 * limit)
            if rows is not None:
                able = np.zeros(len(self._files), bool)
                able[rows] = True
            compared = [(part, self._codes.find_rows(queries[part[0]], count, able)) for part in usable[:, None]]
        for part, chosen in compared:
            check_cancelled()
            for query, cosines in zip(part.tolist(), self._files.compute_cosines(queries[part], chosen), strict=True):
                best = min(limit, len(cosines))
                hits = np.argpartition(cosines, len(cosines) - best)[len(cosines) - best :]
                values, numbers = cosines[hits], self._files.trees[hits if chosen is None else chosen[hits]]
                order = np.lexsort((numbers, -values))  # equal ones by tree
                similarities[query, :best] = np.clip(values[order], -1, 1)
                trees[query, :best] = numbers[order]
        return similarities, trees

    def _find_rows(self, trees: Integers) -> Integers:
        """Return the rows of those trees that can be found."""
        return self._files.rows.find_rows(self.trees[find_positions(self.trees, trees)])

    def get_vectors(self, trees: Integers) -> Floats:
        """Return the unit vectors of some trees; raises `BadInput` if a tree has none."""
        trees = np.asarray(trees, np.int64)
        known = find_members(trees, self.trees)
        if not known.all():
            raise BadInput(f"tree {int(trees[~known][0])} has no vector; run `eqkin index`")
        return self._files.take(self._files.rows.find_rows(trees))
