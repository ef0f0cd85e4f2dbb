"""`python -m benchmarks torture`: campaigns that try to break eqkin for a given time, in one table."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.report import BenchmarkReport
from benchmarks.torture.fuzz import run_fuzz
from benchmarks.torture.storage import run_storage

_CAMPAIGNS = ((run_storage, 0.6), (run_fuzz, 0.4))  # each with its part of the time


def measure_torture(
    seconds: Annotated[float, typer.Option(min=1, help="Duration of all campaigns together.")] = 3_600,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
) -> BenchmarkReport:
    """Kill processes, cut the power, let calls fail, damage files, feed nonsense; count what eqkin does not survive.

    **Example**

        python -m benchmarks torture --seconds 3600
    """
    report = BenchmarkReport("torture", {"seconds": seconds, "seed": seed, "errors": 0})
    for run, part in _CAMPAIGNS:
        for name, cases, failures, note in run(seconds * part, seed):
            report.add("Torture", name, cases=cases, failures=failures, note=note)
            report.facts["errors"] += failures
    return report
