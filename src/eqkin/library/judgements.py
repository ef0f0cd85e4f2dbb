"""Judgements of users about results: relevant or not, with keywords. A small SQLite database next to the library's.

It needs no lock of the library: any process may write at any time. Every row has the hash of its content, and
`judgements.json` has that of the file. It is unsealed (without a hash) while the file is changed, and if that was
interrupted; libraries of eqkin 0.1 have none until the next judgement.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput, CorruptData, EqkinError, LimitReached, StorageFailed
from eqkin.library.database import (
    JUDGEMENTS_NAME,
    JUDGEMENTS_SEAL_NAME,
    LIBRARY_NAMES,
    OWN_JUDGEMENT_FILES,
    translate_sqlite_errors,
)
from eqkin.limits import LIMITS, check_cancelled
from eqkin.storage.files import delete_unused_files, format_checked_json, hash_file, load_checked_json, write_file
from eqkin.storage.segments import has_hash

_SEAL_FORMAT, _SEAL_VERSION = "eqkin-judgements", 1
_REMEDY = "restore both files of judgements from a copy, or delete both to start without judgements"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS judgements (
    id INTEGER PRIMARY KEY, latex TEXT NOT NULL, mathml TEXT NOT NULL, words TEXT NOT NULL,
    equation TEXT NOT NULL,         -- id of the equation that was judged
    relevant INTEGER NOT NULL, keywords TEXT NOT NULL, time TEXT NOT NULL,
    sha256 TEXT NOT NULL);          -- of all other columns but the id
"""
_LOCK_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Judgement:
    """The judgement of one user about one result of one query."""

    equation: str  # id of the equation judged
    relevant: bool
    latex: str = ""  # the query, as LaTeX or
    mathml: str = ""  # as MathML, and
    words: str = ""
    keywords: tuple[str, ...] = ()  # what a relevant equation is about
    time: str = ""  # UTC, ISO 8601; set when it is added

    @property
    def size(self) -> int:
        """The number of characters of all its texts."""
        texts = (self.equation, self.latex, self.mathml, self.words, *self.keywords)
        return sum(len(text) + 1 for text in texts)

    def compute_digest(self) -> str:
        """Return the hash of the content."""
        return hashlib.sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()


@dataclass
class EvaluationQuery:
    """A query with all judgements of its results; the last judgement of an equation counts."""

    latex: str
    mathml: str
    words: str
    keywords: list[str] = field(default_factory=list)
    relevant: list[str] = field(default_factory=list)
    irrelevant: list[str] = field(default_factory=list)


