"""Writing to a library: papers are committed in batches, each with everything that belongs to it."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from eqkin.errors import BadInput, StorageFailed, Unreachable
from eqkin.files import WriterLock, delete_unused_files, find_unknown_files, sync_folder, write_atomically
from eqkin.formulas.forest import iter_blocks
from eqkin.formulas.scripts import ConverterIdentity, get_converter_identity
from eqkin.library.database import (
    DATABASE_NAME,
    INTACT_PAPER,
    LIBRARY_NAMES,
    LOCK_NAME,
    OWN_FILES,
    RAISE_GENERATION,
    SET_STATE,
    begin_transaction,
    check_links,
    connect,
    create_database,
    format_converter,
    make_compressor,
    make_insert,
    read_state,
    require_schema,
    translate_sqlite_errors,
)
from eqkin.library.files import KEY_DIFFERENCE
from eqkin.library.parsing import ParsedEquation, ParsedPaper, make_failed_paper
from eqkin.sources.paper import Paper

# Columns of papers that are fields of `Paper` and of `ParsedPaper`; lists are stored as JSON.
PAPER_FIELDS = tuple("kind authors year fields lang license abstract notes doi url cite_key".split())
PARSED_FIELDS = tuple("key origin source digest content title packages failure message cites".split())

# Nodes in one blob of trees, about 128 equations. A hit is read with all of its blob; twice as many would take 6 % less
# room, and twice the time to read.
_NODES_PER_BLOB = 4_096
_MAX_FREE_FRACTION = 0.5
_INSERT_PAPER = make_insert("papers", ["macros"])
_INSERT_SECTION = make_insert("sections", ["prose"])
_INSERT_EQUATION = make_insert("equations")
_INSERT_TREES = make_insert("trees", ["presentation", "operators"])
# What SQLite's Python module raises for values that it cannot store.
_REFUSALS = (OverflowError, ValueError, sqlite3.InterfaceError, sqlite3.DataError)


@dataclass(frozen=True)
class WriterSettings:
    """When a writer commits."""

    batch_equations: int = 10_000
    batch_papers: int = 2_000
    batch_seconds: float = 20.0


SETTINGS = WriterSettings()


class LibraryWriter:
    """Context manager that writes to a library: holds its lock, and commits papers in batches."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.settings: WriterSettings = SETTINGS
        self.connection: sqlite3.Connection
        self._compressor = make_compressor()
        # It closes the connection and releases the lock.
        self._stack: ExitStack
        self._batch: dict[str, ParsedPaper] = {}
        # The number of equations in the batch, and the time of the last commit.
        self._equations = 0
        self._since = time.monotonic()

    def __enter__(self) -> LibraryWriter:
        with ExitStack() as stack, _translate_os_errors(self.folder):
            stack.enter_context(WriterLock(self.folder))
            delete_unused_files(self.folder, LIBRARY_NAMES, OWN_FILES)
            self.connection = stack.enter_context(closing(connect(self.folder / DATABASE_NAME, write=True)))
            # A damaged trigger could delete the rows of another paper.
            require_schema(self.connection, self.folder / DATABASE_NAME)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._stack, _translate_os_errors(self.folder):
            # What was parsed before an interruption, or before a cluster was lost, is kept.
            if kind is None or issubclass(kind, KeyboardInterrupt | Unreachable):
                self.flush()

    def read_setting(self, name: str) -> str:
        """Return a setting of the library, "" if it was never set."""
        return read_state(self.connection, name)

    def save_setting(self, name: str, value: str) -> None:
        """Change a setting of the library."""
        if self.read_setting(name) != value:
            with self._begin_transaction():
                self.connection.execute(SET_STATE, {"key": name, "value": value})

    def set_converter(self, identity: ConverterIdentity) -> None:
        """Record that one converter made all trees."""
        for name, value in format_converter(identity).items():
            self.save_setting(name, value)

    def find_digest(self, key: str) -> str:
        """Return the digest of a paper in the library or in the batch; "" if it is in neither, or failed."""
        waiting = self._batch.get(key)
        if waiting is not None:
            return "" if waiting.failure else waiting.digest
        row = self.connection.execute(
            f"SELECT digest, failure FROM papers p WHERE key IS ? AND {INTACT_PAPER}", (key,)
        ).fetchone()
        return str(row["digest"]) if row and not row["failure"] else ""

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
        """Commit the batch."""
        if self._batch:
            with self._begin_transaction():
                for paper in self._batch.values():
                    self._store_paper(paper)
            self._batch.clear()
            self._equations = 0
        self._since = time.monotonic()

    def remove(self, keys: Sequence[str]) -> int:
        """Remove papers by key; return how many there were."""
        self.flush()
        if not keys:
            return 0
        with self._begin_transaction():
            removed = sum(map(self._delete_paper, keys))
        self._release_free_pages()
        return removed

    @contextmanager
    def _begin_transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none; a commit raises the generation by one."""
        with translate_sqlite_errors(self.folder / DATABASE_NAME), begin_transaction(self.connection):
            yield
            self.connection.execute(RAISE_GENERATION)

    def _release_free_pages(self) -> None:
        """Make the file smaller if most of it is not used any more."""
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        if free > _MAX_FREE_FRACTION * pages:
            with translate_sqlite_errors(self.folder / DATABASE_NAME):
                # Not all of it may fit in memory.
                self.connection.execute("PRAGMA cache_spill = ON")
                self.connection.execute("VACUUM")
                self.connection.execute("PRAGMA cache_spill = OFF")

    def _store_paper(self, paper: ParsedPaper) -> None:
        """Write the rows of a paper; a paper that the database refuses is stored as failed."""
        self.connection.execute("SAVEPOINT paper")
        try:
            self._replace_paper(paper)
        except _REFUSALS as error:
            self.connection.execute("ROLLBACK TO paper")
            refused = make_failed_paper(paper.key, paper.origin, "internal error", repr(error))
            refused.source = paper.source
            self._replace_paper(refused)
        self.connection.execute("RELEASE paper")

    def _replace_paper(self, parsed: ParsedPaper) -> None:
        """Replace the rows of a paper by new ones."""
        self._delete_paper(parsed.key)
        first_section, first_equation = self._find_next_id("sections"), self._find_next_id("equations")
        paper = parsed.paper or Paper(parsed.key, "", kind="")
        values: dict[str, Any] = {name: getattr(paper, name) for name in PAPER_FIELDS}
        values |= {name: getattr(parsed, name) for name in PARSED_FIELDS}
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = orjson.dumps(value).decode()
        values |= {
            "id": self._find_next_id("papers"),
            "work": paper.group,
            "first_section": first_section,
            "n_sections": len(parsed.sections),
            "first_equation": first_equation,
            "n_equations": len(parsed.equations),
            "n_displays": sum(e.tree >= 0 and e.whole < 0 and not e.inline for e in parsed.equations),
            "macros": self._compressor.compress(parsed.macros),
        }
        self.connection.execute(_INSERT_PAPER, values)
        with_tree: list[list[int]] = [[] for _ in parsed.sections]
        for equation in parsed.equations:
            if equation.tree >= 0:
                with_tree[equation.section].append(equation.number)
        sections = [
            {
                "id": first_section + number,
                "paper": values["id"],
                "number": number,
                "level": level,
                "title": title,
                "equations": orjson.dumps(with_tree[number]).decode(),
                "prose": self._compressor.compress(prose.encode()),
            }
            for number, (level, title, prose) in enumerate(parsed.sections)
        ]
        self.connection.executemany(_INSERT_SECTION, sections)
        equations = [_describe_equation(e, values["id"], first_section, first_equation) for e in parsed.equations]
        self.connection.executemany(_INSERT_EQUATION, equations)
        self.connection.executemany(_INSERT_TREES, _iter_trees(parsed, values["id"], first_equation))

    def _delete_paper(self, key: str) -> int:
        """Delete a paper, if there is one, with its sections, equations and trees; return their number."""
        return self.connection.execute(f"DELETE FROM papers AS p WHERE key IS ? AND {INTACT_PAPER}", (key,)).rowcount

    def _find_next_id(self, table: str) -> int:
        """Return a number that no row of a table ever had."""
        row = self.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return int(row[0]) + 1 if row else 1


def _describe_equation(equation: ParsedEquation, paper: int, first_section: int, first_equation: int) -> dict[str, Any]:
    """Return the values of a row."""
    return vars(equation) | {
        "id": first_equation + equation.number,
        "paper": paper,
        "section": first_section + equation.section,
        "whole": equation.whole if equation.whole >= 0 else None,
    }


def _iter_trees(parsed: ParsedPaper, paper: int, first_equation: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a paper's trees."""
    if parsed.forest is None or parsed.operators is None:
        return
    keys = np.array([first_equation + e.number for e in parsed.equations if e.tree >= 0], np.int64)
    for trees, _ in iter_blocks(parsed.forest.offsets, _NODES_PER_BLOB):
        chosen = np.arange(trees.start, trees.stop)
        yield {
            "first": int(keys[trees.start]),
            "paper": paper,
            "keys": (keys[trees] - keys[trees.start]).astype(KEY_DIFFERENCE).tobytes(),
            "presentation": parsed.forest.select(chosen).to_bytes(),
            "operators": parsed.operators.select(chosen).to_bytes(),
        }


