"""Several server processes behind one socket: started, watched, started again when one ends, stopped together.

Each has the interpreter for itself, so that searches run on as many processors; what they read is mapped into memory
once. The first one brings the library up to date before the others start.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection

from eqkin import errors
from eqkin.errors import EqkinError
from eqkin.web.served import ServeTarget
from eqkin.web.server import SHUTDOWN_SECONDS, Server

_LOG = logging.getLogger("eqkin.web")
_POLL_SECONDS = 0.2  # seconds between two looks at what was asked of this process
_KILL_AFTER_SECONDS = SHUTDOWN_SECONDS + 3.0  # seconds after which a process that should end is killed
_SHORT_LIFE_SECONDS = 10.0  # seconds of life below which a process is not started again at once
_MAX_RESTART_DELAY = 30.0  # seconds to the next attempt
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerSupervisor:
    """The processes that serve one thing.

    Args:
        served: what they serve; its `processes` says how many they are.
        listener: the socket all of them accept from.
    """

    def __init__(self, served: ServeTarget, listener: socket.socket) -> None:
        self._served, self._listener = served, listener
        self._running: list[_ServerProcess] = []
        self._stopping = False

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until someone stops it; `ready` is called when all processes answer.

        Raises:
            EqkinError: what is served cannot be opened.
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
                ended = process.ended  # asked first: what it said before its end is heard then
                process.receive_messages()
                if ended:
                    raise process.get_failure()

    def _restart_ended(self) -> None:
        """Start again what ended."""
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
                _LOG.warning("%s; another one is started in %g s", process.get_failure(), delay)
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
    """One of them, started after a delay."""

    def __init__(self, served: ServeTarget, listener: socket.socket, prepare: bool, delay: float) -> None:
        self.ready, self.delay = False, delay
        self.started = time.monotonic()
        self._problem: EqkinError | None = None
        spawn = get_context("spawn")  # a copy of this process would have its threads and locks, half of each
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=run_worker, args=(served, listener, theirs, prepare, delay), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def ended(self) -> bool:
        return not self._process.is_alive()

    @property
    def handles(self) -> list[Connection | int]:
        """What becomes readable when something happens."""
        return [self._process.sentinel, *([] if self._pipe.closed else [self._pipe])]

    def receive_messages(self) -> None:
        """Take in what it says."""
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
        """Why it ended."""
        return self._problem or EqkinError(
            f"server process {self._process.pid} ended by itself (exit code {self._process.exitcode})"
        )

    def terminate(self) -> None:
        with suppress(OSError):
            self._process.terminate()

    def join_or_kill(self, seconds: float) -> None:
        """Wait for its end, and end it if it does not."""
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _wait_for_events(processes: list[_ServerProcess]) -> None:
    connection.wait([handle for process in processes for handle in process.handles], _POLL_SECONDS)


def run_worker(served: ServeTarget, listener: socket.socket, parent: Connection, prepare: bool, delay: float) -> None:
    """What a server process does: open what is served, say so, answer until it is told to stop or left alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all at once; the first process tells the others
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    time.sleep(delay)
    try:
        with served.open_app(prepare=prepare) as app:
            Server(app, ready=lambda: parent.send(("ready", "")), shared=True).run(sockets=[listener])
    except EqkinError as error:
        known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
        parent.send((known.__name__, str(error)))


def _exit_with_parent(parent: Connection) -> None:
    """Stop when the first process is gone, however it went."""
    with suppress(EOFError, OSError):
        parent.recv()
    os.kill(os.getpid(), signal.SIGTERM)
