"""Polite HTTP: one request in a while across all processes, patient with a busy server, nothing larger than a cap."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from eqkin.errors import BadInput, LimitReached
from eqkin.sources.cache import lock_exclusively, make_folder, translate_storage_errors, write_atomically

_CHUNK_BYTES = 1 << 16
_RETRY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class _RetryableError(Exception):
    """An attempt that failed in a way that may pass; `after` is how many seconds the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


def get_user_agent() -> str:
    """What eqkin calls itself towards a server."""
    try:
        return f"eqkin/{metadata.version('eqkin')}"
    except metadata.PackageNotFoundError:
        return "eqkin"


@dataclass(frozen=True)
class Downloader:
    """Fetches addresses to files."""

    folder: Path  # of the cache; a file in it keeps the time of the last request
    delay: float = 3.0  # seconds between two requests, what arXiv asks for
    attempts: int = 5
    max_wait: float = 120.0  # the longest single wait; a server that asks for more is given up
    timeout: float = 60.0  # of one connection or read
    deadline: float = 600.0  # of everything, waits and further attempts included
    max_bytes: int = 300_000_000
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, address: str, target: Path) -> None:
        """Put the answer at `address` into the file `target`, whole or not at all.

        Raises `BadInput` if there is none or the server stays away, `LimitReached` if it is larger than `max_bytes` or
        takes longer than `deadline`, `StorageFailed` if it cannot be written.
        """
        until = time.monotonic() + self.deadline
        for attempt in range(self.attempts):
            self._wait_for_turn()
            try:
                with write_atomically(target) as path:
                    self._download(address, path, until)
                return
            except _RetryableError as error:
                reason = str(error)
                wait = error.after if error.after is not None else self.delay * 2**attempt
                if attempt + 1 == self.attempts or wait > min(self.max_wait, until - time.monotonic()):
                    break
                self.sleep(wait)
        raise BadInput(f"{address}: no answer after {attempt + 1} attempts ({reason}); try again later")

    def _download(self, address: str, path: Path, until: float) -> None:
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPRedirectHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
        ):
            opener.add_handler(handler)
        opener.addheaders = [("User-Agent", get_user_agent())]
        try:
            with opener.open(address, timeout=self.timeout) as answer:
                with translate_storage_errors(path), open(path, "wb") as file:
                    self._copy_body(answer, file, address, until)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in _RETRY_STATUSES:
                    raise _RetryableError(
                        f"status {error.code}", _parse_retry_after(error.headers.get("Retry-After"))
                    ) from error
                what = "there is no such paper" if error.code in (400, 404, 410) else f"status {error.code}"
                raise BadInput(f"{address}: {what}") from error
        except ValueError as error:
            raise BadInput(f"{address}: is no address that can be asked ({error})") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(getattr(error, "reason", None), socket.gaierror):  # waiting does not bring a network back
                raise BadInput(f"{address}: the name of the server is not known; is there a network?") from error
            raise _RetryableError(str(error) or type(error).__name__) from error

    def _copy_body(self, answer: http.client.HTTPResponse, file: BinaryIO, address: str, until: float) -> None:
        declared = answer.headers.get("Content-Length", "")
        expected = int(declared) if declared.isascii() and declared.isdigit() else None
        if expected is not None and expected > self.max_bytes:
            raise LimitReached(f"{address}: the answer is larger than {self.max_bytes:,} bytes")
        received = 0
        while piece := _read_chunk(answer):
            received += len(piece)
            if time.monotonic() > until:
                raise LimitReached(f"{address}: the download takes longer than {self.deadline:,.0f} seconds")
            if received > self.max_bytes:
                raise LimitReached(f"{address}: the answer is larger than {self.max_bytes:,} bytes")
            file.write(piece)
        if expected is not None and received < expected:
            raise _RetryableError(f"the answer broke off after {received:,} of {expected:,} bytes")

    def _wait_for_turn(self) -> None:
        """Return when `delay` seconds have passed since the last request of any process that shares the folder."""
        if self.delay <= 0:
            return
        path = make_folder(self.folder) / "last-request"
        with translate_storage_errors(path), open(path, "a+") as file:
            lock_exclusively(file.fileno())  # released when the file is closed
            file.seek(0)
            self.sleep(_compute_remaining_delay(file.read(40), self.delay))
            file.seek(0)
            file.truncate()
            file.write(repr(time.time()))


def _read_chunk(answer: http.client.HTTPResponse) -> bytes:
    """What has arrived, without waiting for more; an error of the line may pass, unlike one of the disk."""
    try:
        return answer.read1(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise _RetryableError(str(error) or type(error).__name__) from error


def _compute_remaining_delay(last: str, delay: float) -> float:
    """Seconds still to wait; a clock that was set back never makes it more than `delay`."""
    try:
        passed = time.time() - float(last)
    except ValueError:
        return 0.0
    return min(max(delay - passed, 0.0), delay) if passed >= 0 else delay


def _parse_retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, which is a number or a date; None if it is neither."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit() and len(value) < 10:
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max((date - datetime.now(UTC)).total_seconds(), 0.0)
