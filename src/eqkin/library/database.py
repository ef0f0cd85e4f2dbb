"""`library.db`: the schema of a library's database, connections to it, and the checksums of its rows.

SQLite's rollback journal makes every commit atomic, but SQLite does not notice a flipped byte in a row. So every row
carries the CRC-32 of its values, which is compared whenever the row is read (`INTACT_EQUATION` and its like), and every
compressed column is a zstd frame with a checksum. A library's tables are never scanned just to open it.

The equations, sections and trees of a paper have consecutive numbers, and the row of the paper says which. Therefore
they need no index, a lost row is noticed, and a trigger deletes them together with the paper.
"""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path, PurePath
from urllib.parse import quote

import zstandard

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.formulas.scripts import ConverterIdentity
from eqkin.limits import LIMITS, check_cancelled

DATABASE_NAME = "library.db"
INDEX_FOLDER = "index"
LOCK_NAME = "lock"
# All that may be in a library's folder.
LIBRARY_NAMES = frozenset((LOCK_NAME, DATABASE_NAME, f"{DATABASE_NAME}-journal", INDEX_FOLDER))
# Names of files that eqkin may leave over as temporary ones, see `find_unknown_files`.
OWN_FILES = re.compile(r"library\.db")
FORMAT = "1"
LIBRARY_REMEDY = "restore it from a copy, or add the sources to a new library"

# Sections that need several pages waste 4 % less than with SQLite's 4,096.
_PAGE_BYTES = 8192
# The most that SQLite maps by default; the rest of a larger file is read in pages.
_MAPPED_BYTES = 2**31 - 2**16
# Steps of SQLite's virtual machine between checks for cancellation: about a millisecond.
_STEPS_PER_CHECK = 50_000
_TIMEOUT_SECONDS = 60
# Level 9 saves 3 % and takes three times as long.
_COMPRESSION_LEVEL = 3
_DISK_ERROR = re.compile(r"full|I/O|read-?only|locked|unable to open|permission", re.IGNORECASE)
_FAILED_FUNCTION = "user-defined function raised exception"


def _make_change(change: str) -> str:
    """Return the assignments that change a number of `state`, such as `+ 1`."""
    return f"value = value {change}, checksum = compute_checksum(json_array(key, value {change}))"


def _make_trigger(event: str, counter: str, change: str) -> str:
    return f"CREATE TRIGGER {event} BEGIN UPDATE state SET {_make_change(change)} WHERE key = '{counter}'; END;"


