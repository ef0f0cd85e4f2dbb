"""`eqkin serve`: the page and the HTTP interface over a library, or over a collection of a Milvus server."""

from __future__ import annotations

import os
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.api import Library
from eqkin.cli.options import Collection, LibraryFolder, Milvus, Model, get_data_folder, uses_milvus

if TYPE_CHECKING:
    from eqkin.web.served import ServeTarget

Host = Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="On which port; 0 takes a free one.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
WorkerCount = Annotated[
    int,
    typer.Option(min=0, max=256, metavar="N", help="Processes that answer; 0 takes one for each processor."),
]


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(serve)


def serve(
    context: typer.Context,
    library: LibraryFolder,
    host: Host = "127.0.0.1",
    port: Port = 8017,
    workers: WorkerCount = 1,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    open_page: OpenPage = False,
) -> None:
    """Serve a library: a page to search it with, a map of its equations, and an HTTP interface for programs.

    Only this machine can reach it unless `--host` says otherwise: there is no log-in. Stop it with Ctrl-C.

    With `--workers`, several processes answer. They share what they read of the library, so that each takes little
    memory of its own; one that ends is started again. Meanwhile papers may be added and removed: as soon as
    `eqkin index` is done, all of them find the new equations, without a restart. Only after `eqkin index --model` the
    server has to be started again: it goes on with the network it has.

    With `--milvus`, everything comes from a Milvus server and no library is needed. Such processes store nothing but
    judgements of results (in `~/.local/share/eqkin/judgements`), so any number of them can run, on any machines,
    behind a proxy that distributes the requests. A proxy that calls the server by another name than it listens on
    needs `--host 0.0.0.0`; `/health` tells it whether a server is there.

    **Examples**

        eqkin serve --open

        eqkin serve --library my-papers --port 9000

        eqkin serve --workers 0 --host 0.0.0.0

        eqkin serve --milvus http://localhost:19530 --collection physics --workers 4

    Two machines behind nginx: on each `eqkin serve --milvus http://milvus:19530 --host 0.0.0.0 --workers 0`, and in
    nginx's configuration

        upstream eqkin { least_conn; server one:8017; server two:8017; keepalive 32; }

        server { location / { proxy_pass http://eqkin; proxy_next_upstream error timeout http_503; } }
    """
    if uses_milvus(context, milvus, model):
        _run_target(_make_milvus_target(milvus, collection, model), host, port, workers, open_page)
    else:
        run_server(library, host, port, open_page, workers)


def run_server(
    library: Path, host: str = "127.0.0.1", port: int = 8017, open_page: bool = False, workers: int = 1
) -> None:
    """Serve the library in a folder until someone stops it."""
    from eqkin.web.served import ServeTarget

    with Library.open(library, create=False) as opened:  # if it cannot be, that is said before anything is started
        folder = opened.folder
    _run_target(ServeTarget(folder), host, port, workers, open_page)


def _make_milvus_target(uri: str, collection: str, model: str | None) -> ServeTarget:
    from eqkin.web.served import ServeTarget

    folder = get_data_folder() / "judgements" / collection
    return ServeTarget(milvus=uri, collection=collection, model=model, judgements=folder)


def _run_target(served: ServeTarget, host: str, port: int, workers: int, open_page: bool) -> None:
    from dataclasses import replace

    from eqkin.web.app import LOOPBACK_HOSTS
    from eqkin.web.processes import ServerSupervisor
    from eqkin.web.server import Server, get_url, open_listener

    local = host in ("127.0.0.1", "localhost", "::1")
    served = replace(served, hosts=LOOPBACK_HOSTS if local else (), processes=workers or os.cpu_count() or 1)
    with open_listener(host, port) as listener:
        place = get_url(listener)

        def ready() -> None:
            together = f", {served.processes} processes" if served.processes > 1 else ""
            typer.echo(f"Serving {served} at {place} (Ctrl-C stops{together})")
            if open_page:
                webbrowser.open(place)

        with suppress(KeyboardInterrupt):  # the way it is meant to end
            if served.processes > 1:
                ServerSupervisor(served, listener).run(ready)
            else:
                with served.open_app(prepare=True) as app:
                    Server(app, ready=ready).run(sockets=[listener])
