"""`eqkin serve` and `eqkin demo`: the web page and the HTTP interface of a library or a Milvus collection."""

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
from eqkin.cli.options import Collection, LibraryFolder, Milvus, Model, get_data_folder, uses_milvus
from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.web.server import ServeTarget

Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 admits other machines.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
WorkerCount = Annotated[
    int,
    typer.Option(min=0, max=256, metavar="N", help="Number of server processes; 0 starts one per processor."),
]

_SHOWN_EQUATION = "atlas:probability#bayes"
_QUERIES = {
    "Bayes' law": r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}",
    "the Ising model": r"E = -\sum_{i<j} J_{ij} s_i s_j",
}
_SHOWN_HITS = 5
_MIN_TOKEN_CHARS = 8
_RATE = 600  # requests per minute of one address, beyond this machine


def serve(
    context: typer.Context,
    library: LibraryFolder,
    host: Host = "127.0.0.1",
    port: Port = 8017,
    workers: WorkerCount = 1,
    milvus: Milvus = "",
    collection: Collection = "eqkin",
    model: Model = None,
    token: Annotated[
        str, typer.Option(envvar="EQKIN_TOKEN", help="Admit only clients that know this token.", show_default=False)
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the token from a file, which other users cannot see.")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="Admit other machines without a token.")] = False,
    trust_proxy: Annotated[
        list[str],
        typer.Option(
            metavar="ADDR",
            help="Address or network of a reverse proxy that protects this server and tells it the addresses of "
            "clients (X-Forwarded-For); repeatable.",
        ),
    ] = [],  # noqa: B006
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no judgements and no drafts.")] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Requests per minute of one address; 0 admits any number.",
            show_default=f"0 on this machine, {_RATE} beyond",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="Host name that requests may use; * admits any; repeatable.")
    ] = [],  # noqa: B006
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path under which a proxy shows the server, as in /eqkin.")
    ] = "",
    cors: Annotated[
        list[str], typer.Option(metavar="ORIGIN", help="Site whose scripts may use the interface; repeatable.")
    ] = [],  # noqa: B006
    frame: Annotated[
        list[str], typer.Option(metavar="ORIGIN", help="Site that may show the page in a frame; repeatable.")
    ] = [],  # noqa: B006
    open_page: OpenPage = False,
) -> None:
    """Serve a library: a web page to search it, a map of its equations, and an HTTP interface for programs.

    Only this machine can reach it unless `--host` says otherwise. Then clients need the token (`--token-file`,
    `$EQKIN_TOKEN`), as the password that a browser asks for or as `Authorization: Bearer TOKEN`; `--public` admits
    everyone, `--trust-proxy` leaves it to a reverse proxy. Stop it with Ctrl-C.

    With `--workers`, several processes answer. They share the files of the library in memory; one that ends is started
    again. Papers can be added and removed while it runs: as soon as `eqkin index` is done, all processes find the new
    equations. After `eqkin index --model`, restart the server: it keeps the network that it has loaded.

    With `--milvus`, everything comes from a Milvus server and no library is needed. These processes store nothing
    but judgements of results (in `~/.local/share/eqkin/judgements`): run any number of them, on any machines, behind a
    load balancer. `/healthz` says whether a server is alive.

    **Examples**

        eqkin serve --open

        eqkin serve --library my-papers --port 9000

        eqkin serve --workers 0 --host 0.0.0.0 --public --read-only --rate 120

        eqkin serve --allowed-host papers.example.org --root-path /eqkin        (behind a proxy on this machine)

        eqkin serve --host 0.0.0.0 --trust-proxy 10.0.0.5 --allowed-host papers.example.org

        eqkin serve --cors app://obsidian.md

        eqkin serve --milvus http://localhost:19530 --collection physics --workers 4

    Two machines behind nginx on 10.0.0.5: run on each `eqkin serve --milvus http://milvus:19530 --host 0.0.0.0
    --trust-proxy 10.0.0.5 --allowed-host papers.example.org --workers 0`, and configure nginx with

        upstream eqkin { least_conn; server one:8017; server two:8017; keepalive 32; }

        server { server_name papers.example.org; location / { proxy_pass http://eqkin; proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_next_upstream error timeout http_503; } }
    """
    from eqkin.web.server import ServeTarget
    from eqkin.web.settings import LOOPBACK_HOSTS, ServerSettings

    local = host in ("127.0.0.1", "localhost", "::1")
    token = _read_token(token, token_file)
    if not (local or token or public or trust_proxy):
        raise BadInput(
            f"--host {host} admits other machines: give a --token-file, or --public if anyone may search, "
            "or --trust-proxy if a reverse proxy decides who may"
        )
    root = "/" + root_path.strip("/") if root_path.strip("/") else ""
    _check_names(root, [*cors, *frame], trust_proxy, allowed_host)
    names = allowed_host or ([] if local else [socket.gethostname()])
    hosts: tuple[str, ...] = (*LOOPBACK_HOSTS, *(name.lower() for name in names))
    if "*" in allowed_host or (token and not local and not allowed_host):
        hosts = ()  # a site that pretends to be this one does not know the token
    settings = ServerSettings(
        hosts=hosts,
        any_address=not local and not allowed_host,
        root_path=root,
        cors=tuple(cors),
        frames=tuple(frame),
        token=token,
        rate=(0 if local else _RATE) if rate is None else rate,
        read_only=read_only,
        proxies=tuple(trust_proxy),
        processes=workers or os.cpu_count() or 1,
    )
    if not (local or token or trust_proxy):
        more = "" if read_only else ", send drafts and store judgements (--read-only forbids that)"
        warn(f"anyone who reaches this server can search the library{more}")
    if not (local or trust_proxy):
        warn("nothing is encrypted: in a network that others can read, use a reverse proxy with TLS (--trust-proxy)")
    if uses_milvus(context, milvus, model):
        folder = get_data_folder() / "judgements" / collection
        target = ServeTarget(None, milvus, collection, model, folder, settings)
    else:
        with eqkin.Library.open(library) as opened:  # report an unusable library before anything is started
            target = ServeTarget(opened.folder, settings=settings)
    _run_target(target, host, port, open_page)


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


