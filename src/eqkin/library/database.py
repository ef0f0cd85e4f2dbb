"""The SQLite database of a library and its manifest.

The database has papers, sections, equations, citations, and which segment holds which trees. Trees are numbered through
the whole library; a segment has the trees `first .. first + count - 1`, so that segments can be merged without touching
an equation. SQLite's rollback journal makes every commit atomic. Prose, most of what is stored, is compressed.

`manifest.json` says which converter made the trees, and the hash of the database. A writer unseals it before its first
change and seals it last, with the new generation and hash of the database. An unsealed manifest means that a writer is
active or was killed: then only the database's own checks apply. A sealed database is compared with its hash when it is
opened, unless neither its size nor its times have changed since the last time (`eqkin.storage.segments`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePath
from urllib.parse import quote

import zstandard

from eqkin.errors import CorruptData, EqkinError, StorageFailed
from eqkin.formulas.scripts import ConverterIdentity
from eqkin.latex.rows import extract_row
from eqkin.limits import LIMITS, check_cancelled
from eqkin.storage.files import format_checked_json, load_checked_json, write_file
from eqkin.storage.segments import HASH_CACHE_NAME, has_hash

DATABASE_NAME = "library.db"
FOREST_FOLDER = "forest"
MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = "eqkin-library"
MANIFEST_VERSION = 3
PAGE_BYTES = 8192  # of the database: sections that need several pages waste 4 % less than with SQLite's 4,096
_MAPPED_BYTES = 2**31 - 2**16  # the most that SQLite maps by default; the rest of a larger file is read in pages
_STEPS_PER_CHECK = 50_000  # of SQLite's virtual machine, about a millisecond, between checks for cancellation
_READABLE_VERSIONS = (1, 2)  # older ones: read as they are, upgraded by the next writer
JUDGEMENTS_NAME, JUDGEMENTS_SEAL_NAME = "judgements.db", "judgements.json"
INDEX_FOLDER = "index"
LOCK_NAME = "lock"
LIBRARY_NAMES = frozenset(  # all that may be in a library's folder
    (LOCK_NAME, DATABASE_NAME, f"{DATABASE_NAME}-journal", FOREST_FOLDER, INDEX_FOLDER, MANIFEST_NAME, HASH_CACHE_NAME)
    + (JUDGEMENTS_NAME, f"{JUDGEMENTS_NAME}-journal", JUDGEMENTS_SEAL_NAME)
)
OWN_FILES = re.compile(r"(manifest|checked)\.json")  # see `find_unknown_files`
OWN_JUDGEMENT_FILES = re.compile(r"(judgements|checked)\.json")
OWN_SEGMENTS = re.compile(rf"\d{{10}}-[0-9a-f]+\.safetensors|{re.escape(HASH_CACHE_NAME)}")
_DISK_ERROR = re.compile(r"full|I/O|read-?only|locked|unable to open|permission", re.IGNORECASE)
LIBRARY_REMEDY = "restore it from a copy, or add the sources to a new library"
_SCHEMA = """
CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE papers (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, origin TEXT NOT NULL,
    source TEXT NOT NULL,           -- what the user added: a resolved path, arxiv:ID, python:PACKAGE, atlas:
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of the source, with the version of the parser: unchanged means skip
    content TEXT NOT NULL,          -- digest of everything stored for this paper
    title TEXT NOT NULL, authors TEXT NOT NULL, year INTEGER, fields TEXT NOT NULL, lang TEXT NOT NULL,
    license TEXT NOT NULL, work TEXT NOT NULL, abstract TEXT NOT NULL, packages TEXT, macros BLOB, notes TEXT NOT NULL,
    failure TEXT NOT NULL, message TEXT NOT NULL,
    doi TEXT NOT NULL DEFAULT '', url TEXT NOT NULL DEFAULT '', cite_key TEXT NOT NULL DEFAULT '');
CREATE TABLE sections (
    id INTEGER PRIMARY KEY, paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    number INTEGER NOT NULL, level INTEGER NOT NULL, title TEXT NOT NULL,
    latex TEXT NOT NULL);           -- its prose, with a mark in the place of each equation; a BLOB if compressed
