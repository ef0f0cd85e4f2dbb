"""Full text search over a library's sections: heading, prose, and title and abstract of the paper (SQLite's FTS5).

The text itself is not stored again: the database holds what stands where, and for each of its documents the paper
(key and digest of its content) and the number of the section. A document of a paper that was changed or removed stays
in the text index until these are most; it is passed over in searching.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, suppress
from math import log
from pathlib import Path

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.checked import has_hash
from eqkin.index.state import INDEX_FOLDER, REBUILD_HINT, IndexManifest
from eqkin.library import LibraryFiles, database

TEXT_VERSION = 1
TEXT_SCHEMA = """
CREATE TABLE papers (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: the text index may still hold a document that is gone
    paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE, number INTEGER NOT NULL);
CREATE INDEX documents_of_paper ON documents (paper);
CREATE VIRTUAL TABLE text USING fts5(
    heading, prose, title, abstract, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_COLUMN_WEIGHTS = "4.0, 1.0, 3.0, 1.5"  # of the columns
_SATURATION = 2.2  # what a word can add to bm25 at most, in units of its idf: k1 + 1
_SEARCH_ALL = f"SELECT rowid, -bm25(text, {_COLUMN_WEIGHTS}) FROM text WHERE text MATCH ? ORDER BY 2 DESC, 1 LIMIT ?"  # noqa: S608
_SEARCH_PAPERS = (  # the plus keeps SQLite from asking the text index again for every document of these papers
    f"SELECT rowid, -bm25(text, {_COLUMN_WEIGHTS}) FROM text WHERE text MATCH ? AND +rowid IN "  # noqa: S608
    "(SELECT d.id FROM documents d JOIN papers p ON p.id = d.paper WHERE p.key IN (SELECT value FROM json_each(?))) "
    "ORDER BY 2 DESC, 1 LIMIT ?"
)
_COMMON_FRACTION = 0.05  # of all sections: words in more of them are common
_MAX_ATTEMPTS = 10  # while an updater makes the words anew
_MAX_WORDS = 32
_MAX_WORD_CHARS = 64
_QUERY_PART = re.compile(r'"([^"]*)"|([^\W_]+)')
_WORD = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset(
    "a an and are as at be been but by can for from has have if in into is it its not of on or our such that the their "
    "then there these they this to was we were which will with".split()
)


class TextIndex:
    """The words of a library's sections; open them with `Words.open`. May be shared between threads."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._path = self._find_database()
        self._connections = threading.local()

    @classmethod
    def open(cls, library: LibraryFiles) -> TextIndex:
        """Open a library's words.

        Raises:
            BadInput: they were never taken in.
            CorruptData: they are damaged, or of another version.
        """
        words = cls(library.folder)
        words._connect()
        return words

    def _find_database(self) -> Path:
        """The database, its content compared with its hash unless somebody is changing it."""
        for attempt in range(_MAX_ATTEMPTS):
            state = IndexManifest.load(self._library / INDEX_FOLDER)
            if state is None or state.words is None:
                raise BadInput(f"{self._library}: its words cannot be searched yet; run `eqkin index`")
            path = self._library / INDEX_FOLDER / state.words.file
            problem = "missing; run `eqkin index`"
            with suppress(OSError):
                path.stat()
                problem = f"does not match its hash; {REBUILD_HINT}"
                if not state.words.sealed or has_hash(path, state.words.sha256):
                    return path
            if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(self._library / INDEX_FOLDER) == state:
                raise CorruptData(f"{path}: {problem}")  # otherwise it was changed or made anew meanwhile
        raise AssertionError

    def search(self, text: str, limit: int = 100, *, papers: Sequence[str] | None = None) -> list[tuple[int, float]]:
        """Sections that fit a text, best first.

        Any text is a query. More of its words, and rarer ones, count more; what stands in double quotes must occur as
        it is. Outside of quotes, words like "the" find nothing.

        Args:
            text: the words.
            limit: sections at most.
            papers: keys of the papers whose sections are wanted; None for all.

        Returns:
            Ids of the library's sections, each with the share, in [0, 1], it has of the highest possible score.
        """
        required, optional = split_query(text)
        if not (required or optional) or limit <= 0:
            return []
        with translate_text_errors(self._path):
            words, library = self._connect()
            (total,) = words.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
            count = {phrase: _count_documents(words, phrase) for phrase in {*required, *optional}}
            finding = required[:1] or (
                optional if papers is not None else _choose_finding_words(optional, count, total, limit)
            )
            phrases = _list_phrases(required, optional, finding)
            highest = _SATURATION * sum(_compute_idf(count[phrase], total) for phrase in phrases)
            wanted = limit
            while True:
                expression = _build_expression(required, optional, finding)
                if papers is None:
                    rows = words.execute(_SEARCH_ALL, (expression, wanted)).fetchall()
                else:
                    rows = words.execute(_SEARCH_PAPERS, (expression, json.dumps(list(papers)), wanted)).fetchall()
                found = _find_sections(words, library, rows)
                if len(found) >= limit or len(rows) < wanted:
                    return [(section, min(max(score / highest, 0.0), 1.0)) for section, score in found[:limit]]
                wanted *= 4  # some were of papers that are gone

    def _connect(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        """This thread's connections to the words and to the library."""
        for attempt in range(_MAX_ATTEMPTS):
            if not self._path.exists():  # made anew meanwhile
                self._path = self._find_database()
            path = self._path
            if getattr(self._connections, "path", None) == path:
                break
            self.close()
            try:
                with translate_text_errors(path):
                    self._connections.pair = connect(path), database.connect(self._library / database.DATABASE_NAME)
                self._connections.path = path
            except StorageFailed:
                if path.exists() or attempt == _MAX_ATTEMPTS - 1:
                    raise
        pair: tuple[sqlite3.Connection, sqlite3.Connection] = self._connections.pair
        return pair

    def close(self) -> None:
        """Let go of this thread's connections."""
        if getattr(self._connections, "path", None):
            self._connections.path = None
            for connection in self._connections.pair:
                connection.close()


def split_query(text: str) -> tuple[list[str], list[str]]:
    """A text's quoted phrases and its other words, each quoted for FTS5."""
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())
    required: list[str] = []
    optional: dict[str, None] = {}  # a set in order
    for match in _QUERY_PART.finditer(text):
        if match[1] is not None:
            words = [word[:_MAX_WORD_CHARS] for word in _WORD.findall(match[1])]
            if words and len(required) < _MAX_WORDS:
                required.append(f'"{" ".join(words[:_MAX_WORDS])}"')
        elif match[2].lower() not in _STOP_WORDS:
            optional[f'"{match[2][:_MAX_WORD_CHARS]}"'] = None
    return required, list(optional)[:_MAX_WORDS]


