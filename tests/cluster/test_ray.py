"""`RayExecutor` on a cluster of one node that is started here."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.cluster import open_executor
from eqkin.cluster.ray import RayExecutor
from eqkin.errors import BadInput, LimitReached, Unreachable

pytest.importorskip("ray", reason="Ray is not installed: pip install 'eqkin[ray]'")
NO_ADDRESS = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    before = signal.getsignal(signal.SIGTERM)
    try:
        connected = RayExecutor("local", 2)
    except Unreachable as error:
        pytest.skip(f"Ray was not up within the half minute that it gives itself ({error})")
    with connected:
        assert signal.getsignal(signal.SIGTERM) == before
        yield connected
    # Ray leaves it to the garbage collector to find that its processes were not waited for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def square(number: int, folder: Path) -> int:
    """Square a number; 3 kills its worker once, 5 always, 7 has a full disk."""
    marker = folder / "killed"
    if number == 5 or (number == 3 and not marker.exists()):
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 7:
        raise OSError("No space left on device")
    if number == 100:
        raise LimitReached("too large")
    return number**2


class Square:
    """`square` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> int:
        return square(number, self.folder)


def fail(number: int, reason: str, message: str) -> str:
    assert message
    return reason


def test_results_come_in_order_and_dead_workers_cost_the_task_that_kills_them(
    executor: RayExecutor, tmp_path: Path
) -> None:
    results = list(executor.map(Square(tmp_path), range(12), on_failure=fail))
    expected = [number**2 for number in range(12)]
    expected[5], expected[7] = "crash", "unreadable"
    assert results == expected
    assert "1 node, tasks: 12 done" in executor.describe_progress()


def test_errors_of_eqkin_are_raised_as_they_are(executor: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(LimitReached):
        list(executor.map(Square(tmp_path), [100], on_failure=fail))


def test_worker_with_another_version_is_refused(executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqkin.cluster.ray.__version__", "9.9")
    with pytest.raises(BadInput, match=r"9\.9"):
        list(executor.map(abs, [1], on_failure=fail))


def test_connecting_fails_at_once_where_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    probe = f"from eqkin.cluster import open_executor; open_executor('ray', address='127.0.0.1:{port}')"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False, env=NO_ADDRESS
    )
    assert done.stderr.splitlines()[-1].startswith("eqkin.errors.Unreachable")


def test_open_executor_refuses_bad_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput):
        open_executor("dask")
    with pytest.raises(BadInput):
        open_executor(address="127.0.0.1:6379")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r"pip install 'eqkin\[ray\]'"):
        open_executor("ray")


def test_add_command_makes_the_same_library_with_ray(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.md").write_text(f"# Note {number}\n\n$$ a + {number} = b $$\n")
    sources = [str(tmp_path / f"{number}.md") for number in range(3)]
    command = [sys.executable, "-m", "eqkin", "add", *sources, "-l", str(tmp_path / "many"), "--engine", "ray"]
    done = subprocess.run(
        [*command, "-j", "1", "--json"], capture_output=True, text=True, timeout=120, check=False, env=NO_ADDRESS
    )
    if "no Ray cluster" in done.stderr:
        pytest.skip("Ray was not up within the half minute that it gives itself: the machine is too busy")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["papers"], report["nodes"]) == (3, 1)
    with Library.open(tmp_path / "one", create=True) as library:
        library.add(*sources)
    assert verify(tmp_path / "many").content == verify(tmp_path / "one").content
