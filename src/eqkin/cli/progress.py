"""Progress on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

_LOG_SECONDS = 30.0  # after which a log repeats the progress of the same task


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
def open_progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the last message: in one changing line on a terminal, otherwise in a line each.

    An interruption says that finished work is kept.
    """
    display = ProgressDisplay("preparing", quiet=quiet)
    task = ""
    logged = 0.0

    def log(message: str) -> None:
        nonlocal task, logged
        display.update(0, text=message)
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
