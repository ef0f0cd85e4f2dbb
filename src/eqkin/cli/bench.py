"""`eqkin bench`: measurements against a peer or a limit."""

from __future__ import annotations

from typing import Annotated

import orjson
import typer
from rich.console import Console

from eqkin.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Put the commands into the app."""
    group = typer.Typer(
        no_args_is_help=True, help="Measure eqkin beside a peer or a limit, in one run.", rich_markup_mode="markdown"
    )
    group.command()(ingest)
    app.add_typer(group, name="bench")


def ingest(
    source: Annotated[str, typer.Argument(help="What to read: anything `eqkin add` takes.")] = "atlas:",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most this many papers.", show_default="all")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=2, help="Processes of the parallel timing.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Time reading + conversion + trees beside the bare converter on the same formulas, in one process and in several.

    Also prints coverage, failure reasons and the memory of the largest worker.

    **Examples**

        eqkin bench ingest

        eqkin bench ingest papers.jsonl.zst --limit 500
    """
    from eqkin.benchmarks.ingest import measure

    console = Console(stderr=True)
    with console.status("measuring ...") as status:
        report = measure(
            source,
            limit=limit,
            jobs=jobs,
            progress=lambda r: status.update(f"{r.papers:,} papers, {r.found:,} equations"),
        )
    figures = report.summary()
    if as_json:
        typer.echo(orjson.dumps(figures | {"reasons": report.reasons, "failed_papers": report.failed_papers}).decode())
        return
    typer.echo(f"{report.papers:,} papers, {report.found:,} equations ({report.equations['diagram']:,} diagrams apart)")
    typer.echo(f"converted {figures['converted_percent']:.2f} %, of these degraded {figures['degraded_percent']:.2f} %")
    typer.echo(
        f"bare converter                {figures['bare_per_second']:9,.0f} equations/s "
        f"(it converts {figures['bare_converted_percent']:.1f} %)"
    )
    typer.echo(
        f"eqkin, one process            {figures['one_process_per_second']:9,.0f} equations/s "
        f"= {figures['one_to_bare']:.0%} of the bare converter"
    )
    typer.echo(
        f"eqkin, {jobs} processes            {figures['many_processes_per_second']:9,.0f} equations/s "
        f"= {figures['many_to_one']:.2f} x one process"
    )
    typer.echo(f"largest worker                {figures['peak_megabytes_a_worker']:9,.0f} MB")
    for reason, count in report.reasons.most_common(12):
        typer.echo(f"  failed: {reason} {count:,}")
    for reason, count in report.failed_papers.most_common():
        typer.echo(f"  unreadable papers: {reason} {count:,}")
