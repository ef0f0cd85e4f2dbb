"""`python -m benchmarks ingest --ray`: `eqkin add` by processes and by a Ray cluster, in turns, and merging alone.

The cluster is started here with as many CPUs as there are processes, so the ratio says what Ray costs; what it brings
are more machines. One process merges what all of them read: how fast it can bounds the cluster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eqkin.api import Library, verify
from eqkin.executors import EXECUTOR_NAMES, Executor, open_executor
from eqkin.executors.ray_tasks import pack_results, unpack_results
from eqkin.library import AddReport
from eqkin.library.merging import Merger
from eqkin.library.reading import ParsedPaper
from eqkin.library.session import WritingSession
from eqkin.library.tasks import IngestEvent, Reading, iter_tasks
from eqkin.sources import open_source

_PIECE = 200  # papers that come to the merging process at a time


@dataclass
class EnginesReport:
    """What was measured: seconds of all rounds together."""

    jobs: int
    rounds: int
    papers: int = 0
    equations: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(EXECUTOR_NAMES, 0.0))
    start_seconds: float = 0.0  # until Ray was there
    merge_seconds: float = 0.0
    payload_bytes: int = 0  # of what workers send
    contents: set[str] = field(default_factory=set)  # digests of the libraries that were made

    def summary(self) -> dict[str, float | bool]:
        """The figures that matter; rates in equations per second."""
        found = max(self.equations, 1)
        rates = {name: found * self.rounds / max(seconds, 1e-9) for name, seconds in self.seconds.items()}
        return {
            "papers": self.papers,
            "equations": self.equations,
            "jobs": self.jobs,
            "processes_per_second": rates["processes"],
            "ray_per_second": rates["ray"],
            "ray_to_processes": rates["ray"] / max(rates["processes"], 1e-9),
            "ray_start_seconds": self.start_seconds,
            "merged_per_second": found * self.rounds / max(self.merge_seconds, 1e-9),
            "bytes_an_equation": self.payload_bytes / found,
            "same_library": len(self.contents) == 1,
        }


def measure(source: str, *, jobs: int, rounds: int, progress: Callable[[str], None]) -> EnginesReport:
    """Time adding `source` to an empty library, by each engine in turn, and merging what was read before."""
    report = EnginesReport(jobs, rounds)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, open_executor("ray", jobs) as cluster:
        report.start_seconds = time.perf_counter() - start
        everybody = {"processes": open_executor("processes", jobs), "ray": cluster}
        _add(Path(folder, "warm"), "atlas:", cluster)
        for number in range(rounds):
            for name, workers in everybody.items():
                progress(f"round {number + 1} of {rounds}, {name}")
                added, seconds, content = _add(Path(folder, f"{name}{number}"), source, workers)
                report.seconds[name] += seconds
                report.contents.add(content)
        report.papers, report.equations = added.papers, sum(added.equations.values())
        progress("merging")
        payloads = _payloads(source, everybody["processes"])
        report.payload_bytes = sum(map(len, payloads))
        for number in range(rounds):
            seconds, content = _merged(Path(folder, f"merged{number}"), payloads)
            report.merge_seconds += seconds
            report.contents.add(content)
    return report


def _add(folder: Path, source: str, workers: Executor) -> tuple[AddReport, float, str]:
    with Library.open(folder) as library:
        start = time.perf_counter()
        report = library.add(source, workers=workers)
        seconds = time.perf_counter() - start
    return report, seconds, verify(folder).content


def _payloads(source: str, workers: Executor) -> list[bytes]:
    """What workers would send, for all of a source."""
    tasks = iter_tasks({source: open_source(source)}, workers.grain, lambda _: "", lambda _: {}, lambda _: None)
    events: list[IngestEvent] = [event for event in workers.map(Reading(), tasks) if isinstance(event, ParsedPaper)]
    return [pack_results(events[at : at + _PIECE]) for at in range(0, len(events), _PIECE)]


def _merged(folder: Path, payloads: list[bytes]) -> tuple[float, str]:
    Library.open(folder).close()
    start = time.perf_counter()
    with WritingSession(folder) as writer:
        merger = Merger(writer, AddReport())
        for payload in payloads:
            for event in unpack_results(payload):
                merger.add(event)
    return time.perf_counter() - start, verify(folder).content
