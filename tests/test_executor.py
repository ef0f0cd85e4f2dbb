"""`LocalExecutor`: order, crashes, and workers that cannot start."""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from eqkin.errors import BadInput, StorageFailed
from eqkin.executor import LocalExecutor, WorkerEnvironmentError


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
    assert (executor.progress.done, executor.progress.under_way) == (40, 0)


class _DiesOnArrival:
    """A function as large as a model that ends the process it is sent to."""

    def __call__(self, task: int) -> int:
        return task

    def __reduce__(self) -> tuple[object, ...]:
        return _exit_now, (b"x" * 1_000_000,)


def _exit_now(payload: bytes) -> None:
    os._exit(11)


def test_workers_that_die_while_starting_are_an_error_instead_of_a_hang() -> None:
    executor = LocalExecutor(2, warm_up_seconds=0.0)
    with pytest.raises(BadInput, match="no worker process could be started"):
        list(executor.map(_DiesOnArrival(), range(5), on_failure=_describe))


_SHORT_WORK = """
from eqkin.executor import LocalExecutor

if __name__ == "__main__":
    executor = LocalExecutor(4, warm_up_seconds=0.0)
    print(list(executor.map(abs, range(40), on_failure=max)) == list(range(40)))
"""


def test_workers_that_start_too_late_end_silently(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SHORT_WORK)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    ended = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("True\n", "")
    assert list(temporary.iterdir()) == []


def test_function_that_cannot_be_written_for_workers_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageFailed, match="set TMPDIR"):
        list(LocalExecutor(2, warm_up_seconds=0.0).map(abs, range(5), on_failure=_describe))


def test_function_that_cannot_be_pickled_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Exception, match="pickle"):
        list(LocalExecutor(2, warm_up_seconds=0.0).map(lambda task: task, range(5), on_failure=_describe))
    assert list(tmp_path.iterdir()) == []
