"""Connecting to a Ray cluster, and the command line with one."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.cluster import open_executor
from eqkin.errors import BadInput, Unreachable
from tests.cluster.ray.conftest import write_shard


@contextmanager
def _server(answer: bytes) -> Iterator[str]:
    """A server that says the same to everybody and keeps the line open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = server.accept()
                    lines.append(line)
                    line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for line in lines:
            line.close()


def test_connecting_fails_at_once_where_no_server_listens() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(Unreachable, match=f"no Ray cluster answers at 127.0.0.1:{port} .*refused"):
            open_executor("ray", address=address)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n"])
def test_connecting_to_another_server_fails_in_bounded_time(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
    monkeypatch.setattr("eqkin.cluster.ray._CONNECT_SECONDS", 0.3)
    with _server(answer) as address, pytest.raises(Unreachable, match="is not a Ray cluster"):
        open_executor("ray", address=address)


def test_open_executor_refuses_bad_addresses_and_engines() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
    with pytest.raises(BadInput, match="write HOST:PORT"):
        open_executor("ray", address="head")
    with pytest.raises(BadInput, match="no such engine"):
        open_executor("dask")
    with pytest.raises(BadInput, match="--engine ray"):
        open_executor(address="127.0.0.1:6379")


def test_open_executor_names_the_extra_if_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"pip install 'eqkin\[ray\]'"):
        open_executor("ray")


def test_add_command_starts_a_local_cluster_and_stops_it(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
    shard = write_shard(tmp_path / "in" / "a.tar", range(3), whole=2)
    command = [
        sys.executable,
        "-m",
        "eqkin",
        "add",
        shard,
        "-l",
        tmp_path / "many",
        "--engine",
        "ray",
        "-j",
        "1",
        "--json",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    if "Ray could not be started here" in done.stderr:
        pytest.skip("Ray was not up within the half minute that it gives itself: the machine is too busy")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["papers"], report["failed"]) == (2, {"damaged source": 1})
    assert report["cluster"] == {"done": 1, "under_way": 0, "retried": 0, "nodes": 1}
    assert report["index"]["vectors"] == 8  # displays and rows
    assert done.stderr == ""
    with Library.open(tmp_path / "one", create=True) as library:
        library.add(shard)
    assert verify(tmp_path / "many").content == verify(tmp_path / "one").content
