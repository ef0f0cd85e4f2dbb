"""`VectorIndex`: read-only search over the vectors of a library."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from eqkin.errors import BadInput, CorruptData, LibraryBusy, StorageFailed
from eqkin.index.faiss_index import FaissIndex, build_flat_index, build_inverted_lists, load_index
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, SETTINGS, IndexManifest, IndexSettings
from eqkin.index.terms import TermIndex
from eqkin.index.vectors import Floats, Integers, VectorFiles, find_positions, normalise
from eqkin.library import LibraryFiles
from eqkin.library.queries import list_tree_ids
from eqkin.storage import WriterLock

_MAX_ATTEMPTS = 10  # while an update replaces files


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
        self._files = VectorFiles(self._folder, manifest.files, manifest.dimensions)
        live = list_tree_ids(library)
        if len(self._files) <= settings.max_flat_vectors:
            self._nearest = build_flat_index(self._files, live)
        else:
            self._nearest = self._open_inverted_lists(live)
        # of the same state; None: there are none yet, or of another scheme
        entries = manifest.terms
        self.terms = None if entries is None else TermIndex.open(self._folder, entries, live, settings)
        self.trees, _ = self._files.rows.select_live(live)  # ascending
        # equations that cannot be found yet: without a vector, or with one that came too late to be in the lists
        self.missing = len(live) - len(self.trees)
        if self._nearest.rows < len(self._files):
            self.missing += int(np.isin(self._files.trees[self._nearest.rows :], live, assume_unique=True).sum())

    @classmethod
    def open(cls, library: LibraryFiles, model_digest: str, settings: IndexSettings = SETTINGS) -> VectorIndex:
        """Open a library's index for queries of a model.

        A damaged or missing file of faiss is built again from the vectors, on disk if possible.

        Raises:
            BadInput: there is no index, or its vectors are of another model.
            CorruptData: a segment is damaged.
        """
        folder = library.folder / INDEX_FOLDER
        for attempt in range(_MAX_ATTEMPTS):
            manifest = IndexManifest.load(folder)
            if manifest is None:
                raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
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

    def search(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """Return the nearest equations of each query.

        Args:
            vectors: (q, d), of any length; a vector that is zero or not finite finds nothing.
            k: hits per query.
            allowed: numbers of the trees that may be found, in any order, unknown ones included; `None`: all.

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
        chosen = None if allowed is None else self.trees[find_positions(self.trees, allowed)]
        limit = min(k, len(self) if chosen is None else len(chosen))
        if not limit or not len(usable):
            return similarities, trees
        if chosen is not None and len(chosen) <= self._settings.max_compared_trees:
            cosines = queries[usable] @ self._files.take(self._files.rows.find_rows(chosen)).T
            best = np.argpartition(-cosines, limit - 1, axis=1)[:, :limit]
            values, hits = np.take_along_axis(cosines, best, axis=1), chosen[best]
        else:
            values, hits = self._nearest.search(queries[usable], limit, chosen)
        order = np.lexsort((hits, -values, hits < 0), axis=1)  # equal ones by tree, missing hits last
        hits = np.take_along_axis(hits, order, axis=1)
        values = np.clip(np.take_along_axis(values, order, axis=1), -1, 1)
        similarities[usable, :limit], trees[usable, :limit] = np.where(hits < 0, np.float32(0), values), hits
        return similarities, trees

    def get_vectors(self, trees: Integers) -> Floats:
        """Return the unit vectors of some trees; raises `BadInput` if a tree has none."""
        trees = np.asarray(trees, np.int64)
        at = np.searchsorted(self.trees, trees)
        known = at < len(self)
        known[known] = self.trees[at[known]] == trees[known]
        if not known.all():
            raise BadInput(f"tree {int(trees[~known][0])} has no vector; run `eqkin index`")
        return self._files.take(self._files.rows.find_rows(trees))

    def _open_inverted_lists(self, live: Integers) -> FaissIndex:
        """Return the lists on disk, with an exact index of some of the vectors that came later; or new lists."""
        files, manifest, limit = self._files, self._manifest, self._settings.max_flat_vectors
        nearest = None
        if manifest.nearest is not None and manifest.nearest.count <= len(files):
            with suppress(CorruptData):
                nearest = load_index(self._folder, manifest.nearest, manifest.dimensions)
        nearest = nearest or self._rebuild_inverted_lists()
        if nearest is None:  # another process is building them
            return build_flat_index(files, live, 0, limit)
        if nearest.rows < len(files):
            tail = build_flat_index(files, live, nearest.rows, limit)
            nearest.rows, nearest.tail = tail.rows, tail if len(tail) else None
        if not np.isin(files.trees, live, assume_unique=True).all():
            nearest.restrict_to(live)
        return nearest

    def _rebuild_inverted_lists(self) -> FaissIndex | None:
        """Build new lists and save them if possible; None if another process is updating the index."""
        try:
            with WriterLock(self._folder):
                nearest = build_inverted_lists(self._files)
                if IndexManifest.load(self._folder) == self._manifest:
                    with suppress(StorageFailed):
                        replace(self._manifest, nearest=nearest.save(self._folder)).save(self._folder)
                return nearest
        except LibraryBusy:
            return None
        except StorageFailed:
            return build_inverted_lists(self._files)
