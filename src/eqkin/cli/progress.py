"""Progress on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

_LOG_SECONDS = 30.0  # after which a log repeats the progress of the same task


@contextmanager
def open_progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the last message: in one changing line on a terminal, otherwise in a line each.

    An interruption says that finished work is kept.
    """
    text, task, logged = "preparing", "", 0.0
    display = ProgressDisplay(lambda: text, quiet=quiet)

    def log(message: str) -> None:
        nonlocal text, task, logged
        text, start, now = message, message.partition(":")[0], time.monotonic()
        if not quiet and not display.is_shown and (start != task or now - logged >= _LOG_SECONDS):
            typer.echo(message, err=True)
            task, logged = start, now

    try:
        with display:
            yield log
    except KeyboardInterrupt:
        typer.echo("stopped; finished work is kept, and the same command continues it", err=True)
        raise


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
        text: What to say at every refresh: a function that returns it, or a format of `done` and `total`.
        quiet: Show nothing in any case.
        console: Where to draw.
    """

    def __init__(self, text: str | Callable[[], str], *, quiet: bool = False, console: Console | None = None) -> None:
        self.text = text
        self.done: float = 0
        self.total: float = 0
        self.console = console or Console(stderr=True)
        self.is_shown = not quiet and self.console.is_terminal
        self._bar = Progress(
            BarColumn(12, table_column=Column(min_width=12)),
            _PercentColumn(table_column=Column(min_width=5, no_wrap=True)),
            _TimeColumn(table_column=Column(min_width=7, no_wrap=True)),
            _LiveText(self._describe, Column(ratio=1)),
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

    def _describe(self) -> str:
        return self.text() if callable(self.text) else self.text.format(done=self.done, total=self.total)

    def update(self, done: float, total: float | None = None) -> None:
        """Move the bar; without a total, its end is not known."""
        self.done, self.total = done, total or 0
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
