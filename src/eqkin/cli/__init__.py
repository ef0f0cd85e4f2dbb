"""The command line: thin commands over the library; errors become one line and an exit code."""

from __future__ import annotations

from typing import Annotated

import typer

from eqkin.cli import build, convert, evaluate, finetune, library, search, serve, train
from eqkin.cli.console import EXIT_CODES as EXIT_CODES
from eqkin.cli.console import run_app

app = typer.Typer(
    name="eqkin",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""eqkin is a search engine for equations: it finds related equations, and the papers that contain them.

Start with `eqkin demo`, or `eqkin add` a folder of your own papers.

Exit codes: 0 done, 1 nothing found (`search`, `similar-papers`) or something is wrong (`verify`, `convert`), 2 wrong
usage, 3 bad input, 4 limit reached, 5 damaged data, 6 library busy, 7 disk full or read-only, 8 training failed,
9 a server does not answer, 130 interrupted (143 by SIGTERM).""",
)
_NEEDS_ARGUMENTS = (build.add, search.similar_papers, build.push)
for _command in (
    *(build.add, build.index, search.search, search.similar_papers, search.rank, serve.serve, build.push),
    *(library.stats, library.verify, library.export, convert.convert, serve.demo, train.train, finetune.finetune),
):
    _name = _command.__name__.replace("_", "-")
    app.command(_name, no_args_is_help=_command in _NEEDS_ARGUMENTS)(_command)
app.add_typer(evaluate.app, name="evaluate")


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
