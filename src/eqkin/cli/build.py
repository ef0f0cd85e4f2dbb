"""`eqkin add`, `eqkin index`, `eqkin push`: build a library, make it searchable, load it into Milvus."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import eqkin
from eqkin.cli.console import count_noun, emit, print_problems, stop_politely, warn
from eqkin.cli.options import DEFAULT_JOBS, AsJson, ExecutorName, ExecutorOption, Jobs, LibraryFolder, RayAddress
from eqkin.cli.progress import ProgressDisplay
from eqkin.cluster import open_executor
from eqkin.errors import BadInput, CorruptData, LibraryBusy, strip_control_chars

if TYPE_CHECKING:
    from eqkin.cluster.milvus.push import PushReport
    from eqkin.executor import Executor
    from eqkin.index.update import UpdateReport
    from eqkin.library.ingest import AddReport
    from eqkin.sources.metadata import MetadataSnapshot

DEVICE_THREADS = 4  # prepare trees for a GPU, which embeds faster than one core can read them
_STAGE_NAMES = {
    "embedding": "embedding",
    "structure": "indexing structure",
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
    jobs: Jobs = DEFAULT_JOBS,
    engine: ExecutorOption = ExecutorName.processes,
    ray_address: RayAddress = None,
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
    r"""Read papers into a library: new ones are added, changed ones replaced, unchanged ones skipped.

    Reads LaTeX (files, folders, arXiv e-prints and bulk archives), Markdown, Quarto, R Markdown, Jupyter notebooks,
    reStructuredText, Word, Org, Typst, LyX, PreTeXt, docstrings of an installed package, HTML with
    MathML, and JSON lines. Stop it at any time: the same command continues where it stopped.

    PDFs and references (BibTeX, RIS, CSL-JSON, Zotero) lead to LaTeX sources on arXiv, by their identifier or by title
    and authors; `--fetch` gets these. Without it, nothing is sent anywhere, except for sources named `arxiv:ID`.

    With `--engine ray`, a cluster parses and embeds; a task is a tar shard or some hundred papers. Its nodes need the
    same version of eqkin and must see the same paths (a shared file system). The library is written here and is the
    same as this machine alone would make. Workers and nodes may fail during the run.

    **Examples**

        eqkin add ~/papers notes.md

        eqkin add arxiv:1706.03762 python:scipy

        eqkin add arXiv_src_1706_001.tar --metadata arxiv-metadata-oai-snapshot.json -j 8

        eqkin add /shared/arxiv --engine ray --ray-address head:6379

        eqkin add --fetch ~/papers library.bib zotero:

        eqkin add --inline ~/notes

        eqkin add --remove ~/papers/old
    """
    if inline and displays_only:
        raise BadInput("--inline and --displays-only exclude each other")
    formulas = "inline" if inline else "displays" if displays_only else None
    if remove:
        removed = _remove_papers(library, sources, jobs, index)
        emit({"removed": removed}, as_json, lambda: typer.echo(f"{count_noun(removed, 'paper')} removed"))
        return
    from eqkin.sources.metadata import MetadataSnapshot
    from eqkin.sources.readers import open_source

    for source in sources:  # a misspelt one is refused before a library is made
        open_source(source)
    snapshot = MetadataSnapshot(metadata) if metadata else None
    with stop_politely("what was read is kept, run the same command again to continue"):
        with open_executor(engine, jobs, ray_address) as executor:
            opened, start = eqkin.Library.open(library, create=True), time.monotonic()
            report = _add_papers(opened, sources, executor, snapshot, bool(fetch), formulas)
            missing = len(report.without_source)
            question = f"{count_noun(missing, 'paper')} without a source here: fetch LaTeX from arXiv?"
            if missing and fetch is None and not as_json and sys.stdin.isatty() and typer.confirm(question, err=True):
                report = _add_papers(opened, sources, executor, snapshot, True, formulas)
            seconds = time.monotonic() - start
            nodes, progress = executor.nodes, executor.describe_progress()
            indexed = _update_unless_busy(opened, executor) if index else None
    summary: dict[str, Any] = {"papers": report.papers, "unchanged": report.unchanged, "failed": dict(report.failed)}
    summary |= {
        "equations": dict(report.equations),
        "also": dict(report.more),
        "problems": report.problems,
        "skipped": dict(report.skipped),
        "without_source": report.without_source,
    }
    summary |= {"seconds": round(seconds, 3)}
    summary |= {"nodes": nodes} if nodes else {}
    summary |= {"index": asdict(indexed)} if indexed else {}
    emit(summary, as_json, lambda: _print_added(report, seconds, progress, indexed))
    if report.problems and not report.papers and not report.unchanged:
        raise typer.Exit(3)


def _remove_papers(folder: Path, sources: list[str], jobs: int, index: bool) -> int:
    library = eqkin.Library.open(folder)
    removed = library.remove(*sources)
    if not removed:
        raise BadInput(
            f"{library.folder}: has no paper of {', '.join(sources)}; `eqkin export --no-mathml` shows the keys"
        )
    if index:
        with open_executor(jobs=jobs) as executor:
            _update_unless_busy(library, executor)
    return removed


def _add_papers(
    library: eqkin.Library,
    sources: list[str],
    executor: Executor,
    metadata: MetadataSnapshot | None,
    fetch: bool,
    formulas: str | None,
) -> AddReport:
    start = time.monotonic()

    def describe(report: AddReport) -> str:
        equations = sum(report.equations.values())
        rate = equations / max(time.monotonic() - start, 1e-9)
        text = (
            f"{report.papers + report.unchanged:,} papers ({sum(report.failed.values()):,} failed), "
            f"{equations:,} equations ({report.equations['failed']:,} failed), {rate:,.0f}/s"
        )
        return "; ".join(filter(None, (text, executor.describe_progress())))

    with ProgressDisplay(executor.describe_progress) as display:

        def show(report: AddReport) -> None:
            display.text = partial(describe, report)

        return library.add(
            *sources, executor=executor, metadata=metadata, fetch=fetch, progress=show, formulas=formulas
        )


def _update_unless_busy(library: eqkin.Library, executor: Executor) -> UpdateReport | None:
    try:
        return update_with_progress(library, executor)
    except LibraryBusy as error:
        warn(f"{error}, with `eqkin index`: what was read cannot be searched yet")
        return None


def _print_added(report: AddReport, seconds: float, cluster: str, indexed: UpdateReport | None) -> None:
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
        more = [f"{count:,} {name}" for name, count in sorted(report.more.items(), reverse=True)]
        if more:
            typer.echo(f"also: {' and '.join(more)}".replace("inline", "inline formulas"))
    if cluster:
        typer.echo(f"read by a Ray cluster: {cluster}")
    if not (report.papers or report.unchanged or report.failed):
        warn("nothing there that can be read")
    if indexed:
        typer.echo(describe_update(indexed))
    for reason, count in report.skipped.most_common():
        kind, colon, why = reason.partition(":")
        skipped = f"skipped: {count_noun(count, kind)}{colon}{why}" if colon else f"skipped: {count:,} x {reason}"
        typer.echo(strip_control_chars(skipped))
    print_problems(report.without_source, "no source", "--json lists all")
    print_problems(report.problems, "failed", "--json lists up to 200")


def index(
    library: LibraryFolder,
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
    jobs: Jobs = DEFAULT_JOBS,
    engine: ExecutorOption = ExecutorName.processes,
    ray_address: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Make a library searchable: index what is new, changed, damaged, or made by another model.

    `eqkin add` does the same after it has read its sources. Stop it at any time: it continues where it stopped.

    With `--model`, all equations are embedded with that network. The library keeps a copy of it and uses it from then
    on whenever it is added to, searched, served or pushed.

    **Examples**

        eqkin index

        eqkin index --rebuild --library my-papers

        eqkin index --model runs/mine/model

        eqkin index --device cuda

        eqkin index --engine ray --ray-address auto
    """
    with stop_politely("what was embedded is kept, `eqkin index` continues"):
        with eqkin.Library.open(library) as opened, open_executor(engine, jobs, ray_address) as executor:
            report = update_with_progress(opened, executor, rebuild=rebuild, model=model, device=device)
    sizes = get_index_sizes(library)

    def render() -> None:
        typer.echo(describe_update(report))
        typer.echo(f"on disk: {describe_sizes(sizes, report.vectors)}")

    emit(asdict(report) | {"bytes": sizes}, as_json, render)


