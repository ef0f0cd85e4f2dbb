"""Runs benchmarks as `python -m benchmarks` does, without starting a process for each."""

from __future__ import annotations

from typing import Any

from benchmarks.__main__ import main
from tests.cli.running import Ended, run_main


def run_benchmark(*arguments: object) -> dict[str, Any]:
    """Run a benchmark and return its report."""
    report: dict[str, Any] = run(*arguments).json
    assert report["benchmark"] == arguments[0]
    assert report["machine"]
    return report


def run(*arguments: object) -> Ended:
    """Run a command line that prints JSON."""
    return run_main(main, "--json", *arguments)
