"""`Library`: a user's collection of papers on disk, and everything that can be asked of it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import BadInput, CorruptData, LibraryBusy
from eqkin.forest import Forest, ForestBuilder
from eqkin.forest.storage import open_forest
from eqkin.library import database
from eqkin.library.manifest import NAME, Manifest
from eqkin.library.merging import AddReport, Merger
from eqkin.library.session import WritingSession, create_library
from eqkin.library.tasks import Reading, ShardDigests, tasks_of
from eqkin.library.writer import Writer
from eqkin.mathml.converter import identity
from eqkin.mathml.tree import Node, node_of
from eqkin.sources import MetadataSnapshot, Shard, open_shards, open_source
from eqkin.sources.arxiv_ids import parse_id
from eqkin.sources.files import shown
from eqkin.sources.paper import Item
from eqkin.workers import Workers, open_workers

if TYPE_CHECKING:
    from eqkin.search.engine import Engine
    from eqkin.search.results import Filters, PaperHit, Results
    from eqkin.search.shelves import Shelves


class NoSuchTree(BadInput):
    """A tree is asked for that is not there."""


class Library:
    """A folder with papers, sections, equations, citations and trees. Open it with `Library.open`."""

    def __init__(self, folder: Path, manifest: Manifest, connection: sqlite3.Connection) -> None:
        self.folder, self.manifest, self.connection = folder, manifest, connection
        self._segments: dict[str, Forest] = {}
        self._engine: Engine | None = None
        self._shelves: Shelves | None = None  # what the engine searches

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, create: bool = True) -> Library:
        """Open the library in `folder`; with `create`, make an empty one if there is none.

        Raises:
            BadInput: there is no library and `create` is off, or the folder holds something else.
            CorruptData: it is damaged or made by another version.
            StorageFailed: the folder cannot be read or written.
        """
        path = Path(folder).expanduser().absolute()
        if not (path / NAME).exists():
            if not create:
                raise BadInput(f"{path}: no library there; make one with `eqkin add PATH --library {path}`")
            create_library(path)
        manifest = Manifest.load(path)
        return cls(path, manifest, database.connect(path / database.NAME))

    def close(self) -> None:
        """Let the database go."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        self.connection.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        *sources: str | os.PathLike[str],
        jobs: int = 1,
        workers: Workers | None = None,
        metadata: MetadataSnapshot | str | os.PathLike[str] | None = None,
        progress: Callable[[AddReport], None] | None = None,
    ) -> AddReport:
        """Read sources into the library: new papers are added, changed ones replaced, unchanged ones skipped.

        Safe to stop at any moment and to run again: what was committed stays, the rest is done then.

        Args:
            sources: what `eqkin.sources.open_source` takes: paths, `arxiv:ID`, `python:PACKAGE`.
            jobs: processes to read with, unless `workers` are given.
            workers: who reads, from `eqkin.workers.open_workers`: processes of this machine, or a Ray cluster. The
                library is the same whoever does.
            metadata: arXiv's metadata snapshot or its path, for bulk archives.
            progress: called after every paper with the report so far.

        Returns:
            What was added, what failed and why.

        Raises:
            LibraryBusy: another process is writing to this library.
            BadInput: a source does not exist or is of an unknown kind (nothing was added).
            CorruptData: the library's trees were made by another converter.
            StorageFailed: the disk is full or read-only; everything committed before is intact.
            Unreachable: the Ray cluster is gone.
        """
        self._check_converter()
        report = AddReport()
        if isinstance(metadata, str | os.PathLike):
            metadata = MetadataSnapshot(Path(metadata))
        workers = workers or open_workers(jobs=jobs)
        names = {_normalised(source): source for source in [os.fspath(s) for s in sources]}
        opener = open_shards if workers.grain.shards else open_source
        opened: dict[str, Iterator[Item] | Iterator[Item | Shard]] = {
            name: opener(source, metadata=metadata, on_skip=report.skip) for name, source in names.items()
        }
        with self._writing() as writer:
            merger = Merger(writer, report)
            tasks = tasks_of(opened, workers.grain, writer.known, ShardDigests(writer.connection), report.damage)
            for event in workers.map(Reading(), tasks):
                merger.take(event)
                if progress:
                    progress(report)
            merger.read_again(lambda name: open_source(names[name], metadata=metadata))
        return report

    def remove(self, *sources: str) -> int:
        """Drop papers: by key (`arxiv:1706.03762`), or all that came from a source, a file, or from under a folder."""
        keys: set[str] = set()
        with self._writing() as writer:
            for source in sources:
                name = _normalised(source)
                found = self.connection.execute(
                    "SELECT key FROM papers WHERE key IN (?, ?, ?) OR source = ? OR substr(source, 1, ?) = ? "
                    "OR substr(key, 1, ?) = ?",
                    (
                        name,
                        shown(source),
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

    def papers(self) -> list[dict[str, Any]]:
        """All papers: key, title, authors, year, fields, where each came from, and why it failed if it did."""
        with self.reading():
            rows = self.connection.execute(
                "SELECT key, title, authors, year, fields, origin, source, failure FROM papers ORDER BY id"
            ).fetchall()
            return [dict(row) | {name: orjson.loads(row[name]) for name in ("authors", "fields")} for row in rows]

    def engine(self) -> Engine:
        """What searches this library with its network; equations added since the last time are embedded first.

        Raises:
            StorageFailed: there are such equations, but nothing can be written.
        """
        from eqkin.index import encoder_of, update
        from eqkin.index.state import FOLDER, IndexState
        from eqkin.search.engine import Engine
        from eqkin.search.shelves import Shelves

        fresh = self._engine is None
        if self._engine is None or self._shelves is None:
            encoder = encoder_of(self.folder)
            self._shelves = Shelves(self, encoder.digest)
            self._engine = Engine(self._shelves, encoder)
        state = None
        with suppress(CorruptData):  # then it is made anew
            state = IndexState.load(self.folder / FOLDER)
        with self.reading():
            current = self._engine.encoder.digest, database.generation(self.connection)
        stale = state is None or (state.model, state.generation) != current
        if not stale and fresh:
            try:
                self._shelves.refresh()
                stale = not self._shelves.complete  # an update was killed, or an older eqkin made it
            except CorruptData:  # a file of the index is damaged or missing
                stale = True
        if stale:
            with suppress(LibraryBusy):  # then somebody else is embedding them
                update(self, self._engine.encoder)
            self._shelves.refresh()
        return self._engine

    def search(
        self,
        query: str = "",
        *,
        k: int = 10,
        text: str = "",
        filters: Filters | None = None,
        group: bool = True,
        fold: bool = True,
        explain: bool = False,
    ) -> Results:
        """The equations nearest to a formula, to words, or to both; see `eqkin.search.Engine.search`."""
        from eqkin.search.store import ANYTHING

        return self.engine().search(
            query, k=k, text=text, filters=filters or ANYTHING, group=group, fold=fold, explain=explain
        )

    def similar_papers(self, paper: str | os.PathLike[str], k: int = 10) -> list[PaperHit]:
        """Papers related by their mathematics to one of the library (its key) or to a draft (a `Path`)."""
        return self.engine().similar_papers(paper, k)

    def equations(self, *, failed: bool = False, mathml: bool = True) -> Iterator[dict[str, Any]]:
        """All equations as `eqkin export` writes them."""
        from eqkin.library.export import equations

        return equations(self, failed=failed, mathml=mathml)

    def tree(self, number: int) -> Node:
        """The MathML tree with this number; raises `NoSuchTree`."""
        with self.reading():
            for first, forest in self._segments_now():
                if first <= number < first + len(forest):
                    return node_of(forest, number - first)
        raise NoSuchTree(f"the library has no tree {number}")

    def trees(self, numbers: npt.NDArray[np.int64]) -> Forest:
        """The trees with these numbers, in that order; raises `NoSuchTree` if one is not there."""
        with self.reading():
            places, builder = [], ForestBuilder()
            for first, forest in self._segments_now():
                here = np.flatnonzero((numbers >= first) & (numbers < first + len(forest)))
                if len(here):
                    places.append(here)
                    builder.add_forest(forest.select(numbers[here] - first))
        found = np.concatenate(places) if places else np.zeros(0, np.int64)
        if len(found) < len(numbers):
            raise NoSuchTree(f"the library has no tree {int(np.delete(numbers, found)[0])}")
        together = builder.build()
        return together if (np.diff(found) > 0).all() else together.select(np.argsort(found))

    def forests(self) -> Iterator[tuple[npt.NDArray[np.int64], Forest]]:
        """The trees in use, segment by segment in order: their numbers and a forest of them."""
        with self.reading():
            for first, forest in self._segments_now():
                here = self._used(first, len(forest))
                if len(here):
                    yield here, forest if len(here) == len(forest) else forest.select(here - first)

    def _used(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Which of so many trees belong to an equation; mostly all do, and then they are not read one by one."""
        between = "FROM equations WHERE tree BETWEEN ? AND ?"
        span = first, first + count - 1
        if self.connection.execute(f"SELECT count(*) {between}", span).fetchone()[0] == count:
            return np.arange(first, first + count)
        rows = self.connection.execute(f"SELECT tree {between} ORDER BY tree", span)
        return np.fromiter((row[0] for row in rows), np.int64)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What goes wrong while the library is read, as errors of eqkin."""
        try:
            with database.translated(self.folder / database.NAME):
                yield
        except (ValueError, IndexError, KeyError) as error:
            raise CorruptData(f"{self.folder}: damaged ({error!r}); run `eqkin verify`") from error

    def _segments_now(self) -> list[tuple[int, Forest]]:
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

    def _check_converter(self) -> None:
        mine, theirs = identity(), self.manifest.converter
        if mine != theirs:
            raise CorruptData(
                f"{self.folder}: its trees were made by {theirs.name} {theirs.version}, "
                f"this eqkin has {mine.name} {mine.version}; "
                "trees of two converters are never mixed: add the sources to a new library"
            )

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        session = WritingSession(self.folder)
        with database.translated(self.folder / database.NAME), session as writer:
            yield writer
        self.manifest = Manifest.load(self.folder)


def _normalised(source: str) -> str:
    """One name for a source however it is written: a resolved path, or `arxiv:ID` without version."""
    if source.lower().startswith("arxiv:") or "://" in source:
        found = parse_id(source)
        return found.key if found else shown(source)
    if source.startswith("python:") or source == "atlas:":
        return source
    try:
        return shown(str(Path(source).expanduser().resolve()))
    except (OSError, ValueError, RuntimeError):
        return shown(source)
