"""`python -m benchmarks NAME`: measure eqkin against a peer or a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from benchmarks import cli_scale
from benchmarks.cli_load import load
from benchmarks.cli_search import search
from benchmarks.machine import describe_machine
from eqkin import cli
from eqkin.cli.options import AsJson, LibraryFolder
from eqkin.cli.train import CorpusFile, load_corpus, require_torch


def ingest(
    source: Annotated[str, typer.Argument(help="What to read: anything `eqkin add` takes.")] = "atlas:",
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most this many papers.", show_default="all")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=2, help="Processes of the parallel timing.")] = 2,
    ray: Annotated[
        bool, typer.Option("--ray", help="Time `eqkin add` by processes and by Ray instead, and merging alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Time reading + conversion + trees beside the bare converter on the same formulas, in one process and in several.

    Also prints coverage, failure reasons and the memory of the largest worker.

    **Examples**

        python -m benchmarks ingest

        python -m benchmarks ingest papers.jsonl.zst --limit 500

        python -m benchmarks ingest folder-of-shards --ray --jobs 8
    """
    if ray:
        _engines(source, jobs, as_json)
        return
    from benchmarks.ingest import measure

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


def _engines(source: str, jobs: int, as_json: bool) -> None:
    """Time `eqkin add` by processes and by Ray."""
    from benchmarks.engines import measure

    with Console(stderr=True).status("measuring ...") as status:
        figures = measure(source, jobs=jobs, rounds=3, progress=status.update).summary()
    if as_json:
        typer.echo(orjson.dumps(figures | {"machine": describe_machine()}).decode())
        return
    typer.echo(f"{figures['papers']:,} papers, {figures['equations']:,} equations, three rounds")
    typer.echo(f"eqkin add, {jobs} processes        {figures['processes_per_second']:9,.0f} equations/s")
    typer.echo(
        f"eqkin add, Ray of {jobs} CPUs      {figures['ray_per_second']:9,.0f} equations/s "
        f"= {figures['ray_to_processes']:.2f} x processes (and {figures['ray_start_seconds']:.1f} s to start it)"
    )
    typer.echo("all libraries are equal" if figures["same_library"] else "the libraries differ")


