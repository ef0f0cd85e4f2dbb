"""What a collection has, counted when a push comes to its end and kept in one record among the papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from eqkin.backends.milvus import documents
from eqkin.backends.milvus.connection import MilvusConnection
from eqkin.backends.milvus.expressions import NO_YEAR
from eqkin.backends.milvus.keys import SUMMARY_KEY
from eqkin.backends.milvus.schema import name_papers_collection
from eqkin.version import __version__

_COUNTED_FIELDS = ("equations", "missing", "year", "fields")


def summarise(connection: MilvusConnection, collection: str, library: str, tick: Callable[[], None]) -> int:
    """Count the papers of a collection, whatever libraries they came from. Returns how many equations it has.

    Args:
        connection: the server.
        collection: the one with the equations.
        library: what was pushed last.
        tick: called again and again meanwhile.
    """
    name = name_papers_collection(collection)
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    total: Counter[str] = Counter()
    rows = documents.count_rows(connection, name, strong=True)
    for row in documents.scan_rows(connection, name, _COUNTED_FIELDS, "equations >= 0", rows=rows):
        tick()
        total.update(papers=1, equations=row["equations"], missing=row["missing"])
        if row["equations"]:
            fields.update(dict.fromkeys(row["fields"], row["equations"]))
        if row["equations"] and row["year"] != NO_YEAR:
            years[row["year"]] += row["equations"]
    about: dict[str, Any] = {name: total[name] for name in ("papers", "equations", "missing")}
    about["fields"] = dict(sorted(fields.items(), key=lambda one: (-one[1], one[0])))
    about["years"] = {str(year): years[year] for year in sorted(years)}
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    about |= {"library": library, "eqkin": __version__, "time": time}
    documents.write_record(connection, collection, SUMMARY_KEY, about, time)
    return documents.count_rows(connection, collection, strong=True)