class LocalJudgements:
    """The judgements of the library in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.path: Path = folder / JUDGEMENTS_NAME
        self._seal_path = folder / JUDGEMENTS_SEAL_NAME

    def add(self, judgement: Judgement) -> Judgement:
        """Store a judgement durably and return it with its time.

        Raises:
            BadInput: it lacks an equation or a query.
            LimitReached: it is too long, or there are too many.
            StorageFailed: it could not be written.
        """
        if not judgement.equation or not (judgement.latex or judgement.mathml or judgement.words):
            raise BadInput("a judgement needs an equation and the query it answers")
        if judgement.size > LIMITS.judgement_chars:
            raise LimitReached(f"a judgement has more than {LIMITS.judgement_chars:,} characters")
        if len(judgement.keywords) > LIMITS.judgement_keywords:
            raise LimitReached(f"a judgement has more than {LIMITS.judgement_keywords} keywords")
        stamped = replace(judgement, time=datetime.now(UTC).isoformat(timespec="milliseconds"))
        with self._lock() as connection:
            connection.execute(_SCHEMA)
            if connection.execute("SELECT count(*) FROM judgements").fetchone()[0] >= LIMITS.web_judgements:
                raise LimitReached(f"{LIMITS.web_judgements:,} judgements are stored, which is the limit")
            if self.path.stat().st_size >= LIMITS.judgements_bytes:
                raise LimitReached(f"{LIMITS.judgements_bytes:,} bytes of judgements are stored, which is the limit")
            texts = (stamped.latex, stamped.mathml, stamped.words, stamped.equation)
            row = (*texts, stamped.relevant, orjson.dumps(stamped.keywords).decode(), stamped.time)
            connection.execute(
                "INSERT INTO judgements VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, stamped.compute_digest())
            )
        return stamped

    def remove(self, equation: str, latex: str = "", mathml: str = "", words: str = "") -> int:
        """Delete all judgements of an equation for a query; return their number."""
        condition = "equation = ? AND latex = ? AND mathml = ? AND words = ?"
        return self._delete(condition, equation, latex, mathml, words)

    def delete(self, numbers: Iterable[int] | None = None) -> int:
        """Delete judgements by their numbers (see `list_numbered`), by default all; return how many were deleted."""
        if numbers is None:
            return self._delete("1")
        return self._delete("id IN (SELECT value FROM json_each(?))", orjson.dumps(list(numbers)).decode())

    def _delete(self, condition: str, *values: str) -> int:
        if not self.path.exists():
            return 0
        with self._lock() as connection:
            connection.execute(_SCHEMA)
            return connection.execute(f"DELETE FROM judgements WHERE {condition}", values).rowcount

    def list_all(self) -> list[Judgement]:
        """Return all judgements, in the order in which they were added."""
        return list(self.list_numbered().values())

    def list_numbered(self) -> dict[int, Judgement]:
        """Return all judgements by their numbers, in the order in which they were added."""
        return {number: judgement for number, judgement, _ in self._read_rows()}

    def export(self) -> list[EvaluationQuery]:
        """Return each query once, with its keywords and the equations judged."""
        queries: dict[tuple[str, str, str], EvaluationQuery] = {}
        grades: dict[tuple[str, str, str], dict[str, bool]] = {}
        keywords: dict[tuple[str, str, str], dict[str, None]] = {}  # in the order of their first use
        for judgement in self.list_all():
            check_cancelled()
            key = (judgement.latex, judgement.mathml, judgement.words)
            queries.setdefault(key, EvaluationQuery(*key))
            keywords.setdefault(key, {}).update(dict.fromkeys(judgement.keywords))
            grades.setdefault(key, {})[judgement.equation] = judgement.relevant
        for key, query in queries.items():
            query.keywords = list(keywords[key])
            query.relevant = [name for name, relevant in grades[key].items() if relevant]
            query.irrelevant = [name for name, relevant in grades[key].items() if not relevant]
        return list(queries.values())

    def find_problems(self) -> list[str]:
        """Return what is damaged; nothing if there are no judgements."""
        try:
            self._require_intact(force=True)
            damaged = sum(judgement.compute_digest() != sha256 for _, judgement, sha256 in self._read_rows())
            if not self.path.exists():
                return []
            with self._connect() as connection:
                found = [f"{self.path}: {row[0]}" for row in connection.execute("PRAGMA integrity_check(5)")]
        except EqkinError as error:
            return [str(error)]
        wrong = [f"{self.path}: {damaged} judgements do not match their hash"] if damaged else []
        return wrong + [problem for problem in found if not problem.endswith(": ok")]

    def seal(self) -> None:
        """Store the hash of the file, unless it has none because there are no judgements."""
        if self.path.exists():
            with self._lock():
                pass

    def _read_seal(self) -> str | None:
        """Return the hash that the file must have, "" if it is being changed, None if there are no judgements yet."""
        try:
            data = load_checked_json(self._seal_path, "judgements", _SEAL_FORMAT, _SEAL_VERSION, _REMEDY)
            return str(data["sha256"])
        except FileNotFoundError:
            return None
        except KeyError as error:
            raise CorruptData(f"{self._seal_path}: damaged ({error}); {_REMEDY}") from error

    def _write_seal(self, sha256: str) -> None:
        data = {"format": _SEAL_FORMAT, "version": _SEAL_VERSION, "sha256": sha256}
        write_file(self._seal_path, format_checked_json("judgements", data))

    def _require_intact(self, *, force: bool = False) -> None:
        """Compare the file with its hash; raises `CorruptData`. `force`: read it even if the answer is cached."""
        seal = self._read_seal()
        while seal:
            with suppress(OSError):
                if has_hash(self.path, seal, force=force):
                    return
            before, seal = seal, self._read_seal()
            if seal == before:  # otherwise another process has changed it
                raise CorruptData(f"{self.path}: missing, or does not match its hash; {_REMEDY}")

    @contextmanager
    def _lock(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction that excludes all other processes until the file is sealed again."""
        self._require_intact()  # before SQLite makes a file that is missing
        with self._connect() as connection:
            connection.execute("BEGIN EXCLUSIVE")
            # Keep the lock after the commit. Set before, it would also keep the shared lock of a process that waits,
            # for which the writer would wait in turn, until one of them gives up.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._require_intact()
            delete_unused_files(self.path.parent, LIBRARY_NAMES, OWN_JUDGEMENT_FILES)
            yield connection
            self._write_seal("")
            connection.execute("COMMIT")
            self._write_seal(hash_file(self.path))

    def _read_rows(self) -> Iterable[tuple[int, Judgement, str]]:
        self._require_intact()
        if not self.path.exists():
            return []
        with self._connect() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'judgements'").fetchone():
                return []  # its creator was stopped before the first judgement
            rows = connection.execute("SELECT * FROM judgements ORDER BY id").fetchall()
        return [_parse_row(row, self.path) for row in rows]

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with translate_sqlite_errors(self.path, _REMEDY):
                connection = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None)
                with closing(connection):
                    connection.row_factory = sqlite3.Row
                    connection.execute("PRAGMA synchronous = EXTRA")
                    yield connection
        except OSError as error:
            raise StorageFailed(f"{self.path}: {error.strerror or error}; what was stored before is intact") from error


def _parse_row(row: sqlite3.Row, path: Path) -> tuple[int, Judgement, str]:
    values: dict[str, Any] = {name: row[name] for name in ("equation", "latex", "mathml", "words", "time")}
    try:
        keywords = tuple(orjson.loads(row["keywords"]))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise CorruptData(f"{path}: damaged judgement {row['id']} ({error}); {_REMEDY}") from error
    judgement = Judgement(relevant=bool(row["relevant"]), keywords=keywords, **values)
    return int(row["id"]), judgement, str(row["sha256"])