CREATE TABLE equations (
    id INTEGER PRIMARY KEY, paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    section INTEGER NOT NULL REFERENCES sections ON DELETE CASCADE,
    number INTEGER NOT NULL,        -- within the paper: displays in order, then rows, then inline formulas
    mark INTEGER NOT NULL,          -- which mark of the section it is; of an inline formula its offset in the prose
    environment TEXT NOT NULL, label TEXT NOT NULL,
    latex TEXT NOT NULL,            -- empty for a row
    status TEXT NOT NULL,           -- converted, degraded, diagram, failed
    repaired INTEGER NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, unknown TEXT NOT NULL,
    tree INTEGER UNIQUE,
    printed TEXT NOT NULL DEFAULT '',  -- its number as printed: 3.6
    whole INTEGER,                  -- of a row: the id of its display
    spans TEXT NOT NULL DEFAULT '', -- of a row: where it is in the LaTeX of its display
    inline INTEGER NOT NULL DEFAULT 0);
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
PRAGMA user_version = 3;
"""
# columns of papers that are fields of `Paper` and of `ParsedPaper`; lists are stored as JSON
PAPER_FIELDS = tuple("kind authors year fields lang license abstract notes doi url cite_key".split())
PARSED_FIELDS = tuple("key origin source digest content title packages macros failure message".split())
_NEW_COLUMNS = {  # since version 1: name, type, default
    "papers": [(name, "TEXT NOT NULL", "''") for name in ("doi", "url", "cite_key")],
    "equations": [
        ("printed", "TEXT NOT NULL", "''"),
        ("whole", "INTEGER", "NULL"),
        ("spans", "TEXT NOT NULL", "''"),
        ("inline", "INTEGER NOT NULL", "0"),
    ],
}
# the LaTeX of the equation `e`, with `FROM equations e` followed by JOIN_WHOLE
LATEX = "CASE e.spans WHEN '' THEN e.latex ELSE extract_row(w.latex, e.spans) END"
JOIN_WHOLE = "LEFT JOIN equations w ON w.id = e.whole"
PROSE = "decompress(s.latex)"  # of the section `s`


@dataclass(frozen=True)
class LibraryManifest:
    """Identity and state of a library."""

    converter: ConverterIdentity
    generation: int = 0  # of the database when its hash was computed
    database: str = ""  # sha256 of the database file
    sealed: bool = False  # False while a writer is active: then the hash does not apply
    format: str = MANIFEST_FORMAT
    version: int = MANIFEST_VERSION

    def save(self, folder: Path) -> None:
        """Write into the library's folder, atomically."""
        write_file(folder / MANIFEST_NAME, format_checked_json("manifest", asdict(self)))

    def unseal(self) -> LibraryManifest:
        """Return the manifest of a database that is being changed."""
        return replace(self, sealed=False, version=MANIFEST_VERSION)

    def seal(self, generation: int, database: str) -> LibraryManifest:
        """Return the manifest of a finished state of the database."""
        return replace(self, generation=generation, database=database, sealed=True)

    @classmethod
    def load(cls, folder: Path) -> LibraryManifest:
        """Read from the library's folder; raises `CorruptData`."""
        path = folder / MANIFEST_NAME
        try:
            data = load_checked_json(
                path, "manifest", MANIFEST_FORMAT, MANIFEST_VERSION, LIBRARY_REMEDY, older=_READABLE_VERSIONS
            )
            return cls(ConverterIdentity(**data.pop("converter")), **data)
        except FileNotFoundError as error:
            raise CorruptData(f"{path}: missing; {LIBRARY_REMEDY}") from error
        except (KeyError, TypeError) as error:
            raise CorruptData(f"{path}: damaged ({error}); {LIBRARY_REMEDY}") from error


def check_links(folder: Path) -> None:
    """Raise `CorruptData` if a part of a library is a symbolic link: eqkin would change what it leads to."""
    for name in LIBRARY_NAMES:
        if (folder / name).is_symlink():
            raise CorruptData(f"{folder / name}: is a symbolic link; put what it leads to in its place")


def load_checked_manifest(folder: Path) -> LibraryManifest:
    """Read the manifest; raises `CorruptData` if it, or the database that it seals, is damaged."""
    path, manifest = folder / DATABASE_NAME, LibraryManifest.load(folder)
    while manifest.sealed:
        try:
            if has_hash(path, manifest.database):
                break
            problem = "does not match its hash"
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
        before, manifest = manifest, LibraryManifest.load(folder)
        if manifest == before:  # otherwise a writer has changed it
            raise CorruptData(f"{path}: {problem}; {LIBRARY_REMEDY}")
    return manifest


def create_database(path: Path) -> None:
    """Create an empty database."""
    with translate_sqlite_errors(path), sqlite3.connect(path) as connection:
        connection.executescript(f"PRAGMA page_size = {PAGE_BYTES}; BEGIN; {_SCHEMA} COMMIT;")


