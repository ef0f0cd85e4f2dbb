"""Full-text search over the sections of a library with SQLite's FTS5: heading, prose, title and abstract of the paper.

Names that the text gives to equations (`eqkin.latex.names`) are stored with it. The text itself is not stored again:
the database of the index has the inverted lists, and for each document its paper (key and digest of its content) and
the number of its section. A document of a changed or removed paper stays in the lists until most documents are dead;
searches skip it.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Any

from eqkin.atlas import load_names
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, IndexManifest, TextEntry
from eqkin.latex.names import find_names, normalise_name
from eqkin.latex.prose import to_plain_text
from eqkin.library import LibraryFiles
from eqkin.library.database import begin_transaction, open_sqlite, translate_sqlite_errors
from eqkin.library.queries import PaperText, find_sections, find_trees, list_contents, read_paper_text
from eqkin.storage import hash_file, write_atomically
from eqkin.storage.segments import MAX_DEAD_FRACTION, has_hash

TEXT_VERSION = 2
_NAMELESS_VERSION = 1  # can be searched, but has no names
TEXT_SCHEMA = """
CREATE TABLE papers (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: the lists may still have a document that was deleted
    paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE, number INTEGER NOT NULL);
CREATE INDEX documents_of_paper ON documents (paper);
CREATE TABLE names (
    paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    number INTEGER NOT NULL,  -- of the equation within its paper
    name TEXT NOT NULL, key TEXT NOT NULL,  -- normalised
    source TEXT NOT NULL);
