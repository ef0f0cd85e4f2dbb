"""`LocalBackend`: searches a library on disk, shared by threads; reopens the index when it changes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from eqkin.errors import BadInput, EqkinError
from eqkin.formulas import Forest
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.index.index import EquationFeatures, Index, find_members
from eqkin.index.manifest import INDEX_FOLDER, INDEX_MANIFEST_NAME
from eqkin.index.text import TextIndex
from eqkin.library import records
from eqkin.library.files import LibraryFiles, TreeNotFound
from eqkin.library.queries import has_equations, select_papers, select_trees
from eqkin.library.references import EquationColumns, read_columns
from eqkin.search.backend import NO_FILTERS, Codes, EquationRef, Facets, Floats, Keys, NoSuchEquation, PaperCount
from eqkin.search.cache import VersionedCache
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

P = ParamSpec("P")
T = TypeVar("T")
_LOG = logging.getLogger("eqkin.search")
_RETRY_SECONDS = 5.0  # until a changed index that could not be opened is tried again
# Trees and records of equations that were shown lately, and the equations that filters allow. The latter may be
# millions: records push them out after some fifteen searches.
_MAX_CACHED = 300
_MAX_SAME_FORM = 20_000  # equations of one form; more are not counted: a form as frequent as that is one letter
MAX_SECTIONS = 300  # best matches of a text
_MAX_TEXT_EQUATIONS = 3_000  # in these sections


@dataclass
class IndexView:
    """The index as it was opened last."""

    index: Index | None  # None: the library has no equations
    signature: tuple[int, ...]
    text: TextIndex | None = None  # opened with the first search that needs it


class LocalSnapshot:
    """A `Snapshot` of a library: a connection of its own, and the index that all share."""

    def __init__(self, library: LibraryFiles, backend: LocalBackend) -> None:
        self.library: LibraryFiles = library
        self._backend = backend

    @cached_property
    def view(self) -> IndexView:
        """The index as it is when it is first needed; raises `BadInput` if there are equations but no vectors."""
        return self._backend.get_view()

    @property
    def version(self) -> Hashable:
        """Identifies the state of library and index."""
        opened = self.__dict__.get("view")
        return self._generation, opened.signature if opened else self._backend.read_signature()

    @cached_property
    def _generation(self) -> int:
        """The library's generation when it is first needed."""
        return self.library.read_generation()

    @property
    def missing(self) -> int:
        """Equations that have no vector yet."""
        return self.view.index.missing if self.view.index is not None else 0

    def __len__(self) -> int:
        return len(self.view.index) if self.view.index is not None else 0

    @property
    def _index(self) -> Index:
        if self.view.index is None:
            raise BadInput("the library has no equations yet; fill it with `eqkin add`")
        return self.view.index

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations nearest to each vector; see `Snapshot`."""
        return self._index.search_vectors(vectors, k, self._get_allowed(filters))

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations with the largest weight of common terms; see `Snapshot`."""
        return self._index.search_terms(codes, weights, k, self._get_allowed(filters))

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Find equations of the sections that match best; see `Snapshot`."""
        papers = select_papers(self.library, filters)
        sections = dict(self._text.search(self.library, text, MAX_SECTIONS, papers=papers))
        found = self._read(records.get_trees_in_sections, sections)
        keys = self._keep_indexed(found)
        best = sorted(keys.tolist(), key=lambda key: (-sections[found[key]], key))[:_MAX_TEXT_EQUATIONS]
        return {key: sections[found[key]] for key in best}

    def count_same_form(
        self, operators: OperatorForest, filters: Filters = NO_FILTERS, exclude: int = -1
    ) -> list[PaperCount] | None:
        """Count all equations of the same form by paper; see `Snapshot`."""
        keys = self._index.find_same_form(operators)
        if len(keys) > _MAX_SAME_FORM:
            return None
        return self._read(records.count_by_paper, keys[keys != exclude].tolist(), filters)

    @property
    def _text(self) -> TextIndex:
        self.view.text = self.view.text or TextIndex.open(self.library)
        return self.view.text

    @property
    def _names(self) -> TextIndex | None:
        """The text index, which also has names; None if it cannot be opened: only a search by text needs it."""
        try:
            return self._text
        except EqkinError:
            return None

    def find_named(self, name: str, filters: Filters = NO_FILTERS) -> set[int]:
        """Find equations with a name; see `Snapshot`."""
        if not len(self) or not (names := self._names):
            return set()
        keys = self._keep_indexed(names.find_named(name))
        allowed = self._get_allowed(filters)
        return set((keys if allowed is None else keys[find_members(keys, allowed)]).tolist())

    def get_names(self, keys: Iterable[int]) -> dict[int, str]:
        """Return the names of equations; see `Snapshot`."""
        return names.get_names(list(keys)) if (names := self._names) else {}

    def match_name(self, text: str) -> str:
        """Return the equation name that `text` matches, or an empty string."""
        return names.match_name(text) if (names := self._names) else ""

    def complete_name(self, text: str, k: int) -> list[tuple[str, int]]:
        """Return the names with a word that begins with `text`; see `Snapshot`."""
        return names.complete_name(text, k) if (names := self._names) else []

    def knows_word(self, word: str) -> bool:
        """Return whether the text has a word."""
        names = self._names
        return names is not None and bool(names) and names.knows_word(word)

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Return references to equations."""
        return self._read(records.get_refs, keys)

    def get_features(self, keys: Keys, *, operators: bool = True) -> EquationFeatures:
        """Return what is compared of equations; see `Snapshot`."""
        # If the library changed after the index was made, only the database knows what is gone.
        if self._index.generation != self._generation:
            keys = self._read(read_columns, keys).keys
        return self._index.get_features(keys, operators=operators)

    def get_paper_facets(self, columns: EquationColumns) -> dict[int, PaperCount]:
        """Return the papers of equations, with what facets count of them; see `Snapshot`."""
        papers = self._read(records.get_paper_facets, set(columns.paper.tolist()))
        pairs = zip(columns.keys.tolist(), columns.paper.tolist(), strict=True)
        return {key: papers[paper] for key, paper in pairs if paper in papers}

    def get_vectors(self, keys: Keys) -> Floats:
        """Return unit vectors; raises `NoSuchEquation`."""
        try:
            return self._index.get_vectors(keys)
        except BadInput as error:
            raise NoSuchEquation(str(error)) from error

    def get_trees(self, keys: Keys) -> Forest:
        """Return trees; raises `NoSuchEquation`."""
        return self._read(LibraryFiles.get_trees, keys)

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of trees; raises `NoSuchEquation`."""
        wanted = list(keys)

        def read(missing: list[int]) -> dict[int, NodeColumns]:
            return dict(zip(missing, self._read(LibraryFiles.get_nodes, missing), strict=True))

        found = self._backend.cache.get_many(self._generation, "nodes", wanted, read)
        return [found[key] for key in wanted]

    def get_operators(self, keys: Keys) -> OperatorForest:
        """Return operator trees, those that are not indexed yet from the library; raises `NoSuchEquation`."""
        if self._index.find_known(keys).all():
            return self._index.get_operators(keys)
        return self._read(LibraryFiles.get_operators, keys)

    def get_records(
        self, keys: Iterable[int], trees: Mapping[int, NodeColumns] | None = None
    ) -> dict[int, EquationRecord]:
        """Return all that is shown of equations."""
        return self._backend.cache.get_many(
            self._generation, "record", list(keys), lambda missing: self._read(records.get_equations, missing, trees)
        )

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput`."""
        return self._read(records.get_equation, name)

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper and its equations; raises `BadInput`."""
        return self._read(records.get_paper_page, key)

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Return papers by their keys."""
        return self._read(records.get_papers, keys)

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """List the equations of papers that have a vector, in order."""
        found = select_trees(self.library, Filters(papers=tuple(keys)))
        assert found is not None
        return found[find_members(found, self._index.keys)] if len(self) else found[:0]

    def count_facets(self) -> Facets:
        """Count equations by field and by year."""
        return self._read(records.count_facets)

    def _read(self, read: Callable[Concatenate[LibraryFiles, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Read from the library; raises `NoSuchEquation`, and `CorruptData` for what damaged rows raise."""
        try:
            with self.library.translate_errors():
                return read(self.library, *arguments, **options)
        except TreeNotFound as error:
            raise NoSuchEquation(str(error)) from error

    def _keep_indexed(self, keys: Iterable[int]) -> Keys:
        """Return those of some equations that can be found, ascending."""
        ordered = np.array(sorted(keys), np.int64)
        return ordered[find_members(ordered, self._index.keys)]

    def _get_allowed(self, filters: Filters) -> Keys | None:
        """Return the equations that filters allow, None for all; kept for the next search with the same filters."""
        if filters == NO_FILTERS:
            return None
        key = ("allowed", filters)
        return self._backend.cache.get(self._generation, key, lambda: select_trees(self.library, filters))


class LocalBackend:
    """A library as a `SearchBackend`, for queries of a model; connections are pooled and may change threads.

    Args:
        library: The library, or its folder.
        model: Digest of the network that embeds queries.

    Raises:
        BadInput: there is no library.
    """

    def __init__(self, library: LibraryFiles | str | os.PathLike[str], model: str) -> None:
        self.folder: Path = get_folder(library)
        self.model: str = model
        self.cache = VersionedCache(_MAX_CACHED)
        self._free: deque[LibraryFiles] = deque()
        self._view: IndexView | None = None
        self._opening = threading.Lock()
        self._next_attempt = 0.0  # to open a changed index, by the monotonic clock
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[LocalSnapshot]:
        """Open a view with a pooled connection."""
        try:
            library = self._free.pop()
        except IndexError:
            library = self._connect()
        try:
            yield LocalSnapshot(library, self)
        finally:
            if self._closed:
                library.close()
            else:
                self._free.append(library)

    def close(self) -> None:
        """Close all connections that are not in use; those in use are closed when they are returned."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def refresh(self) -> None:
        """Open the index as it is on disk now."""
        with self._opening:
            self._open(self.read_signature())

    @property
    def complete(self) -> bool:
        """True if the index had all equations of the library when it was last opened; False before that."""
        view = self._view
        return view is not None and (view.index is None or not view.index.missing)

    def get_view(self) -> IndexView:
        """Return the index as it is on disk. While one thread opens a changed one, the others use the old one.

        If a changed index cannot be opened, the old one stays in use.
        """
        view = self._view
        if view is None or view.index is None:
            with self._opening:
                if self._view is None or self._view.index is None:
                    return self._open(self.read_signature())
                return self._view
        signature = self.read_signature()
        is_current = view.signature == signature or time.monotonic() < self._next_attempt
        if is_current or not self._opening.acquire(blocking=False):
            return view
        try:
            return self._open(signature)
        except EqkinError as error:
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
            _LOG.warning("the changed index cannot be opened: %s", error)
            return view
        finally:
            self._opening.release()

    def read_signature(self) -> tuple[int, ...]:
        """Return what identifies the index on disk."""
        try:
            status = (self.folder / INDEX_FOLDER / INDEX_MANIFEST_NAME).stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _connect(self) -> LibraryFiles:
        return LibraryFiles.open(self.folder, check_same_thread=False)

    def _open(self, signature: tuple[int, ...]) -> IndexView:
        with self._connect() as library:
            theirs = library.converter
            mine = get_converter_identity()
            if theirs != mine and self._view is None:
                message = "%s: its equations were read by %s %s, queries are by %s; run `eqkin index`"
                _LOG.warning(message, self.folder, theirs.name, theirs.version, mine.version)
            known = self._view.index if self._view is not None else None
            self._view = IndexView(_open_index(library, self.model, known), signature)
            return self._view


def get_folder(library: LibraryFiles | str | os.PathLike[str]) -> Path:
    """Return the folder of a library; raises `BadInput` if there is none."""
    if isinstance(library, LibraryFiles):
        return library.folder
    with LibraryFiles.open(library) as opened:
        return opened.folder


def _open_index(library: LibraryFiles, model: str, known: Index | None) -> Index | None:
    try:
        return Index.open(library, model, known)
    except EqkinError:
        if has_equations(library):
            raise
        return None
