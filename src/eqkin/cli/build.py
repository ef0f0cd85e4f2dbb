"""`eqkin add`, `index` and `watch`: build a library, make it searchable, and keep it up to date."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eqkin
from eqkin.cli.console import ProgressDisplay, count_noun, emit, print_problems, stop_politely, warn
from eqkin.cli.options import AsJson, LibraryFolder, Workers
from eqkin.errors import BadInput, CorruptData, LibraryBusy, strip_control_chars

if TYPE_CHECKING:
    from eqkin.executor import Executor
    from eqkin.index.update import UpdateReport
    from eqkin.library.ingest import AddReport
    from eqkin.sources.metadata import MetadataSnapshot

# Prepare trees for a GPU, which embeds faster than one core can read them.
DEVICE_THREADS = 4
_STAGE_NAMES = {
    "formulas": "indexing formulas",
    "words": "indexing text",
}


def add(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files, folders, archives, `arxiv:ID`, `zotero:`, `python:PACKAGE`, or `atlas:`.",
            show_default=False,
        ),
    ],
    library: LibraryFolder,
    workers: Workers,
    metadata: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="arXiv's public metadata snapshot (JSON lines), for bulk archives."),
    ] = None,
    fetch: Annotated[
        bool | None,
        typer.Option(
            "--fetch/--no-fetch",
            help="Fetch the LaTeX sources of PDFs and references from arXiv.",
            show_default="ask on a terminal",
        ),
    ] = None,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline", help="Also index inline formulas that state something; the library keeps this setting."
        ),
    ] = False,
    displays_only: Annotated[
        bool,
        typer.Option(
            "--displays-only", help="Index displays as a whole, not their rows; the library keeps this setting."
        ),
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the papers of these sources instead of adding them.")
    ] = False,
    index: Annotated[
        bool, typer.Option("--index/--no-index", help="Make what was read searchable; `eqkin index` does it later.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Read papers into a library: new ones are added, changed ones replaced, unchanged ones skipped.

    Stop it at any time: the same command continues where it stopped. Nothing is sent anywhere without `--fetch`, except
    for sources named `arxiv:ID`.

    **Examples**

        eqkin add ~/papers notes.md

        eqkin add arxiv:1706.03762 python:scipy

        eqkin add --fetch ~/papers library.bib zotero:
    """
    from eqkin.sources.metadata import MetadataSnapshot
    from eqkin.sources.readers import open_source

    if inline and displays_only:
        raise BadInput("--inline and --displays-only exclude each other")
    formulas = "inline" if inline else "displays" if displays_only else None
    if remove:
        removed = _remove_papers(library, sources, workers, index)
        emit({"removed": removed}, as_json, lambda: typer.echo(f"{count_noun(removed, 'paper')} removed"))
        return
    # a misspelt source is refused before a library is made
    for source in sources:
        open_source(source)
    snapshot = MetadataSnapshot(metadata) if metadata else None
    with (
        stop_politely("what was read is kept, run the same command again to continue"),
        workers.open_executor() as executor,
        eqkin.Library.open(library, create=True) as opened,
    ):
        start = time.monotonic()
        read = partial(_add_papers, opened, sources, executor, metadata=snapshot, formulas=formulas)
        report = read(fetch=bool(fetch))
        missing = len(report.without_source)
        question = f"{count_noun(missing, 'paper')} without a source here: fetch LaTeX from arXiv?"
        if missing and fetch is None and not as_json and sys.stdin.isatty() and typer.confirm(question, err=True):
            report = read(fetch=True)
        seconds = time.monotonic() - start
        nodes = executor.nodes
        indexed = _update_unless_busy(opened, executor) if index else None
    summary: dict[str, Any] = {
        "papers": report.papers,
        "unchanged": report.unchanged,
        "failed": dict(report.failed),
        "equations": dict(report.equations),
        "also": dict(report.more),
        "problems": report.problems,
        "skipped": dict(report.skipped),
        "without_source": report.without_source,
        "seconds": round(seconds, 3),
    }
    summary |= {"nodes": nodes} if nodes else {}
    summary |= {"index": asdict(indexed)} if indexed else {}
    emit(summary, as_json, lambda: _print_added(report, seconds, nodes, indexed))
    if report.problems and not report.papers and not report.unchanged:
        raise typer.Exit(3)


