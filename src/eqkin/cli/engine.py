"""Options that say who does the work, and the line that tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer
from rich.progress import ProgressColumn, Task
from rich.text import Text


class ExecutorName(StrEnum):
    """Who can do the work, see `eqkin.backends.open_executor`."""

    processes = "processes"
    ray = "ray"


ExecutorOption = Annotated[
    ExecutorName,
    typer.Option(
        "--engine",
        help="Who reads and embeds: processes of this machine, or a Ray cluster (`pip install 'eqkin[ray]'`).",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDR",
        help="The cluster for `--engine ray`: HOST:PORT, or `auto` for the one on this machine. Without one, Ray is "
        "started here with as many CPUs as `--jobs` says.",
        show_default="$RAY_ADDRESS",
    ),
]


class LiveText(ProgressColumn):
    """Words that are asked for again and again, so that they are true also while nothing comes in."""

    max_refresh = 0.5

    def __init__(self, tell: Callable[[], str]) -> None:
        super().__init__()
        self._tell = tell

    def render(self, task: Task) -> Text:
        """The words as they are now."""
        return Text(self._tell())
