"""Serving an application over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from eqkin.errors import BadInput
from eqkin.limits import LIMITS, Limits

SHUTDOWN_SECONDS = 3  # seconds that requests under way have when the server stops
_BACKLOG = 512  # connections that wait to be accepted


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises `BadInput` if the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol named, asyncio sends small answers at once; without it each waits 40 ms for the reader's word
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"{host}:{port}: cannot listen there ({error}); choose another --port or --host") from error
    listener.listen(_BACKLOG)
    return listener


def get_url(listener: socket.socket) -> str:
    """Where a browser finds a listening socket."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


class Server(uvicorn.Server):
    """A server that says when it answers.

    Args:
        app: what it serves.
        limits: bounds on requests.
        ready: called when it answers.
        shared: whether other processes accept from the same socket. Then it takes one connection at a time: otherwise
            the first one to wake would take all that wait, and keep them.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits = LIMITS,
        ready: Callable[[], None] = lambda: None,
        *,
        shared: bool = False,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                http="h11",  # the one that bounds headers, whatever else is installed
                timeout_keep_alive=10,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                backlog=1 if shared else _BACKLOG,
                loop="asyncio",  # the one that heeds that
                h11_max_incomplete_event_size=limits.web_header_bytes,
            )
        )
        self._ready = ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until someone stops it. Requests share the processors; the numeric libraries use one each."""
        with threadpool_limits(1):
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to answer."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # for it was told the number of connections to take at a time
        self._ready()
