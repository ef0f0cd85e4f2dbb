"""`eqkin bench search`: how long a search takes, stage by stage."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.console import Console

from eqkin.cli.options import AsJson, LibraryFolder


def search(
    library: LibraryFolder,
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Formulas of the atlas to search for.")] = 500,
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="How many search at the same time.")] = 1,
    k: Annotated[int, typer.Option("-k", min=1, help="Hits of each search.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="With explanations.")] = False,
    as_json: AsJson = False,
) -> None:
    """Time searches of a library in this process: median and 99th percentile of each stage and of the whole.

    **Example**

        eqkin bench search --library papers --clients 4
    """
    from eqkin.benchmarks.search import measure_engine

    with Console(stderr=True).status("searching ..."):
        report = measure_engine(library, searches=searches, clients=clients, k=k, explain=explain)
    figures = report.summary()
    if as_json:
        typer.echo(orjson.dumps(figures | {"problems": report.errors[:20]}).decode())
    else:
        typer.echo(
            f"{figures['searches']:,} searches, {clients} at a time, {figures['errors']} errors, "
            f"{figures['searches_per_second']:,.0f} a second; first answer after {report.first:.2f} s"
        )
        for name in ("whole", *report.stages):
            if f"{name}_p50_ms" in figures:
                typer.echo(
                    f"  {name:<12} p50 {figures[f'{name}_p50_ms']:8.2f} ms   p99 {figures[f'{name}_p99_ms']:8.2f} ms"
                )
    if report.errors:
        raise typer.Exit(1)
