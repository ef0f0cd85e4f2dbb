"""Taking in the words of a library's papers: only those that are new, changed or gone since the last time."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from eqkin.errors import CorruptData
from eqkin.index.checked import matches
from eqkin.index.state import WordsEntry
from eqkin.index.words import SCHEMA, VERSION, connect, reading
from eqkin.latex.prose import plain_text
from eqkin.library import Library
from eqkin.library.durable import sha256_of, sync_folder

_BATCH_PAPERS = 200
_DEAD_SHARE = 0.5  # of documents that are gone, above which all are taken in anew


@dataclass(frozen=True)
class Changes:
    """What a database of words lacks, and what it has too much."""

    new: tuple[str, ...]  # keys of papers
    gone: tuple[int, ...]  # ids of papers in the words' database
    anew: bool = False  # the database has to be made first

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.anew)


def usable(folder: Path, entry: WordsEntry) -> bool:
    """Whether a database of words can be gone on with: it matches its hash, or was being changed and is sound."""
    path = folder / entry.file
    if not path.exists():
        return False
    if entry.sealed:
        return matches(path, entry.sha256)
    try:
        return not problems(path)
    except CorruptData:
        return False


def problems(path: Path) -> list[str]:
    """What SQLite finds wrong with a database of words."""
    with reading(path), closing(connect(path)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        found += [f"a row of {row[0]} refers to nothing" for row in connection.execute("PRAGMA foreign_key_check")]
        return found


def changes(library: Library, folder: Path, entry: WordsEntry | None) -> Changes:
    """What has to be done; if there are no words, or most documents are gone, all is made anew."""
    with library.reading():
        rows = library.connection.execute("SELECT key, content FROM papers WHERE failure = '' ORDER BY id").fetchall()
        current = {row[0]: row[1] for row in rows}
    if entry is None:
        return Changes(tuple(current), (), anew=True)
    path = folder / entry.file
    with reading(path), closing(connect(path)) as connection:
        known = connection.execute("SELECT id, key, content FROM papers").fetchall()
        gone = tuple(number for number, key, content in known if current.get(key) != content)
        kept = {key for _, key, content in known if current.get(key) == content}
        (ever,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
        documents = connection.execute("SELECT paper, count(*) FROM documents GROUP BY paper").fetchall()
    leaving = set(gone)
    alive = sum(count for paper, count in documents if paper not in leaving)
    new = tuple(key for key in current if key not in kept)
    if ever - alive > _DEAD_SHARE * ever:
        return Changes(tuple(current), (), anew=True)
    return Changes(new, gone)


def create(folder: Path) -> WordsEntry:
    """Make an empty database of words, there in one step.

    Its name is new: whoever still reads an old one would take the journal of another by the same name for its own.
    """
    path = folder / f"words-{secrets.token_hex(8)}.db"
    temporary = path.with_name(f".{path.name}.tmp")
    with reading(path), closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    temporary.replace(path)
    sync_folder(folder)
    return WordsEntry(path.name)


def update(library: Library, path: Path, wanted: Changes, tell: Callable[[int, int], None]) -> tuple[int, int]:
    """Do what has to be done, some papers at a time; returns how many were taken in and how many taken out."""
    with reading(path):
        with closing(connect(path, write=True)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA cache_size = -64000")
            with _transaction(connection):
                connection.executemany("DELETE FROM papers WHERE id = ?", [(number,) for number in wanted.gone])
            taken = 0
            for start in range(0, len(wanted.new), _BATCH_PAPERS):
                batch = wanted.new[start : start + _BATCH_PAPERS]
                with _transaction(connection):
                    taken += sum(_take_in(library, connection, key) for key in batch)
                tell(start + len(batch), len(wanted.new))
    return taken, len(wanted.gone)


def sealed(folder: Path, entry: WordsEntry) -> WordsEntry:
    """The entry of a database that was changed to the end."""
    return replace(entry, sha256=sha256_of(folder / entry.file), sealed=True)


def _take_in(library: Library, connection: sqlite3.Connection, key: str) -> bool:
    """One paper's sections; `False` if it was removed from the library meanwhile."""
    with library.reading():
        paper = library.connection.execute(
            "SELECT id, content, title, abstract FROM papers WHERE key = ?", (key,)
        ).fetchone()
        sections = (
            paper
            and library.connection.execute(
                "SELECT number, title, latex FROM sections WHERE paper = ? ORDER BY number", (paper["id"],)
            ).fetchall()
        )
    if not paper:
        return False
    title, abstract = plain_text(paper["title"]), plain_text(paper["abstract"])
    connection.execute("DELETE FROM papers WHERE key = ?", (key,))
    owner = connection.execute("INSERT INTO papers VALUES (NULL, ?, ?)", (key, paper["content"])).lastrowid
    for section in sections:
        document = connection.execute("INSERT INTO documents VALUES (NULL, ?, ?)", (owner, section["number"])).lastrowid
        connection.execute(
            "INSERT INTO text (rowid, heading, prose, title, abstract) VALUES (?, ?, ?, ?, ?)",
            (document, plain_text(section["title"]), plain_text(section["latex"]), title, abstract),
        )
    return True


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
