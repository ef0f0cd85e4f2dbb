"""Full-text search over the sections of a library with SQLite's FTS5: heading, prose, title and abstract of the paper.

Names that the text gives to equations (`eqkin.latex.names`) are stored with it. The text itself is not stored again:
the database of the index has the inverted lists, and of each paper its key, the digest of its content and its
documents: the sections one after the other, then title and abstract. What is found in title and abstract counts for all
sections of the paper. Documents of a changed or removed paper stay in the lists until most documents are dead; searches
skip them.
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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.atlas import load_names
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.manifest import INDEX_FOLDER, REBUILD_HINT, IndexManifest, TextEntry
from eqkin.latex.names import find_names, normalise_name
from eqkin.latex.prose import to_plain_text
from eqkin.library.database import begin_transaction, open_sqlite, read_varints, translate_sqlite_errors
from eqkin.library.files import LibraryFiles
from eqkin.library.queries import PaperText, find_sections, find_trees, list_contents, read_paper_text
from eqkin.storage.files import hash_file, write_atomically
from eqkin.storage.segments import MAX_DEAD_FRACTION, has_hash

if TYPE_CHECKING:
    from eqkin.index.documents import DocumentTable

TEXT_VERSION = 3
_OLD_VERSIONS = (1, 2)  # are replaced by the next update
TEXT_SCHEMA = """
CREATE TABLE papers (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, content TEXT NOT NULL,
    first INTEGER NOT NULL UNIQUE,  -- document of its first section; numbers are never used again
    sizes BLOB NOT NULL);           -- words of each section, and of title and abstract, 32 bits each
CREATE TABLE names (
    paper INTEGER NOT NULL REFERENCES papers ON DELETE CASCADE,
    number INTEGER NOT NULL,  -- of the equation within its paper
    name TEXT NOT NULL, key TEXT NOT NULL,  -- normalised
    source TEXT NOT NULL);
CREATE INDEX names_of_paper ON names (paper, number);
CREATE INDEX names_by_key ON names (key);
CREATE VIRTUAL TABLE text USING fts5(  -- prose or abstract of document n in row 2 n, heading or title in row 2 n + 1
    words, content='', tokenize='porter unicode61 remove_diacritics 2');
"""
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
        self._loading = threading.Lock()
        self._documents: tuple[tuple[Path, int, int], DocumentTable] | None = None  # with the state they are of

    @classmethod
    def open(cls, library: LibraryFiles) -> TextIndex:
        """Open the text index of a library.

        Raises:
            BadInput: the library's text was never indexed, or by an older eqkin.
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
        from eqkin.index.documents import select_best  # only searches need compiled code
        from eqkin.index.fts5 import InvertedLists

        required, optional = split_query(text)
        if not (required or optional) or limit <= 0:
            return []
        with translate_text_errors(self._path):
            database, library = self._connect()
            phrases = list(dict.fromkeys((*required, *optional)))
            stems = stem_words(phrases)
            database.execute("BEGIN")  # one state of all tables
            try:
                documents, lists = self._load_documents(database), InvertedLists.open(database)
                counts = [lists.count_phrase(words) for words in stems]
            finally:
                database.execute("ROLLBACK")
            found = {phrase: documents.count_in_sections(*some) for phrase, some in zip(phrases, counts, strict=True)}
            finding = required or optional
            if not required and papers is None:  # rare words if they find enough
                rare = [p for p in optional if len(found[p][0]) <= _COMMON_FRACTION * documents.count]
                finding = rare if sum(len(found[p][0]) for p in rare) >= 4 * limit else optional
            scored = finding
            if optional and finding != optional:  # what must be there counts twice, of required phrases the first
                lead = required[:1] or finding
                scored = [*finding, *lead, *(word for word in optional if word not in lead)]
            matches = np.zeros(len(documents.size), np.int64)
            for phrase in finding:
                matches[found[phrase][0]] += 1
            able = matches >= (len(finding) if required else 1)
            if papers is not None:
                able &= documents.mark_papers(database, papers)
            sections = np.flatnonzero(able)
            scores, highest = documents.score_phrases([found[phrase] for phrase in scored])
            wanted = limit
            while True:
                best = select_best(scores[sections], wanted)
                rows = list(zip(sections[best].tolist(), scores[sections[best]].tolist(), strict=True))
                hits = _find_library_sections(database, library, documents, rows)
                if len(hits) >= limit or len(best) < wanted:
                    return [(section, min(max(score / highest, 0.0), 1.0)) for section, score in hits[:limit]]
                wanted *= 4  # some are of papers that were changed or removed

    def _load_documents(self, database: sqlite3.Connection) -> DocumentTable:
        """Return the documents as of this thread's connection; after a change, one thread reads them again for all."""
        from eqkin.index.documents import DocumentTable

        (version,) = database.execute("PRAGMA data_version").fetchone()
        if getattr(self._connections, "version", None) != version:
            (papers,) = database.execute("SELECT count(*) FROM papers").fetchone()
            state = self._path, find_last_document(database), papers  # numbers of documents are never used again
            with self._loading:
                if self._documents is None or self._documents[0] != state:
                    self._documents = state, DocumentTable.load(database)
                self._connections.documents, self._connections.version = self._documents[1], version
        table: DocumentTable = self._connections.documents
        return table

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
            return self._connect()[0].execute(query, values).fetchall()

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
                self._connections.path, self._connections.version = path, None
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


