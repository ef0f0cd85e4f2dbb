"""`python -m benchmarks search`: how long a search takes, stage by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console

from benchmarks.machine import describe_machine
from eqkin.cli.options import AsJson, LibraryFolder

if TYPE_CHECKING:
    from benchmarks.search import SearchReport


def search(
    library: LibraryFolder,
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Formulas of the atlas to search for.")] = 500,
    clients: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="How many search at the same time; repeatable.")
    ] = None,
    in_process: Annotated[bool, typer.Option("--in-process", help="Without a server.")] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Hits of each search.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="With explanations.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time searches of a library end to end over HTTP: median and 99th percentile of each stage and of the whole.

    Starts a server of its own and asks it with 1 and with 32 clients, or as many as you say; also tells how long it
    takes from the start of the server to the first answer.

    **Examples**

        python -m benchmarks search --library papers

        python -m benchmarks search --library papers --in-process --clients 4
    """
    from benchmarks.search import measure_engine, measure_server

    with Console(stderr=True).status("searching ..."):
        if in_process:
            reports = [
                measure_engine(library, searches=searches, clients=number, k=k, explain=explain)
                for number in clients or [1]
            ]
        else:
            reports = measure_server(library, searches=searches, clients=clients or [1, 32], k=k, explain=explain)
    if as_json:
        here = {"machine": describe_machine()}
        typer.echo(
            orjson.dumps([report.summary() | {"problems": report.errors[:20]} | here for report in reports]).decode()
        )
    else:
        for report in reports:
            _tell(report)
    if any(report.errors for report in reports):
        raise typer.Exit(1)


def _tell(report: SearchReport) -> None:
    figures = report.summary()
    typer.echo(
        f"{figures['searches']:,} searches, {report.clients} at a time, {figures['errors']} errors, "
        f"{figures['searches_per_second']:,.0f} a second; first answer after {report.first:.2f} s"
    )
    for name in ("whole", *report.stages):
        if f"{name}_p50_ms" in figures:
            typer.echo(
                f"  {name:<12} p50 {figures[f'{name}_p50_ms']:8.2f} ms   p99 {figures[f'{name}_p99_ms']:8.2f} ms"
            )
    for problem in report.errors[:3]:
        typer.secho(f"  {problem}", err=True)