def _remove_papers(folder: Path, sources: list[str], workers: Workers, index: bool) -> int:
    with eqkin.Library.open(folder) as library, workers.open_executor() as executor:
        removed = library.remove(*sources)
        if not removed:
            names = ", ".join(sources)
            raise BadInput(f"{folder}: has no paper of {names}; `eqkin export --no-mathml` shows the keys")
        if index:
            _update_unless_busy(library, executor)
    return removed


def _add_papers(
    library: eqkin.Library,
    sources: list[str],
    executor: Executor,
    *,
    metadata: MetadataSnapshot | None,
    fetch: bool,
    formulas: str | None,
) -> AddReport:
    start = time.monotonic()
    with ProgressDisplay("reading") as display:

        def show(report: AddReport) -> None:
            equations = sum(report.equations.values())
            rate = equations / max(time.monotonic() - start, 1e-9)
            papers = f"{report.papers + report.unchanged:,} papers ({sum(report.failed.values()):,} failed)"
            text = f"{papers}, {equations:,} equations, {rate:,.0f}/s {executor.describe_progress()}"
            display.update(report.papers + report.unchanged, text=text)

        return library.add(
            *sources, executor=executor, metadata=metadata, fetch=fetch, progress=show, formulas=formulas
        )


def _update_unless_busy(library: eqkin.Library, executor: Executor) -> UpdateReport | None:
    try:
        return update_with_progress(library, executor)
    except LibraryBusy as error:
        warn(f"{error}, with `eqkin index`: what was read cannot be searched yet")
        return None


def _print_added(report: AddReport, seconds: float, nodes: int, indexed: UpdateReport | None) -> None:
    equations = report.equations
    found = sum(count for status, count in equations.items() if status != "diagram")
    failed = sum(report.failed.values())
    papers = count_noun(report.papers, "paper")
    typer.echo(f"{papers} added or replaced, {report.unchanged:,} unchanged, {failed:,} failed")
    if found:
        converted = equations["converted"] + equations["degraded"]
        typer.echo(
            f"{count_noun(found, 'equation')}: {converted / found:.1%} converted ({equations['degraded']:,} degraded), "
            f"{equations['failed']:,} failed, {equations['diagram']:,} diagrams not counted; "
            f"{found / seconds:,.0f} equations/s"
        )
        for name, count in sorted(report.more.items(), reverse=True):
            typer.echo(f"also: {count:,} {name.replace('inline', 'inline formulas')}")
    if nodes:
        typer.echo(f"read by a Ray cluster of {count_noun(nodes, 'node')}")
    if not (report.papers or report.unchanged or report.failed):
        warn("nothing there that can be read")
    if indexed:
        typer.echo(describe_update(indexed))
    for reason, count in report.skipped.most_common():
        typer.echo(strip_control_chars(f"skipped: {count:,} x {reason}"))
    print_problems(report.without_source, "no source", "--json lists all")
    print_problems(report.problems, "failed", "--json lists up to 200")


