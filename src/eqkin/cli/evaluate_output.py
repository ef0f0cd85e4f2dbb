"""How an experiment tells how far it is, and how its result looks in a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown
from rich.text import Text

from eqkin.cli.options import output
from eqkin.evaluation.scale import FULL

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import Context
    from eqkin.evaluation.results import Result, Table

_ROWS = 40  # of a table that is shown; the report has all


@contextmanager
def teller(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Something that shows the last message: in one line that changes on a terminal, else a line each."""
    console = Console(stderr=True)
    if quiet:
        yield lambda message: None
    elif console.is_terminal:
        with console.status("preparing ...") as status:
            yield lambda message: status.update(escape(message))
    else:
        last = [""]

        def tell(message: str) -> None:
            start = message.partition(":")[0]  # the same work again is no news
            if start != last[0]:
                typer.echo(message, err=True)
                last[0] = start

        yield tell


def show(context: Context, result: Result, as_json: bool) -> None:
    """Keep a result in the store and print it; that of a small run says so."""
    if context.scale != FULL:
        differences = ["A small run: little was learned and drawn, its figures mean nothing.", *result.differences]
        result = dataclasses.replace(result, title=f"{result.title} (small run)", differences=differences)
    from eqkin.evaluation.report.formatting import plain  # papers' own words must not steer the terminal

    path = context.store.keep(result)
    with output():
        if as_json:
            typer.echo(orjson.dumps(dataclasses.asdict(result), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            return
        console = Console()
        for table in result.tables:
            console.print(_shown(table))
        for example in result.examples:
            typer.echo(plain(f"{example.title}: {example.latex}"))
            for hit in example.hits:
                typer.echo(f"  {hit.rank:3} {plain(hit.latex)}  ({plain(hit.where)})" + f"  {hit.note}".rstrip())
        for finding in result.findings:
            typer.echo(f"- {plain(finding)}")
        typer.echo(f"kept in {path}; `eqkin report {context.store.folder}` makes a page of it", err=True)


def show_summaries(found: Mapping[str, dict[str, Any]], as_json: bool) -> None:
    """Print what `labelled.summary` found on each set; as JSON, a single one's by itself."""
    with output():
        if as_json:
            typer.echo(orjson.dumps(found if len(found) > 1 else next(iter(found.values()))).decode())
            return
        for name, one in found.items():
            typer.echo(f"{name}: {one['equations']:,} equations, {one['labels']:,} labels")
            for key in ("accuracy", "ranking"):
                low, high = one["intervals"][key]
                alone = one["embedding"][key]
                typer.echo(f"  {key:8} {one[key]:5.1f} % [{low:.1f}, {high:.1f}]   by the vector alone {alone:.1f} %")


def _shown(table: Table) -> Shown:
    from eqkin.evaluation.report.formatting import cells, origin, plain

    shown = Shown(title=Text(table.title), title_justify="left")
    shown.add_column("")
    for column in table.columns:
        shown.add_column(Text(column.title), justify="left" if column.form == "text" else "right")
    for row, line in list(zip(table.rows, cells(table), strict=True))[:_ROWS]:
        title = plain(row.title) + (f" ({origin(row)})" if origin(row) else "")
        shown.add_row(Text(title), *(Text(str(cell), style="bold" if cell.best else "") for cell in line))
    if len(table.rows) > _ROWS:
        shown.caption = f"and {len(table.rows) - _ROWS} more rows: see the report"
    return shown