def _find_library_sections(
    database: sqlite3.Connection, library: LibraryFiles, table: DocumentTable, rows: list[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Return the library's sections of documents, without those of papers that were changed or removed."""
    documents = np.array([document for document, _ in rows], np.int64)
    first = table.first[np.searchsorted(table.first, documents, "right") - 1].tolist()
    described = database.execute(
        "SELECT first, key, content FROM papers WHERE first IN (SELECT value FROM json_each(?))", (json.dumps(first),)
    ).fetchall()
    known = {number: (key, content) for number, key, content in described}
    papers: dict[tuple[str, str], dict[int, int]] = {}  # the documents of each, by the number of the section
    for document, start in zip(documents.tolist(), first, strict=True):
        if start in known:
            papers.setdefault(known[start], {})[document - start] = document
    sections = find_sections(library, papers)
    return [(sections[document], score) for document, score in rows if document in sections]


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open a text database; raises `BadInput` for one of an older eqkin, `CorruptData` or SQLite's errors."""
    connection = open_sqlite(path, write=write)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != TEXT_VERSION:
        connection.close()
        if version in _OLD_VERSIONS:
            raise BadInput(f"{path}: made by an older eqkin; run `eqkin index`")
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
        connect(path).close()
        return has_hash(path, entry.sha256) if entry.sealed else not find_problems(path)
    except (BadInput, CorruptData, sqlite3.DatabaseError):
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
        known = connection.execute("SELECT id, key, content, length(sizes) / 4 FROM papers").fetchall()
        ever = find_last_document(connection)
    gone = {number for number, key, content, _ in known if current.get(key) != content}
    kept = {key for number, key, *_ in known if number not in gone}
    alive = sum(count for number, *_, count in known if number not in gone)
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


def find_last_document(connection: sqlite3.Connection) -> int:
    """Return the number of the last document that was ever added."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM text_docsize").fetchone()[0]) // 2


def _add_paper(library: LibraryFiles, connection: sqlite3.Connection, key: str) -> bool:
    """Add the sections of a paper; return False if it was removed from the library."""
    paper = read_paper_text(library, key)
    if paper is None:
        return False
    connection.execute("DELETE FROM papers WHERE key = ?", (key,))
    first = find_last_document(connection) + 1
    documents = [(prose, heading) for _, heading, prose in paper.sections] + [(paper.abstract, paper.title)]
    texts = enumerate(map(to_plain_text, chain.from_iterable(documents)), 2 * first)
    connection.executemany("INSERT INTO text (rowid, words) VALUES (?, ?)", texts)
    counted = connection.execute("SELECT sz FROM text_docsize WHERE id >= ? ORDER BY id", (2 * first,))
    words = np.array([read_varints(packed)[0] for (packed,) in counted], "<u4")
    sizes = (words[::2] + words[1::2]).tobytes()
    owner = connection.execute(
        "INSERT INTO papers VALUES (NULL, ?, ?, ?, ?)", (key, paper.content, first, sizes)
    ).lastrowid
    connection.executemany(
        "INSERT INTO names VALUES (?, ?, ?, ?, ?)",
        ((owner, number, name, normalise_name(name), source) for number, name, source in _list_names(key, paper)),
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
