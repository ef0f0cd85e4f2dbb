"""`Library`: a user's collection of papers on disk, and everything that can be asked of it."""

from __future__ import annotations

import os
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from eqkin.errors import BadInput, CorruptData, EqkinError, StorageFailed
from eqkin.forest import Forest
from eqkin.forest.storage import open_forest
from eqkin.library import database
from eqkin.library.durable import sha256_of
from eqkin.library.lock import WriterLock
from eqkin.library.manifest import NAME, Manifest
from eqkin.library.pool import Task, read_all
from eqkin.library.reading import Extract
from eqkin.library.writer import Writer
from eqkin.mathml.converter import identity
from eqkin.mathml.tree import Node, node_of
from eqkin.sources import MetadataSnapshot, open_source
from eqkin.sources.paper import Item


@dataclass
class AddReport:
    """What `Library.add` did, so far or in the end."""

    papers: int = 0  # added or replaced
    unchanged: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # papers that could not be read, by reason
    equations: Counter[str] = field(default_factory=Counter)  # by status
    problems: list[str] = field(default_factory=list)  # sources that could not be read, or not to their end
    skipped: Counter[str] = field(default_factory=Counter)  # what was left out within sources, by reason
    peak_bytes: int = 0  # the largest worker's memory

    def count(self, extract: Extract) -> None:
        """Take one more extract into account."""
        self.peak_bytes = max(self.peak_bytes, extract.peak_bytes)
        if extract.unchanged:
            self.unchanged += 1
        elif extract.failure:
            self.failed[extract.failure] += 1
            self.problems.append(f"{extract.origin}: {extract.message}")
            del self.problems[200:]
        else:
            self.papers += 1
            self.equations.update(record.status for record in extract.equations)


class Library:
    """A folder with papers, sections, equations, citations and trees. Open it with `Library.open`."""

    def __init__(self, folder: Path, manifest: Manifest, connection: sqlite3.Connection) -> None:
        self.folder, self.manifest, self.connection = folder, manifest, connection
        self._segments: dict[str, Forest] = {}

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
            _create(path)
        manifest = Manifest.load(path)
        return cls(path, manifest, database.connect(path / database.NAME))

    def close(self) -> None:
        """Let the database go."""
        self.connection.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        *sources: str | os.PathLike[str],
        jobs: int = 1,
        metadata: MetadataSnapshot | None = None,
        progress: Callable[[AddReport], None] | None = None,
    ) -> AddReport:
        """Read sources into the library: new papers are added, changed ones replaced, unchanged ones skipped.

        Safe to stop at any moment and to run again: what was committed stays, the rest is done then.

        Args:
            sources: what `eqkin.sources.open_source` takes: paths, `arxiv:ID`, `python:PACKAGE`.
            jobs: processes to read with.
            metadata: arXiv's metadata snapshot, for bulk archives.
            progress: called after every paper with the report so far.

        Returns:
            What was added, what failed and why.

        Raises:
            LibraryBusy: another process is writing to this library.
            BadInput: a source does not exist or is of an unknown kind (nothing was added).
            CorruptData: the library's trees were made by another converter.
            StorageFailed: the disk is full or read-only; everything committed before is intact.
        """
        self._check_converter()
        report = AddReport()
        opened = [
            open_source(os.fspath(s), metadata=metadata, on_skip=lambda _, why: report.skipped.update([why]))
            for s in sources
        ]
        with database.translated(self.folder / database.NAME), self._writing() as writer:
            for extract in read_all(self._tasks(opened, writer, report), jobs):
                if not extract.unchanged:
                    writer.put(extract)
                report.count(extract)
                if progress:
                    progress(report)
        return report

    def remove(self, *sources: str) -> int:
        """Drop papers: by key (`arxiv:1706.03762`), or all that came from a file or from under a folder."""
        keys: set[str] = set()
        with database.translated(self.folder / database.NAME), self._writing() as writer:
            for source in sources:
                path = f"file:{Path(source).expanduser().resolve()}"
                found = self.connection.execute(
                    "SELECT key FROM papers WHERE key IN (?, ?) OR substr(key, 1, ?) = ?",
                    (source, path, len(path) + 1, path + "/"),
                )
                keys.update(row[0] for row in found)
            return writer.remove(sorted(keys))

    def tree(self, number: int) -> Node:
        """The MathML tree with this number."""
        forest, index = self._segment_of(number)
        return node_of(forest, index)

    def forests(self) -> Iterator[tuple[int, Forest]]:
        """All segments in order, each with the number of its first tree; trees nobody uses any more included."""
        for row in self.connection.execute("SELECT first, file FROM segments ORDER BY first").fetchall():
            yield row["first"], self._open_segment(row["file"])

    def _segment_of(self, number: int) -> tuple[Forest, int]:
        rows = self.connection.execute("SELECT first, file FROM segments ORDER BY first").fetchall()
        at = bisect_right([row["first"] for row in rows], number) - 1
        if at < 0:
            raise BadInput(f"the library has no tree {number}")
        return self._open_segment(rows[at]["file"]), number - rows[at]["first"]

    def _open_segment(self, name: str) -> Forest:
        if name not in self._segments:
            self._segments[name] = open_forest(self.folder / "forest" / name)
        return self._segments[name]

    def _check_converter(self) -> None:
        mine, theirs = identity(), self.manifest.converter
        if mine != theirs:
            raise CorruptData(
                f"{self.folder}: its trees were made by {theirs.name} {theirs.version}, "
                f"this eqkin has {mine.name} {mine.version}; "
                "trees of two converters are never mixed: add the sources to a new library"
            )

    def _tasks(self, opened: list[Iterator[Item]], writer: Writer, report: AddReport) -> Iterator[Task]:
        for items in opened:
            try:
                for item in items:
                    yield item, writer.known(item.key)
            except EqkinError as error:  # a bulk archive or a record file damaged half-way
                report.problems.append(str(error))
                report.failed["damaged source"] += 1

    def _writing(self) -> _Writing:
        return _Writing(self)


