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

from eqkin.cli.console import guard_output
from eqkin.evaluation.results import SMALL_RUN_SUFFIX
from eqkin.evaluation.scale import FULL_SCALE

if TYPE_CHECKING:
    from eqkin.evaluation.experiments.context import ExperimentContext
    from eqkin.evaluation.results import ExperimentResult, Table

_MAX_ROWS = 40  # of a table that is shown; the report has all
_FILE_WIDTH = 400  # columns of a table that goes into a file
_SMALL_RUN_WARNING = "A small run: little was learned and drawn, its figures mean nothing."
_LOG_SECONDS = 30.0  # seconds after which a log hears of the same work again


@contextmanager
def open_progress(quiet: bool) -> Iterator[Callable[[str], None]]:
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
            yield _make_logger()
    except KeyboardInterrupt:
        typer.echo("stopped; what was finished is kept, and the same command goes on from there", err=True)
        raise


def _make_logger() -> Callable[[str], None]:
    """Writes a line for each new piece of work, and one now and then while it lasts."""
    before, told = "", 0.0

    def tell(message: str) -> None:
        nonlocal before, told
        start, now = message.partition(":")[0], time.monotonic()
        if start != before or now - told >= _LOG_SECONDS:
            typer.echo(message, err=True)
            before, told = start, now

    return tell


def save_and_print(context: ExperimentContext, result: ExperimentResult, as_json: bool) -> None:
    """Keep a result in the store and print it; that of a small run says so."""
    small = context.scale != FULL_SCALE
    if small:
        title = f"{result.title}{SMALL_RUN_SUFFIX}"
        result = dataclasses.replace(result, title=title, differences=[_SMALL_RUN_WARNING, *result.differences])
    from eqkin.evaluation.report.formatting import clean_text  # papers' own words must not steer the terminal

    path = context.cache.save(result)
    with guard_output():
        if as_json:
            typer.echo(orjson.dumps(dataclasses.asdict(result), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            return
        console = Console()
        if not console.is_terminal:
            console.width = _FILE_WIDTH  # a file has no edge to break lines at
        for table in result.tables:
            _print_table(console, table)
        for example in result.examples:
            typer.echo(clean_text(f"{example.title}: {example.latex}"))
            for hit in example.hits:
                typer.echo(
                    f"  {hit.rank:3} {clean_text(hit.latex)}  ({clean_text(hit.where)})" + f"  {hit.note}".rstrip()
                )
        for finding in result.findings:
            typer.echo(f"- {clean_text(finding)}")
        if small:
            typer.secho(_SMALL_RUN_WARNING, fg="yellow")
        typer.echo(f"kept in {path}; `eqkin report {context.cache.folder}` makes a page of it", err=True)


def print_summaries(found: Mapping[str, dict[str, Any]], as_json: bool) -> None:
    """Print what `labelled.summary` found on each set; as JSON, a single one's by itself."""
    with guard_output():
        if as_json:
            typer.echo(orjson.dumps(found if len(found) > 1 else next(iter(found.values()))).decode())
            return
        for name, one in found.items():
            typer.echo(f"{name}: {one['equations']:,} equations, {one['labels']:,} labels")
            for key in ("accuracy", "ranking"):
                low, high = one["intervals"][key]
                alone = one["embedding"][key]
                typer.echo(f"  {key:8} {one[key]:5.1f} % [{low:.1f}, {high:.1f}]   by the vector alone {alone:.1f} %")


def _print_table(console: Console, table: Table) -> None:
    """Show a table with what its figures mean; only name one that lists the data itself, or would be torn to pieces."""
    shown = _to_rich_table(table)
    least = console.measure(shown, options=console.options.update(max_width=_FILE_WIDTH)).minimum
    if table.quotes or least > console.width:
        why = "" if table.quotes else "too wide for this terminal; "
        console.print(Text(f"{table.title}: {why}{len(table.rows):,} rows, in the report"), soft_wrap=True)
        return
    console.print(shown)
    if table.caption:
        from eqkin.evaluation.report.formatting import clean_text

        console.print(Text(clean_text(table.caption), style="dim"), soft_wrap=not console.is_terminal)
    console.print()


def _to_rich_table(table: Table) -> Shown:
    from eqkin.evaluation.report.formatting import clean_text, format_cells, format_heading, get_origin

    shown = Shown(title=Text(table.title, style="bold"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("", overflow="fold")
    for column in table.columns:
        shown.add_column(
            Text(format_heading(column)), justify="left" if column.form == "text" else "right", overflow="fold"
        )
    for row, line in list(zip(table.rows, format_cells(table), strict=True))[:_MAX_ROWS]:
        title = clean_text(row.title) + (f" ({get_origin(row)})" if get_origin(row) else "")
        shown.add_row(Text(title), *(Text(str(cell), style="bold" if cell.best else "") for cell in line))
    if len(table.rows) > _MAX_ROWS:
        shown.caption = f"and {len(table.rows) - _MAX_ROWS} more rows: see the report"
    return shown
