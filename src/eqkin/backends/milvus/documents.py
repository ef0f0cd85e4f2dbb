"""Records among the papers: read and written whole, in however many rows they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eqkin.backends.milvus.connection import WRITE_SECONDS, MilvusConnection
from eqkin.backends.milvus.expressions import format_list
from eqkin.backends.milvus.keys import KEY_END, hash_part
from eqkin.backends.milvus.rows import Row, build_document_rows, parse_document
from eqkin.backends.milvus.schema import name_papers_collection

MAX_ROWS = 16_384  # the most rows that Milvus gives
_KEYS_PER_CALL = 1_000  # of rows with long texts asked for at once


def read_records(
    connection: MilvusConnection, collection: str, keys: Iterable[int], *, strong: bool = False
) -> dict[int, Any]:
    """The records of keys; those that are not there are left out, and those that are just being written."""
    rows = fetch_rows(
        connection, name_papers_collection(collection), keys, ("record", "parts", "content"), strong=strong
    )
    further = [hash_part(key, at) for key, row in rows.items() for at in range(1, row["parts"])]
    parts = fetch_rows(connection, name_papers_collection(collection), further, ("record", "content"), strong=strong)
    found = {}
    for key, row in rows.items():
        whole = [row, *(parts.get(hash_part(key, at), {}) for at in range(1, row["parts"]))]
        if all(part.get("content") == row["content"] for part in whole):
            found[key] = parse_document([part["record"] for part in whole])
    return found


def read_record(connection: MilvusConnection, collection: str, key: int) -> Any:
    """The record of a key as it is now; None if there is none."""
    return read_records(connection, collection, [key], strong=True).get(key)


def write_record(connection: MilvusConnection, collection: str, key: int, record: Any, content: str = "") -> None:
    """Keep a record under a key that is no paper's."""
    for row in build_document_rows(key, record, content):
        connection.call("upsert", name_papers_collection(collection), seconds=WRITE_SECONDS, data=[row])


def fetch_rows(
    connection: MilvusConnection, collection: str, keys: Iterable[int], fields: Iterable[str], *, strong: bool = False
) -> dict[int, Row]:
    """Rows by their keys."""
    wanted, found = list(keys), dict[int, Row]()
    for start in range(0, len(wanted), _KEYS_PER_CALL):
        part = wanted[start : start + _KEYS_PER_CALL]
        rows = connection.call(
            "query",
            collection,
            filter=f"key in {format_list(part)}",
            output_fields=["key", *fields],
            limit=len(part),
            consistency_level="Strong" if strong else "Bounded",
        )
        found |= {row["key"]: row for row in rows}
    return found


def scan_rows(
    connection: MilvusConnection,
    collection: str,
    fields: Iterable[str],
    condition: str = "",
    *,
    rows: int,
    below: int = KEY_END,
    strong: bool = True,
) -> Iterator[Row]:
    """All rows of a collection with keys below a number that meet a condition; `rows` is about how many there are.

    Keys are spread evenly, so ranges of them are parts of about the same size. With `strong`, what was written before
    is there: the server is told to wait for it once, which is enough for all parts.
    """
    pieces = max(1, -(-rows // (MAX_ROWS // 4)))
    edges = [below * at // pieces for at in range(pieces + 1)]
    waiting = list(zip(edges[:-1], edges[1:], strict=True))[::-1]
    names = ["key", *fields]
    while waiting:
        first, end = waiting.pop()
        part = f"key >= {first} and key <= {end - 1}"
        found = connection.call(
            "query",
            collection,
            seconds=WRITE_SECONDS,
            filter=f"{part} and {condition}" if condition else part,
            output_fields=names,
            limit=MAX_ROWS,
            consistency_level="Strong" if strong else "Bounded",
        )
        strong = False
        if len(found) == MAX_ROWS and end - first > 1:  # there may be more
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]
        else:
            yield from found


def count_rows(connection: MilvusConnection, collection: str, *, strong: bool = False) -> int:
    """How many rows a collection has."""
    level = "Strong" if strong else "Bounded"
    (row,) = connection.call("query", collection, filter="", output_fields=["count(*)"], consistency_level=level)
    return int(row["count(*)"])
