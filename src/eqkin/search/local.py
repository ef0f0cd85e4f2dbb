"""`LocalBackend`: searches a library on disk, shared by threads; reopens the index when it changes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from eqkin.errors import BadInput, CorruptData, EqkinError
from eqkin.formulas import Forest
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.scripts import get_converter_identity
from eqkin.index.index import Index, find_members
from eqkin.index.manifest import INDEX_FOLDER, INDEX_MANIFEST_NAME, IndexManifest
from eqkin.index.text import TextIndex
from eqkin.library import records
from eqkin.library.files import LibraryFiles, TreeNotFound
from eqkin.library.queries import has_equations
from eqkin.library.records import select_papers, select_trees
from eqkin.library.references import EquationColumns, read_columns
from eqkin.search.backend import NO_FILTERS, Codes, EquationRef, Facets, Floats, Keys, NoSuchEquation, PaperCount
from eqkin.search.features import extract_norms
from eqkin.search.results import EquationRecord, Filters, PaperPage, PaperRecord

_LOG = logging.getLogger("eqkin.search")
_LARGE_INDEX = 50_000  # vectors; a smaller index is opened at once
_RETRY_SECONDS = 5.0  # until a changed index that could not be opened is tried again
_REOPEN_PAUSE_FACTOR = 4.0  # times as long as a large index took to open it is not reopened: updates come in bursts
_MAX_CACHED_FILTERS = 32
_MAX_CACHED_TREES = 8_000_000  # in all cached filters together
_MAX_SAME_FORM = 20_000  # equations of one form; more are not counted: a form as frequent as that is one letter
_MAX_CACHED_REFS = 20_000
_MAX_CACHED_HITS = 2_000
_MAX_REFS_CACHED_AT_ONCE = 2_000
MAX_SECTIONS = 300  # best matches of a text
_MAX_TEXT_EQUATIONS = 3_000  # in these sections


@dataclass
class IndexView:
    """The index as it was opened last, and what is cached with it."""

    index: Index | None  # None: the library has no equations
    signature: tuple[int, ...]
    text: TextIndex | None = None
    allowed: OrderedDict[tuple[int, Filters], Keys] = field(default_factory=OrderedDict)


@dataclass(frozen=True)
class RecordCache:
    """What was read of equations since the library changed, by tree; shared by threads."""

    generation: int
    refs: dict[int, EquationRef] = field(default_factory=dict)
    papers: dict[int, PaperCount] = field(default_factory=dict)  # by number of the paper
    nodes: dict[int, NodeColumns] = field(default_factory=dict)
    equations: dict[int, EquationRecord] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """True if it is time to begin again."""
        small = max(len(self.refs), len(self.papers))
        return small > _MAX_CACHED_REFS or max(len(self.nodes), len(self.equations)) > _MAX_CACHED_HITS


class LocalSnapshot:
    """A `Snapshot` of a library: a connection of its own, and the index that all share. Keys are tree numbers."""

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

    def search_vectors(self, vectors: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations nearest to each vector; see `Snapshot`."""
        return self._index.search_vectors(vectors, k, self._get_allowed(filters))

    def search_terms(self, codes: Codes, weights: Floats, k: int, filters: Filters = NO_FILTERS) -> tuple[Floats, Keys]:
        """Find the equations with the largest weight of common terms; see `Snapshot`."""
        return self._index.search_terms(codes, weights, k, self._get_allowed(filters))

    def search_text(self, text: str, filters: Filters = NO_FILTERS) -> dict[int, float]:
        """Find equations of the sections that match best; see `Snapshot`."""
        papers = select_papers(self.library, filters)
        sections = dict(self._text.search(self.library, text, self._backend.max_sections, papers=papers))
        with self.library.translate_errors():
            found = records.get_trees_in_sections(self.library, sections)
        trees = np.array(sorted(found), np.int64)
        trees = trees[find_members(trees, self._index.keys)]
        best = sorted(trees.tolist(), key=lambda tree: (-sections[found[tree]], tree))[:_MAX_TEXT_EQUATIONS]
        return {tree: sections[found[tree]] for tree in best}

    def count_same_form(
        self, operators: OperatorForest, filters: Filters = NO_FILTERS, exclude: int = -1
    ) -> list[PaperCount] | None:
        """Count all equations of the same form by paper; see `Snapshot`."""
        trees = self._index.find_same_form(operators)
        if len(trees) > _MAX_SAME_FORM:
            return None
        trees = trees[trees != exclude]
        with self.library.translate_errors():
            return records.count_by_paper(self.library, trees.tolist(), filters)

    @property
    def _text(self) -> TextIndex:
        self.view.text = self.view.text or TextIndex.open(self.library)
        return self.view.text

    @property
    def _has_text(self) -> bool:
        try:
            return bool(self._text)
        except EqkinError:  # only a search by text needs it
            return False

    def find_named(self, name: str, filters: Filters = NO_FILTERS) -> set[int]:
        """Find equations with a name; see `Snapshot`."""
        if not len(self) or not self._has_text:
            return set()
        trees = np.array(sorted(self._text.find_named(name)), np.int64)
        trees = trees[find_members(trees, self._index.keys)]
        allowed = self._get_allowed(filters)
        return set((trees if allowed is None else trees[find_members(trees, allowed)]).tolist())

    def get_names(self, refs: Iterable[EquationRef]) -> dict[int, str]:
        """Return the names of equations; see `Snapshot`."""
        if not self._has_text:
            return {}
        return self._text.get_names([ref.key for ref in refs])

    def match_name(self, text: str) -> str:
        """Return the name of an equation that a text is; see `Snapshot`."""
        return self._text.match_name(text) if self._has_text else ""

    def complete_name(self, text: str, k: int) -> list[tuple[str, int]]:
        """Return names with a word that begins so; see `Snapshot`."""
        return self._text.complete_name(text, k) if self._has_text else []

    def knows_word(self, word: str) -> bool:
        """Return whether the text has a word."""
        return self._has_text and self._text.knows_word(word)

    def get_refs(self, keys: Iterable[int]) -> dict[int, EquationRef]:
        """Return references to equations."""
        wanted, cached = list(keys), self._records
        missing = [key for key in wanted if key not in cached.refs]
        found = {}
        if missing:
            with self.library.translate_errors():
                found = records.get_refs(self.library, missing)
        refs = {key: ref for key in wanted if (ref := found.get(key) or cached.refs.get(key)) is not None}
        if len(found) <= _MAX_REFS_CACHED_AT_ONCE:
            cached.refs.update(found)
        return refs

    def get_columns(self, keys: Keys) -> EquationColumns:
        """Return what tells equations apart; see `Snapshot`. The database is asked if it changed after the index."""
        index = self._index
        if index.generation == self._records.generation and index.find_known(keys).all():
            return index.get_columns(keys)
        with self.library.translate_errors():
            return read_columns(self.library, keys)

    def get_paper_facets(self, columns: EquationColumns) -> dict[int, PaperCount]:
        """Return the papers of equations, with what facets count of them; see `Snapshot`."""
        numbers, cached = columns.paper.tolist(), self._records.papers
        if missing := set(numbers) - cached.keys():
            with self.library.translate_errors():
                cached.update(records.get_paper_facets(self.library, missing))
        return {
            key: cached[paper] for key, paper in zip(columns.keys.tolist(), numbers, strict=True) if paper in cached
        }

    def get_vectors(self, keys: Keys) -> Floats:
        """Return unit vectors; raises `NoSuchEquation`."""
        try:
            return self._index.get_vectors(keys)
        except BadInput as error:
            raise NoSuchEquation(str(error)) from error

    def get_trees(self, keys: Keys) -> Forest:
        """Return trees; raises `NoSuchEquation`."""
        try:
            return self.library.get_trees(keys)
        except TreeNotFound as error:
            raise NoSuchEquation(str(error)) from error

    def get_nodes(self, keys: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of trees; raises `NoSuchEquation`."""
        wanted, cached = list(keys), self._records.nodes
        missing = [key for key in wanted if key not in cached]
        try:
            found = dict(zip(missing, self.library.get_nodes(missing), strict=True)) if missing else {}
        except TreeNotFound as error:
            raise NoSuchEquation(str(error)) from error
        nodes = [found.get(key) or cached[key] for key in wanted]
        cached.update(found)
        return nodes

    def get_operators(self, keys: Keys) -> OperatorForest:
        """Return operator trees, those that are not indexed yet from the library; raises `NoSuchEquation`."""
        if self._index.find_known(keys).all():
            return self._index.get_operators(keys)
        try:
            return self.library.get_operators(keys)
        except TreeNotFound as error:
            raise NoSuchEquation(str(error)) from error

    def get_norms(self, keys: Keys, operators: OperatorForest) -> Floats:
        """Return the norms of equations; see `Snapshot`."""
        if not self._index.find_known(keys).all():
            return extract_norms(operators)
        return self._index.get_norms(keys)

    def get_records(
        self, keys: Iterable[int], trees: Mapping[int, NodeColumns] | None = None
    ) -> dict[int, EquationRecord]:
        """Return all that is shown of equations."""
        wanted, cached = list(keys), self._records.equations
        if missing := [key for key in wanted if key not in cached]:
            with self.library.translate_errors():
                found = records.get_equations(self.library, missing, trees)
            cached.update(found)
            self._records.refs.update((key, record.to_ref()) for key, record in found.items())
        return {key: cached[key] for key in wanted if key in cached}

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput`."""
        with self.library.translate_errors():
            return records.get_equation(self.library, name)

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper and its equations; raises `BadInput`."""
        with self.library.translate_errors():
            return records.get_paper_page(self.library, key)

    def get_papers(self, keys: Iterable[str]) -> dict[str, PaperRecord]:
        """Return papers by their keys."""
        with self.library.translate_errors():
            return records.get_papers(self.library, keys)

    def list_keys(self, keys: Iterable[str]) -> Keys:
        """List the equations of papers that have a vector, in order."""
        with self.library.translate_errors():
            trees = np.array(records.get_trees_of_papers(self.library, keys), np.int64)
        return trees[find_members(trees, self._index.keys)] if len(self) else trees[:0]

    def sample_keys(self, limit: int) -> Keys:
        """Choose equations evenly spread over the library."""
        if not len(self):
            return np.zeros(0, np.int64)
        chosen = np.unique(np.linspace(0, len(self) - 1, min(limit, len(self))).round().astype(np.int64))
        keys: Keys = self._index.keys[chosen]
        return keys

    def count_facets(self) -> Facets:
        """Count equations by field and by year."""
        with self.library.translate_errors():
            return records.count_facets(self.library)

    @cached_property
    def _records(self) -> RecordCache:
        """What was read of the library in the state in which it is first needed."""
        cached = self._backend.records
        if cached.generation != self._generation or cached.is_full:
            cached = self._backend.records = RecordCache(self._generation)
        return cached

    @property
    def _index(self) -> Index:
        if self.view.index is None:
            raise BadInput("the library has no equations yet; fill it with `eqkin add`")
        return self.view.index

    def _get_allowed(self, filters: Filters) -> Keys | None:
        """Return the trees that filters allow, None for all; cached for the next search with the same filters."""
        if filters == NO_FILTERS:
            return None
        key = self._generation, filters
        cache = self.view.allowed
        trees = cache.get(key)
        if trees is None:
            trees = select_trees(self.library, filters)
            if trees is None:
                return None
            cache[key] = trees
            with suppress(KeyError, RuntimeError):  # other threads do the same
                while len(cache) > _MAX_CACHED_FILTERS or (
                    len(cache) > 1 and sum(map(len, cache.values())) > _MAX_CACHED_TREES
                ):
                    cache.popitem(last=False)
        return trees


class LocalBackend:
    """A library as a `SearchBackend`, for queries of a model; connections are pooled and may change threads.

    Args:
        library: The library, or its folder.
        model: Digest of the network that embeds queries.
        max_sections: Sections that a text search looks at.

    Raises:
        BadInput: there is no library.
    """

    def __init__(
        self, library: LibraryFiles | str | os.PathLike[str], model: str, *, max_sections: int = MAX_SECTIONS
    ) -> None:
        self.folder: Path = get_folder(library)
        self.model: str = model
        self.max_sections: int = max_sections
        self.records = RecordCache(-1)
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
        """Open the index as it is on disk now; without this, a large one that changed is opened a little later."""
        with self._opening:
            self._open(self.read_signature())

    @property
    def complete(self) -> bool:
        """True if the index had all equations of the library when it was last opened; False before that."""
        view = self._view
        if view is None or view.index is None:
            return view is not None
        return not view.index.missing

    def get_view(self) -> IndexView:
        """Return the index as it is on disk; while a large changed one is opened by a thread, the old one is used."""
        signature, view = self.read_signature(), self._view
        if view is None or view.index is None:
            with self._opening:
                if self._view is None or self._view.index is None:
                    self._open(signature)
                assert self._view is not None
                return self._view
        if view.signature == signature or time.monotonic() < self._next_attempt:
            return view
        if len(view.index) > _LARGE_INDEX or _count_vectors(self.folder / INDEX_FOLDER) > _LARGE_INDEX:
            if self._opening.acquire(blocking=False):
                threading.Thread(target=self._reopen, args=(signature,), daemon=True).start()
        else:
            self._opening.acquire()
            self._reopen(signature)
        return self._view or view

    def read_signature(self) -> tuple[int, ...]:
        """Return what identifies the index on disk."""
        try:
            status = (self.folder / INDEX_FOLDER / INDEX_MANIFEST_NAME).stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _connect(self) -> LibraryFiles:
        return LibraryFiles.open(self.folder, check_same_thread=False)

    def _open(self, signature: tuple[int, ...]) -> None:
        with self._connect() as library:
            theirs, mine = library.converter, get_converter_identity()
            if theirs != mine and self._view is None:
                message = "%s: its equations were read by %s %s, queries are by %s; run `eqkin index`"
                _LOG.warning(message, self.folder, theirs.name, theirs.version, mine.version)
            known = self._view.index if self._view is not None else None
            self._view = IndexView(_open_index(library, self.model, known), signature)

    def _reopen(self, signature: tuple[int, ...]) -> None:
        """Open a changed index, unless another thread just did; if that fails, the old one stays in use."""
        start = time.monotonic()
        try:
            if self._view is None or self._view.signature != signature:
                self._open(signature)
                if self._view is not None and self._view.index is not None and len(self._view.index) > _LARGE_INDEX:
                    self._next_attempt = time.monotonic() + _REOPEN_PAUSE_FACTOR * (time.monotonic() - start)
        except EqkinError as error:
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
            _LOG.warning("the changed index cannot be opened: %s", error)
        finally:
            self._opening.release()


def get_folder(library: LibraryFiles | str | os.PathLike[str]) -> Path:
    """Return the folder of a library; raises `BadInput` if there is none."""
    if isinstance(library, LibraryFiles):
        return library.folder
    with LibraryFiles.open(library) as opened:
        return opened.folder


def _count_vectors(folder: Path) -> int:
    """Count the vectors of an index on disk."""
    try:
        state = IndexManifest.load(folder)
    except CorruptData:
        return 0
    return state.count if state is not None else 0


def _open_index(library: LibraryFiles, model: str, known: Index | None) -> Index | None:
    try:
        return Index.open(library, model, known)
    except EqkinError:
        if has_equations(library):
            raise
        return None
