"""`MilvusJudgements`: what people said of the results of a collection, kept beside it on the server."""

from __future__ import annotations

import secrets
import threading
from dataclasses import asdict

import orjson

from eqkin.backends.milvus import documents
from eqkin.backends.milvus.connection import WRITE_SECONDS, MilvusConnection, NoSuchCollection
from eqkin.backends.milvus.schema import check_name, prepare_judgements
from eqkin.backends.milvus.texts import fitted, restored
from eqkin.errors import CorruptData, LimitReached
from eqkin.library.judgements import EvaluationQuery, Judgement, group_by_query, stamp_judgement
from eqkin.limits import LIMITS, Limits


class MilvusJudgements:
    """The judgements of a collection. May be shared between threads, and written to by many servers at once.

    Args:
        uri: the server's address.
        collection: the one with the equations.
        limits: bounds on what is kept.
    """

    def __init__(self, uri: str, collection: str, limits: Limits = LIMITS) -> None:
        self._connection, self._limits = MilvusConnection(uri), limits
        self._collection = f"{check_name(collection)}_judgements"
        self._writing = threading.Lock()  # Milvus Lite takes one writer at a time

    def add(self, judgement: Judgement) -> Judgement:
        """Keep a judgement. Returns it with its time.

        Raises:
            BadInput: it names no equation or no query.
            LimitReached: it is too long, or there are too many already.
            Unreachable: the server does not answer.
        """
        kept = stamp_judgement(judgement, self._limits)
        record = fitted(orjson.dumps(asdict(kept)).decode())
        if record is None:
            raise LimitReached("a judgement that does not fit into Milvus")
        row = {"key": secrets.randbits(63), "vector": [1.0, 0.0], "time": kept.time, "record": record}
        with self._writing:
            if self._count() >= self._limits.web_judgements:
                raise LimitReached(f"{self._limits.web_judgements:,} judgements are kept, the most there may be")
            self._connection.call("insert", self._collection, seconds=WRITE_SECONDS, data=[row])
        return kept

    def list_all(self) -> list[Judgement]:
        """All judgements, in the order of their times."""
        try:
            total = documents.count_rows(self._connection, self._collection, strong=True)
            rows = list(documents.scan_rows(self._connection, self._collection, ("time", "record"), rows=total))
        except NoSuchCollection:  # nobody judged anything yet
            return []
        rows.sort(key=lambda row: (row["time"], row["key"]))
        return [_parse_judgement(row["record"]) for row in rows]

    def export(self) -> list[EvaluationQuery]:
        """Evaluation queries: each query once, with its keywords and the equations judged."""
        return group_by_query(self.list_all())

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()

    def _count(self) -> int:
        try:
            return documents.count_rows(self._connection, self._collection)
        except NoSuchCollection:
            prepare_judgements(self._connection, self._collection)
            return 0


def _parse_judgement(record: str) -> Judgement:
    try:
        values = orjson.loads(restored(record))
        return Judgement(**values | {"keywords": tuple(values["keywords"])})
    except (orjson.JSONDecodeError, TypeError, KeyError) as error:
        raise CorruptData(f"a judgement in Milvus is damaged ({error})") from error
