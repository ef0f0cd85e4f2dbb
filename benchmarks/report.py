"""Measurements and how they are shown: one table printer and one JSON form for all benchmarks."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

T = TypeVar("T")
Figure: TypeAlias = float | str | None


def describe_machine() -> str:
    """Return the processor's model, the number of cores, and the GPU if torch sees one."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = platform.processor()
    machine = f"{model or platform.machine()}, {os.cpu_count()} cores"
    try:
        import torch
    except ImportError:
        return machine
    return f"{machine}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else machine


@dataclass(frozen=True)
class Measurement:
    """One row of a table: what was measured, and its figures by column. A column's name includes its unit."""

    name: str
    figures: dict[str, Figure]


@dataclass
class BenchmarkReport:
    """What a benchmark measured: facts about the run, and tables of measurements by title."""

    benchmark: str
    facts: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[Measurement]] = field(default_factory=dict)
    machine: str = field(default_factory=describe_machine)

    def add(self, table: str, name: str, **figures: Figure) -> None:
        """Append a row to a table."""
        self.tables.setdefault(table, []).append(Measurement(name, figures))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        tables = {title: [{"name": row.name, **row.figures} for row in rows] for title, rows in self.tables.items()}
        return {"benchmark": self.benchmark, "machine": self.machine, "facts": self.facts, "tables": tables}

    def print(self, console: Console) -> None:
        """Print the facts and the tables."""
        console.print(f"{self.benchmark} on {self.machine}", style="bold")
        for name, value in self.facts.items():
            console.print(f"{_to_words(name)}: {format_figure(value)}", soft_wrap=True)
        for title, rows in self.tables.items():
            columns = list(dict.fromkeys(name for row in rows for name in row.figures))
            table = Table(title=title, title_justify="left", box=None, pad_edge=False)
            table.add_column("")
            for name in columns:
                table.add_column(_to_words(name), justify="right")
            for row in rows:
                table.add_row(row.name, *(format_figure(row.figures.get(name)) for name in columns))
            console.print()
            console.print(table)


def _to_words(name: str) -> str:
    return name.replace("_", " ")


def format_figure(value: Any) -> str:
    """Format a value for a table: four significant digits, thousands separated; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_figure(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(format_figure, value)) or "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def log(message: str) -> None:
    """Print progress on standard error if it is a terminal."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        console.print(message, style="dim")


def time_call(function: Callable[..., T], *arguments: Any, **options: Any) -> tuple[T, float]:
    """Call a function and return its result and the seconds it took."""
    start = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - start


def time_rounds(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of several functions in rounds, so that other load slows all of them; the first warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(rounds + 1):
        log(f"round {number} of {rounds}" if number else "warming up")
        for name, function in functions.items():
            elapsed = time_call(function)[1]
            if number:
                seconds[name].append(elapsed)
    return seconds


def compute_speedup(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return how much faster ours is: the median of the ratios of each round."""
    return statistics.median(their / our for their, our in zip(theirs, ours, strict=True))


def summarise_times(seconds: Sequence[float]) -> dict[str, Figure]:
    """Return the median, the 99th percentile and the maximum in milliseconds."""
    p50, p99 = (1e3 * np.percentile(seconds, [50, 99])).tolist()
    return {"p50_ms": p50, "p99_ms": p99, "max_ms": 1e3 * max(seconds)}