_SCHEMA = f"""
CREATE TABLE state (key TEXT PRIMARY KEY, value NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE papers (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, origin TEXT NOT NULL,
    source TEXT NOT NULL,           -- what the user added: a resolved path, arxiv:ID, python:PACKAGE, atlas:
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,           -- of the source, with the version of the parser: unchanged means skip
    content TEXT NOT NULL,          -- digest of everything stored for this paper
    title TEXT NOT NULL, authors TEXT NOT NULL, year INTEGER, fields TEXT NOT NULL, lang TEXT NOT NULL,
    license TEXT NOT NULL, work TEXT NOT NULL, abstract TEXT NOT NULL, notes TEXT NOT NULL,
    doi TEXT NOT NULL, url TEXT NOT NULL, cite_key TEXT NOT NULL,
    cites TEXT NOT NULL,            -- ids of the papers that it cites
    packages TEXT, failure TEXT NOT NULL, message TEXT NOT NULL,
    first_section INTEGER NOT NULL, n_sections INTEGER NOT NULL,
    first_equation INTEGER NOT NULL, n_equations INTEGER NOT NULL,
    n_displays INTEGER NOT NULL,    -- displays with a tree
    macros BLOB NOT NULL,           -- a zstd frame
    checksum INTEGER NOT NULL);
CREATE TABLE sections (
    id INTEGER PRIMARY KEY AUTOINCREMENT, paper INTEGER NOT NULL,
    number INTEGER NOT NULL, level INTEGER NOT NULL, title TEXT NOT NULL,
    equations TEXT NOT NULL,        -- numbers of its equations with a tree
    prose BLOB NOT NULL,            -- a zstd frame; a mark is in the place of each equation
    checksum INTEGER NOT NULL);
CREATE TABLE equations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- its key, which no other equation will ever have
    paper INTEGER NOT NULL, section INTEGER NOT NULL,
    number INTEGER NOT NULL,        -- within the paper: displays in order, then rows, then inline formulas
    mark INTEGER NOT NULL,          -- which mark of the section it is; of an inline formula its offset in the prose
    environment TEXT NOT NULL, label TEXT NOT NULL, latex TEXT NOT NULL,
    status TEXT NOT NULL,           -- converted or degraded: it has a tree; diagram, failed: it has none
    repaired INTEGER NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, unknown TEXT NOT NULL,
    printed TEXT NOT NULL,          -- its number as printed: 3.6
    whole INTEGER,                  -- of a row: the number of its display
    inline INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE trees (
    first INTEGER PRIMARY KEY,      -- the first of its keys
    paper INTEGER NOT NULL,
    keys BLOB NOT NULL,             -- of its equations: 32-bit differences from the first
    checksum INTEGER NOT NULL,
    presentation BLOB NOT NULL,     -- `Forest.to_bytes`
    operators BLOB NOT NULL);       -- `OperatorForest.to_bytes`
CREATE TABLE judgements (
    id INTEGER PRIMARY KEY, equation TEXT NOT NULL, relevant INTEGER NOT NULL, latex TEXT NOT NULL,
    mathml TEXT NOT NULL, words TEXT NOT NULL, keywords TEXT NOT NULL, time TEXT NOT NULL, checksum INTEGER NOT NULL);
{_make_trigger("add_paper AFTER INSERT ON papers", "papers", "+ 1")}
{_make_trigger("add_trees AFTER INSERT ON trees", "trees", "+ length(new.keys) / 4")}
{_make_trigger("delete_trees AFTER DELETE ON trees", "trees", "- length(old.keys) / 4")}
{_make_trigger("count_deleted_paper AFTER DELETE ON papers", "papers", "- 1")}
CREATE TRIGGER delete_paper AFTER DELETE ON papers BEGIN
    DELETE FROM sections WHERE id BETWEEN old.first_section AND old.first_section + old.n_sections - 1;
    DELETE FROM equations WHERE id BETWEEN old.first_equation AND old.first_equation + old.n_equations - 1;
    DELETE FROM trees WHERE first BETWEEN old.first_equation AND old.first_equation + old.n_equations - 1;
END;
"""
_COLUMNS = {
    "state": "key value",
    "papers": "id key origin source kind digest content title authors year fields lang license work abstract notes doi "
    "url cite_key cites packages failure message first_section n_sections first_equation n_equations n_displays",
    "sections": "id paper number level title equations",
    "equations": "id paper section number mark environment label latex status repaired reason message unknown printed "
    "whole inline",
    "trees": "first paper keys",
    "judgements": "id equation relevant latex mathml words keywords time",
}
HAS_TREE = "e.status IN ('converted', 'degraded')"


def _make_values(table: str, prefix: str) -> str:
    """Return the SQL expression of the values that a row's checksum covers; `prefix` stands before each name."""
    names = [f"{prefix}{name}" for name in _COLUMNS[table].split()]
    # JSON has no bytes.
    return f"json_array({', '.join(f'hex({name})' if name.endswith('keys') else name for name in names)})"


def _make_check(table: str) -> str:
    """Return the SQL condition that is true of an intact row, and an error for a damaged one.

    Beside it, a column is compared with a constant by `IS`: SQLite puts the constant of `=` in the place of the column
    everywhere in the condition, also in the check.
    """
    alias = table[0]
    return f"require_checksum({_make_values(table, f'{alias}.')}, {alias}.checksum)"


