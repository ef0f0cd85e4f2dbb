"""Results on disk, and the tables of `research/RESULTS.md`.

Every experiment writes its tables to `results/NAME.json` in its output folder; the files behind the documentation are
committed in `research/results`. Pages have tables between markers; the sentences around them are written by people:

    <!-- table: NAME/TABLE -->
    ...
    <!-- end -->

A cell may name figures of other results instead of repeating them: {"from": [["NAME/TABLE", ROW, COLUMN], ...]}. One is
shown with its interval, several without.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput
from eqkin.evaluation.measures import Score
from eqkin.files import make_folder, write_file
from research.experiment import FULL_SCALE, Experiment
from research.tables import ExperimentResult, Table, TableColumn, TableRow, format_score, to_markdown

RESULTS = Path(__file__).parent / "results"
_CARDS = "src/eqkin/encoder/models"
PAGES = ("research/RESULTS.md", "README.md", f"{_CARDS}/eqkin/CARD.md", f"{_CARDS}/paper/CARD.md")
_MARKED = re.compile(r"(<!-- table: ([\w-]+/[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def save_result(experiment: Experiment, result: ExperimentResult) -> Path:
    """Write a result as JSON, without tables that quote the data; return the path."""
    if experiment.scale != FULL_SCALE:
        result = result.mark_small_run()
    result = dataclasses.replace(result, tables=[table for table in result.tables if not table.quotes])
    path = make_folder(experiment.folder / "results") / f"{result.experiment}.json"
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    write_file(path, orjson.dumps(dataclasses.asdict(result), option=option) + b"\n")
    return path


def list_columns(titles: Mapping[str, str], form: str = "percent") -> list[TableColumn]:
    """Return columns by key and title, in which no value is marked as the best."""
    return [TableColumn(key, title, form, "") for key, title in titles.items()]


def load_tables(folder: Path = RESULTS) -> dict[str, Table]:
    """Read the tables of all results, by NAME/TABLE; raises `BadInput` if there are none, or a figure is missing."""
    contents = {
        f"{path.stem}/{table['name']}": table
        for path in sorted(folder.glob("*.json"))
        for table in orjson.loads(path.read_bytes())["tables"]
    }
    if not contents:
        raise BadInput(f"{folder}: no results; run experiments first, such as `python -m research study`")
    return {name: _parse_table(table, contents) for name, table in contents.items()}


def fill_tables(text: str, tables: Mapping[str, Table]) -> str:
    """Replace what is between markers by the tables they name; raises `BadInput` for an unknown one."""

    def fill(found: re.Match[str]) -> str:
        if found[2] not in tables:
            raise BadInput(f"there is no result for the table {found[2]}; known are {', '.join(tables)}")
        return f"{found[1]}\n{to_markdown(tables[found[2]])}\n{found[3]}"

    return _MARKED.sub(fill, text)


def list_marked(text: str) -> list[str]:
    """List the tables a page shows."""
    return [found[2] for found in _MARKED.finditer(text)]


def write_report(root: Path, folder: Path = RESULTS) -> list[Path]:
    """Write the tables into all pages that have markers; return the pages."""
    tables, written = load_tables(folder), []
    for name in PAGES:
        path = root / name
        text = path.read_text("utf-8") if path.exists() else ""
        if list_marked(text):
            write_file(path, fill_tables(text, tables).encode())
            written.append(path)
    return written


def _parse_table(values: Mapping[str, Any], others: Mapping[str, Any]) -> Table:
    columns = [TableColumn(**column) for column in values["columns"]]
    rows = [
        TableRow(
            row["title"], {key: _parse_cell(cell, others) for key, cell in row["cells"].items()}, row["origin"],
            row["note"],
        )
        for row in values["rows"]
    ]  # fmt: skip
    return Table(values["name"], values["title"], columns, rows, values["caption"], values["quotes"])


def _parse_cell(cell: Any, others: Mapping[str, Any]) -> Score | str:
    if isinstance(cell, str):
        return cell
    if "from" in cell:
        found = [_parse_cell(_find_cell(others, *place), others) for place in cell["from"]]
        if len(found) == 1:
            return found[0]
        return ", ".join(format_score(Score(one.value), "share") if isinstance(one, Score) else one for one in found)
    return Score(math.nan if cell["value"] is None else cell["value"], cell["low"], cell["high"])


def _find_cell(tables: Mapping[str, Any], name: str, title: str, column: str) -> Any:
    rows = tables.get(name, {"rows": []})["rows"]
    cells = [row["cells"][column] for row in rows if row["title"] == title and column in row["cells"]]
    if len(cells) != 1:
        raise BadInput(f"a summary names the figure {column} of {title} in {name}, of which there are {len(cells)}")
    return cells[0]
