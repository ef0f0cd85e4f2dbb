"""Options several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


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