def make_insert(table: str, blobs: Iterable[str] = ()) -> str:
    """Return the statement that inserts a row with its checksum; its values are given by the names of the columns.

    Args:
        table: The table.
        blobs: Columns that the checksum of a row does not cover, as they have one of their own.
    """
    names = [*_COLUMNS[table].split(), *blobs]
    values = ", ".join(f":{name}" for name in names)
    checksum = f"compute_checksum({_make_values(table, ':')})"
    return f"INSERT INTO {table} ({', '.join(names)}, checksum) VALUES ({values}, {checksum})"


INTACT_PAPER = _make_check("papers")
INTACT_SECTION = _make_check("sections")
INTACT_EQUATION = _make_check("equations")
INTACT_TREES = _make_check("trees")
INTACT_JUDGEMENT = _make_check("judgements")
INTACT_STATE = _make_check("state")
RAISE_GENERATION = f"UPDATE state SET {_make_change('+ 1')} WHERE key = 'generation'"
SET_STATE = f"{make_insert('state')} ON CONFLICT DO UPDATE SET value = excluded.value, checksum = excluded.checksum"
# The sections and equations of the paper `p`.
SECTIONS_OF_PAPER = "s.id BETWEEN p.first_section AND p.first_section + p.n_sections - 1"
EQUATIONS_OF_PAPER = "e.id BETWEEN p.first_equation AND p.first_equation + p.n_equations - 1"
TREES_OF_PAPER = "t.first BETWEEN p.first_equation AND p.first_equation + p.n_equations - 1"


def check_links(folder: Path) -> None:
    """Raise `CorruptData` if a part of a library is a symbolic link: eqkin would change what it leads to."""
    for name in LIBRARY_NAMES:
        if (folder / name).is_symlink():
            raise CorruptData(f"{folder / name}: is a symbolic link; put what it leads to in its place")


def create_database(path: Path, converter: ConverterIdentity) -> None:
    """Create an empty database whose trees a converter will make."""
    state = {"format": FORMAT, "generation": 0, "papers": 0, "trees": 0} | format_converter(converter)
    with closing(sqlite3.connect(path)) as connection:
        add_functions(connection)
        connection.executescript(f"PRAGMA page_size = {_PAGE_BYTES}; BEGIN; {_SCHEMA}")
        connection.executemany(SET_STATE, [{"key": key, "value": value} for key, value in state.items()])
        connection.execute("COMMIT")


def format_converter(identity: ConverterIdentity) -> dict[str, str]:
    """Return what `state` says of the converter that made all trees."""
    return {f"converter {name}": value for name, value in vars(identity).items()}