def index(
    library: LibraryFolder,
    workers: Workers,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|DIR",
            help="The network to embed with from now on: a folder made by `eqkin train`, or eqkin, or paper.",
            show_default="the library's",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build everything again, including what is intact.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            help="Embed with torch on a device: cuda, cpu, or auto for a GPU if there is one.",
            show_default="numpy, in `--jobs` processes",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a library searchable: index what is new, changed, damaged, or made by another model or converter.

    `eqkin add` does the same after it has read its sources. Stop it at any time: it continues where it stopped.

    **Examples**

        eqkin index

        eqkin index --model runs/mine/model

        eqkin index --device cuda
    """
    with (
        stop_politely("what was embedded is kept, `eqkin index` continues"),
        eqkin.Library.open(library) as opened,
        workers.open_executor() as executor,
    ):
        reread = _reread_equations(opened, executor, check_trees=rebuild)
        report = update_with_progress(opened, executor, rebuild=rebuild, model=model, device=device)
    sizes, _ = measure_index(library)

    def render() -> None:
        if reread:
            typer.echo(f"{count_noun(reread, 'paper')} read again")
        typer.echo(describe_update(report))
        typer.echo(f"on disk: {describe_sizes(sizes, report.equations)}")

    emit(asdict(report) | {"bytes": sizes}, as_json, render)


def _reread_equations(library: eqkin.Library, executor: Executor, *, check_trees: bool) -> int:
    """Make trees again that another converter made or, if they are checked, that are damaged; count their papers."""
    with ProgressDisplay("reading again: {done:,} of {total:,} papers") as display:
        return library.upgrade(executor=executor, progress=display.update, check_trees=check_trees)


def update_with_progress(
    library: eqkin.Library,
    executor: Executor,
    *,
    rebuild: bool = False,
    model: str | None = None,
    device: str | None = None,
) -> UpdateReport:
    """Update a library's index and show the progress.

    Args:
        library: The library.
        executor: Does the work.
        rebuild: Replace everything.
        model: The network to embed with from now on.
        device: Embed with torch on this device.
    """
    from eqkin.encoder.encoder import Encoder
    from eqkin.index.manifest import load_encoder
    from eqkin.index.update import update_index

    encoder = load_encoder(library.folder) if model is None else Encoder.load(model)
    threads = None
    if device is not None:
        from eqkin.cli.train import require_torch
        from eqkin.executor import ThreadExecutor

        require_torch()
        from eqkin.learning.batches import DeviceNetwork
        from eqkin.learning.config import choose_device

        encoder = Encoder(encoder.model, DeviceNetwork(encoder.model, choose_device(device)))
        threads = ThreadExecutor(DEVICE_THREADS)
    with ProgressDisplay("looking for new equations") as display:

        def show(stage: str, done: int, total: int) -> None:
            text = f"{_STAGE_NAMES[stage]}: {done:,} of {total:,} {executor.describe_progress()}"
            display.update(done, total, text=text)

        return update_index(library, encoder, show, rebuild=rebuild, executor=executor, threads=threads)


def describe_update(report: UpdateReport) -> str:
    """Describe an update in one line."""
    parts = [f"{report.equations:,} equations can be searched"]
    if report.indexed:
        parts.append(f"{report.indexed:,} indexed now, {report.indexed / max(report.seconds, 1e-9):,.0f}/s")
    if report.papers:
        parts.append(f"text of {report.papers:,} paper{'s' if report.papers != 1 else ''} indexed")
    return "; ".join(parts)


def measure_index(library: Path) -> tuple[dict[str, int], int]:
    """Return the bytes of each part of an index, and how many of its equations could not be parsed completely.

    Without an index, or if it is damaged, there are no parts and no equations.
    """
    from eqkin.index.manifest import INDEX_FOLDER, IndexManifest

    with suppress(CorruptData):
        manifest = IndexManifest.load(library.expanduser() / INDEX_FOLDER)
        if manifest is not None:
            return manifest.compute_sizes(), manifest.unparsed
    return {}, 0


def describe_sizes(sizes: dict[str, int], equations: int) -> str:
    """Describe the size of an index in one line."""
    parts = ", ".join(f"{name} {size / max(equations, 1):,.0f}" for name, size in sizes.items())
    return f"{sum(sizes.values()) / 1e6:,.1f} MB; bytes per equation: {parts}"


def watch(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders whose documents are kept up to date.")
    ],
    library: LibraryFolder,
    seconds: Annotated[float, typer.Option(min=0.1, help="How often to look for changes.")] = 5.0,
) -> None:
    """Keep a library up to date with folders: documents that appear or change are added, until Ctrl-C.

    **Example**

        eqkin watch ~/papers ~/notes
    """
    from eqkin.sources.readers import walk_folder

    seen: dict[Path, tuple[int, int]] = {}
    while True:
        found = {}
        for folder in folders:
            for path in walk_folder(folder.expanduser().resolve()):
                info = path.stat()
                found[path] = (info.st_mtime_ns, info.st_size)
        if found != seen:
            with eqkin.Library.open(library, create=True) as opened:
                report = opened.add(*folders)
                opened.open_engine()
            if report.papers or report.failed:
                typer.echo(f"{report.papers:,} added or changed, {report.failed.total():,} could not be read")
            seen = found
        time.sleep(seconds)