def upgrade(library: LibraryFolder, jobs: Jobs = DEFAULT_JOBS, as_json: AsJson = False) -> None:
    """Bring a library of an older eqkin up to date; its sources are not needed.

    Equations that another version of the converter read are converted again from the LaTeX in the library, as are
    those whose trees are damaged. The index is updated. Stop it at any time: it continues where it stopped.

    **Example**

        eqkin upgrade --library my-papers
    """
    with stop_politely("what was converted is kept, `eqkin upgrade` continues"):
        with eqkin.Library.open(library) as opened, open_executor(jobs=jobs) as executor:
            with ProgressDisplay("converting: {done:,} of {total:,} papers") as display:
                papers = opened.upgrade(executor=executor, progress=display.update)
            report = update_with_progress(opened, executor)

    def render() -> None:
        typer.echo(f"{count_noun(papers, 'paper')} converted again; {describe_update(report)}")

    emit({"converted": papers, "index": asdict(report)}, as_json, render)


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

    encoder, threads = load_encoder(library.folder) if model is None else Encoder.load(model), None
    if device is not None:
        from eqkin.cli.train import require_torch
        from eqkin.executor import ThreadExecutor

        require_torch()
        from eqkin.learning.batches import DeviceNetwork
        from eqkin.learning.config import choose_device

        encoder = Encoder(encoder.model, DeviceNetwork(encoder.model, choose_device(device)))
        threads = ThreadExecutor(DEVICE_THREADS)
    started: dict[str, float] = {}
    with ProgressDisplay("looking for new equations") as display:

        def show(stage: str, done: int, total: int) -> None:
            seconds = time.monotonic() - started.setdefault(stage, time.monotonic())
            rate = f", {done / seconds:,.0f}/s" if seconds > 1 else ""
            cluster = executor.describe_progress() if stage == "embedding" else ""
            text = f"{_STAGE_NAMES[stage]}: {{done:,}} of {{total:,}}{rate}"
            display.text = f"{text}; {cluster}" if cluster else text
            display.update(done, total)

        return update_index(library, encoder, show, rebuild=rebuild, executor=executor, threads=threads)


