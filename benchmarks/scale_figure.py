"""The figure of `python -m benchmarks scale`: time and bytes against the number of equations, measured and projected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.scale import Record
from benchmarks.scale_table import ARXIV, QUANTITIES, format_bytes, format_count, format_seconds, get_trend
from eqkin.errors import StorageFailed
from eqkin.evaluation.report.plots import SERIES, SOFT, apply_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "os^DvPX"
_PANELS = {
    ("Time", "time"): (
        *("Reading, processor time", "Embedding", "Structure", "Lists of faiss", "Words", "Verifying"),
        "28 papers more, searchable",
    ),
    ("Disk", "disk"): ("Database", "Trees", "Vectors", "Lists of faiss", "Structure", "Words"),
    ("Memory", "memory"): (
        *("Reading: the writer", "Reading: the largest worker", "Indexing: the writer", "Server, resident"),
        "Server, without mapped files",
    ),
}


def draw(records: Sequence[Record], folder: Path, target: int = ARXIV) -> list[Path]:
    """Write `scale.svg` and `scale.png` into a folder; raises `BadInput` without matplotlib, `StorageFailed`."""
    with apply_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11.4, 4.4), layout="constrained")
        for axes, ((group, unit), titles) in zip(figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True):
            _panel(axes, records, group, titles, target)
            axes.set_xlabel("equations")
            axes.set_title(unit, fontsize=10, loc="left")
        written = [folder / f"scale.{form}" for form in ("svg", "png")]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in written:
                metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
                figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise StorageFailed(f"{folder}: figures could not be written ({error.strerror or error})") from error
    return written


def _panel(axes: Axes, records: Sequence[Record], group: str, titles: Sequence[str], target: int) -> None:
    for title, colour, marker in zip(titles, cycle(SERIES), cycle(_MARKERS)):
        quantity = next(one for one in QUANTITIES if (one.group, one.title) == (group, title))
        found = get_trend(records, quantity)
        if found is None:
            continue
        axes.plot(found.sizes, found.values, f"{marker}-", color=colour, markersize=4, linewidth=1.2, label=title)
        if not quantity.projected:
            continue
        many = np.geomspace(found.sizes[-1], max(float(target), found.sizes[-1]), 40)[1:]
        projected = [found.values[-1], *(found.predict(one) for one in many)]
        axes.plot([found.sizes[-1], *many], projected, "--", color=colour, linewidth=1.2)
    _scales(axes, {"Time": format_seconds, "Disk": format_bytes, "Memory": format_bytes}[group])
    axes.axvline(target, color=SOFT, linewidth=0.8, linestyle=":")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=7.5)


def _scales(axes: Axes, shown: Callable[[float], str]) -> None:
    """Logarithms both ways, with powers of ten in words."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, told in ((axes.xaxis, format_count), (axes.yaxis, shown)):
        axis.axes.set_xscale("log") if axis is axes.xaxis else axis.axes.set_yscale("log")
        axis.set_major_locator(LogLocator(10))
        axis.set_major_formatter(FuncFormatter(lambda value, _, told=told: told(value)))
        axis.set_minor_formatter(NullFormatter())
