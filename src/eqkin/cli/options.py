"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine


def get_data_folder() -> Path:
    """Return the folder for a user's data: `$XDG_DATA_HOME/eqkin`, by default `~/.local/share/eqkin`."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "eqkin"


def get_default_library() -> Path:
    """Return `$EQKIN_LIBRARY`, or the library in the user's data folder."""
    named = os.environ.get("EQKIN_LIBRARY")
    return Path(named) if named else get_data_folder() / "library"


class ExecutorName(StrEnum):
    """Engines that parse papers and embed equations."""

    processes = "processes"
    ray = "ray"


LibraryFolder = Annotated[
    Path,
    typer.Option(
        "--library",
        "-l",
        metavar="DIR",
        default_factory=get_default_library,
        show_default="$EQKIN_LIBRARY or ~/.local/share/eqkin/library",
        help="Folder of the library.",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, help="Number of processes.", show_default="one per processor core")
]
DEFAULT_JOBS = os.cpu_count() or 1
ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--engine",
        help="What parses and embeds: processes on this machine, or a Ray cluster (`pip install 'eqkin[ray]'`).",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDR",
        help="The cluster for `--engine ray`: HOST:PORT, or `auto` for the one on this machine. Without it, Ray is "
        "started here with `--jobs` CPUs.",
        show_default="$RAY_ADDRESS",
    ),
]
Milvus = Annotated[
    str,
    typer.Option(
        metavar="URI",
        envvar="EQKIN_MILVUS",
        help="Search this Milvus server, filled with `eqkin push`, instead of a library.",
    ),
]
Collection = Annotated[str, typer.Option(metavar="NAME", help="The collection of the Milvus server.")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|DIR",
        help="With --milvus: the network that made the collection's vectors, if it is not the bundled one.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Latex = Annotated[bool, typer.Option("--latex/--unicode", help="Show formulas in LaTeX or in Unicode.")]


def uses_milvus(context: typer.Context, milvus: str, model: str | None) -> bool:
    """Return whether a Milvus server is meant rather than a library; raises `BadInput` if options contradict."""

    def is_explicit(option: str) -> bool:
        source = context.get_parameter_source(option)
        return source is not None and source.name == "COMMANDLINE"

    if is_explicit("library") and is_explicit("milvus"):
        raise BadInput("--library and --milvus exclude each other: give one of them")
    asked = bool(milvus) and not is_explicit("library")  # --library overrides $EQKIN_MILVUS
    if model is not None and not asked:
        raise BadInput("a library is searched with the network it was indexed with; `eqkin index --model` changes it")
    return asked


def open_engine(context: typer.Context, library: Path, milvus: str, collection: str, model: str | None) -> SearchEngine:
    """Open what searches: a library, or a collection of a Milvus server if one is asked for."""
    from eqkin.search.engine import SearchEngine

    if not uses_milvus(context, milvus, model):
        return SearchEngine(library)
    from eqkin.cluster.milvus.snapshot import open_backend
    from eqkin.encoder.encoder import Encoder

    encoder = Encoder.load(model)
    return SearchEngine(open_backend(milvus, collection, encoder.digest), encoder)