def encode(
    library: Annotated[
        Path | None,
        typer.Option("--library", "-l", metavar="DIR", help="Trees of this library.", show_default="the bundled atlas"),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The model's folder.", show_default="random weights")
    ] = None,
    trees: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many trees.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Rounds; the median counts.")] = 5,
    formulas: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Formulas timed one by one.", show_default="all of the atlas")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time the encoder beside the bare matrix products of its network (and torch, if installed), then single formulas.

    Speeds in GFLOP/s count the network's matrix products alone, for all of them.

    **Examples**

        python -m benchmarks encode

        python -m benchmarks encode --library papers --trees 20000 --rounds 9
    """
    from benchmarks.encode import measure
    from eqkin.encoder.model import Model

    console = Console(stderr=True)
    with console.status("measuring ...") as status:
        report = measure(
            Model.load(model) if model else None,
            library=library,
            trees=trees,
            rounds=rounds,
            formulas=formulas,
            progress=status.update,
        )
    figures = report.summary()
    if as_json:
        typer.echo(orjson.dumps(figures | {"machine": describe_machine()}).decode())
        return
    typer.echo(f"{report.trees:,} trees, {report.nodes:,} nodes, {rounds} rounds")
    typer.echo(f"bare matrix products          {figures['products_gflops']:9,.1f} GFLOP/s")
    typer.echo(
        f"encoder                       {figures['numpy_gflops']:9,.1f} GFLOP/s "
        f"= {figures['numpy_to_products']:.0%} of the bare products, "
        f"{figures['numpy_trees_per_second']:,.0f} equations/s, {figures['numpy_nodes_per_second']:,.0f} nodes/s"
    )
    if report.paper:
        typer.echo(f"{'':30}{figures['cost_to_paper']:9.2f} times the time that the paper's network takes")
    if report.torch:
        typer.echo(
            f"torch, eager                  {figures['torch_gflops']:9,.1f} GFLOP/s "
            f"= {figures['torch_to_products']:.0%} of the bare products, "
            f"{figures['torch_trees_per_second']:,.0f} equations/s; encoder {figures['numpy_to_torch']:.2f} x torch"
        )
    if report.encoding:
        typer.echo(f"one formula at a time         {figures['formulas']:9,} formulas of the atlas, median and p99")
        for name, key in (("LaTeX to vector", "formula"), ("of it conversion", "conversion"), ("encoding", "encoding")):
            typer.echo(f"  {name:<28}{figures[f'{key}_median_ms']:9.2f} ms {figures[f'{key}_p99_ms']:9.2f} ms")


def index(
    library: LibraryFolder,
    vectors: Annotated[int, typer.Option(min=100, metavar="N", help="Vectors in the collection.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=10, metavar="N", help="Queries, asked one by one.")] = 500,
    as_json: AsJson = False,
) -> None:
    """Find the nearest of many vectors: exact search, eqkin, and annoy as in the paper (if installed).

    The vectors are embeddings of the library's equations; if it has too few, more like them are made.

    **Examples**

        python -m benchmarks index

        python -m benchmarks index --library papers --vectors 100000 --json
    """
    from benchmarks.index import PAPER_BYTES, PAPER_EQUATIONS, measure

    console = Console(stderr=True)
    with console.status("measuring ...") as status:
        report = measure(library, vectors=vectors, queries=queries, progress=status.update)
    figures = report.summary()
    if as_json:
        typer.echo(orjson.dumps(figures | {"machine": describe_machine()}).decode())
        return
    typer.echo(f"{report.vectors:,} vectors, {report.real:,} of them as embedded; {report.queries:,} queries")
    for row in figures["systems"]:
        typer.echo(
            f"{row['name']:<38} recall@10 {row['recall_10']:.4f} @100 {row['recall_100']:.4f}  "
            f"p50 {row['p50_ms']:7.3f} ms  p99 {row['p99_ms']:7.3f} ms  {row['bytes_a_vector']:5.0f} bytes a vector "
            f"({row['gigabytes_of_the_paper']:4.1f} GB for {PAPER_EQUATIONS / 1e6:.2f} M)  "
            f"built in {row['build_seconds']:.1f} s"
        )
    if report.faster:
        typer.echo(f"eqkin is {report.faster:.1f} times as fast as annoy at the recall of the last line")
    typer.echo(f"the paper's index: {PAPER_BYTES / 1e9:.0f} GB")
    for note in report.notes:
        typer.echo(f"note: {note}")


def train(
    library: LibraryFolder,
    corpus: CorpusFile = None,
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Triplets a step; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each measurement.")] = 10.0,
    recipe: Annotated[str, typer.Option(help="What to learn.")] = "paper",
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Time learning beside torch-geometric (if installed) and the bare matrix products, on the same batches.

    Also prints what the corpus takes on the device, and what the paper's 29 million equations would take.

    **Examples**

        python -m benchmarks train corpus.zst

        python -m benchmarks train --library papers --device cpu --batch 16 --seconds 3
    """
    require_torch()
    from benchmarks.train import Memory, measure
    from eqkin.training.recipes import get_recipe
    from eqkin.training.run import choose_device

    found = load_corpus(corpus, library)
    figures: list[dict[str, Any]] = []
    for report in measure(found, get_recipe(recipe), batch or [1_024, 128], choose_device(device), seconds=seconds):
        figures.append(report.summary())
        if not as_json:
            (_tell_memory if isinstance(report, Memory) else _tell_speed)(figures[-1])
    if as_json:
        typer.echo(orjson.dumps({"memory": figures[0], "batches": figures[1:], "machine": describe_machine()}).decode())


def _tell_memory(figures: dict[str, Any]) -> None:
    typer.echo(
        f"{figures['equations']:,} equations take {figures['bytes_an_equation']:.0f} bytes each on the device; "
        f"the paper's {figures['paper_equations']:,} would take {figures['projected_bytes'] / 1e9:.1f} GB"
    )


def _tell_speed(figures: dict[str, Any]) -> None:
    typer.echo(f"\nbatch {figures['batch']:,}, {figures['nodes']:,.0f} nodes on average")
    rows = {
        "matrix products alone": (figures["limit"], 1 / figures["to_limit"]),
        "eqkin": (figures["ours"], 1.0),
        "torch-geometric": (figures["geometric"], 1 / (figures["to_geometric"] or 1)),
        "torch-geometric, compiled": (figures["geometric_compiled"], 1 / (figures["to_compiled"] or 1)),
        "the paper, on a GTX 1080": (figures["paper"], 1 / figures["to_paper"]),
    }
    for name, (rate, ratio) in rows.items():
        if rate:
            typer.echo(f"  {name:<28}{rate:11,.0f} triplets/s   {ratio:6.3f} of eqkin")
    if figures["peak_bytes"]:
        typer.echo(f"  most memory in use          {figures['peak_bytes'] / 1e9:11.1f} GB")


app = typer.Typer(
    no_args_is_help=True, help="Measure eqkin beside a peer or a limit, in one run.", rich_markup_mode="markdown"
)
for _command in (ingest, encode, index, train, search, load, cli_scale.scale, cli_scale.grow):
    app.command()(_command)


def run_app() -> None:
    """Run the command line."""
    cli.run_app(app, "python -m benchmarks")


if __name__ == "__main__":
    run_app()
