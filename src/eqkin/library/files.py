"""`LibraryFiles`: the papers, equations and trees of a library on disk."""

from __future__ import annotations

import os
import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import open_forest
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.arxiv_ids import parse_arxiv_id
from eqkin.library.database import (
    DATABASE_NAME,
    FOREST_FOLDER,
    MANIFEST_NAME,
    LibraryManifest,
    check_links,
    connect,
    is_empty,
    load_checked_manifest,
    read_generation,
    translate_sqlite_errors,
)
from eqkin.sources.files import display_path
from eqkin.storage.segments import SegmentEntry, is_intact

if TYPE_CHECKING:
    from eqkin.library.writer import LibraryWriter


TREES_REMEDY = "`eqkin index` makes its trees again from the LaTeX in the library"


@dataclass(frozen=True)
class TreesEntry(SegmentEntry):
    """A segment of trees: the numbers `first .. first + count - 1`."""

    first: int


class TreeNotFound(BadInput):
    """The library has no tree with this number."""


class LibraryFiles:
    """A folder with papers, sections, equations, citations and trees. Open it with `LibraryFiles.open`."""

    def __init__(self, folder: Path, manifest: LibraryManifest, connection: sqlite3.Connection) -> None:
        self.folder: Path = folder
        self.manifest: LibraryManifest = manifest
        self.connection: sqlite3.Connection = connection
        self._segments: dict[str, Forest] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, create: bool = False, check_same_thread: bool = True) -> Self:
        """Open the library in `folder`.

        Args:
            folder: where it is.
            create: create an empty library if there is none.
            check_same_thread: refuse use by another thread; without it, one thread at a time may use the library.

        Raises:
            BadInput: there is no library and `create` is not set, or the folder has other content.
            CorruptData: it is damaged or made by another version.
            StorageFailed: the folder cannot be read or written.
        """
        path = Path(folder).expanduser().absolute()
        if not (path / MANIFEST_NAME).exists():
            if not create:
                if (path / DATABASE_NAME).exists() and not is_empty(path / DATABASE_NAME):
                    raise CorruptData(f"{path / MANIFEST_NAME}: missing; restore it from a copy")
                raise BadInput(
                    f"{path}: there is no library\n"
                    f"make one with `eqkin add FOLDER --library {path}` or `Library.open(path, create=True)`; "
                    "or try `eqkin demo`"
                )
            from eqkin.library.writer import create_library  # not needed to read, and slow to import

            create_library(path)
        check_links(path)
        manifest = load_checked_manifest(path)
        return cls(path, manifest, connect(path / DATABASE_NAME, check_same_thread=check_same_thread))

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remove(self, *sources: str) -> int:
        """Remove papers by key (`arxiv:1706.03762`), source, file or folder; return how many there were."""
        keys: set[str] = set()
        with self.open_writer() as writer:
            for source in sources:
                name = normalise_source(source)
                length, key_length = len(name) + 1, len(name) + 6  # of what papers below a folder begin with
                found = self.connection.execute(
                    "SELECT key FROM papers WHERE key IN (?1, ?2, 'file:' || ?1) OR source = ?1 "
                    "OR substr(source, 1, ?3) IN (?1 || '/', ?1 || '\\') "
                    "OR substr(key, 1, ?4) IN ('file:' || ?1 || '/', 'file:' || ?1 || '\\')",
                    (name, display_path(source), length, key_length),
                )
                keys.update(row[0] for row in found)
            return writer.remove(sorted(keys))

    def list_papers(self) -> list[dict[str, Any]]:
        """Return all papers: key, title, authors, year, fields, origin, source, and why one failed."""
        with self.translate_errors():
            rows = self.connection.execute(
                "SELECT key, title, authors, year, fields, origin, source, failure FROM papers ORDER BY id"
            ).fetchall()
            return [dict(row) | {name: orjson.loads(row[name]) for name in ("authors", "fields")} for row in rows]

    def read_generation(self) -> int:
        """Return how many times the library was committed to."""
        with self.translate_errors():
            return read_generation(self.connection)

    def get_nodes(self, numbers: Iterable[int]) -> list[NodeColumns]:
        """Return the nodes of the trees with these numbers, in that order; raises `TreeNotFound`."""
        with self.translate_errors():
            segments = self.open_segments()
            nodes = []
            for number in numbers:
                at = bisect_right(segments, number, key=itemgetter(0)) - 1
                if at < 0 or number >= segments[at][0] + len(segments[at][1]):
                    raise TreeNotFound(f"the library has no tree {number}")
                nodes.append(NodeColumns.read(segments[at][1], number - segments[at][0]))
        return nodes

    def get_trees(self, numbers: npt.NDArray[np.int64]) -> Forest:
        """Return the trees with these numbers, in that order; raises `TreeNotFound`."""
        with self.translate_errors():
            positions, builder = [], ForestBuilder()
            for first, forest in self.open_segments():
                here = np.flatnonzero((numbers >= first) & (numbers < first + len(forest)))
                if len(here):
                    positions.append(here)
                    builder.add_forest(forest.select(numbers[here] - first))
        found = np.concatenate(positions) if positions else np.zeros(0, np.int64)
        if len(found) < len(numbers):
            raise TreeNotFound(f"the library has no tree {int(np.delete(numbers, found)[0])}")
        together = builder.build()
        return together if (np.diff(found) > 0).all() else together.select(np.argsort(found))

    def iter_forests(self) -> Iterator[tuple[npt.NDArray[np.int64], Forest]]:
        """Yield the trees of equations, segment by segment in order: their numbers and a forest."""
        with self.translate_errors():
            for first, forest in self.open_segments():
                here = find_used_trees(self.connection, first, len(forest))
                if len(here):
                    yield here, forest if len(here) == len(forest) else forest.select(here - first)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise errors of reading the library as eqkin's."""
        try:
            with translate_sqlite_errors(self.folder / DATABASE_NAME):
                yield
        except (ValueError, IndexError, KeyError) as error:
            raise CorruptData(f"{self.folder}: damaged ({error!r}); run `eqkin verify`") from error

    def open_segments(self) -> list[tuple[int, Forest]]:
        """Return all segments with the number of their first tree; retries while a writer merges some."""
        for attempt in range(3):
            entries = list_segments(self.connection)
            try:
                opened = {entry.file: self._segments.get(entry.file) or self._open_segment(entry) for entry in entries}
            except CorruptData:
                if attempt == 2:
                    raise
                continue
            self._segments = opened
            return [(entry.first, opened[entry.file]) for entry in entries]
        raise AssertionError

    def _open_segment(self, entry: TreesEntry) -> Forest:
        path = self.folder / FOREST_FOLDER / entry.file
        if not is_intact(path.parent, entry):
            raise CorruptData(f"{path}: missing, or does not match its hash; {TREES_REMEDY}")
        return open_forest(path)

    def check_converter(self) -> None:
        """Raise `CorruptData` if another converter made the library's trees."""
        mine, theirs = get_converter_identity(), self.manifest.converter
        if mine != theirs:
            raise CorruptData(
                f"{self.folder}: its trees were made by {theirs.name} {theirs.version}, "
                f"this eqkin has {mine.name} {mine.version}; "
                "trees of two converters are never mixed: run `eqkin index`, which makes them again"
            )

    @contextmanager
    def open_writer(self) -> Iterator[LibraryWriter]:
        """Yield a writer that holds the library's lock; raises `LibraryBusy` if another process does."""
        from eqkin.library.writer import LibraryWriter

        with translate_sqlite_errors(self.folder / DATABASE_NAME), LibraryWriter(self.folder) as writer:
            yield writer
        self.manifest = LibraryManifest.load(self.folder)


