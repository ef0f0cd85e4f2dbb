"""Bytes per equation of a library: its parts, the arrays in files of arrays, and the tables of databases."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from benchmarks.report import BenchmarkReport
from eqkin import Library
from eqkin.cli.options import LibraryFolder
from eqkin.errors import BadInput
from eqkin.library.database import open_sqlite

_SAFETENSORS = ".safetensors"
_TREE_ARRAYS = "operators."  # of the index of terms


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
    parts: dict[str, int] = defaultdict(int)
    arrays: dict[str, int] = defaultdict(int)
    tables: dict[str, int] = {}
    for path in sorted(path for path in library.rglob("*") if path.is_file()):
        kind = path.name.split("-")[0].split(".")[0]
        if path.suffix != _SAFETENSORS:
            parts[kind] += path.stat().st_size
            if path.suffix == ".db":
                tables |= {f"{kind}: {name}": size for name, size in read_table_sizes(path).items()}
            continue
        for name, size in read_array_sizes(path).items():
            parts["operator trees" if name.startswith(_TREE_ARRAYS) else kind] += size
            arrays[f"{kind}: {name}"] += size
    for title, sizes in (("parts", parts), ("arrays", arrays), ("tables", tables)):
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            report.add(title, name, bytes=size, bytes_per_equation=size / equations)
    return report


def read_array_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each array in a safetensors file."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    ranges = {name: about["data_offsets"] for name, about in header.items() if name != "__metadata__"}
    return {name: end - start for name, (start, end) in ranges.items()}


def read_table_sizes(path: Path) -> dict[str, int]:
    """Return the bytes of each table and index in a database; nothing where SQLite does not tell."""
    with closing(open_sqlite(path)) as connection:
        try:
            return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())
        except sqlite3.OperationalError:
            return {}
