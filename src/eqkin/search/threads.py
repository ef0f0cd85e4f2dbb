"""Numeric libraries use one thread while a search runs: for so few numbers, others only wait for work."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from functools import cached_property

from threadpoolctl import OpenBLASController, ThreadpoolController


class _OneThread(ContextDecorator):
    """Limits numeric libraries to one thread while any search runs.

    threadpoolctl lets only the first thread that set OpenBLAS's number of threads change it, until that thread releases
    control. Here, the first search to begin and the last one to end set it, whichever threads they are in.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0

    @cached_property
    def _controller(self) -> ThreadpoolController:
        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limiter = self._controller.limit(limits=1)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limiter.restore_original_limits()
                OpenBLASController.clear_controlling_thread(force=True)


ONE_THREAD = _OneThread()
