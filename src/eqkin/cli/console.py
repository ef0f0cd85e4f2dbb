"""Terminal helpers of all commands: output for people or programs, warnings, errors as exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import orjson
import typer

from eqkin import compiler
from eqkin.errors import EqkinError, StorageFailed, strip_control_chars

MAX_SHOWN_PROBLEMS = 10


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
