"""Running eqkin's commands and servers, and measuring them from outside: time, processor time, memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson
import psutil

from eqkin.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The JSON that a command printed, and its cost."""

    json: dict[str, Any]
    seconds: float
    # Of all its processes.
    processor_seconds: float
    # Memory of the largest of its processes.
    peak_bytes: int


def run_eqkin(*arguments: str) -> CommandResult:
    """Run a command of eqkin that prints JSON, and measure it; raises `BadInput` with its error message if it fails."""
    command = [sys.executable, "-m", "eqkin", *arguments]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        # The system adds up the processes that the command started and waited for.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            message = errors.read()[-2_000:].decode(errors="replace").strip()
            raise BadInput(f"{' '.join(command[1:])}: ended with {process.returncode}: {message}")
        return CommandResult(
            json=orjson.loads(out.read()),
            seconds=seconds,
            processor_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=1_024 * usage.ru_maxrss,
        )


@dataclass(frozen=True)
class MeasuredServer:
    """A running server."""

    # As in http://host:port.
    url: str
    # 0 for a server that was not started here.
    pid: int

    def get_processor_seconds(self) -> float:
        """Return the processor time its processes have used."""
        total = 0.0
        for process in self._list_processes():
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:2])
        return total

    def measure_memory(self) -> int:
        """Return the bytes that its processes hold for themselves; pages of files are not counted."""
        total = 0
        for process in self._list_processes():
            with suppress(psutil.Error):
                total += sum(getattr(mapping, "anonymous", 0) for mapping in process.memory_maps(grouped=True))
        return total

    def _list_processes(self) -> list[psutil.Process]:
        if not self.pid:
            return []
        with suppress(psutil.Error):
            first = psutil.Process(self.pid)
            return [first, *first.children(recursive=True)]
        return []


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
            yield MeasuredServer(urls[-1], server.pid)
        finally:
            server.terminate()
