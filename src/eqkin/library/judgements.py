"""Judgements of users about results: relevant or not, with keywords.

They are rows of a library's database, but need no lock of the library: any process may write them at any time, also
while papers are added, and SQLite makes one wait for the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from eqkin.errors import BadInput, LimitReached
from eqkin.library.database import (
    DATABASE_NAME,
    INTACT_JUDGEMENT,
    begin_transaction,
    check_links,
    connect,
    make_insert,
    translate_sqlite_errors,
)
from eqkin.limits import LIMITS, check_cancelled

_INSERT = make_insert("judgements")
_COUNT_BYTES = (
    "SELECT count(*), total(length(equation) + length(latex) + length(mathml) + length(words) + length(keywords)) "
    "FROM judgements"
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judgement of one user about one result of one query."""

    # Id of the equation judged.
    equation: str
    relevant: bool
    # The query: as LaTeX, as MathML, as words, or several of them.
    latex: str = ""
    mathml: str = ""
    words: str = ""
    # What a relevant equation is about.
    keywords: tuple[str, ...] = ()
    # UTC, ISO 8601; set when it is added.
    time: str = ""

    @property
    def size(self) -> int:
        """The number of characters of all its texts."""
        texts = (self.equation, self.latex, self.mathml, self.words, *self.keywords)
        return sum(len(text) + 1 for text in texts)


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
        self.path: Path = folder / DATABASE_NAME

    def add(self, judgement: Judgement) -> Judgement:
        """Store a judgement durably and return it with its time.

        Raises:
            BadInput: It lacks an equation or a query.
            LimitReached: It is too long, or there are too many.
            StorageFailed: It could not be written.
        """
        if not judgement.equation or not (judgement.latex or judgement.mathml or judgement.words):
            raise BadInput("a judgement needs an equation and the query it answers")
        if judgement.size > LIMITS.judgement_chars:
            raise LimitReached(f"a judgement has more than {LIMITS.judgement_chars:,} characters")
        if len(judgement.keywords) > LIMITS.judgement_keywords:
            raise LimitReached(f"a judgement has more than {LIMITS.judgement_keywords} keywords")
        stamped = replace(judgement, time=datetime.now(UTC).isoformat(timespec="milliseconds"))
        values = asdict(stamped) | {"keywords": orjson.dumps(stamped.keywords).decode()}
        with self._write() as connection:
            count, size = connection.execute(_COUNT_BYTES).fetchone()
            if count >= LIMITS.web_judgements:
                raise LimitReached(f"{LIMITS.web_judgements:,} judgements are stored, which is the limit")
            if size >= LIMITS.judgements_bytes:
                raise LimitReached(f"{LIMITS.judgements_bytes:,} bytes of judgements are stored, which is the limit")
            # The checksum covers the number, which must be known before.
            (number,) = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM judgements").fetchone()
            connection.execute(_INSERT, values | {"id": number})
        return stamped

    def remove(self, equation: str, latex: str = "", mathml: str = "", words: str = "") -> int:
        """Delete all judgements of an equation for a query; return their number."""
        condition = "equation = ? AND latex = ? AND mathml = ? AND words = ?"
        with self._write() as connection:
            values = (equation, latex, mathml, words)
            return connection.execute(f"DELETE FROM judgements WHERE {condition}", values).rowcount

    def list_all(self) -> list[Judgement]:
        """Return all judgements, in the order in which they were added."""
        with translate_sqlite_errors(self.path), closing(connect(self.path)) as connection:
            rows = connection.execute(f"SELECT * FROM judgements j WHERE {INTACT_JUDGEMENT} ORDER BY id").fetchall()
        return [_parse_row(row) for row in rows]

    def export(self) -> list[EvaluationQuery]:
        """Return each query once, with its keywords and the equations judged."""
        queries: dict[tuple[str, str, str], EvaluationQuery] = {}
        grades: dict[tuple[str, str, str], dict[str, bool]] = {}
        # A dictionary keeps keywords in the order of their first use.
        keywords: dict[tuple[str, str, str], dict[str, None]] = {}
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

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction that other writers wait for."""
        check_links(self.path.parent)
        with translate_sqlite_errors(self.path), closing(connect(self.path, write=True)) as connection:
            with begin_transaction(connection):
                yield connection


def _parse_row(row: sqlite3.Row) -> Judgement:
    texts = {name: row[name] for name in ("equation", "latex", "mathml", "words", "time")}
    return Judgement(relevant=bool(row["relevant"]), keywords=tuple(orjson.loads(row["keywords"])), **texts)
