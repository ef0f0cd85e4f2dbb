"""`Library`: a user's collection of papers on disk, and everything that can be asked of it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput, CorruptData
from eqkin.library import database
from eqkin.library.manifest import MANIFEST_NAME, LibraryManifest
from eqkin.library.session import WritingSession, create_library
from eqkin.library.writer import LibraryWriter
from eqkin.mathml.converter import get_converter_identity
from eqkin.sources.arxiv_ids import parse_arxiv_id
from eqkin.sources.files import display_path
from eqkin.trees import Forest, ForestBuilder
from eqkin.trees.forest import open_forest
from eqkin.trees.mathml import Node, to_node


class TreeNotFound(BadInput):
    """A tree is asked for that is not there."""


class LibraryFiles:
    """A folder with papers, sections, equations, citations and trees. Open it with `Library.open`."""

    def __init__(self, folder: Path, manifest: LibraryManifest, connection: sqlite3.Connection) -> None:
        self.folder, self.manifest, self.connection = folder, manifest, connection
        self._segments: dict[str, Forest] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, create: bool = True) -> Self:
        """Open the library in `folder`; with `create`, make an empty one if there is none.

        Raises:
            BadInput: there is no library and `create` is off, or the folder holds something else.
            CorruptData: it is damaged or made by another version.
            StorageFailed: the folder cannot be read or written.
        """
        path = Path(folder).expanduser().absolute()
        if not (path / MANIFEST_NAME).exists():
            if not create:
                raise BadInput(f"{path}: no library there; make one with `eqkin add PATH --library {path}`")
            create_library(path)
        manifest = LibraryManifest.load(path)
        return cls(path, manifest, database.connect(path / database.DATABASE_NAME))

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def remove(self, *sources: str) -> int:
        """Drop papers: by key (`arxiv:1706.03762`), or all that came from a source, a file, or from under a folder."""
        keys: set[str] = set()
        with self.open_writer() as writer:
            for source in sources:
                name = normalise_source(source)
                found = self.connection.execute(
                    "SELECT key FROM papers WHERE key IN (?, ?, ?) OR source = ? OR substr(source, 1, ?) = ? "
                    "OR substr(key, 1, ?) = ?",
                    (
                        name,
                        display_path(source),
                        f"file:{name}",
                        name,
                        len(name) + 1,
                        f"{name}/",
                        len(name) + 6,
                        f"file:{name}/",
                    ),
                )
                keys.update(row[0] for row in found)
            return writer.remove(sorted(keys))

    def list_papers(self) -> list[dict[str, Any]]:
        """All papers: key, title, authors, year, fields, where each came from, and why it failed if it did."""
        with self.translate_errors():
            rows = self.connection.execute(
                "SELECT key, title, authors, year, fields, origin, source, failure FROM papers ORDER BY id"
            ).fetchall()
            return [dict(row) | {name: orjson.loads(row[name]) for name in ("authors", "fields")} for row in rows]

    def iter_equations(self, *, failed: bool = False, mathml: bool = True) -> Iterator[dict[str, Any]]:
        """All equations as `eqkin export` writes them."""
        from eqkin.library.export import export_equations

        return export_equations(self, failed=failed, mathml=mathml)

    def read_generation(self) -> int:
        """Return how many times the library was committed to."""
        with self.translate_errors():
            return database.read_generation(self.connection)

    def get_tree(self, number: int) -> Node:
        """The MathML tree with this number; raises `NoSuchTree`."""
        with self.translate_errors():
            for first, forest in self.open_segments():
                if first <= number < first + len(forest):
                    return to_node(forest, number - first)
        raise TreeNotFound(f"the library has no tree {number}")

    def get_trees(self, numbers: npt.NDArray[np.int64]) -> Forest:
        """The trees with these numbers, in that order; raises `NoSuchTree` if one is not there."""
        with self.translate_errors():
            places, builder = [], ForestBuilder()
            for first, forest in self.open_segments():
                here = np.flatnonzero((numbers >= first) & (numbers < first + len(forest)))
                if len(here):
                    places.append(here)
                    builder.add_forest(forest.select(numbers[here] - first))
        found = np.concatenate(places) if places else np.zeros(0, np.int64)
        if len(found) < len(numbers):
            raise TreeNotFound(f"the library has no tree {int(np.delete(numbers, found)[0])}")
        together = builder.build()
        return together if (np.diff(found) > 0).all() else together.select(np.argsort(found))

    def iter_forests(self) -> Iterator[tuple[npt.NDArray[np.int64], Forest]]:
        """The trees in use, segment by segment in order: their numbers and a forest of them."""
        with self.translate_errors():
            for first, forest in self.open_segments():
                here = self._find_used_trees(first, len(forest))
                if len(here):
                    yield here, forest if len(here) == len(forest) else forest.select(here - first)

    def _find_used_trees(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Which of so many trees belong to an equation; mostly all do, and then they are not read one by one."""
        between = "FROM equations WHERE tree BETWEEN ? AND ?"
        span = first, first + count - 1
        if self.connection.execute(f"SELECT count(*) {between}", span).fetchone()[0] == count:
            return np.arange(first, first + count)
        rows = self.connection.execute(f"SELECT tree {between} ORDER BY tree", span)
        return np.fromiter((row[0] for row in rows), np.int64)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """What goes wrong while the library is read, as errors of eqkin."""
        try:
            with database.translate_sqlite_errors(self.folder / database.DATABASE_NAME):
                yield
        except (ValueError, IndexError, KeyError) as error:
            raise CorruptData(f"{self.folder}: damaged ({error!r}); run `eqkin verify`") from error

    def open_segments(self) -> list[tuple[int, Forest]]:
        """All segments with the number of their first tree; a writer may be merging some, so one look may fail."""
        for attempt in range(3):
            rows = self.connection.execute("SELECT first, file FROM segments ORDER BY first").fetchall()
            try:
                opened = {
                    row["file"]: self._segments.get(row["file"]) or open_forest(self.folder / "forest" / row["file"])
                    for row in rows
                }
            except CorruptData:
                if attempt == 2:
                    raise
                continue
            self._segments = opened
            return [(row["first"], opened[row["file"]]) for row in rows]
        raise AssertionError

    def check_converter(self) -> None:
        """Raise `CorruptData` if another converter made the library's trees."""
        mine, theirs = get_converter_identity(), self.manifest.converter
        if mine != theirs:
            raise CorruptData(
                f"{self.folder}: its trees were made by {theirs.name} {theirs.version}, "
                f"this eqkin has {mine.name} {mine.version}; "
                "trees of two converters are never mixed: add the sources to a new library"
            )

    @contextmanager
    def open_writer(self) -> Iterator[LibraryWriter]:
        """Hold the writer lock and give what writes to the library; seal what it wrote in the end."""
        session = WritingSession(self.folder)
        with database.translate_sqlite_errors(self.folder / database.DATABASE_NAME), session as writer:
            yield writer
        self.manifest = LibraryManifest.load(self.folder)


def normalise_source(source: str) -> str:
    """One name for a source however it is written: a resolved path, or `arxiv:ID` without version."""
    if source.lower().startswith("arxiv:") or "://" in source:
        found = parse_arxiv_id(source)
        return found.key if found else display_path(source)
    if source.startswith("python:") or source == "atlas:":
        return source
    try:
        return display_path(str(Path(source).expanduser().resolve()))
    except (OSError, ValueError, RuntimeError):
        return display_path(source)
