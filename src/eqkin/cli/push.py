"""`eqkin push`: load a library into a Milvus server."""

from __future__ import annotations

import signal
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from eqkin.api import Library
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.index import load_encoder

if TYPE_CHECKING:
    from eqkin.backends.milvus.push import PushReport

_MAX_SHOWN_PROBLEMS = 10


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command(no_args_is_help=True)(push)


def push(
    library: LibraryFolder,
    milvus: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar="EQKIN_MILVUS",
            help="The server's address, `http://localhost:19530`; a user stands in it, or in `$MILVUS_TOKEN`.",
            show_default=False,
        ),
    ],
    collection: Annotated[
        str, typer.Option(metavar="NAME", help="Which collection of the server; it is made if it is not there.")
    ] = "eqkin",
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop papers from the collection that the library does not have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load a library into a Milvus server, from which `eqkin serve --milvus` serves it, on any number of machines.

    The library has to be indexed (`eqkin add` does that, or `eqkin index`). Papers that are there already are passed
    over, changed ones replaced; several libraries may go into one collection, one after the other. Stop it whenever you
    like: run the same command again and it goes on where it was. A collection holds vectors of one model, and is
    pushed into by one process at a time; others are refused.

    Any Milvus from 2.3 on will do. From 2.4 on, equations are also found by their structure, and by parts of authors'
    names; from 2.5 on, words can be searched for.

    **Examples**

        eqkin push --milvus http://localhost:19530

        eqkin push --milvus https://eqkin:secret@milvus.example.org:19530 --collection physics --library my-papers

        eqkin add --remove ~/papers/old && eqkin push --milvus http://localhost:19530 --prune
    """
    from eqkin.backends.milvus.push import push_library as push_library

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as polite as Ctrl-C
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with (
        Library.open(library, create=False) as opened,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("connecting ...", total=None)

        def show(report: PushReport) -> None:
            done = report.papers + report.unchanged
            rate = report.equations / max(report.seconds, 1e-9)
            told = f"{done:,} of {report.total:,} papers ({report.unchanged:,} there already), "
            told += f"{report.equations:,} equations, {rate:,.0f}/s"
            bar.update(task, description=told, completed=done, total=report.total)

        try:
            report = push_library(
                opened, milvus, load_encoder(opened.folder).digest, collection, prune=prune, progress=show
            )
        except KeyboardInterrupt:
            typer.secho(
                "eqkin: stopped; what was pushed stays, run the same command again to go on", err=True, fg="yellow"
            )
            raise typer.Exit(130) from None
    if as_json:
        typer.echo(orjson.dumps(asdict(report)).decode())
    else:
        _print_report(report, collection)


def _print_report(report: PushReport, collection: str) -> None:
    rate = report.equations / max(report.seconds, 1e-9)
    typer.echo(f"{report.papers:,} papers pushed, {report.unchanged:,} there already, {report.removed:,} dropped")
    typer.echo(
        f"{report.equations:,} equations pushed ({rate:,.0f}/s), {report.deleted:,} deleted; "
        f"the collection {collection} has {report.collection:,}"
    )
    if report.missing:
        typer.secho(
            f"eqkin: {report.missing:,} equations have no vector yet and cannot be found; "
            "run `eqkin index`, then this again",
            err=True,
            fg="yellow",
        )
    for name in report.oversized[:_MAX_SHOWN_PROBLEMS]:
        typer.secho(f"too large for Milvus, shown on its paper's page alone: {name}", err=True)
    if len(report.oversized) > _MAX_SHOWN_PROBLEMS:
        typer.secho(f"... and {len(report.oversized) - _MAX_SHOWN_PROBLEMS:,} more (--json lists them)", err=True)
