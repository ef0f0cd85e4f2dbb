"""`MilvusConnection`: calls to a Milvus server with a time limit, whose failures are errors of eqkin.

The first call connects. When the server went away and came back, pymilvus connects again with the next call, and
collections that are not in the server's memory are loaded.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from typing import Any
from urllib.parse import unquote, urlsplit

from eqkin.errors import BadInput, EqkinError, StorageFailed, Unreachable

CALL_SECONDS = 8.0  # limit of a call
WRITE_SECONDS = 30.0  # limit of one that writes, creates or loads a collection
_RETRY_PAUSE = 0.3  # seconds before a call that found no connection is repeated
_GRPC_OPTIONS = {
    "grpc.keepalive_permit_without_calls": 0,  # Milvus Lite closes connections that send such pings
    "grpc.keepalive_time_ms": 60_000,
    "grpc.use_local_subchannel_pool": 1,  # a new connection does not inherit the back-off of a broken one
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
}

_SCHEMES = ("http", "https", "tcp", "unix")
_NO_COLLECTION, _NOT_LOADED = 100, frozenset({101, 103, 106})
_NOT_READY, _EXHAUSTED = frozenset({1, 2}), frozenset({3, 4, 7, 8, 9})
_NOT_READY_MESSAGE = re.compile(r"not ready|unavailable|timeout|timed out|fail connecting|not available", re.IGNORECASE)
_DENIED = "UNAUTHENTICATED", "PERMISSION_DENIED"


class NoSuchCollection(BadInput):
    """The server has no collection of this name."""


class _NotLoaded(Unreachable):
    """The server has the collection, but not in memory."""


class _Refused(Unreachable):
    """The server does not accept connections."""


class MilvusConnection:
    """A Milvus server. May be shared between threads.

    Args:
        uri: `http://host:port`, `https://user:password@host:port/database`, or the path of a file of Milvus Lite that
            ends with `.db`. Without a user there, `$MILVUS_TOKEN` is used, if it is set.
        seconds: Limit of a call, unless it is given with the call.

    Raises:
        BadInput: the address is invalid, or pymilvus is not installed.
    """

    def __init__(self, uri: str, seconds: float = CALL_SECONDS) -> None:
        self.uri, self.shown, self._token = parse_address(uri)
        self.seconds = seconds
        self._client: Any = None
        self._connecting = threading.Lock()
        import_pymilvus()

    def call(self, method: str, collection: str = "", *, seconds: float | None = None, **arguments: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient` by its name, within a limit of `seconds`.

        A collection that is not loaded is loaded first.

        Raises:
            NoSuchCollection: the collection does not exist.
            StorageFailed: the server refuses: out of memory or disk, or an error of its own.
            Unreachable: it does not answer, denies access, or has not loaded the collection yet.
        """
        seconds = seconds or self.seconds
        try:
            return self._call_once(method, collection, seconds, arguments)
        except _NotLoaded:
            self.load(collection)
        except _Refused:  # a connection that was cut while it was idle is noticed now
            time.sleep(_RETRY_PAUSE)
        return self._call_once(method, collection, seconds, arguments)

    def load(self, collection: str, seconds: float | None = None) -> None:
        """Load a collection into the server's memory; raises `Unreachable` if that takes too long."""
        try:
            self._call_once("load_collection", collection, seconds or self.seconds, {})
        except (StorageFailed, Unreachable) as error:
            raise Unreachable(f"{self.shown}: is loading its collection {collection}; try again in a moment") from error

    @property
    def version(self) -> str:
        """The server's version, as it reports it."""
        return str(self._call_once("get_server_version", "", self.seconds, {}))

    def close(self) -> None:
        """Close the connection."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _call_once(self, method: str, collection: str, seconds: float, arguments: dict[str, Any]) -> Any:
        import grpc

        named = {"collection_name": collection} if collection else {}
        try:
            with self._connecting:
                if self._client is None:
                    token = self._token or os.environ.get("MILVUS_TOKEN", "")
                    self._client = import_pymilvus().MilvusClient(
                        uri=self.uri, token=token, timeout=self.seconds, dedicated=True, grpc_options=_GRPC_OPTIONS
                    )
                client = self._client
            return getattr(client, method)(**named, timeout=seconds, **arguments)
        except (import_pymilvus().MilvusException, grpc.RpcError, ValueError) as error:
            raise self._translate_error(error, collection) from error

    def _translate_error(self, error: Exception, collection: str) -> EqkinError:
        import grpc

        code = getattr(error, "code", None)
        code = code() if callable(code) else code  # a method in gRPC's errors
        message = str(getattr(error, "message", "") or getattr(error, "details", lambda: "")() or error)
        if code == _NO_COLLECTION:
            return NoSuchCollection(
                f"{self.shown}: has no collection {collection}; push a library into it with "
                f"`eqkin push --milvus {self.shown} --collection {collection}`"
            )
        if code in _NOT_LOADED:
            return _NotLoaded(f"{self.shown}: its collection {collection} is not loaded; try again in a moment")
        if getattr(code, "name", "") in _DENIED:
            return Unreachable(f"{self.shown}: Milvus denies access ({_shorten(message)}); set MILVUS_TOKEN")
        if isinstance(code, grpc.StatusCode) or code in _NOT_READY and _NOT_READY_MESSAGE.search(message):
            slow = getattr(code, "name", "") == "DEADLINE_EXCEEDED"
            kind = Unreachable if slow else _Refused
            return kind(f"{self.shown}: Milvus does not answer ({_shorten(message)}); is it running?")
        what = "out of memory, disk or quota" if code in _EXHAUSTED else "refused"
        return StorageFailed(f"{self.shown}: Milvus: {what} ({_shorten(message)})")


def import_pymilvus() -> Any:
    """Import the client library with its log silenced; raises `BadInput` if it is not installed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import pymilvus as module
    except ImportError as error:
        raise BadInput("Milvus needs the extra: pip install 'eqkin[milvus]'") from error
    for name in ("pymilvus", "pymilvus.milvus_client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return module


def parse_address(uri: str) -> tuple[str, str, str]:
    """Return an address as pymilvus takes it, as it may be shown (both without password), and `user:password`.

    Raises `BadInput`.
    """
    uri = uri.strip()
    if uri.endswith(".db") and "://" not in uri:
        return uri, uri, ""
    if re.fullmatch(r"[\w.-]+:\d+", uri):
        uri = f"http://{uri}"
    wrong = BadInput(
        f"{uri.rpartition('@')[2][:200]!r} is not an address of a Milvus server; http://localhost:19530 is one, "
        "https://user:password@host:19530 another, with %40 for @ and %2F for / in the password"
    )
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:  # its message contains parts of the password
        raise wrong from None
    if parts.scheme == "unix":
        return uri, uri, ""
    misplaced = "@" in parts.path + parts.query + parts.fragment or parts.path.endswith(".db")  # pymilvus: a file
    if parts.scheme not in _SCHEMES or not parts.hostname or misplaced:
        raise wrong
    user, _, place = parts.netloc.rpartition("@")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
    return parts._replace(netloc=place).geturl(), shown, unquote(user)


def _shorten(message: str) -> str:
    return " ".join(message.split())[:300]
