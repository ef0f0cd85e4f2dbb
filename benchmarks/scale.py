"""`python -m benchmarks scale`: what building, keeping and searching a library costs at several sizes.

Every step is a command of eqkin, run and watched as a user would run it, and its figures are a line of a file: a step
that has its line is not done again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.growth import METADATA_NAME, grow_corpus
from benchmarks.machine import describe_machine
from benchmarks.processes import measure_memory, parse_output, run_eqkin
from benchmarks.search import Client, formulas, measure, serving
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.index.state import INDEX_FOLDER, IndexManifest
from eqkin.storage import write_file

RESULTS = "results.jsonl"
_DAY = "atlas:"  # what is added to a library that is there: 28 papers
_WORDS = (
    *("energy", "matrix norm", "maximum likelihood", "heat equation", "Bayes", "spin glass", "eigenvalue problem"),
    *("function", "graph", '"central limit theorem"', "stochastic gradient descent", "Fourier transform"),
)

Record = dict[str, Any]  # "size", "step", "figures", "machine"


@dataclass(frozen=True)
class ScaleSettings:
    """What is measured, and where."""

    sources: tuple[str, ...]  # what corpora are grown from
    folder: Path  # gets the corpora, the libraries and the results
    jobs: int = os.cpu_count() or 1  # processes to read and embed with
    engine: str = ""  # of `eqkin add` and `eqkin index`; "": their default
    milvus: str = ""  # address of a server, "": none
    searches: int = 500
    clients: int = 1
    seed: int = 0

    def corpus(self, size: int) -> Path:
        """Where the corpus of a size is."""
        return self.folder / f"corpus-{size}"

    def library(self, size: int) -> Path:
        """Where the library of a size is."""
        return self.folder / f"library-{size}"

    @property
    def workers(self) -> list[str]:
        """Who reads and embeds, as options."""
        return ["--jobs", str(self.jobs), *(["--engine", self.engine] if self.engine else [])]


def load_results(folder: Path) -> list[Record]:
    """What was measured in a folder so far; raises `CorruptData`."""
    path = folder / RESULTS
    try:
        return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except (OSError, ValueError) as error:
        raise CorruptData(f"{path}: cannot be read ({error}); delete the line, or the file to begin again") from error


def run_study(
    settings: ScaleSettings, sizes: Sequence[int], tell: Callable[[str], None], only: Collection[str] = ()
) -> list[Record]:
    """Measure at all sizes, smallest first, what was not measured yet.

    Args:
        settings: what and where.
        sizes: equations of each corpus.
        tell: called with what begins.
        only: names of steps, of `STEPS`; all unless given. Each needs those before it, done now or earlier.

    Returns:
        All results of the folder.

    Raises:
        BadInput: the sources cannot be read, or a command fails; what was measured before is kept.
    """
    wanted = [step for step in STEPS if step in only or not only]
    if unknown := set(only) - set(STEPS):
        raise BadInput(f"{unknown.pop()}: no such step; there are {', '.join(STEPS)}")
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{settings.folder}: could not be made ({error.strerror or error})") from error
    for size in sorted(set(sizes)):
        for step in wanted:
            known = load_results(settings.folder)
            there = any((one["size"], one["step"]) == (size, step) for one in known)
            if there or (step in _OF_MILVUS and not settings.milvus):
                continue
            tell(f"{size:,} equations: {step}")
            record = {"size": size, "step": step, "figures": STEPS[step](settings, size), "machine": describe_machine()}
            known = [*load_results(settings.folder), record]  # somebody may have measured something else meanwhile
            write_file(settings.folder / RESULTS, b"".join(orjson.dumps(one) + b"\n" for one in known))
    return load_results(settings.folder)


def _grow(settings: ScaleSettings, size: int) -> Record:
    start = time.perf_counter()
    corpus = settings.corpus(size)
    grown = grow_corpus(settings.sources, corpus, size, seed=settings.seed, pieces=settings.folder / "pieces")
    seconds = None if grown.skipped else time.perf_counter() - start  # of all of it, or it says nothing
    packed = sum(tar.stat().st_size for tar in grown.tars)
    return {"seconds": seconds, "papers": grown.papers, "equations": grown.equations, "bytes": packed}


def _reading(settings: ScaleSettings, size: int) -> list[str]:
    corpus = settings.corpus(size)
    return [
        *("add", str(corpus), "--metadata", str(corpus / METADATA_NAME), "--library", str(settings.library(size))),
        *("--no-index", "--json", *settings.workers),
    ]


def _add(settings: ScaleSettings, size: int) -> Record:
    shutil.rmtree(settings.library(size), ignore_errors=True)  # of a run that was stopped: its time would say nothing
    cost = run_eqkin(*_reading(settings, size))
    said = parse_output(cost)
    found = {name: count for name, count in said["equations"].items() if name != "diagram"}
    converted = found.get("converted", 0) + found.get("degraded", 0)
    if said["problems"] or not converted:
        raise BadInput(f"{settings.corpus(size)}: not all of it was read: {said['problems'][:3]}")
    about = {"papers": said["papers"], "equations": sum(found.values()), "converted": converted}
    speed = sum(found.values()) / cost.seconds
    return {**about, "jobs": settings.jobs, "per_second": speed, **cost.summary()}


def _index(settings: ScaleSettings, size: int) -> Record:
    library = settings.library(size)
    shutil.rmtree(library / INDEX_FOLDER, ignore_errors=True)
    cost = run_eqkin("index", "--library", str(library), "--json", *settings.workers)
    said = parse_output(cost)
    about = {name: said[name] for name in ("vectors", "kind", "recall", "steps")}
    state = IndexManifest.load(library / INDEX_FOLDER)
    if state is not None and state.nearest is not None:
        about["probes"] = state.nearest.probes
    else:  # few vectors need no lists: the time it took to see that is no measure
        about["steps"] = said["steps"] | {"indexing": None}
    return {**about, "jobs": settings.jobs, "disk": {**_disk(library), **said["bytes"]}, **cost.summary()}


def _disk(library: Path) -> dict[str, int]:
    """Bytes of what is not derived."""
    forest = sum(path.stat().st_size for path in (library / "forest").iterdir())
    return {"database": (library / "library.db").stat().st_size, "forest": forest}


def _serve(settings: ScaleSettings, size: int) -> Record:
    return _searched(settings, "--library", str(settings.library(size)))


def _searched(settings: ScaleSettings, *arguments: str, words: bool = True) -> Record:
    """A server from its start on: until it listens, until its first answer, its memory, its searches."""
    start = time.perf_counter()
    with serving(*arguments) as (place, process), closing(Client(place)) as ask:
        listening = time.perf_counter() - start
        ask("E = mc^2")
        first = time.perf_counter() - start
        began = measure_memory(process)
        report = measure(ask, formulas(settings.searches), settings.clients)
        worded = measure(lambda text: ask("", text), _words(settings.searches), settings.clients) if words else None
        held = measure_memory(process)
    if errors := report.errors + (worded.errors if worded else []):
        raise BadInput(f"eqkin serve {' '.join(arguments)}: {len(errors)} searches failed: {errors[0]}")
    about = {"listening_seconds": listening, "first_seconds": first, "began": began, "held": held}
    return {**about, **report.summary(), "words": worded.summary() if worded else {}}


def _words(searches: int) -> list[str]:
    """A tenth of so many searches for words, common and rare ones."""
    return [_WORDS[number % len(_WORDS)] for number in range(max(searches // 10, 1))]


def _verify(settings: ScaleSettings, size: int) -> Record:
    return run_eqkin("verify", "--library", str(settings.library(size)), "--json").summary()


def _push(settings: ScaleSettings, size: int) -> Record:
    cost = run_eqkin("push", "--library", str(settings.library(size)), "--json", *_collection(settings, size))
    said = parse_output(cost)
    if said["unchanged"]:  # of a run that was stopped: the time of the rest would say nothing
        raise BadInput(f"eqkin_scale_{size}: {said['unchanged']:,} papers were there; drop the collection first")
    return {"equations": said["equations"], "per_second": said["equations"] / cost.seconds, **cost.summary()}


def _serve_milvus(settings: ScaleSettings, size: int) -> Record:
    return _searched(settings, *_collection(settings, size), words=False)  # not every Milvus can search for them


def _collection(settings: ScaleSettings, size: int) -> list[str]:
    return ["--milvus", settings.milvus, "--collection", f"eqkin_scale_{size}"]


def _again(settings: ScaleSettings, size: int) -> Record:
    """Reading everything once more, with nothing new in it: what it takes to go on after a stop."""
    cost = run_eqkin(*_reading(settings, size))
    said = parse_output(cost)
    if said["papers"]:
        raise BadInput(f"{settings.library(size)}: {said['papers']} papers were read again")
    return {"papers": said["unchanged"], **cost.summary()}


def _day(settings: ScaleSettings, size: int) -> Record:
    """A few papers more, made searchable."""
    adding = ("add", _DAY, "--library", str(settings.library(size)), "--jobs", "1", "--json")
    cost = run_eqkin(*adding)
    if not parse_output(cost)["papers"]:  # they are there, of a run that was stopped
        run_eqkin("add", "--remove", *adding[1:4])
        cost = run_eqkin(*adding)
    said = parse_output(cost)
    return {"papers": said["papers"], "equations": sum(said["equations"].values()), **cost.summary()}


STEPS: dict[str, Callable[[ScaleSettings, int], Record]] = {
    "grow": _grow,
    "add": _add,
    "index": _index,
    "serve": _serve,
    "verify": _verify,
    "push": _push,
    "milvus": _serve_milvus,
    "again": _again,
    "day": _day,
}
_OF_MILVUS = ("push", "milvus")