class _Writing:
    """The time during which a library is written: lock, batches, and the manifest last."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.lock = WriterLock(library.folder)

    def __enter__(self) -> Writer:
        self.lock.__enter__()
        try:
            self.connection = database.connect(self.library.folder / database.NAME, write=True)
            self.writer = Writer(self.library.folder, self.connection)
            self.writer.sweep()
        except BaseException:
            self.lock.__exit__(None, None, None)
            raise
        return self.writer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None or issubclass(kind, KeyboardInterrupt):  # what was read before an interruption is kept
                self.writer.tidy()
            self._seal()
        except OSError as problem:
            raise StorageFailed(
                f"{self.library.folder}: {problem.strerror or problem}; what was committed is intact"
            ) from problem
        finally:
            self.connection.close()
            self.lock.__exit__(None, None, None)

    def _seal(self) -> None:
        path = self.library.folder / database.NAME
        generation = database.generation(self.connection)
        if generation != self.library.manifest.generation or not self.library.manifest.database:
            self.library.manifest = self.library.manifest.at(generation, sha256_of(path))
            self.library.manifest.save(self.library.folder)


def _create(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        # what a library being made may have left behind when it was killed
        strangers = [
            p.name for p in path.iterdir() if not p.name.startswith(("lock", "forest", database.NAME, f".{NAME}"))
        ]
        if strangers:
            raise BadInput(
                f"{path}: the folder is not empty and not a library (it holds {strangers[0]}); choose another one"
            )
        with WriterLock(path):
            if (path / NAME).exists():
                return  # someone else was faster
            (path / "forest").mkdir(exist_ok=True)
            (path / database.NAME).unlink(missing_ok=True)
            database.create(path / database.NAME)
            Manifest(identity(), 0, sha256_of(path / database.NAME)).save(path)
    except OSError as error:
        raise StorageFailed(f"{path}: no library can be made there ({error.strerror or error})") from error