def connect(path: Path, *, write: bool = False, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a library's database. Many readers may read while one writer, who holds the library's lock, works.

    Without `check_same_thread`, the connection may pass from thread to thread, used by one at a time.

    Raises:
        CorruptData: It is missing, damaged, or of another format.
        StorageFailed: It cannot be read or written.
    """
    if not path.exists():
        raise CorruptData(f"{path}: the library's database is missing; {LIBRARY_REMEDY}")
    with translate_sqlite_errors(path):
        connection = open_sqlite(path, write=write, check_same_thread=check_same_thread)
        found = read_state(connection, "format")
        if found != FORMAT:
            connection.close()
            is_newer = found.isdecimal() and int(found[:20]) > int(FORMAT)
            remedy = "install a newer eqkin" if is_newer else LIBRARY_REMEDY
            raise CorruptData(f"{path}: format {found[:20]}, this eqkin reads {FORMAT}; {remedy}")
        if write:
            # Readers are blocked only during the commit.
            connection.execute("PRAGMA cache_spill = OFF")
    return connection


def open_sqlite(path: Path, *, write: bool = False, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a SQLite file for reading or durable writing; raises SQLite's errors."""

    def open_as(mode: str) -> sqlite3.Connection:
        return sqlite3.connect(
            make_sqlite_uri(path.resolve(), mode),
            uri=True,
            timeout=_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=check_same_thread,
        )

    try:
        # A reader may need to roll back the journal of a killed writer: it needs write access where possible.
        connection = open_as("rw")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if write:
            raise
        connection = open_as("ro")
    connection.row_factory = sqlite3.Row
    add_functions(connection)
    if write:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA cache_size = -64000")
    else:
        # An exception in the handler interrupts the statement.
        connection.set_progress_handler(check_cancelled, _STEPS_PER_CHECK)
        # Rows in random places are read twice as fast.
        connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
    return connection


def make_sqlite_uri(path: PurePath, mode: str) -> str:
    """Return the address of a database as SQLite reads it, also of a drive or another machine on Windows."""
    quoted = quote(path.as_posix().encode("utf-8", "surrogateescape"), safe="/:")
    return f"file:///{quoted.removeprefix('/')}?mode={mode}"


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the functions that the statements of this package call."""

    def compute_checksum(values: str) -> int:
        return zlib.crc32(values.encode())

    def require_checksum(values: str, checksum: int) -> int:
        if zlib.crc32(values.encode()) != checksum:
            raise CorruptData("a row does not match its checksum")
        return 1

    decompressor = zstandard.ZstdDecompressor()

    # The equations of a section follow each other, and each asks for the same prose.
    @lru_cache(maxsize=4)
    def decompress(frame: bytes) -> bytes:
        return decompress_frame(decompressor, frame)

    connection.create_function("compute_checksum", 1, compute_checksum, deterministic=True)
    connection.create_function("require_checksum", 2, require_checksum, deterministic=True)
    connection.create_function("decompress", 1, decompress, deterministic=True)
    connection.create_function("decompress_text", 1, lambda frame: decompress(frame).decode(), deterministic=True)


def make_compressor() -> zstandard.ZstdCompressor:
    """Return a compressor whose frames `decompress_frame` accepts."""
    return zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True, write_content_size=True)


def decompress_frame(decompressor: zstandard.ZstdDecompressor, frame: bytes) -> bytes:
    """Return the content of a stored frame; raises `CorruptData` or `ZstdError`."""
    parameters = zstandard.get_frame_parameters(frame)
    # A damaged header may say that there is no checksum, or a size that would fill the memory.
    if not parameters.has_checksum or parameters.content_size > LIMITS.paper_bytes:
        raise CorruptData("not a frame that eqkin has written")
    return decompressor.decompress(frame, allow_extra_data=False)


def require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `CorruptData` unless the tables and triggers of a database are those of its format."""
    statement = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    with closing(sqlite3.connect(":memory:")) as expected:
        add_functions(expected)
        expected.executescript(_SCHEMA)
        tables = [tuple(row) for row in expected.execute(statement)]
    if [tuple(row) for row in connection.execute(statement)] != tables:
        raise CorruptData(f"{path}: its tables are damaged; {LIBRARY_REMEDY}")


def read_state(connection: sqlite3.Connection, name: str) -> str:
    """Return an entry of a library's state, "" if it is not set."""
    row = connection.execute(f"SELECT value FROM state s WHERE key IS ? AND {INTACT_STATE}", (name,)).fetchone()
    return str(row[0]) if row else ""


def read_count(connection: sqlite3.Connection, name: str) -> int:
    """Return a number of a library's state: `generation` (commits), `papers`, or `trees`."""
    return int(read_state(connection, name))


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
    except sqlite3.ProgrammingError as error:
        # A closed connection, or one of another thread, is a mistake of the caller and no damage.
        raise BadInput(f"{path}: {error}; open the library again, in each thread that uses it") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        check_cancelled()
        message = str(error)
        if isinstance(error, sqlite3.OperationalError) and _DISK_ERROR.search(message):
            raise StorageFailed(f"{path}: {error}; what was stored before is intact") from error
        if message == _FAILED_FUNCTION:
            message = "a row does not match its checksum"
        raise CorruptData(f"{path}: {message}; {remedy}") from error
