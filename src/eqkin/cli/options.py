"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from eqkin.errors import BadInput

if TYPE_CHECKING:
    from eqkin.executor import Executor
    from eqkin.search.engine import SearchEngine

MILVUS_VARIABLE = "EQKIN_MILVUS"


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
DEFAULT_JOBS = os.cpu_count() or 1
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, help="Number of processes.", show_default="one per processor core")
]
CollectionName = Annotated[
    str, typer.Option(metavar="NAME", help="The collection of the Milvus server.", rich_help_panel="Servers")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
Latex = Annotated[bool, typer.Option("--latex/--unicode", help="Show formulas in LaTeX or in Unicode.")]


@dataclass(kw_only=True)
class Workers:
    """Options that say what parses papers and embeds equations."""

    jobs: Jobs = DEFAULT_JOBS
    engine: Annotated[
        ExecutorName,
        typer.Option(
            help="What parses and embeds: processes on this machine, or a Ray cluster (`pip install 'eqkin[ray]'`).",
            rich_help_panel="Servers",
        ),
    ] = ExecutorName.processes
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDR",
            help="The cluster for `--engine ray`: HOST:PORT, or `auto` for the one on this machine. Without it, Ray is "
            "started here with `--jobs` CPUs.",
            show_default="$RAY_ADDRESS",
            rich_help_panel="Servers",
        ),
    ] = None

    def open_executor(self) -> Executor:
        """Open the executor."""
        from eqkin.cluster import open_executor

        return open_executor(self.engine, self.jobs, self.ray_address)


@dataclass(kw_only=True)
class SearchedCollection:
    """Options that say what is searched: a library, or a collection of a Milvus server."""

    library: Annotated[
        Path | None,
        typer.Option(
            "--library",
            "-l",
            metavar="DIR",
            show_default="$EQKIN_LIBRARY or ~/.local/share/eqkin/library",
            help="Folder of the library.",
        ),
    ] = None
    milvus: Annotated[
        str,
        typer.Option(
            metavar="URI",
            envvar=MILVUS_VARIABLE,
            help="Search this Milvus server, filled with `eqkin push`, instead of a library.",
            rich_help_panel="Servers",
        ),
    ] = ""
    collection: CollectionName = "eqkin"
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|DIR",
            help="The network that made the collection's vectors, if it is not the bundled one.",
            show_default=False,
            rich_help_panel="Servers",
        ),
    ] = None

    @property
    def folder(self) -> Path:
        """Folder of the library."""
        return self.library or get_default_library()

    @property
    def uses_milvus(self) -> bool:
        """Whether a Milvus server is meant; raises `BadInput` if options contradict each other."""
        if self.library and self.milvus and self.milvus != os.environ.get(MILVUS_VARIABLE):
            raise BadInput("--library and --milvus exclude each other: give one of them")
        asked = bool(self.milvus) and not self.library
        if self.model is not None and not asked:
            raise BadInput(
                "a library is searched with the network it was indexed with; `eqkin index --model` changes it"
            )
        return asked

    def open_engine(self) -> SearchEngine:
        """Open what searches."""
        from eqkin.search.engine import SearchEngine

        if not self.uses_milvus:
            return SearchEngine(self.folder)
        from eqkin.cluster.milvus_snapshot import open_engine

        return open_engine(self.milvus, self.collection, self.model)


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the fields of its dataclass parameters as options of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))
            continue
        group_hints = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            made = Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=group_hints[field.name])
            parameters.append(made)

    @wraps(command)
    def run(**given: Any) -> None:
        arguments = {}
        for name, group in groups.items():
            arguments[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given, **arguments)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