CREATE INDEX names_of_paper ON names (paper, number);
CREATE INDEX names_by_key ON names (key);
CREATE VIRTUAL TABLE text USING fts5(
    heading, prose, title, abstract, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
_COLUMN_WEIGHTS = "4.0, 1.0, 3.0, 1.5"
_SATURATION = 2.2  # the most that a word adds to bm25, in units of its idf: k1 + 1
_SEARCH = f"SELECT rowid, -bm25(text, {_COLUMN_WEIGHTS}) FROM text WHERE text MATCH ?"  # noqa: S608
_BEST_FIRST = " ORDER BY 2 DESC, 1 LIMIT ?"
_OF_PAPERS = (  # the plus keeps SQLite from searching the lists again for every document of these papers
    " AND +rowid IN (SELECT d.id FROM documents d JOIN papers p ON p.id = d.paper "
    "WHERE p.key IN (SELECT value FROM json_each(?)))"
)
_COMMON_FRACTION = 0.05  # of all sections: a word in more of them is common
_MAX_ATTEMPTS = 10  # while an update replaces the database
MAX_NAMED = 100  # equations with one name that a search looks at
_MAX_WORDS = 32
_MAX_WORD_CHARS = 64
_QUERY_PART = re.compile(r'"([^"]*)"|([^\W_]+)')
_WORD = re.compile(r"[^\W_]+")
_STOP_WORDS = frozenset(
    "a an and are as at be been but by can for from has have if in into is it its not of on or our such that the their "
    "then there these they this to was we were which will with".split()
)


class TextIndex:
    """The text of a library's sections; open it with `TextIndex.open`. Safe to share between threads."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._path = self._find_database()
        self._connections = threading.local()

    @classmethod
    def open(cls, library: LibraryFiles) -> TextIndex:
        """Open the text index of a library.

        Raises:
            BadInput: the library's text was never indexed.
            CorruptData: the text index is damaged or has another version.
        """
        index = cls(library.folder)
        index._connect()
        return index

    def _find_database(self) -> Path:
        """Return the path of the database; its hash is checked unless an update is changing it."""
        for attempt in range(_MAX_ATTEMPTS):
            manifest = IndexManifest.load(self._library / INDEX_FOLDER)
            if manifest is None or manifest.words is None:
                raise BadInput(f"{self._library}: its text cannot be searched yet; run `eqkin index`")
            path = self._library / INDEX_FOLDER / manifest.words.file
            problem = "missing; run `eqkin index`"
            with suppress(OSError):
                path.stat()
                problem = f"does not match its hash; {REBUILD_HINT}"
                if not manifest.words.sealed or has_hash(path, manifest.words.sha256):
                    return path
            if attempt == _MAX_ATTEMPTS - 1 or IndexManifest.load(self._library / INDEX_FOLDER) == manifest:
                raise CorruptData(f"{path}: {problem}")  # otherwise an update has changed or replaced it
        raise AssertionError

    def search(self, text: str, limit: int = 100, *, papers: Sequence[str] | None = None) -> list[tuple[int, float]]:
        """Return the sections that match a text best.

        Any text is a query. More matching words, and rarer ones, give a higher score; a quoted phrase must occur as it
        is. Outside of quotes, words like "the" are ignored.

        Args:
            text: the query.
            limit: number of sections at most.
            papers: keys of the papers whose sections are searched; None for all.

        Returns:
            Ids of the library's sections, best first, each with its score as a fraction of the highest possible one.
        """
        required, optional = split_query(text)
        if not (required or optional) or limit <= 0:
            return []
        with translate_text_errors(self._path):
            database, library = self._connect()
            (total,) = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
            counting = "SELECT count(*) FROM text WHERE text MATCH ?"
            count = {p: int(database.execute(counting, (p,)).fetchone()[0]) for p in {*required, *optional}}
            finding = required[:1] or optional
            if not required and papers is None:  # rare words if they find enough, since common ones are slow
                rare = [word for word in optional if count[word] <= _COMMON_FRACTION * total]
                finding = rare if sum(count[word] for word in rare) >= 4 * limit else optional
            expression, phrases = _build_expression(required, optional, finding)
            highest = _SATURATION * sum(_compute_idf(count[phrase], total) for phrase in phrases)
            wanted = limit
            while True:
                if papers is None:
                    found_rows = database.execute(_SEARCH + _BEST_FIRST, (expression, wanted))
                else:
                    keys = json.dumps(list(papers))
                    found_rows = database.execute(_SEARCH + _OF_PAPERS + _BEST_FIRST, (expression, keys, wanted))
                rows = found_rows.fetchall()
                found = _find_library_sections(database, library, rows)
                if len(found) >= limit or len(rows) < wanted:
                    return [(section, min(max(score / highest, 0.0), 1.0)) for section, score in found[:limit]]
                wanted *= 4  # some are of papers that were removed

    def find_named(self, name: str, limit: int = MAX_NAMED) -> list[int]:
        """Return the trees of equations with a name, whatever its case and spelling of possessives."""
        rows = self._select_names(
            "SELECT DISTINCT p.key, p.content, n.number FROM names n JOIN papers p ON p.id = n.paper "
            "WHERE n.key = ? LIMIT ?",
            (normalise_name(name), limit),
        )
        papers: dict[tuple[str, str], list[int]] = {}
        for key, content, number in rows:
            papers.setdefault((key, content), []).append(number)
        return find_trees(self._connect()[1], papers)

    def get_names(self, equations: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Return the names of equations, given by the keys of their papers and their numbers in them."""
        rows = self._select_names(
            "SELECT p.key, n.number, n.name FROM json_each(?) AS e "
            "JOIN papers p ON p.key = json_extract(e.value, '$[0]') "
            "JOIN names n ON n.paper = p.id AND n.number = json_extract(e.value, '$[1]') ORDER BY n.rowid DESC",
            (json.dumps(list(equations)),),
        )
        return {(key, number): name for key, number, name in rows}  # the first that was found counts

    def match_name(self, text: str) -> str:
        """Return the most frequent spelling of a name; "" if no equation has it."""
        rows = self._select_names(
            "SELECT name FROM names WHERE key = ? GROUP BY name ORDER BY count(*) DESC, name LIMIT 1",
            (normalise_name(text),),
        )
        return str(rows[0][0]) if rows else ""

    def complete_name(self, text: str, k: int) -> list[tuple[str, int]]:
        """Return the most frequent names with a word that begins like the text, and how many equations have them."""
        key = normalise_name(text)
        rows = self._select_names(
            "SELECT min(name), count(*) FROM names WHERE key LIKE ? OR key LIKE ? "
            "GROUP BY key ORDER BY count(*) DESC, key LIMIT ?",
            (f"{key}%", f"% {key}%", k),
        )
        return [(str(name), int(count)) for name, count in rows] if key else []

    def knows_word(self, word: str) -> bool:
        """Return whether a section has a word."""
        phrase = '"' + word.replace('"', "") + '"'
        with translate_text_errors(self._path):
            found = self._connect()[0].execute("SELECT 1 FROM text WHERE text MATCH ? LIMIT 1", (phrase,))
            return found.fetchone() is not None

    def _select_names(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with translate_text_errors(self._path):
            database = self._connect()[0]
            if database.execute("PRAGMA user_version").fetchone()[0] == _NAMELESS_VERSION:
                return []
            return database.execute(query, values).fetchall()

    def _connect(self) -> tuple[sqlite3.Connection, LibraryFiles]:
        """Return this thread's connections to the text and to the library."""
        for attempt in range(_MAX_ATTEMPTS):
            if not self._path.exists():  # replaced since
                self._path = self._find_database()
            path = self._path
            if getattr(self._connections, "path", None) == path:
                break
            self.close()
            try:
                with translate_text_errors(path):
                    self._connections.pair = connect(path), LibraryFiles.open(self._library)
                self._connections.path = path
            except StorageFailed:
                if path.exists() or attempt == _MAX_ATTEMPTS - 1:
                    raise
        pair: tuple[sqlite3.Connection, LibraryFiles] = self._connections.pair
        return pair

    def close(self) -> None:
        """Close this thread's connections."""
        if getattr(self._connections, "path", None):
            self._connections.path = None
            for connection in self._connections.pair:
                connection.close()


def split_query(text: str) -> tuple[list[str], list[str]]:
    """Return a text's quoted phrases and its other words, each quoted for FTS5."""
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())
    required: list[str] = []
    optional: dict[str, None] = {}  # an ordered set
    for match in _QUERY_PART.finditer(text):
        if match[1] is not None:
            words = [word[:_MAX_WORD_CHARS] for word in _WORD.findall(match[1])]
            if words and len(required) < _MAX_WORDS:
                required.append(f'"{" ".join(words[:_MAX_WORDS])}"')
        elif match[2].lower() not in _STOP_WORDS:
            optional[f'"{match[2][:_MAX_WORD_CHARS]}"'] = None
    return required, list(optional)[:_MAX_WORDS]


def _compute_idf(count: int, total: int) -> float:
    """Return the inverse document frequency as FTS5 computes it."""
    return max(log(max(total - count, 0) + 0.5) - log(count + 0.5), 1e-6)


def _build_expression(required: list[str], optional: list[str], finding: list[str]) -> tuple[str, list[str]]:
    """Return the FTS5 query and its phrases, as often as they occur in it: FTS5 counts each occurrence.

    A section must have all required phrases, or one of the finding words; the other words raise its score.
    """
    if finding == optional:
        return " OR ".join(optional), optional
    needed = " AND ".join(required) if required else " OR ".join(finding)
    if not optional:
        return needed, required or finding
    others = finding + [word for word in optional if word not in finding]
    return f"({needed}) AND ({' OR '.join(others)})", (required or finding) + others


def _find_library_sections(
    database: sqlite3.Connection, library: LibraryFiles, rows: list[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Return the library's sections of documents, without those of papers that were changed or removed."""
    described = database.execute(
        "SELECT d.id, d.number, p.key, p.content FROM documents d JOIN papers p ON p.id = d.paper "
        "WHERE d.id IN (SELECT value FROM json_each(?))",
        (json.dumps([document for document, _ in rows]),),
    ).fetchall()
    papers: dict[tuple[str, str], dict[int, int]] = {}  # the documents of each, by the number of the section
    for document, number, *paper in described:
        papers.setdefault((paper[0], paper[1]), {})[number] = document
    sections = find_sections(library, papers)
    return [(sections[document], float(score)) for document, score in rows if document in sections]


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open a text database; raises `CorruptData` or SQLite's errors."""
    connection = open_sqlite(path, write=write)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != TEXT_VERSION and (write or version != _NAMELESS_VERSION):
        connection.close()
        raise CorruptData(f"{path}: text index of version {version}, eqkin reads {TEXT_VERSION}; {REBUILD_HINT}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def translate_text_errors(path: Path) -> AbstractContextManager[None]:
    """Raise SQLite's errors as eqkin's; a damaged text index can be rebuilt."""
    return translate_sqlite_errors(path, f"the text index is damaged: {REBUILD_HINT}")


@dataclass(frozen=True)
class TextChanges:
    """Changes that bring a text database up to date."""

    new: tuple[str, ...]  # keys of papers to add
    gone: tuple[int, ...]  # ids of papers to remove, in the text database
    replace_all: bool = False  # start with an empty database

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.replace_all)


def is_usable(folder: Path, entry: TextEntry) -> bool:
    """Return whether a text database can be updated: it matches its hash, or was being changed and is sound."""
    path = folder / entry.file
    if not path.exists():
        return False
    try:
        with closing(connect(path)) as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] != TEXT_VERSION:
                return False
        return has_hash(path, entry.sha256) if entry.sealed else not find_problems(path)
    except (CorruptData, sqlite3.DatabaseError):
        return False


def find_problems(path: Path) -> list[str]:
    """Return what SQLite finds wrong with a text database."""
    with translate_text_errors(path), closing(connect(path)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
        found += [f"a row of {row[0]} refers to nothing" for row in connection.execute("PRAGMA foreign_key_check")]
        return found


def find_changes(
    library: LibraryFiles, folder: Path, entry: TextEntry | None, max_dead_fraction: float = MAX_DEAD_FRACTION
) -> TextChanges:
    """Compare a text database with its library; without a database, or if most documents are dead, replace all."""
    current = list_contents(library, failed=False)
    if entry is None:
        return TextChanges(tuple(current), (), replace_all=True)
    path = folder / entry.file
    with translate_text_errors(path), closing(connect(path)) as connection:
        known = connection.execute("SELECT id, key, content FROM papers").fetchall()
        (ever,) = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
        documents = connection.execute("SELECT paper, count(*) FROM documents GROUP BY paper").fetchall()
    gone = {number for number, key, content in known if current.get(key) != content}
    kept = {key for number, key, _ in known if number not in gone}
    alive = sum(count for paper, count in documents if paper not in gone)
    if ever - alive > max_dead_fraction * ever:
        return TextChanges(tuple(current), (), replace_all=True)
    return TextChanges(tuple(key for key in current if key not in kept), tuple(sorted(gone)))


def create_text_database(folder: Path) -> TextEntry:
    """Create an empty text database under a new name: a reader of an old one may still have its journal open."""
    path = folder / f"words-{secrets.token_hex(8)}.db"
    with write_atomically(path) as temporary, translate_text_errors(path):
        with closing(sqlite3.connect(temporary)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.executescript(f"BEGIN; {TEXT_SCHEMA} PRAGMA user_version = {TEXT_VERSION}; COMMIT;")
    return TextEntry(path.name)


def apply_changes(
    library: LibraryFiles, path: Path, changes: TextChanges, batch_papers: int, progress: Callable[[int, int], None]
) -> tuple[int, int]:
    """Change a text database, some papers per transaction; return how many papers were added and removed."""
    with translate_text_errors(path), closing(connect(path, write=True)) as connection:
        with begin_transaction(connection):
            connection.executemany("DELETE FROM papers WHERE id = ?", [(number,) for number in changes.gone])
        added = 0
        for start in range(0, len(changes.new), batch_papers):
            batch = changes.new[start : start + batch_papers]
            with begin_transaction(connection):
                added += sum(_add_paper(library, connection, key) for key in batch)
            progress(start + len(batch), len(changes.new))
    return added, len(changes.gone)


def seal_entry(folder: Path, entry: TextEntry) -> TextEntry:
    """Return the entry of a database after its last change."""
    return replace(entry, sha256=hash_file(folder / entry.file), sealed=True)


def _add_paper(library: LibraryFiles, connection: sqlite3.Connection, key: str) -> bool:
    """Add the sections of a paper; return False if it was removed from the library."""
    paper = read_paper_text(library, key)
    if paper is None:
        return False
    title, abstract = to_plain_text(paper.title), to_plain_text(paper.abstract)
    connection.execute("DELETE FROM papers WHERE key = ?", (key,))
    owner = connection.execute("INSERT INTO papers VALUES (NULL, ?, ?)", (key, paper.content)).lastrowid
    connection.executemany(
        "INSERT INTO names VALUES (?, ?, ?, ?, ?)",
        ((owner, number, name, normalise_name(name), source) for number, name, source in _list_names(key, paper)),
    )
    for number, heading, prose in paper.sections:
        document = connection.execute("INSERT INTO documents VALUES (NULL, ?, ?)", (owner, number)).lastrowid
        connection.execute(
            "INSERT INTO text (rowid, heading, prose, title, abstract) VALUES (?, ?, ?, ?, ?)",
            (document, to_plain_text(heading), to_plain_text(prose), title, abstract),
        )
    return True


def _list_names(key: str, paper: PaperText) -> Iterator[tuple[int, str, str]]:
    """Yield names of a paper's equations: number of the equation, name, and where it was found."""
    for section, heading, prose in paper.sections:
        marks = paper.marks.get(section, {})
        yield from ((marks[mark], name, source) for mark, name, source in find_names(heading, prose) if mark in marks)
    if key.startswith("atlas:"):
        for label, number in paper.labels.items():
            yield from ((number, name, "atlas") for name in load_names().get(f"{key[len('atlas:') :]}:{label}", ()))


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
