"""`VectorIndex`: the vectors of a library as one that searches them sees them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from eqkin.errors import BadInput, CorruptData, LibraryBusy, StorageFailed
from eqkin.index import nearest as faiss_side
from eqkin.index.nearest import FaissIndex
from eqkin.index.state import INDEX_FOLDER, REBUILD_HINT, IndexManifest
from eqkin.index.structure import TermIndex
from eqkin.index.vectors import Floats, Integers, VectorFiles, find_positions, normalise
from eqkin.library import LibraryFiles
from eqkin.library.database import read_generation
from eqkin.library.queries import list_tree_ids
from eqkin.storage import WriterLock

_MAX_ATTEMPTS = 10  # while an updater replaces files
_MAX_COMPARED_TREES = 10_000  # allowed trees up to which each of them is compared


class VectorIndex:
    """The vectors of a library's equations; open it with `VectorIndex.open`. May be shared between threads.

    It answers for the moment at which it was opened: equations added later are not in it, removed ones still are.
    """

    def __init__(
        self, state: IndexManifest, files: VectorFiles, live: Integers, nearest: FaissIndex, structure: TermIndex | None
    ) -> None:
        self._state, self._files, self._nearest = state, files, nearest
        self.structure = structure  # of the same moment; None: it was not taken in yet
        self.trees, _ = files.rows.select_live(live)  # ascending
        self.missing = len(live) - len(self.trees)  # equations that cannot be found yet: without a vector, or
        if nearest.rows < len(files):  # with one that came so late that it is not in the lists
            self.missing += int(np.isin(files.trees[nearest.rows :], live, assume_unique=True).sum())

    @classmethod
    def open(cls, library: LibraryFiles, model_digest: str) -> VectorIndex:
        """Open a library's index for queries of a model.

        A damaged or missing file of faiss is made again from the vectors, on disk where that can be written.

        Raises:
            BadInput: there is no index, or its vectors are of another model.
            CorruptData: a file of vectors or of structure is damaged.
        """
        folder = library.folder / INDEX_FOLDER
        for attempt in range(_MAX_ATTEMPTS):
            state = IndexManifest.load(folder)
            if state is None:
                raise BadInput(f"{library.folder}: its equations have no vectors yet; run `eqkin index`")
            if state.model != model_digest:
                raise BadInput(f"{library.folder}: its vectors are of another model; run `eqkin index`")
            if state.generation > _read_library_generation(library):
                raise BadInput(f"{folder}: is of another library, or a later state of this one; {REBUILD_HINT}")
            try:
                return cls._open_files(library, folder, state)
            except CorruptData:  # an updater may have replaced the files
                if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(folder) == state:
                    raise
        raise AssertionError

    @classmethod
    def _open_files(cls, library: LibraryFiles, folder: Path, state: IndexManifest) -> VectorIndex:
        files = VectorFiles(folder, state.files, state.dimensions)
        live = list_tree_ids(library)
        if len(files) <= faiss_side.MAX_FLAT_VECTORS:
            nearest = faiss_side.build_flat_index(files, live)
        else:
            nearest = _open_inverted_lists(folder, state, files, live)
        structure = None if state.terms is None else TermIndex.open(folder, state.terms, live)
        return cls(state, files, live, nearest, structure)

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def dimensions(self) -> int:
        """Numbers in a vector."""
        return self._state.dimensions

    def search(self, vectors: Floats, k: int, allowed: Integers | None = None) -> tuple[Floats, Integers]:
        """The nearest equations of each query.

        Args:
            vectors: (q, d), of any length; one that is zero or not finite finds nothing.
            k: hits a query.
            allowed: numbers of the trees a hit may have, in any order; unknown ones do no harm. `None`: all.

        Returns:
            Cosines (q, k), best first, and tree numbers (q, k); 0 and -1 where there are fewer hits than `k`.

        Raises:
            BadInput: the vectors have another shape, or `k` is negative.
        """
        queries = np.asarray(vectors, np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimensions:
            raise BadInput(f"queries of shape {queries.shape}; (any number, {self.dimensions}) is needed")
        if k < 0:
            raise BadInput(f"{k} hits cannot be searched for")
        queries = normalise(queries)
        usable = np.flatnonzero(queries.any(axis=1))
        similarities = np.zeros((len(queries), k), np.float32)
        trees = np.full((len(queries), k), -1, np.int64)
        chosen = None if allowed is None else find_positions(self.trees, allowed)
        most = min(k, len(self) if chosen is None else len(chosen))
        if not most or not len(usable):
            return similarities, trees
        if chosen is not None and len(chosen) <= _MAX_COMPARED_TREES:
            found = self._search_exactly(queries[usable], most, chosen)
        else:
            found = self._nearest.search(queries[usable], most, None if chosen is None else self.trees[chosen])
        similarities[usable, :most], trees[usable, :most] = _sort_hits(*found)
        return similarities, trees

    def get_vectors(self, trees: Integers) -> Floats:
        """The unit vectors of some trees, in their order.

        Raises:
            BadInput: a tree has no vector.
        """
        trees = np.asarray(trees, np.int64)
        at = np.searchsorted(self.trees, trees)
        known = at < len(self)
        known[known] = self.trees[at[known]] == trees[known]
        if not known.all():
            raise BadInput(f"tree {int(trees[~known][0])} has no vector; run `eqkin index`")
        return self._files.take(self._files.rows.find_rows(trees))

    def _search_exactly(self, queries: Floats, k: int, among: Integers) -> tuple[Floats, Integers]:
        """Exact search among some trees."""
        trees = self.trees[among]
        similarities = queries @ self._files.take(self._files.rows.find_rows(trees)).T
        best = np.argpartition(-similarities, k - 1, axis=1)[:, :k]
        return np.take_along_axis(similarities, best, axis=1), trees[best]


def _open_inverted_lists(folder: Path, state: IndexManifest, files: VectorFiles, live: Integers) -> FaissIndex:
    """The lists on disk, and beside them some of the vectors that came later; or new ones."""
    nearest = None
    if state.nearest is not None and state.nearest.count <= len(files):
        with suppress(CorruptData):
            nearest = faiss_side.load_index(folder, state.nearest, state.dimensions)
    nearest = nearest or _rebuild_inverted_lists(folder, state, files)
    if nearest is None:  # somebody is making them
        return faiss_side.build_flat_index(files, live, 0, faiss_side.MAX_FLAT_VECTORS)
    if nearest.rows < len(files):
        later = faiss_side.build_flat_index(files, live, nearest.rows, faiss_side.MAX_FLAT_VECTORS)
        nearest.rows, nearest.later = later.rows, later if len(later) else None
    if not np.isin(files.trees, live, assume_unique=True).all():
        nearest.restrict_to(live)
    return nearest


def _rebuild_inverted_lists(folder: Path, state: IndexManifest, files: VectorFiles) -> FaissIndex | None:
    """New lists, on disk where they can be written; None if somebody else is at work there."""
    try:
        with WriterLock(folder):
            nearest = faiss_side.build_inverted_lists(files)
            if IndexManifest.load(folder) == state:
                with suppress(StorageFailed):
                    replace(state, nearest=nearest.save(folder)).save(folder)
            return nearest
    except LibraryBusy:
        return None
    except StorageFailed:
        return faiss_side.build_inverted_lists(files)


def _read_library_generation(library: LibraryFiles) -> int:
    with library.translate_errors():
        return read_generation(library.connection)


def _sort_hits(similarities: Floats, trees: Integers) -> tuple[Floats, Integers]:
    """Best first, equal ones by their number; places without a hit last."""
    none = trees < 0
    order = np.lexsort((trees, -similarities, none), axis=1)
    trees = np.take_along_axis(trees, order, axis=1)
    similarities = np.clip(np.take_along_axis(similarities, order, axis=1), -1, 1)
    return np.where(trees < 0, np.float32(0), similarities), trees
