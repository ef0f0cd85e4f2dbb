"""What searches read, shared by threads: connections to a library, and its index, opened again when it changes."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.index import VectorIndex, Words
from eqkin.index.state import FOLDER, NAME, IndexState
from eqkin.library import Library
from eqkin.library.database import NAME as DATABASE
from eqkin.library.database import connect, generation
from eqkin.library.manifest import Manifest
from eqkin.search.filtering import allowed_trees
from eqkin.search.results import Filters, MapPoints

_LOG = logging.getLogger("eqkin.search")
_LARGE = 50_000  # vectors; a smaller index is opened in no time
_FILTERS = 32  # sets of allowed trees that are kept


@dataclass
class View:
    """The index as it was opened last, and what was worked out with it."""

    index: VectorIndex | None  # None: the library has no equations
    signature: tuple[int, ...]
    words: Words | None = None
    maps: dict[int, MapPoints] = field(default_factory=dict)
    allowed: OrderedDict[tuple[int, Filters], npt.NDArray[np.int64]] = field(default_factory=OrderedDict)

    @property
    def opened(self) -> VectorIndex:
        """The index of a library that has one."""
        if self.index is None:
            raise BadInput("the library has no equations yet; fill it with `eqkin add`")
        return self.index


@dataclass
class Desk:
    """What one thread reads with at a time: a connection of its own."""

    library: Library
    view: View

    def words(self) -> Words:
        """The full text search; raises `BadInput` if there is none."""
        self.view.words = self.view.words or Words.open(self.library)
        return self.view.words

    def allowed(self, filters: Filters) -> npt.NDArray[np.int64] | None:
        """The trees that filters allow, None for all; kept for the next search with the same filters."""
        if filters == Filters():
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
            with suppress(KeyError):
                while len(kept) > _FILTERS:
                    kept.popitem(last=False)
        return found


class ReadingRoom:
    """Hands out desks; a connection that was given back is used again, by any thread."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self._free: deque[Library] = deque()
        self._view: View | None = None
        self._opening = threading.Lock()
        self._closed = False

    @contextmanager
    def desk(self, *, index: bool = True) -> Iterator[Desk]:
        """A desk to read at, with the index unless that is not needed.

        Raises:
            BadInput: the library has equations but no vectors, or those of another model.
        """
        try:
            library = self._free.pop()
        except IndexError:
            library = self._connect()
        try:
            yield Desk(library, self._current() if index else View(None, ()))
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

    def _connect(self) -> Library:
        connection = connect(self.folder / DATABASE, roaming=True)
        return Library(self.folder, Manifest.load(self.folder), connection)

    def refresh(self) -> None:
        """Take the index as it is on disk now."""
        with self._opening:
            self._open(self._signature())

    @property
    def complete(self) -> bool:
        """Whether the index had all of the library's equations when it was opened last; not before it is opened."""
        view = self._view
        if view is None or view.index is None:
            return view is not None
        structure = view.index.structure
        return not view.index.missing and structure is not None and not structure.missing

    def _current(self) -> View:
        """The index as it is on disk; a large one that changed is opened beside, and the old one used meanwhile."""
        signature, view = self._signature(), self._view
        if view is not None and view.index is not None:
            if view.signature == signature:
                return view
            if len(view.index) > _LARGE or _vectors(self.folder / FOLDER) > _LARGE:
                if self._opening.acquire(blocking=False):
                    threading.Thread(target=self._open_beside, args=(signature,), daemon=True).start()
                return view
        with self._opening:
            if self._view is None or self._view.index is None or self._view.signature != signature:
                self._open(signature)
            assert self._view is not None
            return self._view

    def _open(self, signature: tuple[int, ...]) -> None:
        with self._connect() as library:
            self._view = View(_open_index(library, self.model), signature)

    def _open_beside(self, signature: tuple[int, ...]) -> None:
        try:
            self._open(signature)
        except EqkinError as error:  # what was opened before goes on answering
            _LOG.warning("the changed index cannot be opened: %s", error)
        finally:
            self._opening.release()

    def _signature(self) -> tuple[int, ...]:
        try:
            status = (self.folder / FOLDER / NAME).stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


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
