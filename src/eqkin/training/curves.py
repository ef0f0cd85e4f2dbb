"""A picture of a run: ranking on held-out triples, losses, learning rate and speed over the triplets seen."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, StorageFailed
from eqkin.storage import write_file
from eqkin.training.metrics import MetricsRecord, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

_BLUE = "#3b6ea5"
_GREY = "#777777"
_PANELS = {  # what of a record is drawn, in this order, and under which title
    "ranking": "Held-out ranking score, %",
    "loss": "Loss",
    "similarity": "Loss: similarity",
    "masking": "Loss: masking",
    "structure": "Loss: structure",
    "context": "Loss: context",
    "words": "Loss: words",
    "learning_rate": "Learning rate",
    "triplets_per_second": "Triplets per second",
}
_NOISELESS_PANELS = ("learning_rate",)  # without noise, so drawn as it is
_ZERO_BASED_PANELS = ("learning_rate", "triplets_per_second")  # where changes in proportion matter
_FIGURE_COLUMNS = 3
_MARKED_POINTS = 30  # points up to which each one is marked, and nothing is smoothed
_MAX_POINTS = 2_000  # points beyond which a line makes an SVG heavy


def draw_training_curves(metrics_path: Path, folder: Path) -> list[Path]:
    """Draw the records of `metrics_path` into `folder`, as `curves.png` and `curves.svg`; returns these paths.

    Noisy curves are drawn smoothed, over the raw ones in a pale colour; the ranking score has its interval as a band.
    Raises `BadInput` when there is nothing to draw or nothing to draw with, `StorageFailed` when it cannot be written.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise BadInput("curves need matplotlib: pip install 'eqkin[train]'") from error
    records = read_metrics(metrics_path)
    if not any(name in record for record in records for name in _PANELS):
        raise BadInput(f"{metrics_path}: holds no records of a run; train first")
    figure = _build_figure(records)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: curves could not be written ({error.strerror or error})") from error
    written = []
    for form in ("png", "svg"):
        picture = BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "eqkin"}):  # the same records give the same bytes
            figure.savefig(picture, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
        written.append(folder / f"curves.{form}")
        write_file(written[-1], picture.getvalue())
    return written


def _build_figure(records: Sequence[MetricsRecord]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import EngFormatter, MaxNLocator, StrMethodFormatter

    names = [name for name in _PANELS if any(name in record for record in records)]
    rows = -(-len(names) // _FIGURE_COLUMNS)
    columns = -(-len(names) // rows)
    figure = Figure(figsize=(3.6 * columns, 2.5 * rows + 0.3), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.1))
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
    steps, triplets = _find_progress(records)
    for name, axes in zip(names, panels, strict=False):
        chosen = [record for record in records if name in record]
        seen = np.interp(_get_column(chosen, "step"), steps, triplets)
        if not np.isfinite(_get_column(chosen, name)).any():
            axes.text(0.5, 0.5, "none", ha="center", va="center", transform=axes.transAxes)
        elif name == "ranking":
            _draw_ranking(axes, seen, chosen)
        else:
            _draw_curve(axes, seen, _get_column(chosen, name), noisy=name not in _NOISELESS_PANELS)
        if name in _ZERO_BASED_PANELS:
            axes.set_ylim(bottom=0)
        axes.set_title(_PANELS[name], fontsize=10, loc="left")
        axes.tick_params(labelsize=8, labelbottom=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep="\N{NO-BREAK SPACE}"))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    panels[0].set_xlim(left=0)
    for axes in panels[len(names) :]:
        axes.remove()
    told = np.isfinite(_get_column(records, "triplets")).any()
    figure.supxlabel("triplets seen" if told else "steps", fontsize=9)
    return figure


def _draw_ranking(axes: Axes, seen: Floats, records: Sequence[MetricsRecord]) -> None:
    score, low, high = (100 * _get_column(records, name) for name in ("ranking", "low", "high"))
    axes.axhline(50, color=_GREY, linewidth=0.8, linestyle=":")
    axes.annotate(
        "chance", (1, 50), (0, 2), axes.get_yaxis_transform(), "offset points", color=_GREY, fontsize=7, ha="right"
    )
    if len(seen) > 1:
        axes.fill_between(seen, low, high, color=_BLUE, alpha=0.15, linewidth=0)
    else:
        axes.vlines(seen, low, high, color=_BLUE, alpha=0.3, linewidth=4)
    axes.plot(seen, score, color=_BLUE, linewidth=1.5, **_choose_markers(seen))
    last = np.flatnonzero(np.isfinite(score))[-1]
    bounds = f" [{low[last]:.1f}, {high[last]:.1f}]" if np.isfinite(low[last] + high[last]) else ""
    axes.set_title(f"{score[last]:.1f}{bounds}", fontsize=8, loc="right", color=_BLUE)


def _draw_curve(axes: Axes, seen: Floats, values: Floats, noisy: bool) -> None:
    noisy = noisy and len(seen) > _MARKED_POINTS
    at, curve = _thin(seen, values)
    if noisy:
        axes.plot(seen, values, color=_BLUE, alpha=0.3, linewidth=0.6, rasterized=len(seen) > _MAX_POINTS)
        curve = _smooth(curve)
        shown = np.concatenate([np.nanpercentile(values, [1, 99]), curve])  # one outlier does not flatten the rest
        low, high = np.nanmin(shown), np.nanmax(shown)
        if low < high:
            axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.plot(at, curve, color=_BLUE, linewidth=1.5, **_choose_markers(seen))
    axes.set_title(f"{curve[np.isfinite(curve)][-1]:,.4g}", fontsize=8, loc="right", color=_BLUE)


def _choose_markers(seen: Floats) -> dict[str, Any]:
    return {"marker": "o", "markersize": 3} if len(seen) <= _MARKED_POINTS else {}


def _find_progress(records: Sequence[MetricsRecord]) -> tuple[Floats, Floats]:
    """Steps, ascending, and the triplets seen by then: for records that tell only their step."""
    steps, triplets = _get_column(records, "step"), _get_column(records, "triplets")
    if np.isnan(triplets).all():
        triplets = steps
    known = np.isfinite(triplets)
    order = np.argsort(steps[known], kind="stable")
    steps, triplets = steps[known][order], triplets[known][order]
    beyond = 2 * steps[-1], 2 * triplets[-1]  # at the same pace
    return np.array([0, *steps, beyond[0]]), np.array([0, *triplets, beyond[1]])


def _get_column(records: Sequence[MetricsRecord], name: str) -> Floats:
    """One value of each record; NaN where it is no finite number."""
    values = [record.get(name) for record in records]
    numbers = np.array([value if isinstance(value, int | float) else np.nan for value in values], np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _thin(seen: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The means of as many neighbours as it takes to get below `_MANY` points; NaN is left out."""
    group = -(-len(seen) // _MAX_POINTS)
    starts = np.arange(0, len(seen), group)
    finite = np.isfinite(values)
    sums, counts = np.add.reduceat(np.where(finite, values, 0), starts), np.add.reduceat(finite, starts, dtype=np.int64)
    middles = np.add.reduceat(seen, starts) / np.diff([*starts, len(seen)])
    return middles, np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _smooth(values: Floats) -> Floats:
    """Mean of the neighbours with Gaussian weights, without lag; NaN is left out, and stays where it is long."""
    width = max(1.0, len(values) / 80)
    reach = min(int(3 * width), (len(values) - 1) // 2)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    finite = np.isfinite(values)
    weights = np.convolve(finite, kernel, "same")
    sums = np.convolve(np.where(finite, values, 0), kernel, "same")
    known = finite | (weights > 0.2 * kernel.sum())
    return np.where(known, sums / np.where(known, weights, 1), np.nan)
