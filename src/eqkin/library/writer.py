"""Writing to a library: papers are committed in batches, segments of trees are merged when there are many."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import zstandard

from eqkin.errors import BadInput, CorruptData, StorageFailed, Unreachable
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import from_bytes, open_forest, to_bytes
from eqkin.formulas.scripts import ConverterIdentity, get_converter_identity
from eqkin.library import database
from eqkin.library.database import DATABASE_NAME, FOREST_FOLDER, LOCK_NAME, MANIFEST_NAME, LibraryManifest
from eqkin.library.files import TREES_REMEDY, TreesEntry, find_used_trees, list_segments
from eqkin.library.parsing import ParsedPaper, make_failed_paper
from eqkin.sources.paper import Paper
from eqkin.storage.files import WriterLock, delete_unused_files, find_unknown_files, hash_file, sync_folder
from eqkin.storage.segments import (
    HASH_CACHE_NAME,
    MAX_DEAD_FRACTION,
    MAX_SEGMENTS,
    SegmentSet,
    cache_hashes,
    write_segment,
)

_COMPRESSION_LEVEL = 3  # 9 saves 3 % and takes three times as long
_MAX_FREE_FRACTION = 0.1  # of the pages of a database
_DEAD_TREE = (["math"], [""], [""], [[[0], [0], [0], [0]]])  # a single node


@dataclass(frozen=True)
class WriterSettings:
    """Settings: when a writer commits, and when it compacts the segments of trees."""

    batch_equations: int = 10_000
    batch_papers: int = 2_000
    batch_seconds: float = 20.0
    max_segments: int = MAX_SEGMENTS
    max_merged_bytes: int = 64_000_000  # of a segment; larger ones are not merged
    max_dead_fraction: float = MAX_DEAD_FRACTION


SETTINGS = WriterSettings()


class LibraryWriter:
    """Context manager that writes to a library: holds its lock, commits papers in batches, seals the manifest last."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.settings: WriterSettings = SETTINGS
        self.manifest: LibraryManifest
        self.connection: sqlite3.Connection
        self.compressor = zstandard.ZstdCompressor(_COMPRESSION_LEVEL)
        self._lock = WriterLock(folder)
        self._batch: dict[str, ParsedPaper] = {}
        self._equations = 0  # in the batch
        self._since = time.monotonic()  # the last commit

    def __enter__(self) -> LibraryWriter:
        self._lock.__enter__()
        try:
            self.manifest = database.load_checked_manifest(self.folder)  # as the last writer left it
            self.connection = database.connect(self.folder / DATABASE_NAME, write=True)
            try:
                if not self.manifest.sealed:  # it was killed; what it damaged must not be sealed
                    database.require_sound(self.connection, self.folder / DATABASE_NAME)
                self._delete_unused_files()
                if database.read_version(self.connection) < database.MANIFEST_VERSION:
                    with self._begin_transaction():
                        database.upgrade_tables(self.connection)
            except BaseException:
                self.connection.close()
                raise
        except BaseException as error:
            self._lock.__exit__(None, None, None)
            if isinstance(error, OSError):
                raise self._make_storage_error(error) from error
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            # what was parsed before an interruption, or before the cluster was lost, is kept
            if kind is None or issubclass(kind, KeyboardInterrupt | Unreachable):
                self.flush()
                self._compact()
                self._delete_unused_files()
            if not self.manifest.sealed and not self._will_roll_back():
                digest = hash_file(self.folder / DATABASE_NAME)
                self.manifest = self.manifest.seal(database.read_generation(self.connection), digest)
                self.manifest.save(self.folder)
                cache_hashes(self.folder, {DATABASE_NAME: digest}, wait=False)
        except OSError as problem:
            raise self._make_storage_error(problem) from problem
        finally:
            self.connection.close()
            self._lock.__exit__(None, None, None)

    def _will_roll_back(self) -> bool:
        """Return whether the journal of a commit that failed is left, which the next connection will roll back.

        The first byte of a journal is zero until it is synced; SQLite ignores such a one of a killed process.
        """
        journal = self.folder / f"{DATABASE_NAME}-journal"
        if not journal.exists():
            return False
        with journal.open("rb") as file:
            return file.read(1) not in (b"", b"\0")

    def _make_storage_error(self, error: OSError) -> StorageFailed:
        name = error.filename or self.folder
        return StorageFailed(f"{name}: {error.strerror or error}; what was committed is intact")

    def read_setting(self, name: str) -> str:
        """Return a setting of the library, "" if it was never set."""
        row = self.connection.execute("SELECT value FROM state WHERE key = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def save_setting(self, name: str, value: str) -> None:
        """Change a setting of the library."""
        if self.read_setting(name) != value:
            with self._begin_transaction():
                self.connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def find_digest(self, key: str) -> str:
        """Return the digest of a paper in the library or in the batch; "" if it is in neither, or failed."""
        waiting = self._batch.get(key)
        if waiting is not None:
            return "" if waiting.failure else waiting.digest
        row = self.connection.execute("SELECT digest FROM papers WHERE key = ? AND failure = ''", (key,)).fetchone()
        return str(row[0]) if row else ""

    def add(self, paper: ParsedPaper) -> None:
        """Add or replace a paper; the next `flush` commits it. A failure never replaces a paper that was parsed."""
        if paper.failure and self.find_digest(paper.key):
            return
        self._batch[paper.key] = paper
        self._equations += len(paper.equations)
        full = self._equations >= self.settings.batch_equations or len(self._batch) >= self.settings.batch_papers
        if full or time.monotonic() - self._since > self.settings.batch_seconds:
            self.flush()

    def flush(self) -> None:
        """Commit the batch: the segment of its trees first, then the rows that refer to it."""
        if self._batch:
            papers = list(self._batch.values())
            first = self._find_next_tree()
            builder = ForestBuilder()
            for paper in papers:
                if paper.forest is not None:
                    builder.add_forest(paper.forest)
            forest = builder.build()
            segments = [self._write_segment(forest, first)] if len(forest) else []
            with self._begin_transaction():
                self._insert_segments(segments)
                for paper in papers:
                    self._store_paper(paper, first)
                    first += sum(equation.tree >= 0 for equation in paper.equations)
            self._batch.clear()
            self._equations = 0
        self._since = time.monotonic()

    def remove(self, keys: Sequence[str]) -> int:
        """Remove papers by key; return how many there were."""
        self.flush()
        if not keys:
            return 0
        with self._begin_transaction():
            cursor = self.connection.executemany("DELETE FROM papers WHERE key = ?", [(key,) for key in keys])
        return cursor.rowcount

    @contextmanager
    def _begin_transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none; a commit raises the generation by one."""
        self._unseal()
        with database.translate_sqlite_errors(self.folder / DATABASE_NAME), database.begin_transaction(self.connection):
            yield
            self.connection.execute("UPDATE state SET value = value + 1 WHERE key = 'generation'")

    def _unseal(self) -> None:
        if self.manifest.sealed:
            self.manifest = self.manifest.unseal()
            self.manifest.save(self.folder)

    def _store_paper(self, paper: ParsedPaper, first: int) -> None:
        """Write the rows of a paper; a paper that the database refuses is stored as failed."""
        refusals = (OverflowError, ValueError, sqlite3.InterfaceError, sqlite3.DataError, sqlite3.ProgrammingError)
        self.connection.execute("SAVEPOINT paper")
        try:
            self._replace_paper(paper, first)
        except refusals as error:
            self.connection.execute("ROLLBACK TO paper")
            refused = make_failed_paper(paper.key, paper.origin, "internal error", repr(error))
            refused.source = paper.source
            self._replace_paper(refused, first)
        self.connection.execute("RELEASE paper")

    def _replace_paper(self, parsed: ParsedPaper, first: int) -> None:
        """Replace the rows of a paper by new ones; `first` is the number of its first tree."""
        execute = self.connection.execute
        execute("DELETE FROM papers WHERE key = ?", (parsed.key,))
        paper = parsed.paper or Paper(parsed.key, "", kind="")
        values = {name: getattr(paper, name) for name in database.PAPER_FIELDS} | {"work": paper.group}
        values |= {name: getattr(parsed, name) for name in database.PARSED_FIELDS}
        texts = {
            name: orjson.dumps(value).decode() if isinstance(value, list) else value for name, value in values.items()
        }
        owner = execute(_make_insert("papers", texts), texts).lastrowid
        sections = [
            execute(
                "INSERT INTO sections VALUES (NULL, ?, ?, ?, ?, ?)",
                (owner, number, level, title, database.compress_text(self.compressor, prose)),
            ).lastrowid
            for number, (level, title, prose) in enumerate(parsed.sections)
        ]
        (last,) = execute("SELECT coalesce(max(id), 0) FROM equations").fetchone()
        equations = [
            vars(e)
            | {"id": last + 1 + e.number, "paper": owner, "section": sections[e.section]}
            | {"latex": "" if e.spans else e.latex, "tree": None if e.tree < 0 else first + e.tree}
            | {"whole": None if e.whole < 0 else last + 1 + e.whole}
            for e in parsed.equations
        ]
        if equations:
            self.connection.executemany(_make_insert("equations", equations[0]), equations)
        self.connection.executemany("INSERT INTO citations VALUES (?, ?)", [(owner, cited) for cited in parsed.cites])

    def _find_next_tree(self) -> int:
        """Return a number that no tree ever had: vectors are stored by the numbers of trees."""
        row = self.connection.execute(
            "SELECT max(n) FROM (SELECT max(first + count) AS n FROM segments "
            "UNION SELECT CAST(value AS INTEGER) FROM state WHERE key = 'next tree')"
        ).fetchone()
        return int(row[0] or 0)

    def _write_segment(self, forest: Forest, first: int) -> TreesEntry:
        """Write a segment whose name has its first tree: equal trees may be stored twice."""
        file = write_segment(self.folder / FOREST_FOLDER, f"{first:010d}", to_bytes(forest))
        return TreesEntry(*file, len(forest), first)

    def _insert_segments(self, segments: Sequence[TreesEntry]) -> None:
        rows = [(entry.first, entry.count, entry.file, entry.sha256, entry.bytes) for entry in segments]
        self.connection.executemany("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", rows)

    def drop_segments(self, entries: Sequence[TreesEntry]) -> None:
        """Forget segments whose trees belong to no equation any more."""
        if entries:
            next_tree = str(self._find_next_tree())
            with self._begin_transaction():
                self.connection.executemany("DELETE FROM segments WHERE file = ?", [(e.file,) for e in entries])
                self.connection.execute("INSERT OR REPLACE INTO state VALUES ('next tree', ?)", (next_tree,))

    def set_converter(self, identity: ConverterIdentity) -> None:
        """Say that one converter made all trees; takes effect when the writer closes."""
        if self.manifest.converter != identity:
            self.manifest = replace(self.manifest.unseal(), converter=identity)

    def replace_prose(self, rows: Sequence[tuple[str | bytes, int]]) -> None:
        """Store the same prose of sections in another form, given with their ids."""
        if rows:
            with self._begin_transaction():
                self.connection.executemany("UPDATE sections SET latex = ? WHERE id = ?", rows)

    def release_free_pages(self) -> None:
        """Make the file of the database smaller if much of it is not used."""
        execute = self.connection.execute
        (free,), (pages,) = execute("PRAGMA freelist_count").fetchone(), execute("PRAGMA page_count").fetchone()
        if free > _MAX_FREE_FRACTION * pages:
            self._unseal()
            with database.translate_sqlite_errors(self.folder / DATABASE_NAME):
                execute("PRAGMA cache_spill = ON")  # not all of it may fit in memory
                execute(f"PRAGMA page_size = {database.PAGE_BYTES}")
                execute("VACUUM")

    def _compact(self) -> None:
        """Merge small segments if there are many, and drop dead trees if they are most.

        Trees keep their numbers: vectors are stored by them, and readers of the index ask for them.
        """
        entries = list_segments(self.connection)
        segments = SegmentSet(self.folder / FOREST_FOLDER, entries, TREES_REMEDY)
        drop_dead = self._has_mostly_dead_trees(entries)
        compacted = segments.compact(self, drop_dead=drop_dead, max_segments=self.settings.max_segments)
        if compacted != segments.entries:
            next_tree = str(self._find_next_tree())
            with self._begin_transaction():
                self.connection.execute("DELETE FROM segments")
                if drop_dead:  # the last segment may be among those that are dropped
                    self.connection.execute("INSERT OR REPLACE INTO state VALUES ('next tree', ?)", (next_tree,))
                self._insert_segments(compacted)

    def _has_mostly_dead_trees(self, entries: Sequence[TreesEntry]) -> bool:
        """Return whether most trees, and most of their nodes, belong to no equation any more."""
        stored = sum(entry.count for entry in entries)
        (live,) = self.connection.execute("SELECT count(tree) FROM equations").fetchone()
        if stored - live <= self.settings.max_dead_fraction * stored:
            return False
        nodes = saved = 0
        for entry in entries:
            forest = open_forest(self.folder / FOREST_FOLDER / entry.file)
            used = find_used_trees(self.connection, entry.first, entry.count) - entry.first
            size = int(forest.offsets[-1])
            nodes += size
            saved += size - int(forest.sizes[used].sum()) - (len(forest) - len(used))  # a dead tree keeps one node
        return saved > self.settings.max_dead_fraction * nodes

    def fits(self, run: Sequence[TreesEntry]) -> bool:
        """Return whether neighbouring segments may become one."""
        follow = all(a.first + a.count == b.first for a, b in zip(run, run[1:], strict=False))
        return follow and sum(entry.bytes for entry in run) <= self.settings.max_merged_bytes

    def merge(self, run: Sequence[TreesEntry], drop_dead: bool) -> TreesEntry | None:
        """Write one segment of several; with `drop_dead`, a single node takes the place of each dead tree."""
        builder, live = ForestBuilder(), 0
        for entry in run:
            forest = from_bytes((self.folder / FOREST_FOLDER / entry.file).read_bytes())
            if drop_dead:
                used = find_used_trees(self.connection, entry.first, entry.count) - entry.first
                live += len(used)
                forest = _replace_dead_trees(forest, used)
            builder.add_forest(forest)
        return None if drop_dead and not live else self._write_segment(builder.build(), run[0].first)

    def _delete_unused_files(self) -> None:
        """Delete segments that no row refers to, left by a killed writer or merged, and temporary files."""
        known = {HASH_CACHE_NAME, *(entry.file for entry in list_segments(self.connection))}
        delete_unused_files(self.folder / FOREST_FOLDER, known, database.OWN_SEGMENTS)
        delete_unused_files(self.folder, database.LIBRARY_NAMES, database.OWN_FILES)


def create_library(path: Path) -> None:
    """Create an empty library in a folder that is empty, or has what a killed process left that was creating one.

    Raises:
        BadInput: the folder has other content, which is not touched.
        CorruptData: it has a database but no manifest.
        StorageFailed: it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _require_unused(path)
        with WriterLock(path):
            if (path / MANIFEST_NAME).exists():
                return  # another process was faster
            _require_unused(path)
            (path / FOREST_FOLDER).mkdir(exist_ok=True)
            for name in (f"{DATABASE_NAME}-journal", DATABASE_NAME):
                (path / name).unlink(missing_ok=True)
            database.create_database(path / DATABASE_NAME)
            sync_folder(path)  # the manifest must not be there before what it names
            LibraryManifest(get_converter_identity()).seal(0, hash_file(path / DATABASE_NAME)).save(path)
            sync_folder(path.parent)
    except OSError as error:
        raise StorageFailed(f"{path}: no library can be created there ({error.strerror or error})") from error


def restore_forest_folder(path: Path) -> None:
    """Make the folder of a library's trees if somebody has deleted it; raises `StorageFailed`."""
    forest = path / FOREST_FOLDER
    if not forest.is_dir():
        try:
            forest.mkdir()
            sync_folder(path)
        except OSError as error:
            raise StorageFailed(f"{forest}: {error.strerror or error}") from error


def _require_unused(path: Path) -> None:
    """Raise an error unless a folder has nothing but what the killed creation of a library leaves."""
    database.check_links(path)
    expected = {LOCK_NAME, DATABASE_NAME, f"{DATABASE_NAME}-journal", FOREST_FOLDER}
    _, foreign = find_unknown_files(path, expected, database.OWN_FILES)
    folder, lock = path / FOREST_FOLDER, path / LOCK_NAME
    if folder.exists() and not folder.is_dir():
        foreign.append(FOREST_FOLDER)
    elif folder.is_dir():
        foreign += [f"{FOREST_FOLDER}/{name}" for name in os.listdir(folder)]
    if lock.exists() and not (lock.is_file() and re.fullmatch(rb"(process \d+ on .*)?\s*", lock.read_bytes()[:500])):
        foreign.append(LOCK_NAME)
    if (path / DATABASE_NAME).exists() and not database.is_empty(path / DATABASE_NAME):
        raise CorruptData(f"{path}: has {DATABASE_NAME} but no {MANIFEST_NAME}; it was not touched")
    if foreign:
        raise BadInput(f"{path}: the folder is not empty and not a library (it has {foreign[0]}); choose another one")


def _replace_dead_trees(forest: Forest, used: npt.NDArray[np.int64]) -> Forest:
    """Return a forest with a single node in the place of each tree that is not used."""
    builder = ForestBuilder()
    builder.add_forest(forest.select(used))
    builder.add_batch(*_DEAD_TREE)
    order = np.full(len(forest), len(used))
    order[used] = np.arange(len(used))
    return builder.build().select(order)


def _make_insert(table: str, columns: Iterable[str]) -> str:
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
