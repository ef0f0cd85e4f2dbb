"""HTTP servers: what is served, one server process, and uvicorn's supervisor of several."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import h11
import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors.multiprocess import Multiprocess

from eqkin.errors import BadInput, EqkinError, strip_control_chars
from eqkin.limits import LIMITS
from eqkin.web.settings import LoadBoard, RateLimiter, ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from eqkin.search.engine import SearchEngine

SHUTDOWN_SECONDS = 3  # for running requests when the server stops
_BACKLOG = 512  # connections waiting to be accepted
_START_SECONDS = 60  # until a server process that does not answer its supervisor is killed
_FIRST_QUERIES = ("E = mc^2", "energy of a particle")  # asked before the first client: they load code and files
_RESTART_DELAY = 2.0  # seconds, for a process that cannot open what it serves
_GARBAGE_THRESHOLDS = 20_000, 20, 50  # answers make many objects that reference counts free
_LOG = logging.getLogger("eqkin.web")


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. Raises `BadInput` if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with an explicit protocol asyncio sets TCP_NODELAY; without it each small answer waits 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if sys.platform == "win32":  # there, SO_REUSEADDR lets two servers share a port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"{host}:{port}: cannot listen there ({error}); choose another --port or --host") from error
    listener.listen(_BACKLOG)
    return listener


def get_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


@dataclass(frozen=True)
class ServeTarget:
    """The collection to serve: a library, or a collection of a Milvus server. Every process opens it for itself."""

    library: Path | None = None
    milvus: str = ""
    collection: str = ""
    model: str | None = None  # the network of the collection's vectors; None: the bundled one
    judgements: Path | None = None  # folder for judgements of a collection; None: the current one
    settings: ServerSettings = ServerSettings()
    board: LoadBoard | None = None  # of several processes
    limiter: RateLimiter | None = None  # of several processes

    def __str__(self) -> str:
        if self.library:
            return str(self.library)
        from eqkin.cluster.milvus.connection import parse_address

        return f"the collection {self.collection} of {parse_address(self.milvus)[1]}"  # without a password

    @contextmanager
    def open_engine(self, *, prepare: bool = False) -> Iterator[SearchEngine]:
        """Open the engine until the context ends.

        Args:
            prepare: Bring a library's index up to date first; one process is enough for that.

        Raises:
            EqkinError: It cannot be opened.
        """
        from eqkin.api import Library  # a supervisor needs none of these, which take 100 MB
        from eqkin.search.engine import SearchEngine

        with ExitStack() as stack:
            if self.library and prepare:
                yield stack.enter_context(Library.open(self.library)).open_engine()
            elif self.library:  # without a connection that only this thread may close
                yield stack.enter_context(SearchEngine(self.library))
            else:
                from eqkin.cluster.milvus.snapshot import open_backend
                from eqkin.encoder.encoder import Encoder

                encoder = Encoder.load(self.model)
                backend = open_backend(self.milvus, self.collection, encoder.digest)
                yield stack.enter_context(SearchEngine(backend, encoder))

    @contextmanager
    def open_app(self, *, prepare: bool = False) -> Iterator[FastAPI]:
        """Open the application until the context ends; see `open_engine`."""
        from eqkin.library.judgements import LocalJudgements
        from eqkin.web.app import create_app

        folder = self.library or self.judgements or Path()
        with self.open_engine(prepare=prepare) as engine:
            with suppress(OSError):  # then judgements are refused, and searches answered
                folder.mkdir(parents=True, exist_ok=True)
            with suppress(EqkinError):
                for query in _FIRST_QUERIES:
                    engine.search(query, k=10, explain=True)
            judgements = LocalJudgements(folder)
            yield create_app(engine, judgements, self.settings, board=self.board, limiter=self.limiter)

    def prepare(self) -> None:
        """Bring a library's index up to date; raises `EqkinError` if it cannot be opened."""
        with self.open_engine(prepare=True):
            pass

    def __call__(self) -> FastAPI:
        """Open the application in a process of its own, until that ends: uvicorn's factory."""
        if (parent := multiprocessing.parent_process()) is not None:
            threading.Thread(target=_exit_after, args=(parent.join,), daemon=True).start()
        threadpool_limits(1)  # requests run in parallel, so numeric libraries use one thread each
        try:
            stack = ExitStack()
            with ThreadPoolExecutor(1) as threads:  # the JavaScript engine refuses to start inside an event loop
                app = threads.submit(stack.enter_context, self.open_app()).result()
            app.state.opened = stack  # without a reference to it, all that was opened would be closed now
            _collect_garbage_rarely()
            if self.board is not None:
                self.board.join()
            return app
        except EqkinError as error:
            _LOG.error("a server process cannot start: %s", error)
            time.sleep(_RESTART_DELAY)
            sys.exit(1)  # the supervisor starts another one


