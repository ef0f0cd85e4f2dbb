"""Executors apply a function to tasks and give the results in order.

`LocalExecutor` uses processes of this machine, `ThreadExecutor` threads of this process, and
`eqkin.cluster.ray.RayExecutor` a Ray cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Self, TypeVar

from eqkin.errors import BadInput, StorageFailed

T = TypeVar("T")
R = TypeVar("R")

_WARM_UP_SECONDS = 1.0  # of work before worker processes are worth their start
_TASKS_PER_JOB = 16  # submitted ahead of the result that is waited for

CRASHED = "crash"
UNREADABLE = "unreadable"


class WorkerEnvironmentError(Exception):
    """The worker's machine is at fault, not the task: its disk is full, or it does not see a path."""


@dataclass
class ExecutorProgress:
    """Tasks by state, and the number of cluster nodes (0 for this machine alone)."""

    done: int = 0
    under_way: int = 0
    retried: int = 0  # done again in smaller parts after a worker failed
    nodes: int = 0

    def describe(self) -> str:
        """Return the progress in words; empty for this machine alone."""
        if not self.nodes:
            return ""
        nodes = f"{self.nodes:,} node{'s' * (self.nodes != 1)}"
        return f"{nodes}, tasks: {self.done:,} done, {self.under_way:,} under way, {self.retried:,} retried"


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """Outcome of a task: its result, or the reason and message of its failure."""

    task: T
    result: Any = None
    failure: tuple[str, str] | None = None


