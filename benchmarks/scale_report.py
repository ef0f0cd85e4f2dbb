"""Tables and a figure of the scale study: each quantity at each size, how it grows, and a projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from benchmarks.report import Figure, Measurement, format_markdown
from eqkin.errors import BadInput
from eqkin.plots import SERIES, SOFT, apply_style, save_figure
from eqkin.storage.files import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record: TypeAlias = dict[str, Any]  # "size", "step", "figures", "machine"; also the figures of a step

ARXIV_EQUATIONS = 30_000_000  # display equations
BEGIN, END = "<!-- benchmarks scale: begin -->", "<!-- benchmarks scale: end -->"
_OWN_MEMORY = "Server, without mapped files"
_MAX_LINEAR_EXPONENT = 1.05  # up to here growth counts as linear: a + b n
_MARKERS = "os^DvPX"


@dataclass(frozen=True)
class GrowthTrend:
    """Measured values y at sizes n, and y = a + b n and y = c n^e fitted to them."""

    sizes: tuple[float, ...]  # ascending
    values: tuple[float, ...]
    constant: float  # a
    slope: float  # b
    exponent: float | None  # e, by least squares of the logarithms; None if there is only one value
    last: float | None  # the exponent between the two largest sizes

    def predict(self, size: float) -> float:
        """Return the value at a size: a + b n, or a power law through the two largest sizes if growth is faster."""
        if self.last is not None and self.last > _MAX_LINEAR_EXPONENT and size > self.sizes[-1]:
            return float(self.values[-1] * (size / self.sizes[-1]) ** self.last)
        return self.constant + self.slope * size


def fit_trend(sizes: Sequence[float], values: Sequence[float | None]) -> GrowthTrend | None:
    """Fit a trend to what was measured; None if nothing was. Zeros and missing values are ignored.

    Minimises relative errors, so that small sizes count as much as large ones; a and b are not negative. A single value
    is taken as proportional to the size.
    """
    pairs = sorted((float(n), float(y)) for n, y in zip(sizes, values, strict=True) if y is not None and y > 0)
    if not pairs:
        return None
    n, y = np.array(pairs).T
    if len(pairs) == 1:
        return GrowthTrend(tuple(n), tuple(y), 0.0, float(y[0] / n[0]), None, None)
    design = np.stack((1 / y, n / y), axis=1)
    constant, slope = np.linalg.lstsq(design, np.ones(len(y)), rcond=None)[0]
    if slope < 0:
        constant, slope = (1 / y).sum() / (1 / y**2).sum(), 0.0
    elif constant < 0:
        constant, slope = 0.0, (n / y).sum() / (n**2 / y**2).sum()
    exponent = float(np.polyfit(np.log(n), np.log(y), 1)[0])
    last = log(y[-1] / y[-2]) / log(n[-1] / n[-2])
    return GrowthTrend(tuple(n), tuple(y), float(constant), float(slope), exponent, last)


def format_seconds(value: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if value < 120:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:,.1f} min" if value < 7_200 else f"{value / 3_600:,.1f} h"


def format_bytes(value: float) -> str:
    """Format bytes in kB, MB, GB or TB."""
    power = min(max(int(log(value, 1_000)), 1), 4)
    return f"{value / 1_000**power:,.3g} {'kMGT'[power - 1]}B"


def format_count(value: float) -> str:
    """Format a large number in short: 10 k, 30 M."""
    return f"{value / 1e6:,.3g} M" if value >= 1e6 else f"{value / 1e3:,.3g} k"


@dataclass(frozen=True)
class MeasuredQuantity:
    """A figure that is measured at every size."""

    group: str  # its table
    title: str
    step: str
    path: tuple[str, ...]  # keys of the figure in the step's record
    format: Callable[[float], str]
    drawn: bool = False

    @property
    def is_projected(self) -> bool:
        """Whether the measurements allow a projection.

        Search is exact up to 100,000 vectors and uses inverted lists above. The memory of processes is mapped files, or
        bounded by the size of a segment of trees; only what a server holds for itself grows with the library.
        """
        return self.group in ("Time", "Disk") or self.title == _OWN_MEMORY

    def get_value(self, records: Sequence[Record], size: int) -> float | None:
        """Return what was measured at a size; None if nothing was."""
        figures: Any = next((one["figures"] for one in records if (one["size"], one["step"]) == (size, self.step)), {})
        for name in self.path:
            figures = figures.get(name) if isinstance(figures, dict) else None
        return None if figures is None else float(figures)

    def fit(self, records: Sequence[Record]) -> GrowthTrend | None:
        """Fit the growth with the number of searchable equations."""
        counts = count_equations(records)
        return fit_trend(list(counts.values()), [self.get_value(records, size) for size in counts])


def _list_quantities() -> list[MeasuredQuantity]:
    """List the quantities; a title that begins with * is also drawn. Columns: title, step, path of the figure."""
    groups: dict[tuple[str, Callable[[float], str]], str] = {
        ("Time", format_seconds): """
            Reading                              | add    | seconds
            *Reading, processor time             | add    | processor_seconds
            Embedding                            | index  | steps.embedding
            Structure                            | index  | steps.structure
            Words                                | index  | steps.words
            *Indexing, processor time            | index  | processor_seconds
            Pushing to Milvus                    | push   | seconds
            *Pushing, processor time             | push   | processor_seconds
            *Milvus meanwhile, processor time    | push   | database_seconds
            *Verifying, processor time           | verify | processor_seconds
            Nothing new, processor time          | again  | processor_seconds
            *28 more papers, processor time      | day    | processor_seconds""",
        ("Disk", format_bytes): """
            Corpus, packed  | grow  | bytes
            *Database       | index | disk.database
            *Trees          | index | disk.forest
            *Vectors        | index | disk.vectors
            *Structure      | index | disk.structure
            *Words          | index | disk.words""",
        ("Memory", format_bytes): f"""
            *Reading: the writer         | add    | own_bytes
            *Reading: the largest worker | add    | helper_bytes
            *Indexing: the writer        | index  | own_bytes
            Indexing: the largest worker | index  | helper_bytes
            Verifying                    | verify | own_bytes
            *Server, resident            | serve  | held.rss
            *{_OWN_MEMORY}               | serve  | held.own
            Server of Milvus' hits       | milvus | held.rss
            Milvus itself                | milvus | database.rss""",
        ("Searching", format_seconds): """
            Start to first answer | serve | first_seconds""",
        ("Searching", "{:,.1f} ms".format): """
            Search, processor time          | serve  | processor_ms
            Search, median                  | serve  | p50_ms
            Search, 99th percentile         | serve  | p99_ms
            Text search, processor time     | serve  | words.processor_ms
            Text search, median             | serve  | words.p50_ms
            Text search, 99th percentile    | serve  | words.p99_ms
            Through Milvus, processor time of both | milvus | processor_ms
            Through Milvus, median          | milvus | p50_ms
            Through Milvus, 99th percentile | milvus | p99_ms""",
    }
    quantities = []
    for (group, form), lines in groups.items():
        for line in lines.strip().splitlines():
            title, step, path = (part.strip() for part in line.split("|"))
            keys = tuple(path.split("."))
            quantities.append(MeasuredQuantity(group, title.lstrip("*"), step, keys, form, title.startswith("*")))
    return quantities


QUANTITIES = _list_quantities()


def count_equations(records: Sequence[Record]) -> dict[int, int]:
    """Return the number of searchable equations at each size."""
    return {one["size"]: one["figures"]["vectors"] for one in records if one["step"] == "index"}


def make_tables(records: Sequence[Record], target: int = ARXIV_EQUATIONS) -> dict[str, list[Measurement]]:
    """Make a table per group: each quantity at each size, the exponent of its growth, its projection to `target`."""
    counts = count_equations(records)
    if not counts:
        raise BadInput("nothing was measured yet")
    tables: dict[str, list[Measurement]] = {}
    for quantity in QUANTITIES:
        trend = quantity.fit(records)
        if trend is None:
            continue
        values = {f"{counts[size]:,}": quantity.get_value(records, size) for size in counts}
        figures: dict[str, Figure] = {name: quantity.format(one) if one else None for name, one in values.items()}
        if len(counts) > 1:  # one size says nothing about growth
            grows = "(linear)" if trend.exponent is None else f"n^{trend.exponent:.2f}"
            figures["grows as"] = grows if quantity.is_projected else None
            figures[f"at {target:,}"] = quantity.format(trend.predict(target)) if quantity.is_projected else None
        tables.setdefault(quantity.group, []).append(Measurement(quantity.title, figures))
    return tables


def insert_tables(path: Path, tables: dict[str, list[Measurement]], *, write: bool = True) -> None:
    """Put tables between the two marks of a Markdown file; raises `BadInput` if it has no marks."""
    try:
        document = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error})") from error
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"{path}: has no place for the tables; mark it with {BEGIN} and {END}")
    if write:
        write_file(path, f"{before}{BEGIN}\n{format_markdown(tables)}\n{END}{after}".encode())


def draw_figure(records: Sequence[Record], folder: Path, target: int = ARXIV_EQUATIONS) -> None:
    """Write `scale.svg` and `scale.png`; raises `BadInput` without matplotlib, `StorageFailed`."""
    with apply_style():
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(11.4, 4.4), layout="constrained")
        for axes, group in zip(canvas.subplots(1, 3), ("Time", "Disk", "Memory"), strict=True):
            _draw_panel(axes, records, group, target)
        save_figure(canvas, folder, "scale")


def _draw_panel(axes: Axes, records: Sequence[Record], group: str, target: int) -> None:
    """Draw measured values (lines) and projections (dashed) with logarithmic scales."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    quantities = [one for one in QUANTITIES if one.group == group and one.drawn]
    for quantity, colour, marker in zip(quantities, cycle(SERIES), cycle(_MARKERS)):
        trend = quantity.fit(records)
        if trend is None:
            continue
        style: dict[str, Any] = {"color": colour, "linewidth": 1.2}
        axes.plot(trend.sizes, trend.values, f"{marker}-", markersize=4, label=quantity.title, **style)
        if quantity.is_projected:
            sizes = np.geomspace(trend.sizes[-1], max(float(target), trend.sizes[-1]), 40)[1:]
            projected = [trend.values[-1], *(trend.predict(size) for size in sizes)]
            axes.plot([trend.sizes[-1], *sizes], projected, "--", **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, form in ((axes.xaxis, format_count), (axes.yaxis, quantities[0].format)):
        axis.set_major_locator(LogLocator(10))
        axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: form(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("equations")
    axes.set_title(group.lower(), fontsize=10, loc="left")
    axes.axvline(target, color=SOFT, linewidth=0.8, linestyle=":")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=7.5)