def connect(path: Path, *, write: bool = False, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a database. Many readers may read while one writer, who holds the library's lock, works.

    Without `check_same_thread`, the connection may pass from thread to thread, used by one at a time.
    """
    if not path.exists():
        raise CorruptData(f"{path}: the library's database is missing")
    with translate_sqlite_errors(path):
        connection = open_sqlite(path, write=write, check_same_thread=check_same_thread)
        connection.row_factory = sqlite3.Row
        connection.create_function("extract_row", 2, extract_row, deterministic=True)
        connection.create_function("decompress", 1, _make_decompressor(), deterministic=True)
        if write:
            connection.execute("PRAGMA cache_spill = OFF")  # readers are blocked only during the commit
        elif read_version(connection) < 2:
            for table, columns in _NEW_COLUMNS.items():  # what it lacks has its default
                values = ", ".join(f"{default} AS {name}" for name, _, default in columns)
                connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {values} FROM main.{table}")
    return connection


def require_sound(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `CorruptData` if SQLite finds damage in the structure of a database."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise CorruptData(f"{path}: {found}; {LIBRARY_REMEDY}")


def read_version(connection: sqlite3.Connection) -> int:
    """Return the version of a database's tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade_tables(connection: sqlite3.Connection) -> None:
    """Add the columns that a database of an older version lacks, within the caller's transaction.

    Prose that is not compressed stays readable; `eqkin.library.upgrade` compresses it.
    """
    for table, columns in _NEW_COLUMNS.items() if read_version(connection) < 2 else ():
        for name, kind, default in columns:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind} DEFAULT {default}")
    connection.execute(f"PRAGMA user_version = {MANIFEST_VERSION}")


def compress_text(compressor: zstandard.ZstdCompressor, text: str) -> str | bytes:
    """Return a text as it is stored: a zstandard frame, or the text itself if that is shorter."""
    content = text.encode()
    packed = compressor.compress(content) if len(content) <= LIMITS.paper_bytes else content
    return packed if len(packed) < len(content) else text


def _make_decompressor() -> Callable[[str | bytes], str]:
    """Return the inverse of `compress_text` for one connection; equations of one section follow each other."""
    decompressor = zstandard.ZstdDecompressor()

    @lru_cache(maxsize=4)
    def decompress(stored: str | bytes) -> str:
        if isinstance(stored, str):
            return stored
        if zstandard.frame_content_size(stored) > LIMITS.paper_bytes:
            raise CorruptData("a section is too large")
        return decompressor.decompress(stored).decode()

    return decompress


def open_sqlite(path: Path, *, write: bool = False, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a SQLite file for reading or durable writing; raises SQLite's errors."""

    def open_as(mode: str) -> sqlite3.Connection:
        uri = make_sqlite_uri(path.resolve(), mode)
        return sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None, check_same_thread=check_same_thread)

    try:
        # a reader may need to roll back the journal of a killed writer: it needs write access where possible
        connection = open_as("rw")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if write:
            raise
        connection = open_as("ro")
    connection.execute("PRAGMA foreign_keys = ON")
    if not write:
        connection.set_progress_handler(check_cancelled, _STEPS_PER_CHECK)  # an exception interrupts the statement
        connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")  # rows in random places are read twice as fast
    else:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA cache_size = -64000")
    return connection


def make_sqlite_uri(path: PurePath, mode: str) -> str:
    """Return the address of a database as SQLite reads it, also of a drive or another machine on Windows."""
    quoted = quote(path.as_posix().encode("utf-8", "surrogateescape"), safe="/:")
    return f"file:///{quoted.removeprefix('/')}?mode={mode}"


def is_empty(path: Path) -> bool:
    """Return whether a database file is of a library that was created and never added to.

    The file is opened for writing, so that SQLite can roll back a creation that failed.
    """
    try:
        with closing(sqlite3.connect(make_sqlite_uri(path.resolve(), "rw"), uri=True)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "papers" not in tables:
                return not tables
            return read_generation(connection) == 0
    except (sqlite3.DatabaseError, UnicodeDecodeError, TypeError):
        return path.stat().st_size == 0


def read_generation(connection: sqlite3.Connection) -> int:
    """Return how many times the database was committed to."""
    return int(connection.execute("SELECT value FROM state WHERE key = 'generation'").fetchone()[0])


@contextmanager
def begin_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all changes of the block, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_sqlite_errors(path: Path, remedy: str = f"the library is damaged, {LIBRARY_REMEDY}") -> Iterator[None]:
    """Raise SQLite's errors as eqkin's; `remedy` says what to do about damage."""
    try:
        yield
    except EqkinError:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        check_cancelled()
        if isinstance(error, sqlite3.OperationalError) and _DISK_ERROR.search(str(error)):
            raise StorageFailed(f"{path}: {error}; what was stored before is intact") from error
        raise CorruptData(f"{path}: {error}; {remedy}") from error


def read_varints(packed: bytes) -> list[int]:
    """Return numbers as SQLite stores them: 7 bits per byte, the highest first."""
    values = [0]
    for byte in packed:
        values[-1] = values[-1] << 7 | byte & 127
        if byte < 128:
            values.append(0)
    return values[:-1]