def _check_names(root: str, origins: list[str], proxies: list[str], hosts: list[str]) -> None:
    """Raise `BadInput` if a path, an origin, the address of a proxy or the name of a host is not one."""
    if not re.fullmatch(r"[\w./~-]*", root, re.ASCII):
        raise BadInput(f"--root-path {root}: a path such as /eqkin is needed")
    for origin in origins:
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^\s;,/'\"]+", origin):
            raise BadInput(f"{origin}: an origin such as https://example.org is needed, without a path")
    for host in hosts:
        if not re.fullmatch(r"\*|[\w.-]+|\[[\da-fA-F:.]+\]", host):
            raise BadInput(
                f"--allowed-host {host}: a name such as formulas.example.org is needed, without scheme and port"
            )
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            raise BadInput(f"--trust-proxy {proxy}: an address or a network is needed ({error})") from error


def _run_target(target: ServeTarget, host: str, port: int, open_page: bool) -> None:
    from eqkin.web.server import get_url, open_listener, run_server

    with open_listener(host, port) as listener:

        def ready() -> None:
            processes = target.settings.processes
            count = f", {processes} processes" if processes > 1 else ""
            typer.echo(f"Serving {target} at {get_url(listener)} (Ctrl-C stops{count})")
            if open_page:
                webbrowser.open(get_url(listener))

        run_server(target, listener, ready)


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
    from eqkin.encoder.encoder import Encoder
    from eqkin.index.reader import VectorIndex
    from eqkin.index.update import update_index
    from eqkin.library.records import get_equation
    from eqkin.library.statistics import compute_statistics

    folder = library or str(get_data_folder() / "atlas")
    with eqkin.Library.open(folder, create=True) as opened:
        added = opened.add("atlas:")
        typer.echo(f"The atlas is in {folder}: {added.papers} articles read, {added.unchanged} unchanged.\n")
        print_statistics(compute_statistics(opened))
        equation = get_equation(opened, _SHOWN_EQUATION)
        typer.secho(f'\nOne of them, from {equation.paper.key}, section "{equation.section}"', bold=True)
        typer.echo(f"  LaTeX   {' '.join(equation.latex.split())}\n  MathML  {equation.mathml}")
        encoder = Encoder.load()
        report = update_index(opened, encoder)
        rate = f", {report.embedded / report.seconds:,.0f} per second" if report.embedded else ", none of them new"
        count = len(VectorIndex.open(opened, encoder.digest).trees)
        typer.echo(f"\n{count:,} equations embedded in {encoder.dimensions} dimensions{rate}.")
        for name, formula in _QUERIES.items():
            typer.secho(f"\nKin of {name}: {formula}", bold=True)
            print_results(opened.search(formula, k=_SHOWN_HITS), latex=False, titled=False)
    typer.echo(f"\nTo search on: eqkin search 'E = mc^2' --library {shlex.quote(folder)}")
    if os.environ.get("NO_SERVE", "0") in ("", "0"):
        typer.echo()
        from eqkin.web.server import ServeTarget

        _run_target(ServeTarget(Path(folder)), "127.0.0.1", port, open_page)
