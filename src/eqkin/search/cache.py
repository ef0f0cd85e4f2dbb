"""What the searches of all threads share: cached results, and the number of threads of numeric libraries.

`VersionedCache` keeps what was computed from a collection for as long as the collection does not change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from threadpoolctl import OpenBLASController, ThreadpoolController

from eqkin.limits import check_cancelled

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_SLOW_SECONDS = 1.0
_SLOW_LIFETIME_FACTOR = 20.0
_WAIT_SECONDS = 0.05


@dataclass
class _CacheEntry:
    version: Hashable
    value: Future[Any] = field(default_factory=Future)
    # By the monotonic clock; until then another version does not matter.
    valid_until: float = 0.0


class VersionedCache:
    """Results of any kind by key; the oldest are dropped first. Shared by threads.

    Args:
        most: How many results are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _CacheEntry] = {}

    def get(self, version: Hashable, key: Hashable, make: Callable[[], V], *, keep_slow: bool = False) -> V:
        """Return the result with a key, or make it.

        Threads that ask for the same result while it is made wait for it.

        Args:
            version: The state of the collection.
            key: What is asked for, and of which kind it is.
            make: Computes the result.
            keep_slow: Keep a result that took long for a while although the collection changes: a large one may change
                every few seconds.
        """
        with self._lock:
            entry = self._entries.get(key)
            is_known = entry is not None and (entry.version == version or time.monotonic() < entry.valid_until)
            if entry is None or not is_known:
                entry = self._put(version, key)
        if is_known:
            try:
                return cast(V, _wait(entry.value))
            except CancelledError:
                # The thread that began it failed, or was given up.
                return make()
        start = time.monotonic()
        try:
            value = make()
        except BaseException:
            with self._lock:
                if self._entries.get(key) is entry:
                    del self._entries[key]
            entry.value.cancel()
            raise
        seconds = time.monotonic() - start
        if keep_slow and seconds > _SLOW_SECONDS:
            entry.valid_until = time.monotonic() + _SLOW_LIFETIME_FACTOR * seconds
        entry.value.set_result(value)
        return value

    def get_many(
        self, version: Hashable, kind: str, keys: Sequence[K], make: Callable[[list[K]], dict[K, V]]
    ) -> dict[K, V]:
        """Return the results with several keys; those that are not known are made together, and some may not exist."""
        found: dict[K, V] = {}
        with self._lock:
            for key in keys:
                entry = self._entries.get((kind, key))
                if entry is not None and entry.version == version:
                    found[key] = entry.value.result()
        if missing := [key for key in keys if key not in found]:
            made = make(missing)
            with self._lock:
                for key, value in made.items():
                    self._put(version, (kind, key)).value.set_result(value)
            found |= made
        return found

    def _put(self, version: Hashable, key: Hashable) -> _CacheEntry:
        self._entries.pop(key, None)
        entry = self._entries[key] = _CacheEntry(version)
        while len(self._entries) > self._most:
            del self._entries[next(iter(self._entries))]
        return entry


def _wait(value: Future[V]) -> V:
    """Wait for another thread's result as long as somebody waits for ours."""
    while True:
        try:
            return value.result(timeout=_WAIT_SECONDS)
        except TimeoutError:
            check_cancelled()


class _OneThread(ContextDecorator):
    """Limits numeric libraries to one thread while any search runs: for so few numbers, others only wait for work.

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