def _count_documents(words: sqlite3.Connection, phrase: str) -> int:
    return int(words.execute("SELECT count(*) FROM text WHERE text MATCH ?", (phrase,)).fetchone()[0])


def _compute_idf(count: int, total: int) -> float:
    """How much a phrase says that is in so many documents, as FTS5 reckons it."""
    return max(log(max(total - count, 0) + 0.5) - log(count + 0.5), 1e-6)


def _choose_finding_words(optional: list[str], count: dict[str, int], total: int, limit: int) -> list[str]:
    """The words a section must have one of: the rarer ones if they find enough, since common ones cost much time."""
    rare = [word for word in optional if count[word] <= _COMMON_FRACTION * total]
    return rare if sum(count[word] for word in rare) >= 4 * limit else optional


def _list_phrases(required: list[str], optional: list[str], finding: list[str]) -> list[str]:
    """Every phrase of the expression, as often as it stands there: FTS5 counts it that often."""
    if finding == optional:
        return optional
    return (required or finding) + (finding + [word for word in optional if word not in finding] if optional else [])


def _build_expression(required: list[str], optional: list[str], finding: list[str]) -> str:
    """All of the required phrases, or one of those words that find; better with the other words."""
    if finding == optional:
        return " OR ".join(optional)
    needed = " AND ".join(required) if required else " OR ".join(finding)
    others = [word for word in optional if word not in finding]
    return f"({needed}) AND ({' OR '.join(finding + others)})" if optional else needed


def _find_sections(
    words: sqlite3.Connection, library: sqlite3.Connection, rows: list[tuple[int, float]]
) -> list[tuple[int, float]]:
    """The library's sections of documents, without those that it has no more."""
    places = words.execute(
        "SELECT d.id, d.number, p.key, p.content FROM documents d JOIN papers p ON p.id = d.paper "
        "WHERE d.id IN (SELECT value FROM json_each(?))",
        (json.dumps([document for document, _ in rows]),),
    ).fetchall()
    papers: dict[tuple[str, str], dict[int, int]] = {}  # the documents of each, by the number of the section
    for document, number, *paper in places:
        papers.setdefault((paper[0], paper[1]), {})[number] = document
    sections = {}
    for (key, content), documents in papers.items():  # each paper once: it may have thousands of sections
        found = library.execute(
            "SELECT s.number, s.id FROM papers p JOIN sections s ON s.paper = p.id WHERE p.key = ? AND p.content = ? "
            "AND s.number IN (SELECT value FROM json_each(?))",
            (key, content, json.dumps(list(documents))),
        )
        sections.update({documents[number]: int(section) for number, section in found})
    return [(sections[document], float(score)) for document, score in rows if document in sections]


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open a database of words; raises `CorruptData` or SQLite's errors."""
    uri = f"{path.resolve().as_uri()}?mode="
    try:
        connection = sqlite3.connect(uri + "rw", uri=True, timeout=60, isolation_level=None)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        if write:
            raise
        connection = sqlite3.connect(uri + "ro", uri=True, timeout=60, isolation_level=None)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != TEXT_VERSION:
        connection.close()
        raise CorruptData(
            f"{path}: words of version {version}, this eqkin reads version {TEXT_VERSION}; {REBUILD_HINT}"
        )
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def translate_text_errors(path: Path) -> AbstractContextManager[None]:
    """SQLite's errors as eqkin's; damaged words are made anew."""
    return database.translate_sqlite_errors(path, f"the words are damaged: {REBUILD_HINT}")


def stem_words(passages: Sequence[str]) -> list[list[str]]:
    """Split passages into words as the text index does: without case, accents and endings, in order."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(
            "CREATE VIRTUAL TABLE text USING fts5(words, content='', tokenize='porter unicode61 remove_diacritics 2');"
            "CREATE VIRTUAL TABLE found USING fts5vocab(text, instance);"
        )
        connection.executemany("INSERT INTO text (rowid, words) VALUES (?, ?)", enumerate(passages))
        words: list[list[str]] = [[] for _ in passages]
        for document, term in connection.execute("SELECT doc, term FROM found ORDER BY doc, offset"):
            words[document].append(term)
    return words
