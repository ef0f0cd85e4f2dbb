"""`Shelves`: the store of a library on disk, shared by threads; its index is opened again when it changes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.forest import Forest
from eqkin.index import VectorIndex, Words
from eqkin.index.rows import within
from eqkin.index.state import FOLDER, NAME, IndexState
from eqkin.library import Library
from eqkin.library.database import NAME as DATABASE
from eqkin.library.database import connect, generation
from eqkin.library.library import NoSuchTree
from eqkin.library.manifest import Manifest
from eqkin.search import records
from eqkin.search.filtering import allowed_papers, allowed_trees
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord
from eqkin.search.store import ANYTHING, Codes, Facets, Floats, Keys, NoSuchEquation, Place

_LOG = logging.getLogger("eqkin.search")
_LARGE = 50_000  # vectors; a smaller index is opened in no time
_AGAIN = 5.0  # seconds until a changed index that could not be opened is looked at again
_REST = 4.0  # times as long as a large index took to open nothing is opened: an updater may change it many times
_FILTERS, _KEPT = 32, 8_000_000  # sets of allowed trees that are kept, and trees in all of them
_SECTIONS = 300  # that fit the words best
_IN_SECTIONS = 3_000  # equations of them


@dataclass
class View:
    """The index as it was opened last, and what was worked out with it."""

    index: VectorIndex | None  # None: the library has no equations
    signature: tuple[int, ...]
    words: Words | None = None
    allowed: OrderedDict[tuple[int, Filters], Keys] = field(default_factory=OrderedDict)


class LibraryDesk:
    """A `Desk` over a library: a connection of its own, and the index that all share. Keys are the numbers of trees."""

    def __init__(self, library: Library, shelves: Shelves) -> None:
        self.library, self._shelves = library, shelves

    @cached_property
    def view(self) -> View:
        """The index as it is when it is first needed; raises `BadInput` if there are equations but no vectors."""
        return self._shelves.current()

    @property
    def moment(self) -> Hashable:
        """Another value whenever library or index have changed."""
        opened = self.__dict__.get("view")
        with self.library.reading():
            now = generation(self.library.connection)
        return now, opened.signature if opened else self._shelves.signature()

    @property
    def missing(self) -> int:
        """Equations that have no vector yet."""
        return self.view.index.missing if self.view.index is not None else 0

    def __len__(self) -> int:
        return len(self.view.index) if self.view.index is not None else 0

    def nearest(self, vectors: Floats, k: int, filters: Filters = ANYTHING) -> tuple[Floats, Keys]:
        """The equations nearest to each vector; see `Desk`."""
        return self._index.search(vectors, k, self._allowed(filters))

    def alike(self, codes: Codes, weights: Floats, k: int, filters: Filters = ANYTHING) -> tuple[Floats, Keys]:
        """The equations that have most of some terms; see `Desk`."""
        structure = self._index.structure
        if structure is None:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        sums, trees = structure.search(codes, weights, k, self._allowed(filters))
        known = within(trees, self._index.trees)
        return sums[known], trees[known]

    def worded(self, text: str, filters: Filters = ANYTHING) -> dict[int, float]:
        """Equations of the sections that fit the words best; see `Desk`."""
        papers = allowed_papers(self.library, filters)
        self.view.words = self.view.words or Words.open(self.library)
        sections = dict(self.view.words.search(text, _SECTIONS, papers=papers))
        with self.library.reading():
            found = records.trees_in_sections(self.library, sections)
        trees = np.array(sorted(found), np.int64)
        trees = trees[within(trees, self._index.trees)]
        best = sorted(trees.tolist(), key=lambda tree: (-sections[found[tree]], tree))[:_IN_SECTIONS]
        return {tree: sections[found[tree]] for tree in best}

    def places(self, keys: Iterable[int]) -> dict[int, Place]:
        """Where equations stand."""
        with self.library.reading():
            return records.places_of_trees(self.library, keys)

    def vectors(self, keys: Keys) -> Floats:
        """Unit vectors; raises `NoSuchEquation`."""
        try:
            return self._index.vectors(keys)
        except BadInput as error:
            raise NoSuchEquation(str(error)) from error

    def forest(self, keys: Keys) -> Forest:
        """Trees; raises `NoSuchEquation`."""
        try:
            return self.library.trees(keys)
        except NoSuchTree as error:
            raise NoSuchEquation(str(error)) from error

    def records(self, keys: Iterable[int]) -> dict[int, EquationRecord]:
        """All that is shown of equations."""
        with self.library.reading():
            return records.equations(self.library, keys)

    def equation(self, name: str) -> EquationRecord:
        """The equation with an id; raises `BadInput`."""
        with self.library.reading():
            return records.equation_named(self.library, name)

    def paper(self, key: str) -> PaperPage:
        """A paper and its equations; raises `BadInput`."""
        with self.library.reading():
            return records.paper_page(self.library, key)

    def papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Papers by their keys."""
        with self.library.reading():
            return records.papers_named(self.library, keys)

    def of_papers(self, keys: Iterable[str]) -> Keys:
        """Equations of papers that have a vector, in order."""
        with self.library.reading():
            trees = np.array(records.trees_of_papers(self.library, keys), np.int64)
        return trees[within(trees, self._index.trees)] if len(self) else trees[:0]

    def spread(self, limit: int) -> Keys:
        """Equations evenly spread over the library."""
        if not len(self):
            return np.zeros(0, np.int64)
        chosen = np.unique(np.linspace(0, len(self) - 1, min(limit, len(self))).round().astype(np.int64))
        spread: Keys = self._index.trees[chosen]
        return spread

    def facets(self) -> Facets:
        """Equations by field and by year."""
        with self.library.reading():
            return records.facets(self.library)

    @property
    def _index(self) -> VectorIndex:
        if self.view.index is None:
            raise BadInput("the library has no equations yet; fill it with `eqkin add`")
        return self.view.index

    def _allowed(self, filters: Filters) -> Keys | None:
        """The trees that filters allow, None for all; kept for the next search with the same filters."""
        if filters == ANYTHING:
            return None
        with self.library.reading():
            key = generation(self.library.connection), filters
        kept = self.view.allowed
        found = kept.get(key)
        if found is None:
            found = allowed_trees(self.library, filters)
            if found is None:
                return None
            kept[key] = found
            with suppress(KeyError, RuntimeError):  # other threads do the same
                while len(kept) > _FILTERS or (len(kept) > 1 and sum(map(len, kept.values())) > _KEPT):
                    kept.popitem(last=False)
        return found