@contextmanager
def _translate_os_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the disk as `StorageFailed`."""
    try:
        yield
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror or error}; what was committed is intact"
        raise StorageFailed(message) from error


def create_library(path: Path) -> None:
    """Create an empty library in a folder that is empty, or has what a killed process left that was creating one.

    Raises:
        BadInput: The folder has other content, which is not touched.
        StorageFailed: It cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _require_unused(path)
        with WriterLock(path):
            # Another process may have been faster.
            if not (path / DATABASE_NAME).exists():
                delete_unused_files(path, LIBRARY_NAMES, OWN_FILES)
                with write_atomically(path / DATABASE_NAME) as temporary:
                    create_database(temporary, get_converter_identity())
                sync_folder(path.parent)
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageFailed(f"{path}: no library can be created there ({reason})") from error


def _require_unused(path: Path) -> None:
    """Raise `BadInput` unless a folder has nothing but what the killed creation of a library leaves."""
    check_links(path)
    _, foreign = find_unknown_files(path, {LOCK_NAME}, OWN_FILES)
    foreign = [name for name in foreign if name != DATABASE_NAME]
    lock = path / LOCK_NAME
    if lock.exists() and not (lock.is_file() and re.fullmatch(rb"(process \d+ on .*)?\s*", lock.read_bytes()[:500])):
        foreign.append(LOCK_NAME)
    if foreign:
        raise BadInput(f"{path}: the folder is not empty and not a library (it has {foreign[0]}); choose another one")
