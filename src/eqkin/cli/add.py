"""`eqkin add`: read papers into a library."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

from eqkin.api import Library
from eqkin.backends import open_executor
from eqkin.cli.engine import ExecutorName, ExecutorOption, LiveText, RayAddress
from eqkin.cli.index import describe_update, update_with_progress
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.errors import BadInput, LibraryBusy
from eqkin.executor import Executor, ExecutorProgress
from eqkin.index import UpdateReport
from eqkin.library import AddReport
from eqkin.sources import MetadataSnapshot, open_source

_MAX_SHOWN_PROBLEMS = 10


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command(no_args_is_help=True)(add)


def add(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, folders, archives, `arxiv:ID`, `python:PACKAGE`, or `atlas:`.",
            show_default=False,
        ),
    ],
    library: LibraryFolder,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to work with.")] = os.cpu_count() or 1,
    engine: ExecutorOption = ExecutorName.processes,
    ray_address: RayAddress = None,
    metadata: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="arXiv's public metadata snapshot (JSON lines), for bulk archives."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Drop the papers of these sources instead of adding them.")
    ] = False,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Make what was read searchable; `eqkin index` does it later.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    r"""Read papers into a library: new ones are added, changed ones replaced, unchanged ones skipped.

    Reads LaTeX (files, folders, arXiv e-prints and bulk archives), Markdown, Quarto, R Markdown, Jupyter notebooks,
    reStructuredText, docstrings of an installed package, HTML with MathML, and JSON lines. Stop it whenever you like:
    run the same command again and it goes on where it was.

    With `--engine ray` a cluster reads and embeds, a tar shard or some hundred papers a task. Its nodes need the same
    eqkin and have to see the same paths (a shared file system); the library is written here, and is the one that this
    machine alone would make. Workers and nodes may die on the way.

    **Examples**

        eqkin add ~/papers notes.md

        eqkin add arxiv:1706.03762 python:scipy

        eqkin add arXiv_src_1706_001.tar --metadata arxiv-metadata-oai-snapshot.json -j 8

        eqkin add /shared/arxiv --engine ray --ray-address head:6379

        eqkin add --remove ~/papers/old
    """
    if not remove:
        for source in sources:  # a misspelt one is refused before a library is made
            open_source(source)
    if remove:
        with open_executor(jobs=jobs) as executor:
            _remove_papers(Library.open(library, create=False), sources, executor if index else None, as_json)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as polite as Ctrl-C: what was read is kept
    snapshot = MetadataSnapshot(metadata) if metadata else None
    try:
        with open_executor(engine, jobs, ray_address) as executor:
            opened = Library.open(library)
            start = time.monotonic()
            report = _add_with_progress(opened, sources, executor, snapshot)
            seconds = time.monotonic() - start
            tally = replace(executor.progress)
            indexed = _update_index(opened, executor) if index else None
    except KeyboardInterrupt:
        typer.secho("eqkin: stopped; what was read is kept, run the same command again to go on", err=True, fg="yellow")
        raise typer.Exit(130) from None
    _print_report(report, indexed, tally, seconds, as_json)
    if report.problems and not report.papers and not report.unchanged:
        raise typer.Exit(3)


def _remove_papers(library: Library, sources: list[str], executor: Executor | None, as_json: bool) -> None:
    dropped = library.remove(*sources)
    if not dropped:
        raise BadInput(
            f"{library.folder}: has no paper of {', '.join(sources)}; `eqkin export --no-mathml` shows the keys"
        )
    if executor:
        _update_index(library, executor)
    typer.echo(orjson.dumps({"removed": dropped}).decode() if as_json else f"{dropped:,} papers removed")


def _add_with_progress(
    library: Library, sources: list[str], executor: Executor, metadata: MetadataSnapshot | None
) -> AddReport:
    console = Console(stderr=True)
    start = time.monotonic()
    so_far = AddReport()

    def tell() -> str:
        equations = sum(so_far.equations.values())
        rate = equations / max(time.monotonic() - start, 1e-9)
        read = (
            f"{so_far.papers + so_far.unchanged:,} papers ({sum(so_far.failed.values()):,} failed), "
            f"{equations:,} equations ({so_far.equations['failed']:,} failed), {rate:,.0f}/s"
        )
        return "; ".join(filter(None, (read, executor.progress.describe())))

    def show(report: AddReport) -> None:
        nonlocal so_far
        so_far = report

    columns = (SpinnerColumn(), LiveText(tell), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task("reading", total=None)
        return library.add(*sources, executor=executor, metadata=metadata, progress=show)


def _update_index(library: Library, executor: Executor) -> UpdateReport | None:
    """Make what was read searchable, unless somebody else is at it."""
    try:
        return update_with_progress(library, executor)
    except LibraryBusy as error:
        typer.secho(f"eqkin: {error}, with `eqkin index`: what was read cannot be searched yet", err=True, fg="yellow")
        return None


def _print_report(
    report: AddReport, indexed: UpdateReport | None, tally: ExecutorProgress, seconds: float, as_json: bool
) -> None:
    equations = dict(report.equations)
    if as_json:
        summary = {
            "papers": report.papers,
            "unchanged": report.unchanged,
            "failed": dict(report.failed),
            "equations": equations,
        }
        summary |= {"problems": report.problems, "skipped": dict(report.skipped), "seconds": round(seconds, 3)}
        if tally.nodes:
            summary["cluster"] = asdict(tally)
        if indexed:
            summary["index"] = asdict(indexed)
        typer.echo(orjson.dumps(summary).decode())
        return
    found = sum(n for status, n in equations.items() if status != "diagram")
    converted = equations.get("converted", 0) + equations.get("degraded", 0)
    typer.echo(
        f"{report.papers:,} papers added or replaced, {report.unchanged:,} unchanged, "
        f"{sum(report.failed.values()):,} failed"
    )
    if found:
        typer.echo(
            f"{found:,} equations: {converted / found:.1%} converted ({equations.get('degraded', 0):,} degraded), "
            f"{equations.get('failed', 0):,} failed, {equations.get('diagram', 0):,} diagrams apart; "
            f"{found / seconds:,.0f} equations/s"
        )
    if tally.nodes:
        typer.echo(f"read by a Ray cluster: {tally.describe()}")
    if not (report.papers or report.unchanged or report.failed):
        typer.secho("nothing there that can be read; PDFs cannot: give their LaTeX sources", err=True, fg="yellow")
    if indexed:
        typer.echo(describe_update(indexed))
    for reason, count in report.skipped.most_common(5):
        typer.echo(f"left out: {count:,} x {reason}")
    for problem in report.problems[:_MAX_SHOWN_PROBLEMS]:
        typer.secho(f"failed: {problem}", err=True)
    if len(report.problems) > _MAX_SHOWN_PROBLEMS:
        typer.secho(f"... and {len(report.problems) - _MAX_SHOWN_PROBLEMS:,} more (--json lists up to 200)", err=True)
