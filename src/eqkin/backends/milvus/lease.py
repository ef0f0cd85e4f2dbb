"""`Lease`: one push at a time into a collection. A row that names who pushes, renewed while the push goes on.

Milvus cannot compare and set. So whoever writes the lease looks again a moment later whether it is still theirs, and
before each renewal: of two that begin at the same instant the later stays, the other stops. Rows have keys made of
names, so even then nothing is there twice. Clocks of machines have to agree to within the time after which a lease that
is not renewed is over.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from typing import Any

from eqkin.backends.milvus import documents
from eqkin.backends.milvus.connection import MilvusConnection
from eqkin.backends.milvus.keys import LEASE_KEY
from eqkin.errors import EqkinError, LibraryBusy

LEASE_SECONDS = 60.0  # seconds after which a lease that was not renewed counts no more
_RENEW_SECONDS = 5.0  # seconds between renewals
_SETTLE_SECONDS = 0.3  # seconds until one looks whether somebody else wrote at the same time


class PushLease:
    """Context manager that holds the lease of a collection; raises `LibraryBusy` if another push does."""

    def __init__(self, connection: MilvusConnection, collection: str) -> None:
        self._connection, self._collection = connection, collection
        self._token, self._renewed = secrets.token_hex(8), 0.0

    def __enter__(self) -> PushLease:
        holder = self._read_holder()
        if holder and _is_alive(holder):
            raise self._make_busy_error(holder)
        self._write()
        time.sleep(_SETTLE_SECONDS)
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(EqkinError):  # then it is over by itself in a minute
            if self._read_holder().get("token") == self._token:
                documents.write_record(self._connection, self._collection, LEASE_KEY, {})

    def renew(self) -> None:
        """Say that the push goes on; raises `LibraryBusy` if another one has taken over."""
        if time.monotonic() - self._renewed > _RENEW_SECONDS:
            self._check()
            self._write()

    def _check(self) -> None:
        holder = self._read_holder()
        if holder.get("token") != self._token:
            raise self._make_busy_error(holder)

    def _read_holder(self) -> dict[str, Any]:
        found: dict[str, Any] = documents.read_record(self._connection, self._collection, LEASE_KEY) or {}
        return found

    def _write(self) -> None:
        who = {"token": self._token, "host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
        documents.write_record(self._connection, self._collection, LEASE_KEY, who)
        self._renewed = time.monotonic()

    def _make_busy_error(self, holder: dict[str, Any]) -> LibraryBusy:
        who = f"process {holder.get('process')} on {holder.get('host')}" if holder else "unknown"
        return LibraryBusy(
            f"{self._connection.shown}: another push into the collection {self._collection} is at work ({who}); "
            "try again when it is done"
        )


def _is_alive(holder: dict[str, Any]) -> bool:
    """Whether a lease counts: renewed lately, by a process that is not known to be gone."""
    if time.time() - holder["time"] > LEASE_SECONDS:
        return False
    if holder["host"] != socket.gethostname() or os.name == "nt":
        return True
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
