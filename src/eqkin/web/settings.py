"""What all processes of a server share: settings, load, counts of requests. Imports only what a supervisor needs."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import secrets
from dataclasses import dataclass

from eqkin.storage.files import is_process_running

_UNEQUAL_REQUESTS = 3  # more than another process has
_LOCK_SECONDS = 5.0
_BUCKETS = 1 << 16  # of clients whose requests are counted; two clients rarely share one
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class ServerSettings:
    """Who may reach a server, and under which names."""

    hosts: tuple[str, ...] = LOOPBACK_HOSTS  # host names that requests may use; empty: any
    any_address: bool = False  # requests may also use an IP address as the host
    root_path: str = ""  # path under which a proxy shows the server, as in "/eqkin"
    cors: tuple[str, ...] = ()  # origins whose scripts may use the HTTP interface; "*": any
    frames: tuple[str, ...] = ()  # origins that may show the page in a frame
    token: str = ""  # what clients must know
    rate: int = 0  # requests per minute of one address; 0: any number
    read_only: bool = False  # refuse judgements and drafts
    proxies: tuple[str, ...] = ()  # addresses and networks of proxies whose X-Forwarded-For is believed
    processes: int = 1  # number of server processes


LOOPBACK = ServerSettings()  # for this machine only


class LoadBoard:
    """The number of requests that each process of a server has, in memory that they share.

    A connection stays with the process that accepted it, and chance gives one process more of them than another. A
    process that has more requests closes connections with its answers, until the clients that connect again have made
    the numbers equal.
    """

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._lock = context.Lock()
        self._pids, self._counts = context.RawArray("q", processes), context.RawArray("q", processes)
        self._own = -1  # the place of this process; -1: none

    def join(self) -> None:
        """Take a free place, or that of a process that has ended."""
        locked = self._lock.acquire(timeout=_LOCK_SECONDS)  # in vain if a process was killed here
        free = (place for place, pid in enumerate(self._pids) if not pid or not is_process_running(pid))
        self._own = next(free, -1)
        if self._own >= 0:
            self._pids[self._own], self._counts[self._own] = os.getpid(), 0
        if locked:
            self._lock.release()

    def write(self, count: int) -> None:
        """Say how many requests this process has."""
        if self._own >= 0:
            self._counts[self._own] = count

    @property
    def has_too_many(self) -> bool:
        """True if another process has clearly fewer requests than this one."""
        known = [count for pid, count in zip(self._pids, self._counts, strict=True) if pid]
        return self._own >= 0 and self._counts[self._own] > min(known, default=0) + _UNEQUAL_REQUESTS


class RateLimiter:
    """Admits `per_minute` requests per minute of each client, and as many at once after a pause (token buckets).

    The buckets are in memory that all processes share, since a connection stays with the process that accepted it.
    Processes that count at the same moment may miss a request of each other.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_second, self._most = per_minute / 60, per_minute
        self._buckets = multiprocessing.get_context("spawn").RawArray("d", 2 * _BUCKETS)  # requests counted, and when
        self._secret = secrets.token_bytes(16)  # nobody can choose an address that shares another one's bucket

    def compute_delay(self, client: str, now: float) -> float:
        """Count a request; return 0 if it is admitted, or the number of seconds until the next one is."""
        digest = hashlib.blake2b(client.encode(), digest_size=4, key=self._secret).digest()
        place = 2 * (int.from_bytes(digest, "little") % _BUCKETS)
        counted, then = self._buckets[place : place + 2]
        counted = max(0.0, counted - (now - then) * self._per_second)
        is_admitted = counted + 1 <= self._most
        self._buckets[place : place + 2] = [counted + is_admitted, now]
        return 0.0 if is_admitted else (counted + 1 - self._most) / self._per_second
