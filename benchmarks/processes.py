"""What a command costs: seconds, seconds of processors, and the memory of its process and of those it starts.

Memory is read from `/proc`; where there is none it is told as 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from eqkin.errors import BadInput

_LOOK = 0.1  # seconds between two looks at the processes
_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass
class CommandCost:
    """What was seen of a command."""

    seconds: float = 0.0
    processor_seconds: float = 0.0  # of all its processes
    own_bytes: int = 0  # the most its first process held
    helper_bytes: int = 0  # the most one of the processes it started held
    all_bytes: int = 0  # the most all of them held at the same time, what they share counted for each
    helpers: int = 0  # processes it started
    output: str = ""
    _processor: dict[int, float] = field(default_factory=dict, repr=False)

    def summary(self) -> dict[str, float]:
        """The figures."""
        names = ("seconds", "processor_seconds", "own_bytes", "helper_bytes", "all_bytes", "helpers")
        return {name: getattr(self, name) for name in names}

    def look(self, first: int) -> None:
        """See what the processes hold at the moment."""
        resident = 0
        for process in list_descendants(first):
            status = _status(process)
            resident += status.get("VmRSS", 0)
            peak = status.get("VmHWM", 0)
            if process == first:
                self.own_bytes = max(self.own_bytes, peak)
            else:
                self.helper_bytes = max(self.helper_bytes, peak)
            used = _processor_seconds(process)
            self._processor[process] = max(used, self._processor.get(process, 0.0))
        self.all_bytes = max(self.all_bytes, resident)
        self.helpers = max(len(self._processor) - 1, 0)


def run_eqkin(*arguments: str, expected: Sequence[int] = (0,)) -> CommandCost:
    """Run a command of eqkin and watch it; raises `BadInput` with what it said if it ends otherwise than expected."""
    return watch_command([sys.executable, "-m", "eqkin", *arguments], expected)


def watch_command(command: Sequence[str], expected: Sequence[int] = (0,)) -> CommandCost:
    """Run a command to its end and watch it."""
    cost, before = CommandCost(), _children_seconds()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as problems:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=problems)
        try:
            while process.poll() is None:
                cost.look(process.pid)
                time.sleep(_LOOK)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        cost.seconds = time.perf_counter() - start
        # what was seen last of processes that nobody waited for, or what the system says of those that were
        cost.processor_seconds = max(sum(cost._processor.values()), _children_seconds() - before)
        out.seek(0)
        problems.seek(0)
        cost.output = out.read().decode(errors="replace")
        if process.returncode not in expected:
            said = problems.read()[-2_000:].decode(errors="replace").strip()
            raise BadInput(f"{' '.join(command[1:])}: ended with {process.returncode}: {said}")
    return cost


def _children_seconds() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parse_output(cost: CommandCost) -> dict[str, Any]:
    """What a command printed as JSON."""
    answer: dict[str, Any] = orjson.loads(cost.output)
    return answer


def measure_memory(first: int) -> dict[str, int]:
    """What a process and those it started hold: `rss`, `pss` (what is shared counted once), `own` (not from files)."""
    names = {"Rss": "rss", "Pss": "pss", "Anonymous": "own"}
    held = dict.fromkeys(names.values(), 0)
    for process in list_descendants(first):
        for name, size in _fields(_PROC / str(process) / "smaps_rollup").items():
            if name in names:
                held[names[name]] += size
    return held


def get_processor_seconds(first: int) -> float:
    """Seconds of processors that a process and those it started have used."""
    return sum(map(_processor_seconds, list_descendants(first)))


def list_descendants(first: int) -> list[int]:
    """A process and all it started that are alive."""
    found, waiting = [], [first]
    while waiting:
        process = waiting.pop()
        found.append(process)
        for children in _PROC.glob(f"{process}/task/*/children"):
            try:
                waiting += map(int, children.read_text().split())
            except OSError:  # it has ended meanwhile
                continue
    return found


def _status(process: int) -> dict[str, int]:
    return _fields(_PROC / str(process) / "status")


def _fields(path: Path) -> dict[str, int]:
    """Lines like `VmRSS:  1234 kB`, in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    parts = (line.split() for line in lines if line.endswith(" kB"))
    return {part[0].rstrip(":"): 1024 * int(part[1]) for part in parts if len(part) == 3}


def _processor_seconds(process: int) -> float:
    try:
        after_name = (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / _TICKS
