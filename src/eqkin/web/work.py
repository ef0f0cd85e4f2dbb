"""Work that takes a processor, kept off the event loop: a few threads, a bounded queue, a time to give up after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from eqkin.limits import Limits
from eqkin.web.errors import make_busy_error

T = TypeVar("T")


class WorkQueue:
    """Runs functions in threads. Used from one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._threads = ThreadPoolExecutor(limits.web_workers, thread_name_prefix="eqkin-web")
        self._room = limits.web_workers + limits.web_waiting
        self._seconds = limits.web_seconds
        self.under_way = 0  # waiting and running

    async def run(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The function's result; raises `WebError` (503) if the queue is full or the time is up.

        What was given up keeps its place until it really ends, so the queue stays bounded.
        """
        if self.under_way >= self._room:
            raise make_busy_error("too many requests at the moment; come again in a second")
        self.under_way += 1
        loop = asyncio.get_running_loop()
        future = self._threads.submit(function, *arguments, **named)
        future.add_done_callback(lambda done: _call_soon(loop, self._release))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            _discard_result(future)
            raise make_busy_error(f"gave up after {self._seconds:g} seconds") from None

    def close(self) -> None:
        """Stop taking work; what runs goes on to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _release(self) -> None:
        self.under_way -= 1


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _discard_result(future: Future[Any]) -> None:
    """Drop a result nobody waits for, and its exception."""
    future.cancel()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
