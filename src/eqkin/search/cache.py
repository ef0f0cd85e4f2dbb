"""`VersionedCache`: what was computed from a collection, for as long as the collection does not change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from eqkin.limits import check_cancelled

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
                self._entries.pop(key, None)
                entry = self._entries[key] = _CacheEntry(version)
                while len(self._entries) > self._most:
                    del self._entries[next(iter(self._entries))]
        if is_known:
            try:
                return cast(V, self._wait(entry.value))
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

    @staticmethod
    def _wait(value: Future[V]) -> V:
        """Wait for another thread's result as long as somebody waits for ours."""
        while True:
            try:
                return value.result(timeout=_WAIT_SECONDS)
            except TimeoutError:
                check_cancelled()