def list_segments(connection: sqlite3.Connection) -> list[TreesEntry]:
    """Return the segments of trees, in order."""
    rows = connection.execute("SELECT file, sha256, bytes, count, first FROM segments ORDER BY first")
    return [TreesEntry(*row) for row in rows]


def find_used_trees(connection: sqlite3.Connection, first: int, count: int) -> npt.NDArray[np.int64]:
    """Return the trees of a segment that belong to an equation; usually all do, and then none is read."""
    between = "FROM equations WHERE tree BETWEEN ? AND ?"
    span = first, first + count - 1
    if connection.execute(f"SELECT count(*) {between}", span).fetchone()[0] == count:
        return np.arange(first, first + count)
    rows = connection.execute(f"SELECT tree {between} ORDER BY tree", span)
    return np.fromiter((row[0] for row in rows), np.int64)


def normalise_source(source: str) -> str:
    """Return one name for all spellings of a source: a resolved path, or `arxiv:ID` without version."""
    if source.lower().startswith("arxiv:") or "://" in source:
        found = parse_arxiv_id(source)
        return found.key if found else display_path(source)
    if source.startswith("python:") or source == "atlas:":
        return source
    try:
        return display_path(str(Path(source).expanduser().resolve()))
    except (OSError, ValueError, RuntimeError):
        return display_path(source)
