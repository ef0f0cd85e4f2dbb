"""`LocalExecutor`: order, crashes, and workers that cannot start."""

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from eqkin import Library
from eqkin.executor import LocalExecutor, ThreadExecutor, WorkerEnvironmentError


def _work(parent: int, task: int) -> int:
    """Square a number; 13 kills a worker, 7 is a fault of the machine."""
    if task == 13 and os.getpid() != parent:
        os._exit(11)
    if task == 7:
        raise WorkerEnvironmentError("the disk is full")
    return task * task


def _describe(task: int, reason: str, message: str) -> str:
    return f"{task} {reason}: {message}"


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_failures_take_their_place(jobs: int) -> None:
    executor = LocalExecutor(jobs, warm_up_seconds=0.0)
    work = partial(_work, os.getpid())
    results = list(executor.map(work, range(40), on_failure=_describe))
    expected = [task * task for task in range(40)]
    expected[7] = "7 unreadable: the disk is full"
    if jobs == 2:
        expected[13] = "13 crash: it ended the process that worked on it"
    assert results == expected


class _DiesOnArrival:
    """A function as large as a model that ends the process it is sent to."""

    def __call__(self, task: int) -> int:
        return task

    def __reduce__(self) -> tuple[object, ...]:
        return _exit_now, (b"x" * 1_000_000,)


def _exit_now(payload: bytes) -> None:
    os._exit(11)


def test_function_that_kills_every_worker_fails_every_task() -> None:
    executor = LocalExecutor(2, warm_up_seconds=0.0)
    results = list(executor.map(_DiesOnArrival(), range(3), on_failure=_describe))
    assert [str(result).partition(":")[0] for result in results] == ["0", "1 crash", "2 crash"]


_UNGUARDED = """
from pathlib import Path
from eqkin import Library
from eqkin.executor import LocalExecutor

with Library.open(Path("library"), create=True) as library:
    library.add("papers", executor=LocalExecutor(2, warm_up_seconds=0.0))
"""

_KILLED = """
import multiprocessing, sys
from multiprocessing import resource_tracker
from pathlib import Path
from eqkin.executor import LocalExecutor

if __name__ == "__main__":
    resource_tracker.ensure_running()
    Path("python").write_text("#!/bin/sh\\nkill -9 $$\\n")
    Path("python").chmod(0o700)
    multiprocessing.set_executable(str(Path("python").resolve()))
    sys.argv += [f"argument {number}" for number in range(20_000)]  # more than a pipe holds
    list(LocalExecutor(2, warm_up_seconds=0.0).map(abs, range(40), on_failure=max))
"""


def _run_script(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, script], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_script_without_a_main_guard_ends_in_an_error_and_frees_the_library(tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    for number in range(3):
        (tmp_path / "papers" / f"{number}.tex").write_text(r"\[a=b\]")
    ended = _run_script(tmp_path, _UNGUARDED)
    assert ended.returncode == 1
    assert '`if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
    with Library.open(tmp_path / "library") as library:
        report = library.add(str(tmp_path / "papers"))
        assert report.papers + report.unchanged == 3


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_worker_killed_while_it_starts_is_an_error_instead_of_a_hang(tmp_path: Path) -> None:
    ended = _run_script(tmp_path, _KILLED)
    assert ended.returncode == 1
    assert "no worker process could be started" in ended.stderr.splitlines()[-1]


_SHORT_WORK = """
from eqkin.executor import LocalExecutor

if __name__ == "__main__":
    executor = LocalExecutor(4, warm_up_seconds=0.0)
    print(list(executor.map(abs, range(40), on_failure=max)) == list(range(40)))
"""


def test_workers_that_start_too_late_end_silently(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ended = _run_script(tmp_path, _SHORT_WORK, TMPDIR=str(temporary))
    assert (ended.stdout, ended.stderr) == ("True\n", "")
    assert list(temporary.iterdir()) == []


def test_function_that_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(Exception, match="pickle"):
        list(LocalExecutor(2, warm_up_seconds=0.0).map(lambda task: task, range(5), on_failure=_describe))


def test_threads_give_results_in_order_and_name_failures() -> None:
    def halve(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        if number % 50 == 49:
            raise WorkerEnvironmentError("odd")
        return number // 2

    with ThreadExecutor(3) as executor:
        results = list(executor.map(halve, range(200), on_failure=lambda task, reason, message: -task))
    assert results == [-number if number % 50 == 49 else number // 2 for number in range(200)]
