"""`python -m benchmarks ingest --ray`: `eqkin add` by processes and by a Ray cluster, in turns.

The cluster is started here with as many CPUs as there are processes, so the ratio says what Ray costs; what it brings
are more machines.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from eqkin.api import Library, verify
from eqkin.backends import EXECUTOR_NAMES, open_executor
from eqkin.executor import Executor
from eqkin.library import AddReport


@dataclass
class EnginesReport:
    """What was measured: seconds of all rounds together."""

    jobs: int
    rounds: int
    papers: int = 0
    equations: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(EXECUTOR_NAMES, 0.0))
    start_seconds: float = 0.0  # until Ray was there
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
    return report


def _add(folder: Path, source: str, workers: Executor) -> tuple[AddReport, float, str]:
    with Library.open(folder) as library:
        start = time.perf_counter()
        report = library.add(source, executor=workers)
        seconds = time.perf_counter() - start
    return report, seconds, verify(folder).content
