"""Options several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eqkin.errors import BadInput, StorageFailed

if TYPE_CHECKING:
    from eqkin.search.engine import SearchEngine


def get_data_folder() -> Path:
    """Where eqkin keeps a user's data: `$XDG_DATA_HOME/eqkin`, by default `~/.local/share/eqkin`."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "eqkin"


def get_default_library() -> Path:
    """`$EQKIN_LIBRARY`, or the library in the user's data folder."""
    named = os.environ.get("EQKIN_LIBRARY")
    return Path(named) if named else get_data_folder() / "library"


LibraryFolder = Annotated[
    Path,
    typer.Option(
        "--library",
        "-l",
        metavar="DIR",
        default_factory=get_default_library,
        show_default="$EQKIN_LIBRARY or ~/.local/share/eqkin/library",
        help="The library's folder.",
    ),
]
Milvus = Annotated[
    str,
    typer.Option(
        metavar="URI", envvar="EQKIN_MILVUS", help="Ask this Milvus server, filled with `eqkin push`, not a library."
    ),
]
Collection = Annotated[str, typer.Option(metavar="NAME", help="Which collection of the Milvus server.")]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|DIR",
        help="With --milvus: the network whose vectors the collection has, if it is not the one that comes with eqkin.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


def is_explicit(context: typer.Context, option: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def uses_milvus(context: typer.Context, milvus: str, model: str | None) -> bool:
    """Whether a Milvus server is meant rather than a library; raises `BadInput` if options contradict each other."""
    library, server = is_explicit(context, "library"), is_explicit(context, "milvus")
    if library and server:
        raise BadInput("--library and --milvus exclude each other: give one of them")
    asked = bool(milvus) and not library  # a library that was asked for counts more than the environment
    if model is not None and not asked:
        raise BadInput("a library is searched with the network it was indexed with; `eqkin index --model` changes it")
    return asked


def open_engine(library: Path, milvus: str, collection: str, model: str | None) -> SearchEngine:
    """What searches a library, or a collection of a Milvus server if one is given."""
    from eqkin.search.engine import SearchEngine

    if not milvus:
        return SearchEngine(library)
    from eqkin.backends.milvus import open_backend
    from eqkin.encoder.encoder import Encoder

    encoder = Encoder.load(model)
    return SearchEngine(open_backend(milvus, collection, encoder.digest), encoder)


@contextmanager
def guard_output() -> Iterator[None]:
    """Writing results: a reader who has seen enough (`| head`) is no error, a full disk is one of ours."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StorageFailed(f"the output could not be written ({error.strerror or error})") from error
