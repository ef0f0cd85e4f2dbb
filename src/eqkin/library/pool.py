"""Reading many items with several processes, results in the order of the items.

A process that dies (an input that crashes native code, the system's out-of-memory killer) costs the one item that
killed it: what was under way is tried again, item by item.
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
from itertools import chain, islice
from multiprocessing.process import BaseProcess

from eqkin.errors import BadInput
from eqkin.library.reading import Extract, failed, read_item
from eqkin.sources.paper import Item

Task = tuple[Item, str]  # an item and the digest the library has for it
_CHUNK = 8  # items a task
_WARM_UP = 1.0  # seconds of work before processes are worth their start


def read_all(tasks: Iterable[Task], jobs: int) -> Iterator[Extract]:
    """Read all items; with more than one job, in processes as soon as there is enough to do."""
    tasks = iter(tasks)
    start = time.monotonic()
    for item, known in tasks:
        yield read_item(item, known)
        if jobs > 1 and time.monotonic() - start > _WARM_UP:
            break
    if jobs > 1:
        yield from _read_parallel(tasks, jobs)


def read_chunk(chunk: list[Task]) -> list[Extract]:
    """Read a few items, in whatever process this runs."""
    return [read_item(item, known) for item, known in chunk]


def _read_parallel(tasks: Iterator[Task], jobs: int) -> Iterator[Extract]:
    first = list(islice(tasks, _CHUNK))
    if not first:
        return
    chunks = chain([first], iter(lambda: list(islice(tasks, _CHUNK)), []))
    executor = _started(jobs)
    waiting: deque[tuple[list[Task], Future[list[Extract]]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, _submit(executor, chunk)))
            while len(waiting) > 2 * jobs + 1 or (waiting and waiting[0][1].done()):
                extracts, executor = _collect(waiting, executor, jobs)
                yield from extracts
        while waiting:
            extracts, executor = _collect(waiting, executor, jobs)
            yield from extracts
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def new_executor(jobs: int) -> ProcessPoolExecutor:
    """A pool of processes to read with."""
    # a fresh interpreter each: V8 and threads do not survive a fork
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_prepare_worker)


def _prepare_worker() -> None:
    """Leave interrupts to the parent, and end when it does, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _nothing() -> None:
    pass


def _started(jobs: int) -> ProcessPoolExecutor:
    executor = new_executor(jobs)
    try:
        executor.submit(_nothing).result()
    except BrokenProcessPool as error:
        raise BadInput(
            "no worker process could be started: call `add` with jobs=1, or from a script file whose code stands under "
            '`if __name__ == "__main__":`'
        ) from error
    return executor


def _submit(executor: ProcessPoolExecutor, chunk: list[Task]) -> Future[list[Extract]]:
    try:
        return executor.submit(read_chunk, chunk)
    except BrokenProcessPool as error:
        failed: Future[list[Extract]] = Future()
        failed.set_exception(error)
        return failed


def _collect(
    waiting: deque[tuple[list[Task], Future[list[Extract]]]], executor: ProcessPoolExecutor, jobs: int
) -> tuple[list[Extract], ProcessPoolExecutor]:
    chunk, future = waiting.popleft()
    try:
        return future.result(), executor
    except BrokenProcessPool:
        pass
    executor.shutdown(wait=False, cancel_futures=True)
    suspects = [chunk, *(later for later, _ in waiting)]
    waiting.clear()
    extracts = [extract for group in suspects for extract in _one_by_one(group)]
    return extracts, new_executor(jobs)


def _one_by_one(chunk: list[Task]) -> list[Extract]:
    extracts: list[Extract] = []
    executor = new_executor(1)
    for item, known in chunk:
        try:
            extracts += executor.submit(read_chunk, [(item, known)]).result()
        except BrokenProcessPool:
            extracts.append(failed(item.key, item.origin, "crash", "reading it ended the process"))
            executor = new_executor(1)
    executor.shutdown(wait=False)
    return extracts
