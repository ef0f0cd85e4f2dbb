"""`eqkin pack`, `eqkin unpack`, `eqkin mcp`, `eqkin watch`: share a library, and keep it up to date."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import eqkin
from eqkin.cli.options import LibraryFolder
from eqkin.cli.progress import ProgressDisplay


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, for example papers.eqkin.")],
    library: LibraryFolder,
) -> None:
    """Write a library with its index to one file, which another machine opens with `eqkin unpack`.

    **Example**

        eqkin pack --library my-papers my-papers.eqkin
    """
    from eqkin.api import pack as pack_library

    with ProgressDisplay("packing: {done:,.1f} MB") as display:
        pack_library(library, file, lambda count: display.update(count / 1e6))
    typer.echo(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")


def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `eqkin pack` wrote.")],
    library: LibraryFolder,
) -> None:
    """Make a library from a packed file; every byte is checked, and an existing folder is never overwritten.

    **Example**

        eqkin unpack --library my-papers my-papers.eqkin
    """
    from eqkin.api import unpack as unpack_library

    with ProgressDisplay("unpacking: {done:,.1f} MB") as display:
        unpack_library(file, library, lambda count: display.update(count / 1e6))
    typer.echo(f"{library}: ready, `eqkin search --library {library}` searches it")


def mcp(library: LibraryFolder) -> None:
    """Serve a library to an assistant: a Model Context Protocol server on standard input and output.

    Its tools search by formula, words or name, return an equation with its context, and find related papers of a draft.
    **Example**

        eqkin mcp --library my-papers

    An assistant starts it by itself; its configuration looks like

        {"mcpServers": {"eqkin": {"command": "eqkin", "args": ["mcp", "--library", "/home/me/papers"]}}}
    """
    from eqkin.web.mcp import create_server

    with eqkin.Library.open(library) as opened:
        create_server(opened).run("stdio")


def watch(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders whose documents are kept up to date.")
    ],
    library: LibraryFolder,
    seconds: Annotated[float, typer.Option(min=0.1, help="How often to look for changes.")] = 5.0,
) -> None:
    """Keep a library up to date with folders: documents that appear or change are added, until Ctrl-C.

    **Example**

        eqkin watch ~/papers ~/notes
    """
    from eqkin.sources.readers import walk_folder

    seen: dict[str, tuple[int, int]] = {}
    while True:
        found = {}
        for folder in folders:
            for path in walk_folder(folder.expanduser().resolve()):
                info = path.stat()
                found[str(path)] = (info.st_mtime_ns, info.st_size)
        if found != seen:
            with eqkin.Library.open(library, create=True) as opened:
                report = opened.add(*folders)
                opened.open_engine()
            if report.papers or report.failed:
                typer.echo(f"{report.papers:,} added or changed, {report.failed.total():,} could not be read")
            seen = found
        time.sleep(seconds)