def _collect_garbage_rarely() -> None:
    """Never look for garbage in what is loaded, and rarely in the rest: it makes some answers twice as slow."""
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


def _exit_after(wait: Callable[[], None]) -> None:
    wait()
    os.kill(os.getpid(), signal.SIGTERM)


class HttpProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose headers, or then body, take too long to arrive."""

    header_seconds = LIMITS.web_header_seconds
    body_seconds = LIMITS.web_seconds + LIMITS.web_header_seconds  # the application answers before
    _deadline: asyncio.TimerHandle | None = None
    _state: object = None  # of the client when the deadline was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest."""
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _set_deadline(self) -> None:
        """Set a new deadline if the client has begun something else."""
        if self.conn.their_state is self._state:
            return
        self._state = self.conn.their_state
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {h11.IDLE: self.header_seconds, h11.SEND_BODY: self.body_seconds}.get(self.conn.their_state)
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.close)


class LogFormatter(logging.Formatter):
    """Formats messages without characters that control a terminal: they contain texts of strangers."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a message."""
        return strip_control_chars(super().format(record), lines=True)


_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"()": f"{__name__}.LogFormatter", "format": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}


def make_config(
    app: FastAPI | ServeTarget,
    listener: socket.socket | None = None,
    workers: int = 1,
    proxies: tuple[str, ...] = (),
) -> uvicorn.Config:
    """Make the configuration of a server; several workers accept from one listener.

    `proxies` tell the addresses of clients in X-Forwarded-For; without any, those on this machine do.

    Each of these accepts one connection at a time: otherwise the first to wake would take all waiting connections.
    uvicorn has one number for both, so that the length of the queue is set again after the start.
    """
    return uvicorn.Config(
        app,
        factory=isinstance(app, ServeTarget),
        workers=workers,
        log_config=_LOGGING,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http=HttpProtocol,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        timeout_worker_healthcheck=_START_SECONDS,
        backlog=_BACKLOG if workers == 1 else 1,
        loop="asyncio",  # the one that heeds that
        callback_notify=partial(_restore_backlog, listener) if listener is not None else None,
        h11_max_incomplete_event_size=LIMITS.web_header_bytes,
        forwarded_allow_ips=list(proxies),  # none: not even what other programs on this machine say
    )


async def _restore_backlog(listener: socket.socket) -> None:
    listener.listen(_BACKLOG)


class Supervisor(Multiprocess):
    """uvicorn's supervisor of several processes, which says when all of them answer for the first time."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listener])
        self._ready: Callable[[], None] | None = ready

    def keep_subprocess_alive(self) -> None:
        """Start processes again that have ended."""
        super().keep_subprocess_alive()
        if self._ready is not None and all(process.is_ready() for process in self.processes):
            self._ready()
            self._ready = None


class SingleServer(uvicorn.Server):
    """uvicorn's server in this process, which says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        if self.started:
            self._ready()


def run_server(target: ServeTarget, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until stopped: in this process, or in several that are started again when they end.

    Each process has its own interpreter, so that searches run in parallel; files are mapped into memory once. The
    library is brought up to date before they start.

    Args:
        target: What is served; the number of processes is one of its settings.
        listener: The socket to accept from.
        ready: Called when requests can be sent.

    Raises:
        EqkinError: What is served cannot be opened.
    """
    workers = target.settings.processes
    with suppress(KeyboardInterrupt), ExitStack() as stack:  # the usual way to stop
        if workers > 1:
            # what cannot be opened is an error before processes are started; the memory it takes is freed
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                try:
                    pool.submit(target.prepare).result()
                except BrokenProcessPool as error:
                    raise EqkinError(
                        f"{target}: the process that opens it was killed; is there enough memory?"
                    ) from error
            os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of the processes: each thread would keep memory of its own
            if target.settings.rate:
                target = replace(target, limiter=RateLimiter(target.settings.rate))
            if sys.platform != "win32":  # where a process cannot ask whether another one runs
                target = replace(target, board=LoadBoard(workers))
            Supervisor(make_config(target, listener, workers, target.settings.proxies), listener, ready).run()
        else:
            app = stack.enter_context(target.open_app(prepare=True))
            stack.enter_context(threadpool_limits(1))
            _collect_garbage_rarely()
            SingleServer(make_config(app, proxies=target.settings.proxies), ready).run([listener])
