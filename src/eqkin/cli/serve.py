"""`eqkin serve`: the page and the HTTP interface over a library."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from eqkin.cli.options import LibraryFolder
from eqkin.library import Library

Host = Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="On which port; 0 takes a free one.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def register(app: typer.Typer) -> None:
    """Put the command into the app."""
    app.command()(serve)


def serve(
    library: LibraryFolder,
    host: Host = "127.0.0.1",
    port: Port = 8017,
    open_page: OpenPage = False,
) -> None:
    """Serve a library: a page to search it with, a map of its equations, and an HTTP interface for programs.

    Only this machine can reach it unless `--host` says otherwise: there is no log-in. Stop it with Ctrl-C.

    **Examples**

        eqkin serve --open

        eqkin serve --library my-papers --port 9000
    """
    run_server(library, host, port, open_page)


def run_server(library: Path, host: str = "127.0.0.1", port: int = 8017, open_page: bool = False) -> None:
    """Serve the library in a folder until someone stops it."""
    from eqkin.web.app import LOOPBACK, create_app
    from eqkin.web.server import Server, address, listen

    with Library.open(library, create=False) as opened:
        listener = listen(host, port)
        local = host in ("127.0.0.1", "localhost", "::1")
        app = create_app(opened.engine(), opened.folder, hosts=LOOPBACK if local else ())
        place = address(listener)

        def ready() -> None:
            typer.echo(f"Serving {opened.folder} at {place} (Ctrl-C stops)")
            if open_page:
                webbrowser.open(place)

        with suppress(KeyboardInterrupt):  # the way it is meant to end
            Server(app, ready=ready).run(sockets=[listener])
