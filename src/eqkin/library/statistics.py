"""What is in a library, in numbers (`eqkin stats`)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from eqkin.library.files import LibraryFiles
from eqkin.trees.vocabulary import count_symbols


def compute_statistics(library: LibraryFiles) -> dict[str, Any]:
    """Counts of papers, equations by outcome, failure reasons, fields, kinds, languages, tree sizes, bytes on disk."""
    with library.translate_errors():
        return _collect_statistics(library)


def _collect_statistics(library: LibraryFiles) -> dict[str, Any]:
    one = _make_counter(library.connection)
    tally = _make_group_counter(library.connection)
    status = tally("SELECT status, count(*) FROM equations GROUP BY 1")
    fields: Counter[str] = Counter()
    for (value,) in library.connection.execute("SELECT fields FROM papers WHERE failure = ''"):
        names = orjson.loads(value)
        fields[parse_subject_area(names[0]) if names else "(none)"] += 1
    sizes = [forest.sizes for _, forest in library.iter_forests()]
    nodes = np.concatenate(sizes) if sizes else np.zeros(0)
    return {
        "library": str(library.folder),
        "papers": one("SELECT count(*) FROM papers WHERE failure = ''"),
        "papers_with_equations": one("SELECT count(DISTINCT paper) FROM equations WHERE tree IS NOT NULL"),
        "papers_failed": tally("SELECT failure, count(*) FROM papers WHERE failure != '' GROUP BY 1"),
        "sections": one("SELECT count(*) FROM sections"),
        "citations": one("SELECT count(*) FROM citations"),
        "equations": {
            "found": sum(n for name, n in status.items() if name != "diagram"),
            "converted": status.get("converted", 0) + status.get("degraded", 0),
            "degraded": status.get("degraded", 0),
            "repaired": one("SELECT count(*) FROM equations WHERE repaired AND tree IS NOT NULL"),
            "diagrams": status.get("diagram", 0),
            "failed": tally("SELECT reason, count(*) FROM equations WHERE status = 'failed' GROUP BY 1"),
        },
        "unknown_commands": _count_unknown_commands(library.connection),
        "fields": dict(fields.most_common()),
        "kinds": tally("SELECT kind, count(*) FROM papers WHERE failure = '' GROUP BY 1"),
        "languages": tally("SELECT lang, count(*) FROM papers WHERE failure = '' AND lang != '' GROUP BY 1"),
        "trees": {
            "mean_nodes": float(nodes.mean()) if len(nodes) else 0.0,
            "median_nodes": float(np.median(nodes)) if len(nodes) else 0.0,
        },
        "bytes": sum(path.stat().st_size for path in library.folder.rglob("*") if path.is_file()),
        "converter": asdict(library.manifest.converter),
    }


def parse_subject_area(field: str) -> str:
    """The subject area of an arXiv category (`math.AG` -> `math`); other fields stand for themselves."""
    return field.split(".", 1)[0]


def count_characters(library: LibraryFiles) -> Counter[str]:
    """How often each character stands in a leaf of the library's trees."""
    return count_symbols(forest for _, forest in library.iter_forests())[2]


def _make_counter(connection: sqlite3.Connection) -> Callable[[str], int]:
    return lambda query: int(connection.execute(query).fetchone()[0])


def _make_group_counter(connection: sqlite3.Connection) -> Callable[[str], dict[str, int]]:
    return lambda query: dict(
        sorted(((row[0], row[1]) for row in connection.execute(query)), key=lambda pair: (-pair[1], pair[0]))
    )


def _count_unknown_commands(connection: sqlite3.Connection) -> dict[str, int]:
    """The commands nobody defines, most used first."""
    commands: Counter[str] = Counter()
    for (names,) in connection.execute("SELECT unknown FROM equations WHERE unknown != ''"):
        commands.update(names.split(" "))
    return dict(commands.most_common(50))
