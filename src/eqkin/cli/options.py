"""Options several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from eqkin.errors import StorageFailed


def data_folder() -> Path:
    """Where eqkin keeps a user's data: `$XDG_DATA_HOME/eqkin`, by default `~/.local/share/eqkin`."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "eqkin"


def default_library() -> Path:
    """`$EQKIN_LIBRARY`, or the library in the user's data folder."""
    named = os.environ.get("EQKIN_LIBRARY")
    return Path(named) if named else data_folder() / "library"


LibraryFolder = Annotated[
    Path,
    typer.Option(
        "--library",
        "-l",
        metavar="DIR",
        default_factory=default_library,
        show_default="$EQKIN_LIBRARY or ~/.local/share/eqkin/library",
        help="The library's folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


@contextmanager
def output() -> Iterator[None]:
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
