"""HTTP servers: what is served, one server process, and a supervisor of several."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from eqkin import errors
from eqkin.api import Library
from eqkin.errors import BadInput, EqkinError
from eqkin.library.judgements import LocalJudgements
from eqkin.limits import LIMITS, Limits
from eqkin.search.engine import SearchEngine
from eqkin.web.app import create_app

SHUTDOWN_SECONDS = 3  # for running requests when the server stops
_BACKLOG = 512  # connections waiting to be accepted


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. Raises `BadInput` if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with an explicit protocol asyncio sets TCP_NODELAY; without it each small answer waits 40 ms
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
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


class Server(uvicorn.Server):
    """A server that calls back when it is ready.

    Args:
        app: The application.
        limits: Bounds on requests.
        ready: Called when the server answers.
        shared: Whether other processes accept from the same socket. If so, it accepts one connection at a time:
            otherwise the first process to wake would take all waiting connections.
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
        """Serve until stopped. Requests run in parallel, so numeric libraries use one thread each."""
        with threadpool_limits(1):
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server and report that it is ready."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # uvicorn has set it to the number of connections to accept at a time
        self._ready()


@dataclass(frozen=True)
class ServeTarget:
    """The collection to serve: a library, or a collection of a Milvus server. Every process opens it for itself."""

    library: Path | None = None
    milvus: str = ""
    collection: str = ""
    model: str | None = None  # the network of the collection's vectors; None: the bundled one
    judgements: Path | None = None  # folder for judgements of a collection; None: the current one
    hosts: tuple[str, ...] = ()  # host names that requests may use; empty: any
    processes: int = 1  # number of server processes

    def __str__(self) -> str:
        if self.library:
            return str(self.library)
        from eqkin.backends.milvus.connection import parse_address

        return f"the collection {self.collection} of {parse_address(self.milvus)[1]}"  # without a password

    @contextmanager
    def open_app(self, *, prepare: bool = False) -> Iterator[Starlette]:
        """Open the application until the context ends.

        Args:
            prepare: Bring a library's index up to date first; one process is enough for that.

        Raises:
            EqkinError: It cannot be opened.
        """
        with self._open_library_app(prepare) if self.library else self._open_milvus_app() as app:
            app.state.processes = self.processes
            with suppress(EqkinError):  # a first search loads libraries and files
                app.state.service.engine.search("x", k=1)
            yield app

    @contextmanager
    def _open_library_app(self, prepare: bool) -> Iterator[Starlette]:
        assert self.library is not None
        with Library.open(self.library, create=False) as opened:
            if prepare:
                yield create_app(opened.open_engine(), LocalJudgements(opened.folder), hosts=self.hosts)
            else:
                with SearchEngine(opened) as engine:
                    yield create_app(engine, LocalJudgements(opened.folder), hosts=self.hosts)

    @contextmanager
    def _open_milvus_app(self) -> Iterator[Starlette]:
        from eqkin.backends.milvus import open_backend
        from eqkin.encoder.encoder import Encoder

        encoder, folder = Encoder.load(self.model), self.judgements or Path()
        with suppress(OSError):  # then judgements are refused, and searches answered
            folder.mkdir(parents=True, exist_ok=True)
        backend = open_backend(self.milvus, self.collection, encoder.digest)
        with SearchEngine(backend, encoder) as engine:
            yield create_app(engine, LocalJudgements(folder), hosts=self.hosts)


