"""The command line: thin commands over the library; errors become one line and an exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eqkin.cli.console import run_app
from eqkin.cli.options import flatten_options

# The commands by group, each with its module and function; a module is imported when one of its commands is needed.
_GROUPS = {
    "Build": {
        "demo": "serve.demo",
        "add": "build.add",
        "index": "build.index",
        "watch": "build.watch",
        "stats": "library.stats",
        "verify": "library.verify",
    },
    "Find": {
        "search": "search.search",
        "similar-papers": "search.similar_papers",
        "show": "search.show",
        "open": "search.open_equation",
    },
    "Serve": {"serve": "serve.serve", "mcp": "serve.mcp"},
    "Share": {
        "export": "library.export",
        "pack": "library.pack",
        "unpack": "library.unpack",
        "push": "library.push",
    },
    "Research": {
        "convert": "convert.convert",
        "rank": "search.rank",
        "evaluate": "train.evaluation",
        "train": "train.train",
        "finetune": "train.finetune",
    },
}
_COMMANDS = {name: place for group in _GROUPS.values() for name, place in group.items()}
_TAKE_FORMULAS = ("search", "convert")
_NEEDS_ARGUMENTS = ("add", "show", "open", "similar-papers", "push", "pack", "unpack", "watch")
_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _FormulaCommand(TyperCommand):
    """A command whose arguments may begin with a minus: only its own options are options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        short = {name for param in self.get_params(ctx) for name in param.opts if len(name) == 2}
        end = args.index("--") if "--" in args else len(args)

        def is_formula(argument: str) -> bool:
            if not argument.startswith("-") or argument.startswith("--") or argument == "-" or argument in short:
                return False
            return argument[:2] not in short or not argument[2:].strip("=").isdecimal()

        marked = [f" {argument}" if is_formula(argument) else argument for argument in args[:end]]
        return super().parse_args(ctx, marked + args[end:])


def _import_command(name: str) -> Any:
    module, _, function = _COMMANDS[name].partition(".")
    return getattr(import_module(f"eqkin.cli.{module}"), function)


class _LazyCommands(Mapping[str, Any]):
    """The commands by name, made when they are looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            command = _import_command(name)
            if not isinstance(command, typer.Typer):
                cls = _FormulaCommand if name in _TAKE_FORMULAS else None
                single = typer.Typer(add_completion=False, rich_markup_mode="markdown", context_settings=_SETTINGS)
                single.command(name, cls=cls, no_args_is_help=name in _NEEDS_ARGUMENTS)(flatten_options(command))
                command = single
            self._made[name] = typer.main.get_command(command)
            self._made[name].name = name
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _LazyGroup(TyperGroup):
    """A group whose commands are imported when they are needed, so that each one starts quickly."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Mapping[str, Any] = _LazyCommands()  # type: ignore[assignment]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        shown = {}
        for group, places in _GROUPS.items():
            for name in places:
                command = _import_command(name)
                text = command.info.help if isinstance(command, typer.Typer) else getdoc(command)
                # without its options, which would take long to make
                shown[name] = TyperCommand(name, help=text, rich_help_panel=group)
        self.commands = shown
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="eqkin",
    cls=_LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
    help="""eqkin is a search engine for equations: it finds related equations, and the papers that contain them.

Start with `eqkin demo`, or `eqkin add` a folder of your own papers.""",
    epilog="""Exit codes: 0 done, 1 nothing found (`search`, `similar-papers`) or something is wrong (`verify`,
`convert`), 2 wrong usage, 3 bad input, 4 limit reached, 5 damaged data, 6 library busy, 7 disk full or read-only,
8 training failed, 9 a server does not answer, 130 interrupted (`serve`, by SIGTERM: 143).

Environment variables:

- `EQKIN_LIBRARY`: folder of the library, instead of `~/.local/share/eqkin/library`

- `EQKIN_CACHE`: folder for downloads and look-up tables, instead of the user's cache folder

- `EQKIN_TOKEN`: the token that clients of `eqkin serve` must know, instead of `--token`

- `EQKIN_SERVER`: settings of a server process, which `eqkin serve` sets

- `EQKIN_MILVUS`: address of a Milvus server to search instead of a library; `MILVUS_TOKEN`: its `user:password`

- `RAY_ADDRESS`: address of a Ray cluster for `--engine ray`

- `EQKIN_ARXIV_API`, `EQKIN_ARXIV_EPRINT`: addresses of arXiv's metadata and sources, to use a mirror

- `NO_SERVE`: `eqkin demo` stops before serving""",
)


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
