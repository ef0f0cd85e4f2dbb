"""Judgements of users about results: relevant or not, with keywords.

They are rows of a library's database, or of a database of their own where a server has no library of its own. They need
no lock of the library: any process may write at any time, and SQLite makes one wait for the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.library.database import (
    DATABASE_NAME,
    INTACT_JUDGEMENT,
    JUDGEMENTS_TABLE,
    begin_transaction,
    check_links,
    make_insert,
    open_sqlite,
    translate_sqlite_errors,
)
from eqkin.limits import LIMITS, check_cancelled

# The database of a folder without a library.
JUDGEMENTS_NAME = "judgements.db"
_REMEDY = "the database is damaged, restore it from a copy"
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
    """The judgements of the library in `folder`; without a library there, those of the folder itself."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    @property
    def path(self) -> Path:
        """The database that has them."""
        library = self.folder / DATABASE_NAME
        return library if library.exists() else self.folder / JUDGEMENTS_NAME

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
        return self._delete(condition, equation, latex, mathml, words)

    def delete(self, numbers: Iterable[int] | None = None) -> int:
        """Delete judgements by their numbers (see `list_numbered`), by default all; return how many were deleted."""
        if numbers is None:
            return self._delete("1")
        return self._delete("id IN (SELECT value FROM json_each(?))", orjson.dumps(list(numbers)).decode())

    def _delete(self, condition: str, *values: str) -> int:
        if not self.path.exists():
            return 0
        with self._write() as connection:
            return connection.execute(f"DELETE FROM judgements WHERE {condition}", values).rowcount

    def list_all(self) -> list[Judgement]:
        """Return all judgements, in the order in which they were added."""
        return list(self.list_numbered().values())

    def list_numbered(self) -> dict[int, Judgement]:
        """Return all judgements by their numbers, in the order in which they were added."""
        if not self.path.exists():
            return {}
        with self._connect(write=False) as connection:
            # The creator of the database may have been stopped before the first judgement.
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'judgements'").fetchone():
                return {}
            rows = connection.execute(f"SELECT * FROM judgements j WHERE {INTACT_JUDGEMENT} ORDER BY id").fetchall()
        return {row["id"]: _parse_row(row) for row in rows}

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
        with translate_sqlite_errors(self.path, _REMEDY):
            check_links(self.folder)
            if not self.path.exists():
                sqlite3.connect(self.path).close()
            with self._connect(write=True) as connection, begin_transaction(connection):
                connection.execute(JUDGEMENTS_TABLE)
                yield connection

    @contextmanager
    def _connect(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        with translate_sqlite_errors(self.path, _REMEDY), closing(open_sqlite(self.path, write=write)) as connection:
            yield connection


def _parse_row(row: sqlite3.Row) -> Judgement:
    try:
        keywords = tuple(orjson.loads(row["keywords"]))
    except (orjson.JSONDecodeError, TypeError) as error:
        raise CorruptData(f"damaged judgement {row['id']} ({error}); {_REMEDY}") from error
    texts = {name: row[name] for name in ("equation", "latex", "mathml", "words", "time")}
    return Judgement(relevant=bool(row["relevant"]), keywords=keywords, **texts)
