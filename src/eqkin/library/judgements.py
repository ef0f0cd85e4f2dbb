"""What people said of results: relevant or not, with keywords. A small database of its own beside the library's.

Anyone may write at any time, whoever holds the library's lock; every row carries the hash of its content.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from eqkin.errors import BadInput, CorruptData, EqkinError, LimitReached
from eqkin.library.database import translate_sqlite_errors
from eqkin.limits import LIMITS, Limits

JUDGEMENTS_NAME = "judgements.db"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS judgements (
    id INTEGER PRIMARY KEY, latex TEXT NOT NULL, mathml TEXT NOT NULL, words TEXT NOT NULL,
    equation TEXT NOT NULL,         -- the id of the one that was judged
    relevant INTEGER NOT NULL, keywords TEXT NOT NULL, time TEXT NOT NULL,
    sha256 TEXT NOT NULL);          -- of all of these
"""
_LOCK_TIMEOUT_SECONDS = 30.0  # seconds for another writer


@dataclass(frozen=True)
class Judgement:
    """One person's word on one result of one query."""

    equation: str  # id of the equation judged
    relevant: bool
    latex: str = ""  # the query, as LaTeX or
    mathml: str = ""  # as MathML, and
    words: str = ""
    keywords: tuple[str, ...] = ()  # what a relevant equation is about
    time: str = ""  # UTC, ISO 8601; set when it is added

    @property
    def size(self) -> int:
        """Characters of all its texts."""
        texts = (self.equation, self.latex, self.mathml, self.words, *self.keywords)
        return sum(len(text) + 1 for text in texts)

    def compute_digest(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()


@dataclass
class EvaluationQuery:
    """A query with everything that was said of its results; the last word on an equation counts."""

    latex: str
    mathml: str
    words: str
    keywords: list[str] = field(default_factory=list)
    relevant: list[str] = field(default_factory=list)
    irrelevant: list[str] = field(default_factory=list)


class JudgementStore(Protocol):
    """What a web server needs to keep judgements, wherever they are kept."""

    def add(self, judgement: Judgement) -> Judgement:
        """Keep a judgement. Returns it with its time."""

    def export(self) -> list[EvaluationQuery]:
        """Evaluation queries: each query once, with its keywords and the equations judged."""


class LocalJudgements:
    """The judgements of the library in `folder`."""

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        self.path, self._limits = folder / JUDGEMENTS_NAME, limits

    def add(self, judgement: Judgement) -> Judgement:
        """Keep a judgement; it is on disk when this returns. Returns it with its time.

        Raises:
            BadInput: it names no equation or no query.
            LimitReached: it is too long, or there are too many already.
            StorageFailed: it could not be written.
        """
        kept = stamp_judgement(judgement, self._limits)
        with self._connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            if connection.execute("SELECT count(*) FROM judgements").fetchone()[0] >= self._limits.web_judgements:
                raise LimitReached(f"{self._limits.web_judgements:,} judgements are kept, the most there may be")
            if self.path.stat().st_size >= self._limits.judgements_bytes:
                raise LimitReached(
                    f"{self._limits.judgements_bytes:,} bytes of judgements are kept, the most there may be"
                )
            row = (
                kept.latex,
                kept.mathml,
                kept.words,
                kept.equation,
                kept.relevant,
                _encode_json(kept.keywords),
                kept.time,
            )
            connection.execute(
                "INSERT INTO judgements VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, kept.compute_digest())
            )
            connection.execute("COMMIT")
        return kept

    def list_all(self) -> list[Judgement]:
        """All judgements, in the order they came."""
        return [judgement for judgement, _ in self._read_rows()]

    def export(self) -> list[EvaluationQuery]:
        """Evaluation queries: each query once, with its keywords and the equations judged."""
        return group_by_query(self.list_all())

    def find_problems(self) -> list[str]:
        """What is damaged; nothing if all is well or nobody judged anything yet."""
        if not self.path.exists():
            return []
        try:
            damaged = sum(judgement.compute_digest() != sha256 for judgement, sha256 in self._read_rows())
            with self._connect() as connection:
                found = [f"{self.path}: {row[0]}" for row in connection.execute("PRAGMA integrity_check(5)")]
        except EqkinError as error:
            return [str(error)]
        wrong = [f"{self.path}: {damaged} judgements do not match their hash"] if damaged else []
        return wrong + [problem for problem in found if not problem.endswith(": ok")]

    def _read_rows(self) -> Iterable[tuple[Judgement, str]]:
        if not self.path.exists():
            return []
        with self._connect() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'judgements'").fetchone():
                return []  # who made the file was stopped before the first one was kept
            rows = connection.execute("SELECT * FROM judgements ORDER BY id").fetchall()
        return [_parse_row(row, self.path) for row in rows]

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with translate_sqlite_errors(self.path):
            connection = sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT_SECONDS, isolation_level=None)
            with closing(connection):
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection


def stamp_judgement(judgement: Judgement, limits: Limits) -> Judgement:
    """A judgement with the time of now; raises `BadInput` or `LimitReached` if it is none."""
    if not judgement.equation or not (judgement.latex or judgement.mathml or judgement.words):
        raise BadInput("a judgement needs an equation and the query it answers")
    if judgement.size > limits.judgement_chars:
        raise LimitReached(f"a judgement of more than {limits.judgement_chars:,} characters")
    return replace(judgement, time=datetime.now(UTC).isoformat(timespec="milliseconds"))


def group_by_query(judgements: Iterable[Judgement]) -> list[EvaluationQuery]:
    """Judgements in the order they came as queries: each once, with its keywords and the equations judged."""
    queries: dict[tuple[str, str, str], EvaluationQuery] = {}
    verdicts: dict[tuple[str, str, str], dict[str, bool]] = {}
    for judgement in judgements:
        key = (judgement.latex, judgement.mathml, judgement.words)
        query = queries.setdefault(key, EvaluationQuery(*key))
        query.keywords += [word for word in judgement.keywords if word not in query.keywords]
        verdicts.setdefault(key, {})[judgement.equation] = judgement.relevant
    for key, query in queries.items():
        query.relevant = [name for name, relevant in verdicts[key].items() if relevant]
        query.irrelevant = [name for name, relevant in verdicts[key].items() if not relevant]
    return list(queries.values())


def _parse_row(row: sqlite3.Row, path: Path) -> tuple[Judgement, str]:
    values: dict[str, Any] = {name: row[name] for name in ("equation", "latex", "mathml", "words", "time")}
    try:
        keywords = tuple(orjson.loads(row["keywords"]))
    except orjson.JSONDecodeError as error:
        raise CorruptData(f"{path}: damaged judgement {row['id']} ({error})") from error
    return Judgement(relevant=bool(row["relevant"]), keywords=keywords, **values), str(row["sha256"])


def _encode_json(value: object) -> str:
    return orjson.dumps(value).decode()
