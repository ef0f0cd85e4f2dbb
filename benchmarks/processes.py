"""Running eqkin's commands and measuring them from outside: time, processor time, memory of all their processes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
import psutil

from eqkin.errors import BadInput

_SAMPLE_SECONDS = 0.1


@dataclass
class CommandCost:
    """What a command cost. Memory is the largest resident size that was sampled."""

    seconds: float = 0.0
    processor_seconds: float = 0.0  # of all its processes
    own_bytes: int = 0  # its first process
    helper_bytes: int = 0  # the largest of the processes it started
    all_bytes: int = 0  # all of them at the same time; shared pages count for each
    helpers: int = 0  # processes it started


@dataclass
class CommandResult:
    """The output of a command, and its cost."""

    cost: CommandCost
    json: dict[str, Any]

    @property
    def figures(self) -> dict[str, float]:
        """The cost as plain data."""
        return asdict(self.cost)


def run_eqkin(*arguments: str) -> CommandResult:
    """Run a command of eqkin that prints JSON, and measure it; raises `BadInput` with its error message if it fails."""
    command = [sys.executable, "-m", "eqkin", *arguments]
    cost, before, start = CommandCost(), _get_children_seconds(), time.perf_counter()
    processor: dict[int, float] = {}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        with psutil.Popen(command, stdout=out, stderr=errors) as process:
            try:
                while process.poll() is None:
                    _sample(process, cost, processor)
                    time.sleep(_SAMPLE_SECONDS)
            finally:
                if process.poll() is None:
                    process.terminate()
        cost.seconds = time.perf_counter() - start
        # the system counts the processes that were waited for; the samples count the others up to their last look
        cost.processor_seconds = max(sum(processor.values()), _get_children_seconds() - before)
        cost.helpers = max(len(processor) - 1, 0)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            message = errors.read()[-2_000:].decode(errors="replace").strip()
            raise BadInput(f"{' '.join(command[1:])}: ended with {process.returncode}: {message}")
        return CommandResult(cost, orjson.loads(out.read()))


def _sample(first: psutil.Process, cost: CommandCost, processor: dict[int, float]) -> None:
    resident = 0
    for process in list_processes(first.pid):
        with suppress(psutil.Error):
            size = process.memory_info().rss
            processor[process.pid] = sum(process.cpu_times()[:2])
            resident += size
            if process.pid == first.pid:
                cost.own_bytes = max(cost.own_bytes, size)
            else:
                cost.helper_bytes = max(cost.helper_bytes, size)
    cost.all_bytes = max(cost.all_bytes, resident)


def _get_children_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0))


def list_processes(pid: int) -> list[psutil.Process]:
    """List a process and all its descendants that are alive; none for 0."""
    if not pid:
        return []
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


@dataclass(frozen=True)
class MeasuredServer:
    """A running server."""

    url: str  # http://host:port
    pid: int  # 0 for one of another machine

    def measure_memory(self) -> dict[str, int]:
        """Return the bytes its processes hold: `rss`, `pss` (shared pages counted once), `own` (not from files)."""
        held = {"rss": 0, "pss": 0, "own": 0}
        for process in list_processes(self.pid):
            with suppress(psutil.Error):
                for mapping in process.memory_maps(grouped=True):
                    held["rss"] += mapping.rss
                    held["pss"] += getattr(mapping, "pss", 0)
                    held["own"] += getattr(mapping, "anonymous", 0)
        return held

    def get_processor_seconds(self) -> float:
        """Return the processor time its processes have used."""
        total = 0.0
        for process in list_processes(self.pid):
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:2])
        return total


def find_server(url: str) -> MeasuredServer:
    """Return a running server; its processor time can be measured if it runs on this machine."""
    pid = 0
    with suppress(ValueError, psutil.Error):  # an address without a port; a system that tells nothing
        address = urlsplit(url)
        if address.hostname in ("127.0.0.1", "localhost"):
            listening = (found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN)
            pid = next((found.pid for found in listening if found.pid and found.laddr.port == address.port), 0)
        while pid and "multiprocessing" in " ".join(psutil.Process(pid).cmdline()):  # one of several processes
            pid = psutil.Process(pid).ppid()
    return MeasuredServer(url.rstrip("/"), pid)


@contextmanager
def run_server(*arguments: str) -> Iterator[MeasuredServer]:
    """Run `eqkin serve` on a free port until the context ends; raises `BadInput` if it does not start."""
    command = [sys.executable, "-m", "eqkin", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            urls = re.findall(r"http://[^/\s]+(?=/)", server.stdout.readline())
            if not urls:
                raise BadInput(f"eqkin serve {' '.join(arguments)}: the server did not start")
            yield MeasuredServer(urls[-1], server.pid)  # an earlier one is the address of the Milvus server
        finally:
            server.terminate()
