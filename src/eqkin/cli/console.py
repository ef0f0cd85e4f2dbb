"""Terminal helpers of all commands: output for people or programs, warnings, progress, errors as exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

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
MAX_SHOWN_PROBLEMS = 10


def run_app(app: typer.Typer, name: str) -> None:
    """Run an application; an error becomes one line on standard error and an exit code."""
    try:
        app(prog_name=name)
    except (EqkinError, OSError) as error:
        typer.secho(f"eqkin: {error}", err=True, fg="red")
        codes = (code for family, code in EXIT_CODES.items() if isinstance(error, family))
        sys.exit(next(codes, EXIT_CODES[StorageFailed] if isinstance(error, OSError) else 1))


def emit(result: object, as_json: bool, render: Callable[[], None]) -> None:
    """Print a result: as one line of JSON, or by `render` for people."""
    with guard_output():
        if as_json:
            options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
            typer.echo(orjson.dumps(result, option=options).decode())
        else:
            render()


@contextmanager
def guard_output() -> Iterator[None]:
    """Write to standard output: a reader that closes the pipe (`| head`) is fine, a full disk is a `StorageFailed`."""
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


def warn(message: str) -> None:
    """Print a warning on standard error."""
    typer.secho(f"eqkin: {message}", err=True, fg="yellow")


def print_problems(problems: list[str], prefix: str, more: str) -> None:
    """Print the first problems on standard error, and how many more there are."""
    for problem in problems[:MAX_SHOWN_PROBLEMS]:
        typer.secho(f"{prefix}: {problem}", err=True)
    if len(problems) > MAX_SHOWN_PROBLEMS:
        typer.secho(f"... and {len(problems) - MAX_SHOWN_PROBLEMS:,} more ({more})", err=True)


@contextmanager
def stop_politely(message: str) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into a message and exit code 130; what was done so far is kept by the caller."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        warn(f"stopped; {message}")
        raise typer.Exit(130) from None


class _LiveText(ProgressColumn):
    """A text that is recomputed at every refresh, so that it is up to date while nothing happens."""

    max_refresh = 0.5

    def __init__(self, describe: Callable[[], str], table_column: Column) -> None:
        super().__init__(table_column)
        self._describe = describe

    def render(self, task: Task) -> Text:
        return Text(self._describe())


class ProgressDisplay:
    """A bar, the time left (or passed) and a text on standard error; invisible unless that is a terminal.

    Args:
        describe: The text; called at every refresh.
        quiet: Show nothing in any case.
        console: Where to draw.
    """

    def __init__(self, describe: Callable[[], str], *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.is_shown = not quiet and self.console.is_terminal
        self._bar = Progress(
            BarColumn(12, table_column=Column(min_width=12)),
            _PercentColumn(table_column=Column(min_width=5, no_wrap=True)),
            _TimeColumn(table_column=Column(min_width=7, no_wrap=True)),
            _LiveText(describe, Column(ratio=1)),
            console=self.console,
            transient=True,
            disable=not self.is_shown,
            expand=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, done: float, total: float | None) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total)

    def render(self) -> object:
        """Return what is drawn."""
        return self._bar.get_renderable()


class _PercentColumn(ProgressColumn):
    """The percentage, if the end is known."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.percentage:.0f} %")


class _TimeColumn(TimeRemainingColumn):
    """The time left, or the time passed where the end is not known."""

    def render(self, task: Task) -> Text:
        return TimeElapsedColumn().render(task) if task.total is None else super().render(task)
