"""Speed and size: what the benchmarks measured, next to the few figures the paper gives.

The paper: training processes about 1,300 triplets per second on a GTX 1080, without reading from disk; the index of all
28,973,591 equations (annoy) takes 13 GB on disk, 449 bytes per vector. Speeds of different machines are not comparable;
ratios within one table are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eqkin.errors import BadInput
from eqkin.evaluation.formulas import read_json
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.statistics import Score
from research.published import SPEED_ROWS


def run_speed(reports: Sequence[Mapping[str, Any]]) -> ExperimentResult:
    """Show the tables of benchmarks, which `python -m benchmarks --json NAME` prints, next to the paper's figures.

    Raises `BadInput` if there are none, or one is not the output of a benchmark.
    """
    if not reports:
        raise BadInput("no benchmarks to report: give what `python -m benchmarks --json NAME` prints")
    try:
        tables = [table for report in reports for table in _make_tables(report)]
        facts = {f"machine of {report['benchmark']}": str(report["machine"]) for report in reports}
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"not what `python -m benchmarks --json NAME` prints ({error!r})") from error
    return ExperimentResult("speed", "Speed and size", tables, facts=facts)


def read_reports(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Read what benchmarks printed into files; raises `BadInput` if a file cannot be read."""
    return [read_json(path, f"run `python -m benchmarks --json NAME > {path}`") for path in paths]


def _make_tables(report: Mapping[str, Any]) -> list[Table]:
    name = report["benchmark"]
    caption = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in report["facts"].items() if value)
    tables = []
    for number, (title, rows) in enumerate(report["tables"].items()):
        keys = list(dict.fromkeys(key for row in rows for key in row if key != "name"))
        columns = [TableColumn(key, key.replace("_", " "), "number", "") for key in keys]
        shown = []
        for row in rows:
            figures = {key: row[key] for key in keys if row.get(key) is not None}
            cells = {key: one if isinstance(one, str) else Score(float(one)) for key, one in figures.items()}
            shown.append(TableRow(row["name"], cells))
        if name in SPEED_ROWS:
            shown.append(SPEED_ROWS[name])
        tables.append(Table(f"{name}-{number}", f"{name}: {title}", columns, shown, caption))
    return tables