class Executor(ABC):
    """Applies functions to tasks. A context manager: leaving it stops what was started."""

    is_remote = False  # tasks travel to other machines, so they should be large
    batch_size = 1  # small pieces of work, such as papers, that should make up one task

    def __init__(self) -> None:
        self.progress: ExecutorProgress = ExecutorProgress()  # of the last `map`

    def map(
        self,
        function: Callable[[T], R],
        tasks: Iterable[T],
        *,
        on_failure: Callable[[T, str, str], R],
        split: Callable[[T], Iterable[T]] | None = None,
    ) -> Iterator[R]:
        """Yield the results of `function` in the order of the tasks. Few tasks are in memory at a time.

        Args:
            function: picklable. It raises `WorkerEnvironmentError` where the machine is at fault.
            tasks: picklable.
            on_failure: returns the result of a task that crashed its worker or that no machine could do, given the
                task, a short reason and a message. It may raise.
            split: cuts a task for another machine into smaller ones, so that a crash costs only the part that caused
                it; every part gives a result.
        """
        progress = self.progress = ExecutorProgress(nodes=self.progress.nodes)
        for outcome in self.iter_outcomes(function, iter(tasks), progress):
            if outcome.failure is None:
                yield outcome.result
            elif split is None or not self.is_remote:
                yield on_failure(outcome.task, *outcome.failure)
            else:
                progress.retried += 1
                for part in self.iter_outcomes(function, iter(split(outcome.task)), ExecutorProgress()):
                    yield part.result if part.failure is None else on_failure(part.task, *part.failure)
            progress.done += 1

    @abstractmethod
    def iter_outcomes(
        self, function: Callable[[T], Any], tasks: Iterator[T], progress: ExecutorProgress
    ) -> Iterator[Outcome[T]]:
        """Yield the outcomes of all tasks in order, and keep `progress.under_way` current."""

    def close(self) -> None:  # noqa: B027
        """Stop what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalExecutor(Executor):
    """Up to `jobs` processes of this machine. With one, or while there is little to do, this process does the work.

    A process that dies (a crash of native code, the out-of-memory killer) costs the one task that killed it: all tasks
    under way are repeated, each in a process of its own. Raises `BadInput` if no process can be started, and
    `StorageFailed` if the function cannot be written to a temporary file for them.
    """

    def __init__(self, jobs: int = 1, *, warm_up_seconds: float = _WARM_UP_SECONDS) -> None:
        super().__init__()
        self.jobs: int = jobs
        self._warm_up_seconds = warm_up_seconds

    def iter_outcomes(
        self, function: Callable[[T], Any], tasks: Iterator[T], progress: ExecutorProgress
    ) -> Iterator[Outcome[T]]:
        """Yield the outcomes of all tasks: in this process at first, then in worker processes."""
        start = time.monotonic()
        for task in tasks:
            yield _take_outcome(task, partial(function, task))
            if self.jobs > 1 and time.monotonic() - start > self._warm_up_seconds:
                break
        first = next(tasks, None)
        if first is None:
            return
        pool = _WorkerPool[T](function, self.jobs)
        try:
            for task in chain([first], tasks):
                pool.waiting.append((task, pool.submit(task)))
                while len(pool.waiting) > _TASKS_PER_JOB * self.jobs or (pool.waiting and pool.waiting[0][1].done()):
                    yield from pool.collect()
                    progress.under_way = len(pool.waiting)
            while pool.waiting:
                yield from pool.collect()
                progress.under_way = len(pool.waiting)
        finally:
            pool.close()


class ThreadExecutor(Executor):
    """Up to `jobs` threads of this process, for functions whose work is done by a GPU."""

    def __init__(self, jobs: int = 1) -> None:
        super().__init__()
        self.jobs: int = jobs

    def iter_outcomes(
        self, function: Callable[[T], Any], tasks: Iterator[T], progress: ExecutorProgress
    ) -> Iterator[Outcome[T]]:
        """Yield the outcomes of all tasks."""
        pool, waiting = ThreadPoolExecutor(self.jobs), deque[tuple[T, Future[Any]]]()
        try:
            while True:
                for task in islice(tasks, _TASKS_PER_JOB * self.jobs - len(waiting)):
                    waiting.append((task, pool.submit(function, task)))
                progress.under_way = len(waiting)
                if not waiting:
                    return
                task, future = waiting.popleft()
                yield _take_outcome(task, future.result)
        finally:
            pool.shutdown(cancel_futures=True)


def _take_outcome(task: T, get_result: Callable[[], Any]) -> Outcome[T]:
    try:
        return Outcome(task, get_result())
    except WorkerEnvironmentError as error:
        return Outcome(task, failure=(UNREADABLE, str(error)))


class _WorkerPool(Generic[T]):
    """Processes that apply one function, and the tasks under way in them; raises what `LocalExecutor` does."""

    def __init__(self, function: Callable[[T], Any], jobs: int) -> None:
        self._function, self._jobs = function, jobs
        self.waiting: deque[tuple[T, Future[Any]]] = deque()  # first in, first out
        self._start(jobs)

    def _start(self, jobs: int) -> None:
        self._file = _write_function(self._function)
        # A fresh interpreter each: V8 and threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, context, initializer=_prepare_worker, initargs=(self._file,))
        # Workers are sent the command line through a pipe. One that dies while it starts would leave this process
        # waiting for ever to write the rest of a long one.
        arguments, sys.argv = sys.argv, sys.argv[:1]
        try:
            self._pool.submit(os.getpid).result()
        except BaseException as error:
            self.close()
            if isinstance(error, BrokenProcessPool | OSError):
                raise BadInput(
                    "no worker process could be started: use one job, or put the code of the script under "
                    '`if __name__ == "__main__":`'
                ) from error
            raise
        finally:
            sys.argv = arguments

    def submit(self, task: T) -> Future[Any]:
        """Begin a task; after a crash, its future has the error."""
        try:
            return self._pool.submit(_apply_function, task)
        except BrokenProcessPool as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def collect(self) -> list[Outcome[T]]:
        """Return the outcome of the first task; after a crash, those of all tasks under way: any may have caused it."""
        task, future = self.waiting.popleft()
        try:
            return [_take_outcome(task, future.result)]
        except BrokenProcessPool:
            pass
        suspects = [task, *(later for later, _ in self.waiting)]
        self.waiting.clear()
        outcomes = []
        self._restart(1)
        for suspect in suspects:
            try:
                outcomes.append(_take_outcome(suspect, self.submit(suspect).result))
            except BrokenProcessPool:
                outcomes.append(Outcome(suspect, failure=(CRASHED, "it ended the process that worked on it")))
                self._restart(1)
        self._restart(self._jobs)
        return outcomes

    def _restart(self, jobs: int) -> None:
        self.close()
        self._start(jobs)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(OSError):
            os.unlink(self._file)


def _write_function(function: Callable[[Any], Any]) -> str:
    """Write a function to a temporary file for workers; return its path.

    The function may hold a model. As an argument of a process it would go through a pipe, and a worker that dies while
    it starts would leave this process waiting for ever to write the rest.
    """
    try:
        handle, path = tempfile.mkstemp(prefix="eqkin-function-")
        try:
            with open(handle, "wb") as file:
                pickle.dump(function, file, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            os.unlink(path)
            raise
    except OSError as error:
        raise StorageFailed(
            f"{tempfile.gettempdir()}: worker processes need a temporary file there ({error.strerror or error}); "
            "make room, or set TMPDIR to another folder"
        ) from error
    return path


_function: Callable[[Any], Any]  # of this process, if it is a worker


def _prepare_worker(file: str) -> None:
    """Load the function. Leave interrupts to the parent, and end when it ends, even if it is killed."""
    global _function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    try:
        opened = open(file, "rb")
    except FileNotFoundError:  # the pool was closed while this process started: nothing is left to do
        os._exit(0)
    with opened:
        _function = pickle.load(opened)


def _exit_with_parent(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _apply_function(task: Any) -> Any:
    return _function(task)
