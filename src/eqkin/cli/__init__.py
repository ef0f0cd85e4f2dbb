"""The command line: thin commands over the library; errors become one line and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from eqkin.cli import add, convert, demo, evaluate, finetune, index, inspect, push, report, search, serve, train
from eqkin.errors import (
    BadInput,
    CorruptData,
    EqkinError,
    LibraryBusy,
    LimitReached,
    StorageFailed,
    TrainingFailed,
    Unreachable,
)

EXIT_CODES: dict[type[EqkinError], int] = {
    BadInput: 3,
    LimitReached: 4,
    CorruptData: 5,
    LibraryBusy: 6,
    StorageFailed: 7,
    TrainingFailed: 8,
    Unreachable: 9,
}

app = typer.Typer(
    name="eqkin",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""eqkin finds the kin of an equation: related equations, and the papers they stand in.

Start with `eqkin demo`, or `eqkin add` a folder of papers of your own.

Exit codes: 0 done, 1 nothing was found (`search`, `similar-papers`) or something wrong (`verify`, `convert`), 2 wrong
usage, 3 bad input, 4 limit reached, 5 damaged data, 6 library busy, 7 disk full or read-only, 8 learning failed,
9 a server does not answer, 130 interrupted (143 by a signal to end).""",
)
for _module in (add, index, search, serve, push, inspect, convert, demo, train, finetune, evaluate, report):
    _module.register(app)


def _print_version(value: bool) -> None:
    if value:
        from eqkin.version import __version__

        typer.echo(f"eqkin {__version__}")
        raise typer.Exit


@app.callback()
def _read_global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    run_app(app, "eqkin")


def run_app(app: typer.Typer, name: str) -> None:
    """Run an application; an error becomes one line and an exit code."""
    try:
        app(prog_name=name)
    except EqkinError as error:
        typer.secho(f"eqkin: {error}", err=True, fg="red")
        sys.exit(next((code for family, code in EXIT_CODES.items() if isinstance(error, family)), 1))
    except OSError as error:
        typer.secho(f"eqkin: {error}", err=True, fg="red")
        sys.exit(EXIT_CODES[StorageFailed])
