"""Records among the papers: read and written whole, in however many rows they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eqkin.milvus.connection import LONG, Connection
from eqkin.milvus.expressions import listed
from eqkin.milvus.keys import END, part_key
from eqkin.milvus.rows import Row, document, document_rows
from eqkin.milvus.schema import papers_of

AT_ONCE = 16_384  # the most rows that Milvus gives
_KEYS = 1_000  # of rows with long texts asked for at once


def read_all(connection: Connection, collection: str, keys: Iterable[int], *, strong: bool = False) -> dict[int, Any]:
    """The records of keys; those that are not there are left out, and those that are just being written."""
    rows = fetch(connection, papers_of(collection), keys, ("record", "parts", "content"), strong=strong)
    further = [part_key(key, at) for key, row in rows.items() for at in range(1, row["parts"])]
    parts = fetch(connection, papers_of(collection), further, ("record", "content"), strong=strong)
    found = {}
    for key, row in rows.items():
        whole = [row, *(parts.get(part_key(key, at), {}) for at in range(1, row["parts"]))]
        if all(part.get("content") == row["content"] for part in whole):
            found[key] = document([part["record"] for part in whole])
    return found


def read(connection: Connection, collection: str, key: int) -> Any:
    """The record of a key as it is now; None if there is none."""
    return read_all(connection, collection, [key], strong=True).get(key)


def write(connection: Connection, collection: str, key: int, record: Any, content: str = "") -> None:
    """Keep a record under a key that is no paper's."""
    for row in document_rows(key, record, content):
        connection.call("upsert", papers_of(collection), seconds=LONG, data=[row])


def fetch(
    connection: Connection, collection: str, keys: Iterable[int], fields: Iterable[str], *, strong: bool = False
) -> dict[int, Row]:
    """Rows by their keys."""
    wanted, found = list(keys), dict[int, Row]()
    for start in range(0, len(wanted), _KEYS):
        part = wanted[start : start + _KEYS]
        rows = connection.call(
            "query",
            collection,
            filter=f"key in {listed(part)}",
            output_fields=["key", *fields],
            limit=len(part),
            consistency_level="Strong" if strong else "Bounded",
        )
        found |= {row["key"]: row for row in rows}
    return found


def scan(
    connection: Connection,
    collection: str,
    fields: Iterable[str],
    condition: str = "",
    *,
    rows: int,
    below: int = END,
    strong: bool = True,
) -> Iterator[Row]:
    """All rows of a collection with keys below a number that meet a condition; `rows` is about how many there are.

    Keys are spread evenly, so ranges of them are parts of about the same size. With `strong`, what was written before
    is there: the server is told to wait for it once, which is enough for all parts.
    """
    pieces = max(1, -(-rows // (AT_ONCE // 4)))
    edges = [below * at // pieces for at in range(pieces + 1)]
    waiting = list(zip(edges[:-1], edges[1:], strict=True))[::-1]
    names = ["key", *fields]
    while waiting:
        first, end = waiting.pop()
        part = f"key >= {first} and key <= {end - 1}"
        found = connection.call(
            "query",
            collection,
            seconds=LONG,
            filter=f"{part} and {condition}" if condition else part,
            output_fields=names,
            limit=AT_ONCE,
            consistency_level="Strong" if strong else "Bounded",
        )
        strong = False
        if len(found) == AT_ONCE and end - first > 1:  # there may be more
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]
        else:
            yield from found


def count(connection: Connection, collection: str, *, strong: bool = False) -> int:
    """How many rows a collection has."""
    level = "Strong" if strong else "Bounded"
    (row,) = connection.call("query", collection, filter="", output_fields=["count(*)"], consistency_level=level)
    return int(row["count(*)"])
