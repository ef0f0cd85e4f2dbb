"""A library's equations for other programs, as JSON lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import orjson

from eqkin.latex.prose import extract_context, to_plain_text
from eqkin.library.files import LibraryFiles
from eqkin.trees.mathml import to_mathml

_EQUATIONS_OF_PAPER = """
SELECT e.*, p.key, p.title, p.authors, p.year, p.fields, s.title AS heading, s.latex AS prose
FROM equations e JOIN papers p ON p.id = e.paper JOIN sections s ON s.id = e.section
WHERE p.id = ? AND (? OR e.tree IS NOT NULL) ORDER BY e.number
"""


def export_equations(library: LibraryFiles, *, failed: bool = False, mathml: bool = True) -> Iterator[dict[str, Any]]:
    """Each equation as a dictionary: id, latex, mathml, where it stands, the prose around; failed ones on request."""
    with library.translate_errors():
        papers = [row[0] for row in library.connection.execute("SELECT id FROM papers ORDER BY id").fetchall()]
        for paper in papers:  # one at a time, so that no reader's cursor stays open and keeps a writer waiting
            prose: dict[int, str] = {}
            for row in library.connection.execute(_EQUATIONS_OF_PAPER, (paper, failed)).fetchall():
                if row["section"] not in prose:
                    prose[row["section"]] = to_plain_text(row["prose"])
                yield _describe_equation(library, row, prose[row["section"]], mathml)


def _describe_equation(library: LibraryFiles, row: sqlite3.Row, prose: str, mathml: bool) -> dict[str, Any]:
    before, after = extract_context(prose, row["mark"])
    described = {
        "id": f"{row['key']}#{row['number']}",
        "paper": row["key"],
        "title": row["title"],
        "authors": orjson.loads(row["authors"]),
        "year": row["year"],
        "fields": orjson.loads(row["fields"]),
        "section": row["heading"],
        "label": row["label"],
        "environment": row["environment"],
        "latex": row["latex"],
        "status": row["status"],
        "repaired": bool(row["repaired"]),
        "before": before,
        "after": after,
    }
    if row["tree"] is None:
        described |= {"reason": row["reason"], "message": row["message"]}
    elif mathml:
        described["mathml"] = to_mathml(library.get_tree(row["tree"]))
    return described
