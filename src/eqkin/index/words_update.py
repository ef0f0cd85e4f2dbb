"""Taking in the words of a library's papers: only those that are new, changed or gone since the last time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from eqkin.errors import CorruptData
from eqkin.index.state import WordsEntry
from eqkin.index.words import SCHEMA, VERSION, connect, reading
from eqkin.latex.prose import plain_text
from eqkin.library import Library
from eqkin.library.durable import sha256_of, sync_folder

UNSEALED = WordsEntry("", sealed=False)
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


def usable(path: Path, entry: WordsEntry | None) -> bool:
    """Whether a database of words can be gone on with: it matches its hash, or was being changed and is sound."""
    if entry is None or not path.exists():
        return False
    if entry.sealed:
        return sha256_of(path) == entry.sha256
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


def discard(path: Path) -> None:
    """Delete a database of words; its journal last, since the database may need it."""
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)


def changes(library: Library, path: Path) -> Changes:
    """What has to be done; if most documents are gone, all is made anew."""
    with library.reading():
        rows = library.connection.execute("SELECT key, content FROM papers WHERE failure = '' ORDER BY id").fetchall()
        current = {row[0]: row[1] for row in rows}
    if not path.exists():
        return Changes(tuple(current), (), anew=True)
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


def update(library: Library, path: Path, wanted: Changes, tell: Callable[[int, int], None]) -> tuple[int, int]:
    """Do what has to be done, some papers at a time; returns how many were taken in and how many taken out."""
    with reading(path):
        if wanted.anew:
            discard(path)
            _create(path)
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


def _create(path: Path) -> None:
    """An empty database of words, there in one step."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    temporary.replace(path)
    sync_folder(path.parent)


def sealed(path: Path) -> WordsEntry:
    """The entry of a database that was changed to the end."""
    return WordsEntry(sha256_of(path), sealed=True)


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
