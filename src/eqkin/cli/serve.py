"""`eqkin serve` and `eqkin demo`: the web page and the HTTP interface of a library or a Milvus collection."""

from __future__ import annotations

import os
import re
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.api import Library
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
    public: Annotated[bool, typer.Option("--public", help="Admit other machines without a token.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Store no judgements of results.")] = False,
    rate: Annotated[
        int, typer.Option(min=0, metavar="N", help="Requests per minute of one address; 0 admits any number.")
    ] = 0,
    allowed_host: Annotated[
        list[str], typer.Option(metavar="NAME", help="Host name that requests may use; repeatable.")
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

    Only this machine can reach it unless `--host` says otherwise. Then clients need the `--token`, as the password that
    a browser asks for or as `Authorization: Bearer TOKEN`; `--public` admits everyone. Stop it with Ctrl-C.

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

        eqkin serve --cors app://obsidian.md

        eqkin serve --milvus http://localhost:19530 --collection physics --workers 4

    Two machines behind nginx: run on each `eqkin serve --milvus http://milvus:19530 --host 0.0.0.0 --public --workers
    0`, and configure nginx with

        upstream eqkin { least_conn; server one:8017; server two:8017; keepalive 32; }

        server { location / { proxy_pass http://eqkin; proxy_next_upstream error timeout http_503; } }
    """
    from eqkin.web.server import ServeTarget
    from eqkin.web.service import LOOPBACK_HOSTS, ServerSettings

    local = host in ("127.0.0.1", "localhost", "::1")
    if not (local or token or public):
        raise BadInput(f"--host {host} admits other machines: give a --token, or --public if anyone may search")
    if token and (len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable()):
        raise BadInput(f"--token: at least {_MIN_TOKEN_CHARS} letters, digits or signs of ASCII are needed")
    root = "/" + root_path.strip("/") if root_path.strip("/") else ""
    if not re.fullmatch(r"[\w./~-]*", root, re.ASCII):
        raise BadInput(f"--root-path {root_path}: a path such as /eqkin is needed")
    for origin in [*cors, *frame]:
        if not re.fullmatch(r"\*|[a-z][a-z0-9+.-]*://[^\s;,/'\"]+", origin):
            raise BadInput(f"{origin}: an origin such as https://example.org is needed, without a path")
    hosts = (*LOOPBACK_HOSTS, *(name.lower() for name in allowed_host)) if local or allowed_host else ()
    processes = workers or os.cpu_count() or 1
    settings = ServerSettings(hosts, root, tuple(cors), tuple(frame), token, rate, read_only, processes)
    if uses_milvus(context, milvus, model):
        folder = get_data_folder() / "judgements" / collection
        target = ServeTarget(None, milvus, collection, model, folder, settings)
    else:
        with Library.open(library) as opened:  # report an unusable library before anything is started
            target = ServeTarget(opened.folder, settings=settings)
    _run_target(target, host, port, open_page)


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
    from eqkin.index import VectorIndex, update_index
    from eqkin.library.records import get_equation
    from eqkin.library.statistics import compute_statistics

    folder = library or str(get_data_folder() / "atlas")
    with Library.open(folder, create=True) as opened:
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
    if os.environ.get("NO_SERVE", "0") in ("", "0"):
        typer.echo()
        from eqkin.web.server import ServeTarget

        _run_target(ServeTarget(Path(folder)), "127.0.0.1", port, open_page)
