"""What building, storing and searching a library costs at several sizes.

Every step is a command of eqkin, run and measured as a user would run it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.grow import grow_corpus
from benchmarks.processes import CommandResult, run_eqkin, run_server
from benchmarks.report import BenchmarkReport, log
from benchmarks.search import list_atlas_formulas, make_http_search, time_searches
from eqkin.errors import BadInput

_TEXTS = (
    *("energy", "matrix norm", "maximum likelihood", "heat equation", "Bayes", "spin glass", "eigenvalue problem"),
    *("function", "graph", '"central limit theorem"', "stochastic gradient descent", "Fourier transform"),
)


def measure_scale(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="What corpora are grown from.")],
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, metavar="N", help="Equations; repeatable.", show_default="10000, 100000"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", "-f", metavar="DIR", help="Keep corpora and libraries there.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes that read.")] = os.cpu_count() or 1,
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Searches at each size, one at a time.")] = 500,
) -> BenchmarkReport:
    """Grow corpora, build a library of each and search it: time, disk and memory by size.

    **Example**

        python -m benchmarks scale papers.jsonl.zst --size 10000 --size 1000000
    """
    report = BenchmarkReport("scale", {"jobs": jobs})
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eqkin-scale-")))
        place.mkdir(parents=True, exist_ok=True)
        for size in sorted(set(sizes or [10_000, 100_000])):
            log(f"{size:,} equations: growing")
            corpus = place / f"corpus-{size}.jsonl"
            if not corpus.exists():
                grow_corpus(sources, corpus, size)
            measure_size_of_corpus(report, corpus, place / f"library-{size}", jobs, searches)
    return report


def measure_size_of_corpus(report: BenchmarkReport, corpus: Path, library: Path, jobs: int, searches: int) -> None:
    """Build a library of a corpus, search it, and add what the steps cost."""
    shutil.rmtree(library, ignore_errors=True)
    where = ["--library", str(library)]
    add = ["add", str(corpus), "--displays-only", "--no-index", "--json", "--jobs", str(jobs), *where]
    log("reading")
    first = run_eqkin(*add)
    if first.json["problems"] or not first.json["papers"]:
        raise BadInput(f"{corpus}: not all of it was read: {first.json['problems'][:3]}")
    equations = sum(count for status, count in first.json["equations"].items() if status != "diagram")
    title = f"{equations:,} equations"

    def add_step(name: str, done: CommandResult) -> None:
        report.add(
            title, name, seconds=done.seconds, processor_seconds=done.processor_seconds,
            peak_megabytes=done.peak_bytes / 1e6,
        )  # fmt: skip

    add_step("read", first)
    log("indexing")
    add_step("index", run_eqkin("index", "--json", *where))
    disk = sum(path.stat().st_size for path in library.rglob("*") if path.is_file())
    report.add(title, "on disk", bytes_per_equation=disk / equations)
    log("searching")
    with run_server(*where) as server:
        search = make_http_search(server.url)
        search("E = mc^2")
        for name, queries in {"formulas": list_atlas_formulas(searches), "words": list(_TEXTS)}.items():
            before = server.get_processor_seconds()
            ask = search if name == "formulas" else lambda words: search("", words)
            times = time_searches(ask, queries)
            if times.errors:
                raise BadInput(f"{len(times.errors)} searches failed: {times.errors[0]}")
            used = (server.get_processor_seconds() - before) / len(queries)
            report.add(title, f"search for {name}", processor_seconds=used, **times.summarise())
        report.add(title, "server", peak_megabytes=server.measure_memory() / 1e6)
    add_step("verify", run_eqkin("verify", "--json", *where))
    add_step("read again, nothing new", run_eqkin(*add))
    add_step("28 more papers", run_eqkin("add", "atlas:", "--jobs", "1", "--json", *where))
