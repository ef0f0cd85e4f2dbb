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
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Any, Generic, Self, TypeVar

from eqkin.errors import BadInput

T = TypeVar("T")
R = TypeVar("R")

_WARM_UP_SECONDS = 1.0  # of work before worker processes are worth their start
_TASKS_PER_JOB = 16  # submitted ahead of the result that is waited for

CRASHED = "crash"
UNREADABLE = "unreadable"


class WorkerEnvironmentError(Exception):
    """The worker's machine is at fault, not the task: its disk is full, or it does not see a path."""


class Executor(ABC):
    """Applies functions to tasks. A context manager: leaving it stops what was started."""

    is_remote = False  # other machines do the work: they do not see this one's files and packages
    nodes = 0  # machines of a cluster

    @abstractmethod
    def map(
        self, function: Callable[[T], R], tasks: Iterable[T], *, on_failure: Callable[[T, str, str], R]
    ) -> Iterator[R]:
        """Yield the results of `function` in the order of the tasks. Few tasks are in memory at a time.

        Args:
            function: picklable. It raises `WorkerEnvironmentError` where the machine is at fault.
            tasks: picklable.
            on_failure: returns the result of a task that crashed its worker or that no machine could do, given the
                task, a short reason and a message. It may raise.
        """

    def describe_progress(self) -> str:
        """Return how far the last `map` is, in words; empty for this machine alone."""
        return ""

    def close(self) -> None:  # noqa: B027
        """Stop what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalExecutor(Executor):
    """Up to `jobs` processes of this machine. With one, or while there is little to do, this process does the work.

    A process that dies (a crash of native code, the out-of-memory killer) costs the one task that killed it: all tasks
    under way are repeated, each alone in a process. Raises `BadInput` if no process can be started.
    """

    def __init__(self, jobs: int = 1, *, warm_up_seconds: float = _WARM_UP_SECONDS) -> None:
        self.jobs: int = jobs
        self._warm_up_seconds = warm_up_seconds

    def map(
        self, function: Callable[[T], R], tasks: Iterable[T], *, on_failure: Callable[[T, str, str], R]
    ) -> Iterator[R]:
        """Yield the results of all tasks: in this process at first, then in worker processes."""
        start = time.monotonic()
        remaining = iter(tasks)
        for task in remaining:
            yield _finish(task, partial(function, task), on_failure)
            if self.jobs > 1 and time.monotonic() - start > self._warm_up_seconds:
                break
        first = next(remaining, None)
        if first is None:
            return
        with _WorkerPool[T](function, self.jobs) as pool:
            for task, future in pool.iter_finished(chain([first], remaining)):
                yield _finish(task, future.result, on_failure)


class ThreadExecutor(Executor):
    """Up to `jobs` threads of this process, for functions whose work is done by a GPU."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs: int = jobs

    def map(
        self, function: Callable[[T], R], tasks: Iterable[T], *, on_failure: Callable[[T, str, str], R]
    ) -> Iterator[R]:
        """Yield the results of all tasks."""
        remaining = iter(tasks)
        waiting: deque[tuple[T, Future[R]]] = deque()
        with ThreadPoolExecutor(self.jobs) as pool:
            while True:
                for task in islice(remaining, _TASKS_PER_JOB * self.jobs - len(waiting)):
                    waiting.append((task, pool.submit(function, task)))
                if not waiting:
                    return
                task, future = waiting.popleft()
                yield _finish(task, future.result, on_failure)


def _finish(task: T, get_result: Callable[[], R], on_failure: Callable[[T, str, str], R]) -> R:
    try:
        return get_result()
    except WorkerEnvironmentError as error:
        return on_failure(task, UNREADABLE, str(error))
    except BrokenProcessPool:
        return on_failure(task, CRASHED, "it ended the process that worked on it")


class _WorkerPool(Generic[T]):
    """Processes that apply one function to tasks; after a crash they are started again."""

    def __init__(self, function: Callable[[T], Any], jobs: int) -> None:
        # pickled once, although it travels with every task: it may hold a model
        self._function = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
        self._jobs = jobs
        self._waiting: deque[tuple[T, Future[Any]]] = deque()
        self._pool = _start_processes(jobs)

    def iter_finished(self, tasks: Iterable[T]) -> Iterator[tuple[T, Future[Any]]]:
        """Yield the tasks in their order, with their results."""
        for task in tasks:
            self._waiting.append((task, self._submit(task)))
            # the next task may take long to come: what is done is not to wait for it
            while len(self._waiting) > _TASKS_PER_JOB * self._jobs or (self._waiting and self._waiting[0][1].done()):
                yield from self._take_first()
        while self._waiting:
            yield from self._take_first()

    def _submit(self, task: T) -> Future[Any]:
        try:
            return self._pool.submit(_apply_function, self._function, task)
        except BrokenProcessPool as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def _take_first(self) -> Iterator[tuple[T, Future[Any]]]:
        """Yield the first task; after a crash, all tasks under way, each repeated alone: any may have caused it."""
        task, future = self._waiting.popleft()
        if not isinstance(future.exception(), BrokenProcessPool):
            yield task, future
            return
        suspects = [task, *(later for later, _ in self._waiting)]
        self._waiting.clear()
        self._restart(1)
        for suspect in suspects:
            alone = self._submit(suspect)
            if isinstance(alone.exception(), BrokenProcessPool):
                self._restart(1)
            yield suspect, alone
        self._restart(self._jobs)

    def _restart(self, jobs: int) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = _start_processes(jobs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _start_processes(jobs: int) -> ProcessPoolExecutor:
    # a fresh interpreter each: V8 and threads do not survive a fork
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_prepare_worker)
    # Workers are sent the command line through a pipe. If one died while it starts, this process would wait for ever
    # to write the rest of a long one.
    arguments = sys.argv
    sys.argv = arguments[:1]
    try:
        pool.submit(os.getpid).result()
    except (BrokenProcessPool, OSError) as error:
        pool.shutdown(wait=False, cancel_futures=True)
        raise BadInput(
            "no worker process could be started: use one job, or put the code of the script under "
            '`if __name__ == "__main__":`'
        ) from error
    finally:
        sys.argv = arguments
    return pool


def _prepare_worker() -> None:
    """Leave interrupts to the parent, and end when it ends, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(lambda: os._exit(1))


def end_with_parent(end: Callable[[], object]) -> None:
    """Call a function when the process that started this one has ended, which a killed one cannot say itself."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()


@lru_cache(maxsize=1)
def _load_function(content: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(content)
    return function


def _apply_function(content: bytes, task: Any) -> Any:
    return _load_function(content)(task)
