"""`eqkin serve`, `mcp` and `demo`: the web page, the HTTP interface and the tools for assistants of a library."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import eqkin
from eqkin.cli.console import warn
from eqkin.cli.library import print_statistics
from eqkin.cli.options import LibraryFolder, SearchedCollection, get_data_folder
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.web.service import ServerSettings

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
WorkerCount = Annotated[
    int, typer.Option(min=0, max=256, metavar="N", help="Number of server processes; 0 starts one per processor.")
]

# Heading of options in the help.
_ACCESS = "Access"
_MIN_TOKEN_CHARS = 8
_LOOPBACK_ADDRESSES = ("127.0.0.1", "localhost", "::1")
_SHOWN_EQUATION = "atlas:probability#bayes"
_SHOWN_HITS = 5
_QUERIES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "the Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
}


def serve(
    served: SearchedCollection,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines.")] = "127.0.0.1",
    port: Port = 8017,
    workers: WorkerCount = 1,
    open_page: OpenPage = False,
    token: Annotated[
        str,
        typer.Option(
            envvar="EQKIN_TOKEN",
            help="Admit only clients that know this token.",
            show_default=False,
            rich_help_panel=_ACCESS,
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Read the token from a file, which other users cannot see.", rich_help_panel=_ACCESS
        ),
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Admit other machines without a token.", rich_help_panel=_ACCESS)
    ] = False,
    trust_proxy: Annotated[
        list[str],
        typer.Option(
            metavar="ADDR",
            help="Address or network of a reverse proxy that decides who may search; repeatable.",
            rich_help_panel=_ACCESS,
        ),
    ] = [],  # noqa: B006
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Take no judgements and no drafts.", rich_help_panel=_ACCESS)
    ] = False,
    allowed_host: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Host name that requests may use; * admits any; repeatable.",
            rich_help_panel=_ACCESS,
        ),
    ] = [],  # noqa: B006
    root_path: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="Path under which a proxy shows the server, as in /eqkin.", rich_help_panel=_ACCESS
        ),
    ] = "",
    cors: Annotated[
        list[str],
        typer.Option(
            metavar="ORIGIN", help="Site whose scripts may use the interface; repeatable.", rich_help_panel=_ACCESS
        ),
    ] = [],  # noqa: B006
    frame: Annotated[
        list[str],
        typer.Option(
            metavar="ORIGIN", help="Site that may show the page in a frame; repeatable.", rich_help_panel=_ACCESS
        ),
    ] = [],  # noqa: B006
) -> None:
    """Serve a library: a web page to search it, and an HTTP interface for programs.

    **Examples**

        eqkin serve --open

        eqkin serve --library my-papers --host 0.0.0.0 --token-file token --workers 0

        eqkin serve --host 0.0.0.0 --trust-proxy 10.0.0.5 --allowed-host papers.example.org
    """
    from eqkin.web.service import LOOPBACK_HOSTS, ServerSettings

    is_local = host in _LOOPBACK_ADDRESSES
    token = _read_token(token, token_file)
    if not (is_local or token or public or trust_proxy):
        raise BadInput(
            f"--host {host} admits other machines: give a --token-file, or --public if anyone may search, "
            "or --trust-proxy if a reverse proxy decides who may"
        )
    root = "/" + root_path.strip("/") if root_path.strip("/") else ""
    _check_names(root=root, origins=[*cors, *frame], proxies=trust_proxy, hosts=allowed_host)

    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    if allowed_host:
        hosts += tuple(name.lower() for name in allowed_host)
    elif not is_local:
        hosts += (socket.gethostname().lower(),)
    # a site that pretends to be this one does not know the token
    if "*" in allowed_host or (token and not is_local and not allowed_host):
        hosts = ()
    settings = ServerSettings(
        # an unusable library is reported before anything is started
        library="" if served.uses_milvus else _find_library(served.folder),
        milvus=served.milvus,
        collection=served.collection,
        model=served.model,
        workers=workers or os.cpu_count() or 1,
        hosts=hosts,
        any_address=not is_local and not allowed_host,
        root_path=root,
        cors=tuple(cors),
        frames=tuple(frame),
        token=token,
        read_only=read_only,
        proxies=tuple(trust_proxy),
    )
    if not (is_local or token or trust_proxy):
        more = "" if read_only else ", send drafts and store judgements (--read-only forbids that)"
        warn(f"anyone who reaches this server can search the library{more}")
    if not (is_local or trust_proxy):
        warn("nothing is encrypted: in a network that others can read, use a reverse proxy with TLS (--trust-proxy)")
    _serve(settings, host, port, open_page=open_page)


def _find_library(folder: Path) -> str:
    with eqkin.Library.open(folder) as opened:
        return str(opened.folder)


def _read_token(token: str, path: Path | None) -> str:
    """Return the token, of an option or a file; raises `BadInput` if it is too short to protect anything."""
    if path is not None:
        if token:
            raise BadInput("--token-file and --token (or $EQKIN_TOKEN) exclude each other: give one of them")
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise BadInput(f"--token-file {path}: cannot be read ({error})") from error
    if (token or path) and (len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable()):
        raise BadInput(f"the token needs at least {_MIN_TOKEN_CHARS} letters, digits or signs of ASCII")
    return token


def _check_names(*, root: str, origins: list[str], proxies: list[str], hosts: list[str]) -> None:
    """Raise `BadInput` if a path, an origin, the address of a proxy or the name of a host is not one."""
    if not re.fullmatch(r"[\w./~-]*", root, re.ASCII):
        raise BadInput(f"--root-path {root}: a path such as /eqkin is needed")
    for origin in origins:
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^\s;,/'\"]+", origin):
            raise BadInput(f"{origin}: an origin such as https://example.org is needed, without a path")
    for host in hosts:
        if not re.fullmatch(r"\*|[\w.-]+|\[[\da-fA-F:.]+\]", host):
            raise BadInput(f"--allowed-host {host}: a name such as example.org is needed, without scheme and port")
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise BadInput(f"--trust-proxy {proxy}: an address or a network is needed ({error})") from error


def _serve(settings: ServerSettings, host: str, port: int, *, open_page: bool) -> None:
    from eqkin.web.server import get_url, open_listener, prepare, run_server

    with open_listener(host, port) as listener:
        prepare(settings)
        # from here on connections wait until the server has started
        name = settings.library or f"the collection {settings.collection}"
        processes = f", {settings.workers} processes" if settings.workers > 1 else ""
        typer.echo(f"Serving {name} at {get_url(listener)} (Ctrl-C stops{processes})")
        if open_page:
            webbrowser.open(get_url(listener))
        run_server(settings, listener)


def mcp(library: LibraryFolder) -> None:
    """Serve a library to an assistant: a Model Context Protocol server on standard input and output.

    An assistant starts it by itself; its configuration looks like

        {"mcpServers": {"eqkin": {"command": "eqkin", "args": ["mcp", "--library", "/home/me/papers"]}}}

    **Example**

        eqkin mcp --library my-papers
    """
    from eqkin.web.mcp import create_server

    with eqkin.Library.open(library) as opened:
        create_server(opened).run("stdio")


def demo(
    library: Annotated[
        str,
        typer.Option(
            "--library", "-l", metavar="DIR", help="The folder of the library.", show_default="the user's data folder"
        ),
    ] = "",
    port: Port = 8017,
    open_page: OpenPage = False,
) -> None:
    """Build a library from the bundled atlas (articles of many fields), search it for two formulas, and serve it.

    With `NO_SERVE=1` in the environment, it does not serve.

    **Example**

        eqkin demo --open
    """
    from eqkin.cli.output import print_results
    from eqkin.library.queries import compute_statistics
    from eqkin.library.records import get_equation

    folder = library or str(get_data_folder() / "atlas")
    with eqkin.Library.open(folder, create=True) as opened:
        added = opened.add("atlas:")
        typer.echo(f"The atlas is in {folder}: {added.papers} articles read, {added.unchanged} unchanged.\n")
        print_statistics(compute_statistics(opened))
        equation = get_equation(opened, _SHOWN_EQUATION)
        typer.secho(f'\nOne of them, from {equation.paper.key}, section "{equation.section}"', bold=True)
        typer.echo(f"  LaTeX   {' '.join(equation.latex.split())}\n  MathML  {equation.mathml}")
        engine = opened.open_engine()
        with engine.backend.snapshot() as snapshot:
            count = len(snapshot)
        typer.echo(f"\n{count:,} equations embedded in {engine.encoder.dimensions} dimensions.")
        for name, formula in _QUERIES.items():
            typer.secho(f"\nKin of {name}: {formula}", bold=True)
            print_results(opened.search(formula, k=_SHOWN_HITS), latex=False, titled=False)
    typer.echo(f"\nTo search on: eqkin search 'E = mc^2' --library {shlex.quote(folder)}")
    if os.environ.get("NO_SERVE", "0") in ("", "0"):
        from eqkin.web.service import ServerSettings

        typer.echo()
        _serve(ServerSettings(library=folder), "127.0.0.1", port, open_page=open_page)
