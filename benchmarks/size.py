"""Bytes per equation of a library: its files, and the tables of its database."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

from benchmarks.report import BenchmarkReport
from eqkin import Library
from eqkin.cli.options import LibraryFolder
from eqkin.errors import BadInput


def measure_size(library: LibraryFolder) -> BenchmarkReport:
    """Print how many bytes each part of a library takes per equation.

    **Example**

        python -m benchmarks size --library papers
    """
    with Library.open(library) as opened:
        equations = len(opened.list_tree_keys())
    if not equations:
        raise BadInput(f"{library}: has no equations; `eqkin add` some")
    report = BenchmarkReport("size", {"library": str(library), "equations": equations})
    parts = Counter[str]()
    for path in library.rglob("*"):
        if path.is_file():
            # Parts of the index have numbers in their names; the words have a folder of their own.
            inside = path.relative_to(library)
            name = inside.parts[1] if len(inside.parts) > 2 else inside.name.split("-")[0]
            parts[name] += path.stat().st_size
    tables: dict[str, int] = {}
    with closing(sqlite3.connect(library / "library.db")) as database:
        try:
            tables = dict(database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
        except sqlite3.OperationalError:
            report.facts["note"] = "this SQLite does not tell the sizes of tables"
    for title, sizes in (("parts", parts), ("tables of library.db", tables)):
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            report.add(title, name, bytes=size, bytes_per_equation=size / equations)
    return report