def describe_update(report: UpdateReport) -> str:
    """Describe an update in one line."""
    parts = [f"{report.vectors:,} equations can be searched"]
    if report.embedded:
        parts.append(f"{report.embedded:,} embedded now, {report.embedded / max(report.seconds, 1e-9):,.0f}/s")
    if report.structured:
        rate = report.structured / max(report.structure_seconds, 1e-9)
        parts.append(f"structure of {report.structured:,} indexed, {rate:,.0f}/s")
    if report.papers:
        parts.append(f"text of {report.papers:,} paper{'s' if report.papers != 1 else ''} indexed")
    return "; ".join(parts)


def get_index_sizes(library: Path) -> dict[str, int]:
    """Return the bytes on disk of each part of a library's index; empty if there is no index or it is damaged."""
    from eqkin.index.manifest import INDEX_FOLDER, IndexManifest

    folder = library.expanduser() / INDEX_FOLDER
    try:
        manifest = IndexManifest.load(folder)
    except CorruptData:
        return {}
    return manifest.compute_sizes(folder) if manifest else {}


def get_unparsed_count(library: Path) -> int:
    """Count the indexed equations that could not be parsed completely; 0 if there is no index or it is damaged."""
    from eqkin.index.manifest import INDEX_FOLDER, IndexManifest
    from eqkin.index.term_segments import count_unparsed

    folder = library.expanduser() / INDEX_FOLDER
    try:
        manifest = IndexManifest.load(folder)
        return count_unparsed(folder, manifest.terms or ()) if manifest else 0
    except CorruptData:
        return 0


def describe_sizes(sizes: dict[str, int], equations: int) -> str:
    """Describe the size of an index in one line."""
    parts = ", ".join(f"{name} {size / max(equations, 1):,.0f}" for name, size in sizes.items())
    return f"{sum(sizes.values()) / 1e6:,.1f} MB; bytes per equation: {parts}"


def push(
    library: LibraryFolder,
    milvus: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar="EQKIN_MILVUS",
            help="The server, as in `http://localhost:19530`; user and password in it, or in `$MILVUS_TOKEN`.",
            show_default=False,
        ),
    ],
    collection: Annotated[
        str, typer.Option(metavar="NAME", help="The collection of the server; created if it does not exist.")
    ] = "eqkin",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete papers from the collection that the library does not have.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Load a library into a Milvus server, from which `eqkin serve --milvus` serves it, on any number of machines.

    The library must be indexed (`eqkin add` does that, or `eqkin index`). Papers that are there already are skipped,
    changed ones replaced; several libraries can go into one collection, one after the other. Stop it at any time: the
    same command continues where it stopped. A collection holds vectors of one model. Only one process at a time can
    push into it; others are refused.

    Works with Milvus 2.3 and newer. From 2.4 on, equations are also found by their structure and papers by parts of
    authors' names; from 2.5 on, text can be searched.

    **Examples**

        eqkin push --milvus http://localhost:19530

        eqkin push --milvus https://eqkin:secret@milvus.example.org:19530 --collection physics --library my-papers

        eqkin add --remove ~/papers/old && eqkin push --milvus http://localhost:19530 --prune
    """
    from eqkin.cluster.milvus.push import push_library
    from eqkin.index.manifest import load_encoder

    with (
        stop_politely("what was pushed stays, run the same command again to continue"),
        eqkin.Library.open(library) as opened,
        ProgressDisplay("connecting") as display,
    ):

        def show(report: PushReport) -> None:
            rate = report.equations / max(report.seconds, 1e-9)
            display.text = f"{{done:,}} of {{total:,}} papers ({report.unchanged:,} unchanged), "
            display.text += f"{report.equations:,} equations, {rate:,.0f}/s"
            display.update(report.papers + report.unchanged, report.total)

        digest = load_encoder(opened.folder).digest
        report = push_library(opened, milvus, digest, collection, prune=prune, progress=show)
    emit(report, as_json, lambda: _print_pushed(report, collection))


def _print_pushed(report: PushReport, collection: str) -> None:
    rate = report.equations / max(report.seconds, 1e-9)
    typer.echo(f"{report.papers:,} papers pushed, {report.unchanged:,} there already, {report.removed:,} dropped")
    typer.echo(
        f"{report.equations:,} equations pushed ({rate:,.0f}/s), {report.deleted:,} deleted; "
        f"the collection {collection} has {report.collection:,}"
    )
    if report.missing:
        warn(f"{report.missing:,} equations have no vector yet and cannot be found; run `eqkin index`, then this again")
    print_problems(report.oversized, "too large for Milvus, shown only on its paper's page", "--json lists them")
