"""How an experiment tells how far it is, and how its result looks in a terminal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown
from rich.text import Text

from eqkin.cli.options import output
from eqkin.evaluation.results import SMALL_RUN
from eqkin.evaluation.scale import FULL

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import Context
    from eqkin.evaluation.results import Result, Table

_ROWS = 40  # of a table that is shown; the report has all
_WIDEST = 400  # columns of a table that goes into a file
_WARNING = "A small run: little was learned and drawn, its figures mean nothing."
_SILENCE = 30.0  # seconds after which a log hears of the same work again


@contextmanager
def teller(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Something that shows the last message: in one line that changes on a terminal, else a line each.

    Whoever stops the work hears that it is not lost.
    """
    console = Console(stderr=True)
    try:
        if quiet:
            yield lambda message: None
        elif console.is_terminal:
            with console.status("preparing ...") as status:
                yield lambda message: status.update(escape(message))
        else:
            yield _log()
    except KeyboardInterrupt:
        typer.echo("stopped; what was finished is kept, and the same command goes on from there", err=True)
        raise


def _log() -> Callable[[str], None]:
    """Writes a line for each new piece of work, and one now and then while it lasts."""
    before, told = "", 0.0

    def tell(message: str) -> None:
        nonlocal before, told
        start, now = message.partition(":")[0], time.monotonic()
        if start != before or now - told >= _SILENCE:
            typer.echo(message, err=True)
            before, told = start, now

    return tell


def show(context: Context, result: Result, as_json: bool) -> None:
    """Keep a result in the store and print it; that of a small run says so."""
    small = context.scale != FULL
    if small:
        title = f"{result.title}{SMALL_RUN}"
        result = dataclasses.replace(result, title=title, differences=[_WARNING, *result.differences])
    from eqkin.evaluation.report.formatting import plain  # papers' own words must not steer the terminal

    path = context.store.keep(result)
    with output():
        if as_json:
            typer.echo(orjson.dumps(dataclasses.asdict(result), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            return
        console = Console()
        if not console.is_terminal:
            console.width = _WIDEST  # a file has no edge to break lines at
        for table in result.tables:
            _print(console, table)
        for example in result.examples:
            typer.echo(plain(f"{example.title}: {example.latex}"))
            for hit in example.hits:
                typer.echo(f"  {hit.rank:3} {plain(hit.latex)}  ({plain(hit.where)})" + f"  {hit.note}".rstrip())
        for finding in result.findings:
            typer.echo(f"- {plain(finding)}")
        if small:
            typer.secho(_WARNING, fg="yellow")
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


def _print(console: Console, table: Table) -> None:
    """Show a table with what its figures mean; only name one that lists the data itself, or would be torn to pieces."""
    shown = _shown(table)
    least = console.measure(shown, options=console.options.update(max_width=_WIDEST)).minimum
    if table.quotes or least > console.width:
        why = "" if table.quotes else "too wide for this terminal; "
        console.print(Text(f"{table.title}: {why}{len(table.rows):,} rows, in the report"), soft_wrap=True)
        return
    console.print(shown)
    if table.caption:
        from eqkin.evaluation.report.formatting import plain

        console.print(Text(plain(table.caption), style="dim"), soft_wrap=not console.is_terminal)
    console.print()


def _shown(table: Table) -> Shown:
    from eqkin.evaluation.report.formatting import cells, heading, origin, plain

    shown = Shown(title=Text(table.title, style="bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("", overflow="fold")
    for column in table.columns:
        shown.add_column(Text(heading(column)), justify="left" if column.form == "text" else "right", overflow="fold")
    for row, line in list(zip(table.rows, cells(table), strict=True))[:_ROWS]:
        title = plain(row.title) + (f" ({origin(row)})" if origin(row) else "")
        shown.add_row(Text(title), *(Text(str(cell), style="bold" if cell.best else "") for cell in line))
    if len(table.rows) > _ROWS:
        shown.caption = f"and {len(table.rows) - _ROWS} more rows: see the report"
    return shown
