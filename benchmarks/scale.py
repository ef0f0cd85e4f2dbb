"""What building, storing and searching a library costs at several sizes.

Every step is a command of eqkin, run and measured as a user would run it. Its figures become a line of a file; a step
that has its line is not run again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from benchmarks.growth import METADATA_NAME, grow_corpus
from benchmarks.processes import MeasuredServer, find_server, run_eqkin, run_server
from benchmarks.report import BenchmarkReport, describe_machine, log, time_call
from benchmarks.scale_report import ARXIV_EQUATIONS, Record, draw_figure, insert_tables, make_tables
from benchmarks.search import list_atlas_formulas, make_http_search, time_searches
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.manifest import INDEX_FOLDER
from eqkin.storage.files import write_file

RESULTS = "results.jsonl"
_DAILY_SOURCE = "atlas:"  # what is added to an existing library: 28 papers
_TEXTS = (
    *("energy", "matrix norm", "maximum likelihood", "heat equation", "Bayes", "spin glass", "eigenvalue problem"),
    *("function", "graph", '"central limit theorem"', "stochastic gradient descent", "Fourier transform"),
)

Sources = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="What corpora are grown from: anything `eqkin add` takes.")
]
_ATLAS, _CORES = ["atlas:"], os.cpu_count() or 1


def measure_scale(
    folder: Annotated[
        Path, typer.Option("--folder", "-f", metavar="DIR", help="For corpora, libraries and results; needs much room.")
    ],
    sources: Sources = _ATLAS,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", min=1, metavar="N", help="Equations; repeatable.", show_default="10000, 100000"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes that read and embed.")] = _CORES,
    engine: Annotated[str, typer.Option(metavar="NAME", help="processes or ray.", show_default="processes")] = "",
    milvus: Annotated[str, typer.Option(metavar="URI", help="Also push to this Milvus server and search it.")] = "",
    searches: Annotated[int, typer.Option(min=1, metavar="N", help="Searches at each size, one at a time.")] = 500,
    steps: Annotated[
        list[str] | None, typer.Option("--step", metavar="NAME", help="Only these; repeatable.", show_default="all")
    ] = None,
    target: Annotated[int, typer.Option(min=1, metavar="N", help="Equations to project to.")] = ARXIV_EQUATIONS,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw scale.svg and scale.png there.")] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Put the tables into this Markdown file, between its marks.")
    ] = None,
) -> BenchmarkReport:
    """Grow corpora, build a library of each and search it: time, disk and memory by size, and a projection.

    The steps (grow, add, index, serve, verify, push, milvus, again, day) are the commands a user would run, one after
    the other; `DIR/results.jsonl` has a line for each. Stop it at any time: what has its line is not run again. Delete
    a line, and those after it of the same size, to measure it again.

    **Example**

        python -m benchmarks scale papers.jsonl.zst --folder ~/scale --size 10000 --size 1000000 --figures docs
    """
    if into is not None:  # before hours of work
        insert_tables(into, {}, write=False)
    settings = ScaleSettings(tuple(sources), folder, jobs, engine, milvus, searches)
    records = run_study(settings, sizes or [10_000, 100_000], steps or ())
    report = BenchmarkReport("scale", {"results": str(folder / RESULTS)}, make_tables(records, target))
    if figures is not None:
        draw_figure(records, figures, target)
    if into is not None:
        insert_tables(into, report.tables)
    return report


def grow(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Gets the tars and the metadata snapshot.")],
    equations: Annotated[int, typer.Option("--equations", "-n", min=1, metavar="N", help="How many, at least.")],
    sources: Sources = _ATLAS,
) -> BenchmarkReport:
    """Make a large synthetic corpus out of a small one, in the form of arXiv's bulk archives.

    Each paper is one of the small corpus with other letters in its formulas: the equations are new, and similar to the
    originals in size and shape. For measurements only. Stop it at any time: the same command
    continues, and a larger number adds to what exists.

    **Example**

        python -m benchmarks grow papers.jsonl.zst -n 1000000 -o ~/million && eqkin add ~/million --library million
    """
    grown = grow_corpus(
        sources, out, equations, progress=lambda g: log(f"{g.papers:,} papers, {g.equations:,} equations")
    )
    return BenchmarkReport("grow", {"papers": grown.papers, "equations": grown.equations, "tars": len(grown.tars)})


@dataclass(frozen=True)
class ScaleSettings:
    """What is measured, and where."""

    sources: tuple[str, ...]  # what corpora are grown from
    folder: Path  # gets the corpora, the libraries and the results
    jobs: int
    engine: str  # of `eqkin add` and `eqkin index`; "": their default
    milvus: str  # address of a server; "": none
    searches: int

    def get_corpus(self, size: int) -> Path:
        """Return the folder of the corpus of a size."""
        return self.folder / f"corpus-{size}"

    def get_library(self, size: int) -> Path:
        """Return the folder of the library of a size."""
        return self.folder / f"library-{size}"

    def get_collection(self, size: int) -> list[str]:
        """Return the options that name the Milvus collection of a size."""
        return ["--milvus", self.milvus, "--collection", f"eqkin_scale_{size}"]

    @property
    def executor(self) -> list[str]:
        """The options that say who reads and embeds."""
        return ["--jobs", str(self.jobs), *(["--engine", self.engine] if self.engine else [])]


def load_results(folder: Path) -> list[Record]:
    """Load what was measured in a folder so far; raises `CorruptData`."""
    path = folder / RESULTS
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise CorruptData(f"{path}: cannot be read ({error}); delete the line, or the file to start again") from error


def run_study(settings: ScaleSettings, sizes: Sequence[int], only: Collection[str] = ()) -> list[Record]:
    """Measure at all sizes (numbers of equations) what was not measured yet, and return all results of the folder.

    Runs `only` some of `STEPS`, by default all; each needs those before it. Raises `BadInput` if the sources cannot be
    read, or a command failed; what was measured before is kept.
    """
    if unknown := set(only) - set(STEPS):
        raise BadInput(f"{unknown.pop()}: no such step; there are {', '.join(STEPS)}")
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{settings.folder}: could not be made ({error.strerror or error})") from error
    for size in sorted(set(sizes)):
        for step in (name for name in STEPS if name in only or not only):
            measured = {(one["size"], one["step"]) for one in load_results(settings.folder)}
            if (size, step) in measured or (step in ("push", "milvus") and not settings.milvus):
                continue
            log(f"{size:,} equations: {step}")
            record = {"size": size, "step": step, "figures": STEPS[step](settings, size), "machine": describe_machine()}
            known = [*load_results(settings.folder), record]  # read again: another process may have added to it
            write_file(settings.folder / RESULTS, b"".join(orjson.dumps(one) + b"\n" for one in known))
    return load_results(settings.folder)


def _grow(settings: ScaleSettings, size: int) -> Record:
    grown, elapsed = time_call(grow_corpus, settings.sources, settings.get_corpus(size), size)
    seconds = None if grown.skipped else elapsed  # the time of a part would be misleading
    packed = sum(tar.stat().st_size for tar in grown.tars)
    return {"seconds": seconds, "papers": grown.papers, "equations": grown.equations, "bytes": packed}


def _list_add_arguments(settings: ScaleSettings, size: int) -> list[str]:
    corpus = settings.get_corpus(size)
    return [
        *("add", str(corpus), "--displays-only", "--metadata", str(corpus / METADATA_NAME)),
        *("--library", str(settings.get_library(size))),
        *("--no-index", "--json", *settings.executor),
    ]


def _add(settings: ScaleSettings, size: int) -> Record:
    shutil.rmtree(settings.get_library(size), ignore_errors=True)  # left by a run that was stopped
    done = run_eqkin(*_list_add_arguments(settings, size))
    found = {name: count for name, count in done.json["equations"].items() if name != "diagram"}
    converted = found.get("converted", 0) + found.get("degraded", 0)
    if done.json["problems"] or not converted:
        raise BadInput(f"{settings.get_corpus(size)}: not all of it was read: {done.json['problems'][:3]}")
    counts = {"papers": done.json["papers"], "equations": sum(found.values()), "converted": converted}
    rate = sum(found.values()) / done.cost.seconds
    return {**counts, "jobs": settings.jobs, "per_second": rate, **done.figures}


def _index(settings: ScaleSettings, size: int) -> Record:
    library = settings.get_library(size)
    shutil.rmtree(library / INDEX_FOLDER, ignore_errors=True)
    done = run_eqkin("index", "--library", str(library), "--json", *settings.executor)
    figures = {name: done.json[name] for name in ("vectors", "steps")}
    disk = {"database": (library / "library.db").stat().st_size, **done.json["bytes"]}
    return {**figures, "jobs": settings.jobs, "disk": disk, **done.figures}


def _measure_server(settings: ScaleSettings, arguments: list[str], database: MeasuredServer | None = None) -> Record:
    """Start a server: time until it listens and until the first answer, its memory, its searches one at a time.

    Searches a `database` of Milvus for formulas only: not every version searches text.
    """
    start, servers = time.perf_counter(), [database] if database else []
    with run_server(*arguments) as server:
        listening = time.perf_counter() - start
        search = make_http_search(server.url)
        search("E = mc^2")
        figures: Record = {"listening_seconds": listening, "first_seconds": time.perf_counter() - start}
        figures["began"] = server.measure_memory()
        servers.append(server)
        before = _read_processor_seconds(servers)
        times = time_searches(search, list_atlas_formulas(settings.searches))
        used = _read_processor_seconds(servers) - before
        texts = [] if database else [_TEXTS[n % len(_TEXTS)] for n in range(max(settings.searches // 10, 1))]
        text_times = time_searches(lambda words: search("", words), texts)
        text_used = _read_processor_seconds(servers) - before - used
        figures["held"] = server.measure_memory()
    if errors := times.errors + text_times.errors:
        raise BadInput(f"eqkin serve {' '.join(arguments)}: {len(errors)} searches failed: {errors[0]}")
    figures |= {"processor_ms": 1e3 * used / settings.searches, **times.summarise()}
    if database:
        return {**figures, "database": database.measure_memory()}
    return {**figures, "words": {"processor_ms": 1e3 * text_used / len(texts), **text_times.summarise()}}


def _read_processor_seconds(servers: Sequence[MeasuredServer]) -> float:
    return sum(server.get_processor_seconds() for server in servers)


def _push(settings: ScaleSettings, size: int) -> Record:
    target, database = settings.get_collection(size), find_server(settings.milvus)
    before = database.get_processor_seconds()
    done = run_eqkin("push", "--library", str(settings.get_library(size)), "--json", *target)
    used = database.get_processor_seconds() - before
    if done.json["unchanged"]:  # left by a run that was stopped: the time of the rest would be misleading
        raise BadInput(f"{target[-1]}: {done.json['unchanged']:,} papers were there; drop the collection first")
    equations = done.json["equations"]
    rate = equations / done.cost.seconds
    return {"equations": equations, "per_second": rate, "database_seconds": used, **done.figures}


def _add_again(settings: ScaleSettings, size: int) -> Record:
    """Read everything again with nothing new in it: the cost of continuing after a stop."""
    done = run_eqkin(*_list_add_arguments(settings, size))
    if done.json["papers"]:
        raise BadInput(f"{settings.get_library(size)}: {done.json['papers']} papers were read again")
    return {"papers": done.json["unchanged"], **done.figures}


def _add_daily(settings: ScaleSettings, size: int) -> Record:
    """Add a few papers and make them searchable."""
    arguments = ("add", _DAILY_SOURCE, "--library", str(settings.get_library(size)), "--jobs", "1", "--json")
    done = run_eqkin(*arguments)
    if not done.json["papers"]:  # left by a run that was stopped
        run_eqkin("add", "--remove", *arguments[1:4], "--json")
        done = run_eqkin(*arguments)
    return {"papers": done.json["papers"], "equations": sum(done.json["equations"].values()), **done.figures}


STEPS: dict[str, Callable[[ScaleSettings, int], Any]] = {
    "grow": _grow,
    "add": _add,
    "index": _index,
    "serve": lambda settings, size: _measure_server(settings, ["--library", str(settings.get_library(size))]),
    "verify": lambda settings, size: (
        run_eqkin("verify", "--library", str(settings.get_library(size)), "--json").figures
    ),
    "push": _push,
    "milvus": lambda settings, size: _measure_server(
        settings, settings.get_collection(size), find_server(settings.milvus)
    ),
    "again": _add_again,
    "day": _add_daily,
}
