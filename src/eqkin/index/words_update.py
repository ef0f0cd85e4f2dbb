"""Taking in the words of a library's papers: only those that are new, changed or gone since the last time."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from eqkin.errors import CorruptData
from eqkin.index.checked import has_hash
from eqkin.index.state import TextEntry
from eqkin.index.words import TEXT_SCHEMA, TEXT_VERSION, connect, translate_text_errors
from eqkin.latex.prose import to_plain_text
from eqkin.library import LibraryFiles
from eqkin.storage import hash_file, sync_folder

_BATCH_PAPERS = 200
_MAX_DEAD_FRACTION = 0.5  # of documents that are gone, above which all are taken in anew


@dataclass(frozen=True)
class TextChanges:
    """What a database of words lacks, and what it has too much."""

    new: tuple[str, ...]  # keys of papers
    gone: tuple[int, ...]  # ids of papers in the words' database
    anew: bool = False  # the database has to be made first

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.anew)


def is_usable(folder: Path, entry: TextEntry) -> bool:
    """Whether a database of words can be gone on with: it matches its hash, or was being changed and is sound."""
    path = folder / entry.file
    if not path.exists():
        return False
    if entry.sealed:
        return has_hash(path, entry.sha256)
    try:
        return not find_problems(path)
    except CorruptData:
        return False


def find_problems(path: Path) -> list[str]:
    """What SQLite finds wrong with a database of words."""
    with translate_text_errors(path), closing(connect(path)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        found += [f"a row of {row[0]} refers to nothing" for row in connection.execute("PRAGMA foreign_key_check")]
        return found


def find_changes(library: LibraryFiles, folder: Path, entry: TextEntry | None) -> TextChanges:
    """What has to be done; if there are no words, or most documents are gone, all is made anew."""
    with library.translate_errors():
        rows = library.connection.execute("SELECT key, content FROM papers WHERE failure = '' ORDER BY id").fetchall()
        current = {row[0]: row[1] for row in rows}
    if entry is None:
        return TextChanges(tuple(current), (), anew=True)
    path = folder / entry.file
    with translate_text_errors(path), closing(connect(path)) as connection:
        known = connection.execute("SELECT id, key, content FROM papers").fetchall()
        gone = tuple(number for number, key, content in known if current.get(key) != content)
        kept = {key for _, key, content in known if current.get(key) == content}
        (ever,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
        documents = connection.execute("SELECT paper, count(*) FROM documents GROUP BY paper").fetchall()
    leaving = set(gone)
    alive = sum(count for paper, count in documents if paper not in leaving)
    new = tuple(key for key in current if key not in kept)
    if ever - alive > _MAX_DEAD_FRACTION * ever:
        return TextChanges(tuple(current), (), anew=True)
    return TextChanges(new, gone)


def create_text_database(folder: Path) -> TextEntry:
    """Make an empty database of words, there in one step.

    Its name is new: whoever still reads an old one would take the journal of another by the same name for its own.
    """
    path = folder / f"words-{secrets.token_hex(8)}.db"
    temporary = path.with_name(f".{path.name}.tmp")
    with translate_text_errors(path), closing(sqlite3.connect(temporary)) as connection:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.executescript(f"BEGIN; {TEXT_SCHEMA} PRAGMA user_version = {TEXT_VERSION}; COMMIT;")
    temporary.replace(path)
    sync_folder(folder)
    return TextEntry(path.name)


def apply_changes(
    library: LibraryFiles, path: Path, wanted: TextChanges, tell: Callable[[int, int], None]
) -> tuple[int, int]:
    """Do what has to be done, some papers at a time; returns how many were taken in and how many taken out."""
    with translate_text_errors(path):
        with closing(connect(path, write=True)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA cache_size = -64000")
            with _begin_transaction(connection):
                connection.executemany("DELETE FROM papers WHERE id = ?", [(number,) for number in wanted.gone])
            taken = 0
            for start in range(0, len(wanted.new), _BATCH_PAPERS):
                batch = wanted.new[start : start + _BATCH_PAPERS]
                with _begin_transaction(connection):
                    taken += sum(_add_paper(library, connection, key) for key in batch)
                tell(start + len(batch), len(wanted.new))
    return taken, len(wanted.gone)


def seal_entry(folder: Path, entry: TextEntry) -> TextEntry:
    """The entry of a database that was changed to the end."""
    return replace(entry, sha256=hash_file(folder / entry.file), sealed=True)


def _add_paper(library: LibraryFiles, connection: sqlite3.Connection, key: str) -> bool:
    """One paper's sections; `False` if it was removed from the library meanwhile."""
    with library.translate_errors():
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
    title, abstract = to_plain_text(paper["title"]), to_plain_text(paper["abstract"])
    connection.execute("DELETE FROM papers WHERE key = ?", (key,))
    owner = connection.execute("INSERT INTO papers VALUES (NULL, ?, ?)", (key, paper["content"])).lastrowid
    for section in sections:
        document = connection.execute("INSERT INTO documents VALUES (NULL, ?, ?)", (owner, section["number"])).lastrowid
        connection.execute(
            "INSERT INTO text (rowid, heading, prose, title, abstract) VALUES (?, ?, ?, ?, ?)",
            (document, to_plain_text(section["title"]), to_plain_text(section["latex"]), title, abstract),
        )
    return True


@contextmanager
def _begin_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
