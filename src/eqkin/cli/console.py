"""The terminal, as all commands use it: output, warnings, a progress bar, errors as exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from eqkin import compiler
from eqkin.errors import EqkinError, StorageFailed, strip_control_chars

MAX_SHOWN_PROBLEMS = 10
# Seconds after which a log repeats the progress of the same task.
_LOG_SECONDS = 30.0


def prepare_streams() -> None:
    """Use UTF-8 in pipes and files on every system; where a terminal lacks a character, show its code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        if sys.platform == "win32" and not stream.isatty() and "PYTHONIOENCODING" not in os.environ:
            stream.reconfigure(encoding="utf-8")
        elif stream is not sys.stdin and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def run_app(app: typer.Typer, name: str) -> None:
    """Run an application; an error becomes one line on standard error and an exit code."""
    prepare_streams()
    if sys.stderr.isatty():
        compiler.progress.announce = lambda message: typer.secho(f"eqkin: {message}", err=True)
    try:
        app(prog_name=name)
    except (EqkinError, OSError) as error:
        typer.secho(strip_control_chars(f"eqkin: {error}", lines=True), err=True, fg="red")
        sys.exit(error.exit_code if isinstance(error, EqkinError) else StorageFailed.exit_code)


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


def count_noun(number: int, noun: str) -> str:
    """Return a number with a noun in singular or plural: "1 paper", "2,000 papers"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def warn(message: str) -> None:
    """Print a warning on standard error."""
    typer.secho(strip_control_chars(f"eqkin: {message}", lines=True), err=True, fg="yellow")


def print_problems(problems: list[str], prefix: str, more: str) -> None:
    """Print the first problems on standard error, and how many more there are."""
    for problem in problems[:MAX_SHOWN_PROBLEMS]:
        typer.secho(strip_control_chars(f"{prefix}: {problem}", lines=True), err=True)
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


class ProgressDisplay:
    """A bar, the time left and a text on standard error; invisible unless that is a terminal.

    Args:
        text: What to say: a format of `done` and `total`.
        quiet: Show nothing in any case.
        console: Where to draw.
    """

    def __init__(self, text: str, *, quiet: bool = False, console: Console | None = None) -> None:
        self.console: Console = console or Console(stderr=True)
        self.is_shown: bool = not quiet and self.console.is_terminal
        self._text = text
        self._bar = Progress(
            BarColumn(12, table_column=Column(min_width=12)),
            TaskProgressColumn(table_column=Column(min_width=5, no_wrap=True)),
            TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1)),
            console=self.console,
            transient=True,
            disable=not self.is_shown,
            expand=True,
        )
        self._task = self._bar.add_task(text.format(done=0, total=0), total=None)

    def __enter__(self) -> ProgressDisplay:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self, done: float, total: float | None = None, *, text: str = "") -> None:
        """Move the bar; without a total, its end is not known. A `text` is said as it is."""
        description = text or self._text.format(done=done, total=total or 0)
        self._bar.update(self._task, completed=done, total=total, description=description)

    def render(self) -> object:
        """Return what is drawn."""
        return self._bar.get_renderable()


@contextmanager
def open_progress(quiet: bool) -> Iterator[Callable[..., None]]:
    """Show the last message: in one changing line on a terminal, otherwise in a line now and then.

    An interruption says that finished work is kept.
    """
    display = ProgressDisplay("preparing", quiet=quiet)
    task = ""
    logged = 0.0

    def log(message: str, done: float = 0, total: float | None = None) -> None:
        nonlocal task, logged
        display.update(done, total, text=message)
        start = message.partition(":")[0]
        now = time.monotonic()
        if not quiet and not display.is_shown and (start != task or now - logged >= _LOG_SECONDS):
            typer.echo(message, err=True)
            task = start
            logged = now

    try:
        with display:
            yield log
    except KeyboardInterrupt:
        typer.echo("stopped; finished work is kept, and the same command continues it", err=True)
        raise
