"""Run a server: uvicorn in this process, or uvicorn's workers, which it starts again when they end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from threadpoolctl import threadpool_limits
from uvicorn.supervisors.multiprocess import Multiprocess

from eqkin.errors import BadInput, EqkinError, strip_control_chars
from eqkin.executor import end_with_parent
from eqkin.limits import LIMITS
from eqkin.web.service import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from eqkin.search.engine import SearchEngine

# The environment variable that tells each process the settings, as JSON.
SETTINGS_VARIABLE = "EQKIN_SERVER"
# Connections waiting to be accepted.
_BACKLOG = 512
# Seconds that running requests have when the server stops.
_SHUTDOWN_SECONDS = 3
# Seconds until a worker that does not answer is killed.
_START_SECONDS = 60
# Seconds between two starts of a worker that cannot open what it serves.
_RESTART_SECONDS = 2.0
# Queries that are asked before the first client comes: they load code and files.
_FIRST_QUERIES = ("E = mc^2", "energy of a particle")
# Answers make many objects that reference counts free.
_GARBAGE_THRESHOLDS = (20_000, 20, 50)
_LOG = logging.getLogger("eqkin.web")


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one. Raises `BadInput` if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise BadInput(f"{host}:{port}: cannot listen there ({error}); choose another --port or --host") from error
    # connections inherit it; without it each small answer waits 40 ms
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def get_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def prepare(settings: ServerSettings) -> None:
    """Bring the index of a library up to date; raises `EqkinError` if what is to be served cannot be opened."""
    if settings.library:
        from eqkin.api import Library

        with Library.open(settings.library) as library:
            library.open_engine()
    else:
        with _open_engine(settings):
            pass


def run_server(settings: ServerSettings, listener: socket.socket) -> None:
    """Serve until stopped, after `prepare`.

    Several workers have an interpreter each, so that searches run in parallel; the files of a library are mapped into
    memory once.
    """
    os.environ[SETTINGS_VARIABLE] = settings.to_json()
    config = make_config(f"{__name__}:create_app_from_environment", settings)
    # The usual way to stop.
    with suppress(KeyboardInterrupt):
        if settings.workers > 1:
            Multiprocess(config, [listener]).run()
        else:
            uvicorn.Server(config).run([listener])


def make_config(app: FastAPI | str, settings: ServerSettings) -> uvicorn.Config:
    """Make uvicorn's configuration for an application, or for the name of its factory."""
    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=settings.workers,
        log_config=_LOGGING,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        http="h11",
        h11_max_incomplete_event_size=LIMITS.web_header_bytes,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_worker_healthcheck=_START_SECONDS,
        forwarded_allow_ips=list(settings.proxies),
    )


def create_app_from_environment() -> FastAPI:
    """Create the application of a process, from `SETTINGS_VARIABLE`: a factory for uvicorn or another ASGI server."""
    # programs that this process starts are not to see the token
    settings = ServerSettings.from_json(os.environ.pop(SETTINGS_VARIABLE))
    if settings.workers > 1:
        end_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        # the JavaScript engine refuses to start inside an event loop, in which uvicorn calls this
        with ThreadPoolExecutor(1) as threads:
            app = threads.submit(_open_app, settings).result()
    except EqkinError as error:
        _LOG.error("a server process cannot start: %s", error)
        time.sleep(_RESTART_SECONDS)
        sys.exit(1)
    # requests run in parallel, so numeric libraries use one thread each
    threadpool_limits(1)
    # looking for garbage in all that is loaded makes some answers twice as slow
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    return app


def _open_app(settings: ServerSettings) -> FastAPI:
    from eqkin.library.judgements import LocalJudgements
    from eqkin.web.app import create_app

    stack = ExitStack()
    engine = stack.enter_context(_open_engine(settings))
    with suppress(EqkinError):
        for query in _FIRST_QUERIES:
            engine.search(query, k=10, explain=True)
    # a Milvus server keeps no judgements
    judgements = LocalJudgements(Path(settings.library)) if settings.library else None
    app = create_app(engine, judgements, settings)
    # Without a reference to it, the engine would be closed now.
    app.state.opened = stack
    return app


def _open_engine(settings: ServerSettings) -> SearchEngine:
    if settings.library:
        from eqkin.search.engine import SearchEngine

        return SearchEngine(settings.library)
    from eqkin.cluster.milvus_snapshot import open_engine

    return open_engine(settings.milvus, settings.collection, settings.model)


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
