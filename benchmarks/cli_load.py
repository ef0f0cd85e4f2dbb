"""`python -m benchmarks load`: a server under the load of many clients."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console

from benchmarks.machine import describe_machine
from eqkin.cli.options import AsJson, Collection, LibraryFolder
from eqkin.cli.serve import WorkerCount
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from benchmarks.load import Progress


def load(
    library: LibraryFolder,
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="A server that runs already; otherwise one is started.")
    ] = "",
    clients: Annotated[int, typer.Option(min=1, metavar="N", help="How many ask at the same time.")] = 64,
    seconds: Annotated[float, typer.Option(min=1, help="For how long.")] = 300.0,
    workers: WorkerCount = 1,
    milvus: Annotated[
        str, typer.Option(metavar="URI", help="Serve from this Milvus server instead of a library.")
    ] = "",
    collection: Collection = "eqkin",
    writing: Annotated[
        bool, typer.Option("--writing", help="Add and remove papers meanwhile, in a copy of the library.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Let many clients ask a server for some time, each waiting for its answer; count errors, and time the answers.

    They search for formulas of the atlas, with words, filters and explanations, and look at pages. Exits with 1 if any
    request failed; one that is told to come again later has failed, too.

    **Examples**

        python -m benchmarks load --library papers --workers 4

        python -m benchmarks load --library papers --seconds 60 --writing

        python -m benchmarks load http://localhost:8017 --clients 128
    """
    if url and (milvus or writing):
        raise BadInput("with a URL, nothing is served: leave --milvus and --writing away")
    if milvus and writing:
        raise BadInput("--writing changes a library, and --milvus needs none: choose one")
    with ExitStack() as stack, Console(stderr=True).status("starting ...") as status:

        def show(passed: float, answers: int, errors: int) -> None:
            status.update(f"{passed:,.0f} of {seconds:,.0f} s, {answers:,} answers, {errors:,} errors")

        if url:
            from benchmarks.load import measure

            figures = measure(url, clients=clients, seconds=seconds, progress=show).summary()
        else:
            what = ["--milvus", milvus, "--collection", collection] if milvus else []
            figures = _served(stack, library, what, workers, writing, clients, seconds, show)
    if as_json:
        typer.echo(orjson.dumps(figures | {"machine": describe_machine()}, option=orjson.OPT_NON_STR_KEYS).decode())
    else:
        _tell(figures)
    if figures["errors"]:
        raise typer.Exit(1)


def _served(
    stack: ExitStack,
    library: Path,
    what: list[str],
    workers: int,
    writing: bool,
    clients: int,
    seconds: float,
    show: Progress,
) -> dict[str, Any]:
    """The figures of a server of our own, with what it holds in memory, and what was written meanwhile."""
    from benchmarks.load import measure
    from benchmarks.processes import get_processor_seconds, measure_memory
    from benchmarks.publishing import Publisher, copied
    from benchmarks.search import serving

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eqkin-load-"))) if writing else None
    if folder:
        library = copied(library, folder)
    place, process = stack.enter_context(serving(*(what or ["--library", str(library)]), "--workers", str(workers)))
    publisher = None
    if folder:
        (folder / "notes").mkdir()
        publisher = Publisher(library, folder / "notes")
    try:
        used = get_processor_seconds(process)
        figures = measure(place, clients=clients, seconds=seconds, progress=show).summary()
        used = get_processor_seconds(process) - used
    finally:
        if publisher:
            publisher.stop()
    figures |= {"processor_ms_an_answer": 1e3 * used / max(figures["answers"], 1), "memory": measure_memory(process)}
    if publisher:
        if publisher.problems:
            raise BadInput(publisher.problems[0])
        figures |= {"published": publisher.published, "seen_after_seconds": publisher.seen_after(place)}
    return figures


def _tell(figures: dict[str, Any]) -> None:
    typer.echo(
        f"{figures['clients']:,} clients, {figures['seconds']:,.0f} s: {figures['answers']:,} answers "
        f"({figures['answers_per_second']:,.1f} a second), {figures['errors']:,} errors"
    )
    for name, times in figures["times"].items():
        typer.echo(
            f"  {name:<12}{times['count']:9,}   p50 {times['p50_ms']:8,.0f} ms   p90 {times['p90_ms']:8,.0f} ms   "
            f"p99 {times['p99_ms']:8,.0f} ms   longest {times['max_ms']:8,.0f} ms"
        )
    by_second = sorted(figures["by_second"]) or [0]
    typer.echo(
        f"  answers in a second: least {by_second[0]:,}, median {by_second[len(by_second) // 2]:,}, "
        f"most {by_second[-1]:,}; longest time without any {figures['longest_pause_ms']:,.0f} ms"
    )
    shares = ", ".join(f"{count:,}" for count in figures["connections_by_process"].values())
    typer.echo(f"  connections of each process: {shares}")
    if "memory" in figures and figures["memory"]["rss"]:
        held = {name: size / 1e6 for name, size in figures["memory"].items()}
        typer.echo(
            f"  the server used {figures['processor_ms_an_answer']:,.1f} ms of a processor for an answer, and "
            f"{held['pss']:,.0f} MB of memory, of it {held['own']:,.0f} MB not from files"
        )
    if "published" in figures:
        typer.echo(
            f"  {figures['published']:,} snapshots were published meanwhile; "
            f"the last was seen by all after {figures['seen_after_seconds']:.1f} s"
        )
    for kind, count in figures["errors_by_kind"].items():
        typer.secho(f"  {count:,} times {kind}", err=True)
