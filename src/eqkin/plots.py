"""Figures, all in one style: the curves of a training run and the figures of a library, as PNG and SVG."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.storage.files import make_folder, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Records = Sequence[Mapping[str, Any]]

INK, SOFT, GRID, PAPER = "#22262b", "#5f6670", "#dddad2", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#008a65", "#aa4499", "#b07a00", "#3f8fc4", "#6b6b6b")  # after Okabe and Ito
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure everywhere
    "font.size": 9.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "eqkin",  # the same figure gives the same bytes
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign is a dollar sign
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
}
_TRAINING_PANELS = {  # field of a metrics record: title of its panel
    "ranking": "Held-out ranking score",
    "loss": "Loss",
    "similarity": "Loss: similarity",
    "masking": "Loss: masking",
    "structure": "Loss: structure",
    "context": "Loss: context",
    "words": "Loss: words",
    "learning_rate": "Learning rate",
    "triplets_per_second": "Triplets per second",
}
_ZERO_BASED_PANELS = ("learning_rate", "triplets_per_second")
_MAX_COLUMNS = 3
_MARKED_POINTS = 30  # a curve with at most this many points has a marker on each
_MAX_POINTS = 200  # of a curve; more records are averaged


@contextmanager
def apply_style() -> Iterator[None]:
    """Apply the style of all figures; raises `BadInput` without matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise BadInput("figures need matplotlib: pip install 'eqkin[train]' or 'eqkin[eval]'") from error
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's font may have it
        yield


def render_figure(figure: Figure, form: str) -> bytes:
    """Return a figure as a PNG or SVG file; equal figures give equal bytes. Call it within `apply_style`."""
    picture = BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    figure.savefig(picture, format=form, dpi=150, metadata=metadata)
    return picture.getvalue()


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG to a folder, which is created if necessary; raises `StorageFailed`."""
    paths = [make_folder(folder) / f"{name}.{form}" for form in ("png", "svg")]
    for path in paths:
        write_file(path, render_figure(figure, path.suffix[1:]))
    return paths


def draw_library_figures(statistics: dict[str, Any], characters: Sequence[tuple[str, int]], folder: Path) -> list[Path]:
    """Draw papers per subject area, the most frequent characters, and the reasons of failed conversions.

    The first two are the paper's data figures. Returns the paths of the figures.
    """
    figures = {
        "papers-per-field": ("Papers per subject area", "papers", list(statistics["fields"].items())[:30]),
        "characters": ("The 50 most frequent characters in equations", "occurrences", list(characters)[:50]),
        "failures": (
            "Equations that could not be converted, by reason",
            "equations",
            list(statistics["equations"]["failed"].items())[:20],
        ),
    }
    with apply_style():
        return [
            path for name, (title, unit, bars) in figures.items()
            for path in save_figure(_draw_bars(title, unit, bars), folder, name)
        ]  # fmt: skip


def _draw_bars(title: str, unit: str, bars: Sequence[tuple[str, int]]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.0, 0.24 * len(bars) + 2), 3.4), layout="constrained")
    axes = figure.subplots()
    if bars:
        axes.bar(range(len(bars)), [count for _, count in bars], color=SERIES[0])
        labels = [label for label, _ in bars]
        turned = max(map(len, labels)) > 2
        axes.set_xticks(range(len(bars)), labels, rotation=45 if turned else 0, ha="right" if turned else "center")
    else:
        axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes)
    axes.grid(visible=False, axis="x")
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(unit)
    return figure


def draw_training_curves(records: Records, folder: Path) -> list[Path]:
    """Draw the records of `metrics.jsonl` as `curves.png` and `curves.svg`; returns their paths.

    The panels show the held-out ranking score with its interval, the losses, the learning rate and the speed against
    the number of triplets. Of a long run, each point is the mean of some records.

    Raises:
        BadInput: There is nothing to draw, or matplotlib is not installed.
        StorageFailed: The files cannot be written.
    """
    names = [name for name in _TRAINING_PANELS if any(name in record for record in records)]
    if not names:
        raise BadInput("the metrics contain no records of a training run")
    with apply_style():
        return save_figure(_build_training_figure(records, names), folder, "curves")


def _build_training_figure(records: Records, names: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

    rows = -(-len(names) // _MAX_COLUMNS)
    columns = -(-len(names) // rows)
    figure = Figure(figsize=(3.6 * columns, 2.5 * rows + 0.3), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.1))
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
    for name, axes in zip(names, panels, strict=False):
        chosen = [record for record in records if name in record]
        x, y = _get_column(chosen, "triplets"), _get_column(chosen, name)
        last = f"{y[np.isfinite(y)][-1]:,.4g}" if np.isfinite(y).any() else "none"
        if name == "ranking":
            low, high = _get_column(chosen, "low"), _get_column(chosen, "high")
            axes.axhline(0.5, color=SOFT, linewidth=0.8, linestyle=":")  # chance
            axes.vlines(x, low, high, color=SERIES[0], alpha=0.3, linewidth=4)
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        else:
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.plot(x, y, color=SERIES[0], linewidth=1.5, marker="o", markersize=3 if len(x) <= _MARKED_POINTS else 0)
        axes.set_title(last, fontsize=8, loc="right", color=SERIES[0])
        if name in _ZERO_BASED_PANELS:
            axes.set_ylim(bottom=0)
        axes.set_title(_TRAINING_PANELS[name], fontsize=10, loc="left")
        axes.tick_params(labelsize=8, labelbottom=True)
        axes.grid(visible=False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep="\N{NO-BREAK SPACE}"))
    panels[0].set_xlim(left=0)
    for axes in panels[len(names) :]:
        axes.remove()
    figure.supxlabel("triplets seen", fontsize=9)
    return figure


def _get_column(records: Records, name: str) -> Floats:
    """Return one field of the records, NaN where it is not a finite number; of many records, means of neighbours."""
    values = [record.get(name) for record in records]
    numbers = np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)
    numbers[~np.isfinite(numbers)] = np.nan
    group = -(-len(numbers) // _MAX_POINTS)
    padded = np.pad(numbers, (0, -len(numbers) % group), constant_values=np.nan).reshape(-1, group)
    known = np.isfinite(padded)
    sums, counts = np.where(known, padded, 0).sum(axis=1), known.sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