class Shelves:
    """A library as a `Store`, for queries of a model; a connection that was given back is used again, by any thread.

    Args:
        library: the library, or its folder.
        model: digest of the network that queries are embedded with.

    Raises:
        BadInput: there is no library.
    """

    def __init__(self, library: Library | str | os.PathLike[str], model: str) -> None:
        self.folder, self.model = folder_of(library), model
        self._free: deque[Library] = deque()
        self._view: View | None = None
        self._opening = threading.Lock()
        self._next_attempt = 0.0  # to open a changed index, in the clock's seconds
        self._closed = False

    @contextmanager
    def desk(self) -> Iterator[LibraryDesk]:
        """A desk to read at."""
        try:
            library = self._free.pop()
        except IndexError:
            library = self._connect()
        try:
            yield LibraryDesk(library, self)
        finally:
            if self._closed:
                library.close()
            else:
                self._free.append(library)

    def close(self) -> None:
        """Let all connections go that are not in use; those in use go when they are given back."""
        self._closed = True
        if self._view is not None and self._view.words is not None:
            self._view.words.close()
        while self._free:
            self._free.pop().close()

    def refresh(self) -> None:
        """Take the index as it is on disk now; otherwise a large one that changed is taken a little later."""
        with self._opening:
            self._open(self.signature())

    @property
    def complete(self) -> bool:
        """Whether the index had all of the library's equations when it was opened last; not before it is opened."""
        view = self._view
        if view is None or view.index is None:
            return view is not None
        structure = view.index.structure
        return not view.index.missing and structure is not None and not structure.missing

    def current(self) -> View:
        """The index as it is on disk; a large one that changed is opened beside, and the old one used meanwhile."""
        signature, view = self.signature(), self._view
        if view is None or view.index is None:
            with self._opening:
                if self._view is None or self._view.index is None:
                    self._open(signature)
                assert self._view is not None
                return self._view
        if view.signature == signature or time.monotonic() < self._next_attempt:
            return view
        if len(view.index) > _LARGE or _vectors(self.folder / FOLDER) > _LARGE:
            if self._opening.acquire(blocking=False):
                threading.Thread(target=self._open_beside, args=(signature,), daemon=True).start()
        else:
            self._opening.acquire()
            self._open_beside(signature)
        return self._view or view

    def signature(self) -> tuple[int, ...]:
        """Another value whenever the index on disk is another."""
        try:
            status = (self.folder / FOLDER / NAME).stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _connect(self) -> Library:
        connection = connect(self.folder / DATABASE, roaming=True)
        return Library(self.folder, Manifest.load(self.folder), connection)

    def _open(self, signature: tuple[int, ...]) -> None:
        with self._connect() as library:
            self._view = View(_open_index(library, self.model), signature)

    def _open_beside(self, signature: tuple[int, ...]) -> None:
        """Open a changed index, unless another thread just did; what was opened before answers if that fails."""
        start = time.monotonic()
        try:
            if self._view is None or self._view.signature != signature:
                self._open(signature)
                if self._view is not None and self._view.index is not None and len(self._view.index) > _LARGE:
                    self._next_attempt = time.monotonic() + _REST * (time.monotonic() - start)
        except EqkinError as error:
            self._next_attempt = time.monotonic() + _AGAIN
            _LOG.warning("the changed index cannot be opened: %s", error)
        finally:
            self._opening.release()


def folder_of(library: Library | str | os.PathLike[str]) -> Path:
    """The folder of a library; raises `BadInput` if there is none."""
    if isinstance(library, Library):
        return library.folder
    with Library.open(library, create=False) as opened:
        return opened.folder


def _vectors(folder: Path) -> int:
    """How many vectors an index on disk has."""
    try:
        state = IndexState.load(folder)
    except CorruptData:
        return 0
    return state.count if state is not None else 0


def _open_index(library: Library, model: str) -> VectorIndex | None:
    try:
        return VectorIndex.open(library, model)
    except EqkinError:
        with library.reading():
            if library.connection.execute("SELECT 1 FROM equations WHERE tree IS NOT NULL LIMIT 1").fetchone():
                raise
        return None
