"""Milvus servers for tests: Milvus Lite, and Milvus 2.3.5, the last full server on PyPI.

Each is started by the first test that needs it and stopped after the last one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cluster.milvus.run_server import free_port

KINDS = ("milvus-lite", "milvus")
_shared: dict[str, MilvusServer] = {}
_MODULES = {"milvus-lite": ("lite", "milvus_lite"), "milvus": ("milvus", "milvus")}


class MilvusServer:
    """A server in its own process."""

    def __init__(self, kind: str, folder: Path, *, forget: bool = False) -> None:
        self.kind, self.folder, self.forget, self.port = kind, folder, forget, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it; again on the same port and with the same data."""
        command = [sys.executable, str(Path(__file__).parent / "run_server.py"), _MODULES[self.kind][0]]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
        self._runner = subprocess.Popen(
            [*command, str(self.folder), str(self.port), *(["forget"] if self.forget else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        assert self._runner.stdout is not None
        self.process = int(self._runner.stdout.readline().strip() or 0)
        if not self.process:
            self.stop()
            pytest.skip(f"{self.kind} does not start here")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.process, number)

    def pause(self) -> None:
        """Stop all its threads until SIGCONT: it runs, but does not answer."""
        self.signal(signal.SIGSTOP)
        threads = list(Path(f"/proc/{self.process}/task").glob("*/stat"))
        while any(path.read_text().rpartition(")")[2].split()[0] != "T" for path in threads):
            time.sleep(0.01)

    def kill(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """Stop it."""
        assert self._runner.stdin is not None and self._runner.stdout is not None
        self._runner.stdin.close()
        try:
            self._runner.wait(10)
        except subprocess.TimeoutExpired:
            self._runner.kill()
            self._runner.wait()
        self._runner.stdout.close()


def require(kind: str) -> None:
    """Skip the test if a server of this kind cannot run here."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed: pip install 'eqkin[milvus]'")
    if find_spec(_MODULES[kind][1]) is None:
        pytest.skip(f"the package {kind} is not installed (Milvus 2.3.5 has wheels for Linux on x86-64 alone)")


def running(kind: str) -> MilvusServer:
    """Return the server of a kind that all tests share."""
    require(kind)
    if kind not in _shared:
        _shared[kind] = MilvusServer(kind, Path(tempfile.mkdtemp(prefix="eqkin-test-")), forget=True)
    return _shared[kind]


def stop_shared() -> None:
    """Stop the servers that all tests share."""
    while _shared:
        _shared.popitem()[1].stop()
