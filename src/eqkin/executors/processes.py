"""Work done by processes of this machine, and by this one alone as long as there is little to do.

A process that dies (an input that crashes native code, the system's out-of-memory killer) costs the one part of a task
that killed it: what was under way is done again, part by part.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing.process import BaseProcess
from typing import Any, Generic

from eqkin.errors import BadInput
from eqkin.executors import Executor, ExecutorProgress, Grain, R, T, Work

_WARM_UP_SECONDS = 1.0  # seconds of work before processes are worth their start
_work: Work[Any, Any]  # of this process, if it is a worker


class LocalExecutor(Executor):
    """Up to `jobs` processes; with one, all is done in this process."""

    grain = Grain(papers=8, bytes=64_000_000)

    def __init__(self, jobs: int = 1) -> None:
        super().__init__()
        self.jobs = jobs

    def map(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of all tasks, in their order; in processes as soon as there is enough to do."""
        self.tally = ExecutorProgress()
        tasks = iter(tasks)
        start = time.monotonic()
        for task in tasks:
            parts = work.parts(task)
            for part in parts:
                yield from work.do(part)
                if self.jobs > 1 and time.monotonic() - start > _WARM_UP_SECONDS:
                    yield from self._parallel(work, chain(parts, tasks))
                    return
            self.tally.done += 1

    def close(self) -> None:
        """Nothing is left: processes are started for one `map` and stopped at its end."""

    def _parallel(self, work: Work[T, R], tasks: Iterator[T]) -> Iterator[R]:
        first = next(tasks, None)
        if first is None:
            return
        pool = _Pool(work, self.jobs)
        try:
            for task in chain([first], tasks):
                pool.submit(task)
                while len(pool.waiting) > 2 * self.jobs + 1 or pool.ready():
                    yield from self._collected(pool)
            while pool.waiting:
                yield from self._collected(pool)
        finally:
            pool.close()

    def _collected(self, pool: _Pool[T, R]) -> list[R]:
        before = len(pool.waiting)
        results = pool.collect()
        self.tally.done += before - len(pool.waiting)
        self.tally.under_way = len(pool.waiting)
        return results


class _Pool(Generic[T, R]):
    """Tasks under way in several processes, first in, first out."""

    def __init__(self, work: Work[T, R], jobs: int) -> None:
        self._work, self._jobs = work, jobs
        self._executor = make_process_pool(work, jobs)
        self.waiting: deque[tuple[T, Future[list[R]]]] = deque()
        try:
            self._executor.submit(_do_nothing).result()
        except BrokenProcessPool as error:
            raise BadInput(
                "no worker process could be started: use one job, or a script file whose code stands under "
                '`if __name__ == "__main__":`'
            ) from error

    def submit(self, task: T) -> None:
        future: Future[list[R]]
        try:
            future = self._executor.submit(run_task, task)
        except BrokenProcessPool as error:
            future = Future()
            future.set_exception(error)
        self.waiting.append((task, future))

    def ready(self) -> bool:
        """Whether results can be had without waiting."""
        return bool(self.waiting) and self.waiting[0][1].done()

    def collect(self) -> list[R]:
        """Results of the first task; after a crash, of all that were under way, any of which may have caused it."""
        task, future = self.waiting.popleft()
        try:
            return future.result()
        except BrokenProcessPool:
            pass
        self.close()
        suspects = [task, *(later for later, _ in self.waiting)]
        self.waiting.clear()
        results = [result for suspect in suspects for result in run_isolated(self._work, suspect)]
        self._executor = make_process_pool(self._work, self._jobs)
        return results

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def run_isolated(work: Work[T, R], task: T, last: bool = True) -> Iterator[R]:
    """The results of a task that may end the process it is done in: each part is done in a process that may die.

    Raises `Trouble` as `Work.do` does.
    """
    executor = make_process_pool(work, 1)
    try:
        for part in work.parts(task, last):
            try:
                yield from executor.submit(run_task, part, last).result()
            except BrokenProcessPool:
                yield from work.given_up(part, "crash", "it ended the process that read it")
                executor = make_process_pool(work, 1)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def make_process_pool(work: Work[Any, Any], jobs: int) -> ProcessPoolExecutor:
    """A pool of processes that `do_here` can be submitted to."""
    # a fresh interpreter each: V8 and threads do not survive a fork
    return ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn"), initializer=_prepare_worker, initargs=(work,)
    )


def run_task(task: Any, last: bool = True) -> list[Any]:
    """The results of a task, in the worker process that this runs in."""
    return list(_work.do(task, last))


def _prepare_worker(work: Work[Any, Any]) -> None:
    """Keep what is to be done; leave interrupts to the parent, and end when it does, however it does."""
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _do_nothing() -> None:
    pass