_LOG = logging.getLogger("eqkin.web")
_POLL_SECONDS = 0.2
_KILL_AFTER_SECONDS = SHUTDOWN_SECONDS + 3.0
_SHORT_LIFE_SECONDS = 10.0  # a process that lived shorter is restarted after a delay
_MAX_RESTART_DELAY = 30.0  # seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerSupervisor:
    """Starts several server processes behind one socket, restarts those that end, and stops them together.

    Each has its own interpreter, so that searches run in parallel; files are mapped into memory once. The first process
    brings the library up to date before the others start.

    Args:
        served: What they serve; its `processes` is their number.
        listener: The socket that all of them accept from.
    """

    def __init__(self, served: ServeTarget, listener: socket.socket) -> None:
        self._served, self._listener = served, listener
        self._running: list[_ServerProcess] = []
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until stopped; `ready` is called when all processes answer.

        Raises:
            EqkinError: What is served cannot be opened.
        """
        with self._catch_signals():
            try:
                self._start_worker(prepare=True)
                self._wait_until_ready()
                for _ in range(self._served.processes - 1):
                    self._start_worker()
                self._wait_until_ready()
                if not self._stopping:
                    ready()
                while not self._stopping:
                    self._restart_ended()
            finally:
                self._stop_workers()

    def _start_worker(self, *, prepare: bool = False, delay: float = 0.0) -> None:
        if not self._stopping:
            self._running.append(_ServerProcess(self._served, self._listener, prepare, delay))

    def _wait_until_ready(self) -> None:
        while not self._stopping and not all(process.ready for process in self._running):
            _wait_for_events(self._running)
            for process in self._running:
                ended = process.ended  # asked first, so that its last messages are received
                process.receive_messages()
                if ended:
                    raise process.get_failure()

    def _restart_ended(self) -> None:
        """Restart processes that ended."""
        _wait_for_events(self._running)
        for process in list(self._running):
            ended = process.ended
            process.receive_messages()
            if ended and not self._stopping:
                self._running.remove(process)
                lived = time.monotonic() - process.started
                delay = (
                    0.0
                    if process.ready and lived > _SHORT_LIFE_SECONDS
                    else min(max(2 * process.delay, 0.5), _MAX_RESTART_DELAY)
                )
                _LOG.warning("%s; another one starts in %g s", process.get_failure(), delay)
                self._start_worker(delay=delay)

    def _stop_workers(self) -> None:
        for process in self._running:
            process.terminate()
        latest = time.monotonic() + _KILL_AFTER_SECONDS
        for process in self._running:
            process.join_or_kill(max(latest - time.monotonic(), 0.1))
        self._running.clear()

    @contextmanager
    def _catch_signals(self) -> Iterator[None]:
        def stop(*_: object) -> None:
            self._stopping = True

        before = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _ServerProcess:
    """A server process, started after a delay."""

    def __init__(self, served: ServeTarget, listener: socket.socket, prepare: bool, delay: float) -> None:
        self.ready, self.delay = False, delay
        self.started = time.monotonic()
        self._problem: EqkinError | None = None
        spawn = get_context("spawn")  # a forked process would inherit locks of threads that it does not have
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=run_worker, args=(served, listener, theirs, prepare, delay), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def ended(self) -> bool:
        return not self._process.is_alive()

    @property
    def handles(self) -> list[Connection | int]:
        """File descriptors that become readable when something happens."""
        return [self._process.sentinel, *([] if self._pipe.closed else [self._pipe])]

    def receive_messages(self) -> None:
        """Receive its messages."""
        with suppress(EOFError, OSError):
            while not self._pipe.closed and self._pipe.poll():
                kind, message = self._pipe.recv()
                if kind == "ready":
                    self.ready = True
                else:
                    self._problem = getattr(errors, kind, EqkinError)(message)
            return
        self._pipe.close()

    def get_failure(self) -> EqkinError:
        """Return why it ended."""
        return self._problem or EqkinError(
            f"server process {self._process.pid} ended by itself (exit code {self._process.exitcode})"
        )

    def terminate(self) -> None:
        with suppress(OSError):
            self._process.terminate()

    def join_or_kill(self, seconds: float) -> None:
        """Wait for its end, and kill it if it does not end in time."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _wait_for_events(processes: list[_ServerProcess]) -> None:
    connection.wait([handle for process in processes for handle in process.handles], _POLL_SECONDS)


def run_worker(served: ServeTarget, listener: socket.socket, parent: Connection, prepare: bool, delay: float) -> None:
    """Worker process: open what is served, signal readiness, serve until stopped or orphaned."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes at once; the supervisor stops the others
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    time.sleep(delay)
    try:
        with served.open_app(prepare=prepare) as app:
            Server(app, ready=lambda: parent.send(("ready", "")), shared=True).run(sockets=[listener])
    except EqkinError as error:
        known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
        parent.send((known.__name__, str(error)))


def _exit_with_parent(parent: Connection) -> None:
    """Stop when the supervisor is gone."""
    with suppress(EOFError, OSError):
        parent.recv()
    os.kill(os.getpid(), signal.SIGTERM)
