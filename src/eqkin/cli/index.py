"""`eqkin index`: bring the vectors, structure and words of a library up to date."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from eqkin.api import Library
from eqkin.backends import open_executor
from eqkin.cli.engine import ExecutorName, ExecutorOption, LiveText, RayAddress
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.errors import CorruptData
from eqkin.executor import Executor
from eqkin.index import UpdateReport, load_encoder, update_index
from eqkin.index.manifest import INDEX_FOLDER, IndexManifest

_STAGE_NAMES = {
    "embedding": "embedding",
    "structure": "taking in structure",
    "indexing": "filling the index",
    "words": "taking in words",
}


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(index)


def index(
    library: LibraryFolder,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|DIR",
            help="The network to embed with, from now on: one of `eqkin train`, or eqkin, or paper.",
            show_default="the library's",
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make everything anew, also what is intact.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to embed with.")] = os.cpu_count() or 1,
    engine: ExecutorOption = ExecutorName.processes,
    ray_address: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Make a library's equations and words searchable: what is new, changed, damaged, or of another model.

    `eqkin add` does the same when it has read its sources. Stop it whenever you like: it goes on where it was.

    With `--model`, all equations are embedded with that network; it is kept in the library, and used whenever the
    library is added to, searched, served or pushed.

    **Examples**

        eqkin index

        eqkin index --rebuild --library my-papers

        eqkin index --model runs/mine/model

        eqkin index --engine ray --ray-address auto
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Library.open(library, create=False) as opened, open_executor(engine, jobs, ray_address) as executor:
            report = update_with_progress(opened, executor, rebuild=rebuild, model=model)
    except KeyboardInterrupt:
        typer.secho("eqkin: stopped; what was embedded is kept, `eqkin index` goes on", err=True, fg="yellow")
        raise typer.Exit(130) from None
    sizes = get_index_sizes(library)
    if as_json:
        typer.echo(orjson.dumps(asdict(report) | {"bytes": sizes}).decode())
    else:
        typer.echo(describe_update(report))
        typer.echo(f"on disk: {describe_sizes(sizes, report.vectors)}")


def update_with_progress(
    library: Library, executor: Executor | None = None, *, rebuild: bool = False, model: str | None = None
) -> UpdateReport:
    """Update a library's index with its network, or from now on with another one, showing how far it is."""
    from eqkin.encoder.encoder import Encoder

    encoder = load_encoder(library.folder) if model is None else Encoder.load(model)
    console = Console(stderr=True)
    said = "looking for new equations ..."
    began: dict[str, float] = {}

    def tell() -> str:
        return "; ".join(
            filter(None, (said, executor.progress.describe() if executor and "structure" not in began else ""))
        )

    columns = (LiveText(tell), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("indexing", total=None)

        def show(stage: str, done: int, total: int) -> None:
            nonlocal said
            seconds = time.monotonic() - began.setdefault(stage, time.monotonic())
            rate = f", {done / seconds:,.0f}/s" if seconds > 1 else ""
            said = f"{_STAGE_NAMES[stage]} ... {done:,} of {total:,}{rate}"
            bar.update(task, completed=done, total=total)

        return update_index(library, encoder, show, rebuild=rebuild, executor=executor)


def describe_update(report: UpdateReport) -> str:
    """An update in one line."""
    done = [f"{report.vectors:,} equations can be searched"]
    if report.embedded:
        done.append(f"{report.embedded:,} embedded now, {report.embedded / max(report.seconds, 1e-9):,.0f}/s")
    if report.structured:
        rate = report.structured / max(report.structure_seconds, 1e-9)
        done.append(f"structure of {report.structured:,} taken in, {rate:,.0f}/s")
    if report.papers:
        done.append(f"words of {report.papers:,} papers taken in")
    return "; ".join(done)


def get_index_sizes(library: Path) -> dict[str, int]:
    """Bytes on disk of the parts of a library's index; none if there is no index, or it is damaged."""
    folder = library.expanduser() / INDEX_FOLDER
    try:
        state = IndexManifest.load(folder)
    except CorruptData:
        return {}
    return state.compute_sizes(folder) if state else {}


def describe_sizes(sizes: dict[str, int], equations: int) -> str:
    """The size of an index in one line."""
    parts = ", ".join(f"{name} {size / max(equations, 1):,.0f}" for name, size in sizes.items())
    return f"{sum(sizes.values()) / 1e6:,.1f} MB; bytes an equation: {parts}"
