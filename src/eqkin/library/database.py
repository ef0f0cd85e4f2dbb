"""The SQLite side of a library: papers, sections, equations, citations, and which forest file holds which trees.

Trees are numbered through the whole library; a segment is a forest file with the trees `first .. first + count - 1`.
So files can be merged without touching an equation. SQLite's rollback journal makes every commit all or nothing.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from eqkin.errors import CorruptData, EqkinError, StorageFailed

DATABASE_NAME = "library.db"
_SCHEMA = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE papers (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, origin TEXT NOT NULL,
    source TEXT NOT NULL,           -- what the user added: a resolved path, arxiv:ID, python:PACKAGE, atlas:
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of the source, with the version of the reading code: unchanged means skip
    content TEXT NOT NULL,          -- digest of everything stored for this paper
    title TEXT NOT NULL, authors TEXT NOT NULL, year INTEGER, fields TEXT NOT NULL, lang TEXT NOT NULL,
    license TEXT NOT NULL, work TEXT NOT NULL, abstract TEXT NOT NULL, packages TEXT, macros BLOB, notes TEXT NOT NULL,
    failure TEXT NOT NULL, message TEXT NOT NULL);
CREATE TABLE sections (
    id INTEGER PRIMARY KEY, paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    number INTEGER NOT NULL, level INTEGER NOT NULL, title TEXT NOT NULL,
    latex TEXT NOT NULL);           -- its prose, with a mark where each equation stands
CREATE TABLE equations (
    id INTEGER PRIMARY KEY, paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    section INTEGER NOT NULL REFERENCES sections ON DELETE CASCADE,
    number INTEGER NOT NULL, mark INTEGER NOT NULL, environment TEXT NOT NULL, label TEXT NOT NULL,
    latex TEXT NOT NULL,
    status TEXT NOT NULL,           -- converted, degraded, diagram, failed
    repaired INTEGER NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, unknown TEXT NOT NULL,
    tree INTEGER UNIQUE);
CREATE TABLE citations (
    paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE, cited TEXT NOT NULL, PRIMARY KEY (paper, cited))
    WITHOUT ROWID;
CREATE TABLE segments (
    first INTEGER PRIMARY KEY, count INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL);
CREATE INDEX sections_of_paper ON sections (paper);
CREATE INDEX equations_of_paper ON equations (paper);
CREATE INDEX equations_of_section ON equations (section);
CREATE INDEX cited_papers ON citations (cited);
INSERT INTO state VALUES ('generation', '0');
"""


def create_database(path: Path) -> None:
    """Make an empty database at `path`."""
    with translate_sqlite_errors(path), sqlite3.connect(path) as connection:
        connection.executescript("BEGIN;" + _SCHEMA + "COMMIT;")


def connect(path: Path, *, write: bool = False, roaming: bool = False) -> sqlite3.Connection:
    """Open a database. Readers may be many, and go on while a writer works; a writer holds the library's lock.

    A `roaming` connection may pass from thread to thread, used by one at a time.
    """
    if not path.exists():
        raise CorruptData(f"{path}: the library's database is missing")
    with translate_sqlite_errors(path):
        try:
            # a reader may have to roll back what a killed writer left: it needs write access where it can have it
            connection = _open_connection(path, "rw", roaming)
            connection.execute("SELECT value FROM state WHERE key = 'generation'").fetchone()
        except sqlite3.OperationalError:
            if write:
                raise
            connection = _open_connection(path, "ro", roaming)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        if write:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA cache_spill = OFF")  # readers go on until the commit itself
            connection.execute("PRAGMA cache_size = -64000")
    return connection


def _open_connection(path: Path, mode: str, roaming: bool) -> sqlite3.Connection:
    address = f"file:{_quote_path(path)}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=60, isolation_level=None, check_same_thread=not roaming)


def _quote_path(path: Path) -> str:
    return str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def is_empty(path: Path) -> bool:
    """Whether a database file is of a library that was made and never added to."""
    try:
        with closing(sqlite3.connect(f"file:{_quote_path(path)}?mode=ro", uri=True)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "papers" not in tables:
                return not tables
            return read_generation(connection) == 0
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError):
        return path.stat().st_size == 0


def read_generation(connection: sqlite3.Connection) -> int:
    """How many times the database was committed to."""
    return int(connection.execute("SELECT value FROM state WHERE key = 'generation'").fetchone()[0])


@contextmanager
def begin_transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All of the block's changes or none; one generation more."""
    with translate_sqlite_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("UPDATE state SET value = value + 1 WHERE key = 'generation'")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


_DISK_ERROR = re.compile(r"full|I/O|read-?only|locked|unable to open|permission", re.IGNORECASE)


@contextmanager
def translate_sqlite_errors(
    path: Path, remedy: str = "the library is damaged, add its sources to a new one"
) -> Iterator[None]:
    """SQLite's errors as eqkin's; `remedy` says what to do about damage."""
    try:
        yield
    except EqkinError:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.OperationalError) and _DISK_ERROR.search(str(error)):
            raise StorageFailed(f"{path}: {error}; what was stored before is intact") from error
        raise CorruptData(f"{path}: {error}; {remedy}") from error
