"""Figures of the experiments: scores with intervals over numbers or names, in the style of `eqkin.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.evaluation.tables import clean_text
from eqkin.plots import INK, SERIES, SOFT, apply_style, save_figure
from eqkin.statistics import Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "os^DvPX<>ph*d8"  # so that curves differ not only by colour
_MAX_LABEL = 48


@dataclass(frozen=True)
class Plot:
    """A figure of one measure: its scores over numbers or names for each series."""

    name: str  # for file names
    title: str
    y_title: str
    series: Mapping[str, Mapping[Any, Score]]
    x_title: str = ""
    log_x: bool = False


def draw_plot(plot: Plot) -> Figure:
    """Draw lines with bands if all x are numbers, otherwise horizontal bars; call it within `apply_style`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    labels = list(dict.fromkeys(x for scores in plot.series.values() for x in scores))
    is_bar = any(isinstance(x, str) for x in labels)
    thickness = 0.8 / len(plot.series)
    figure = Figure(figsize=(6.4, max(2.2, 1.0 + 0.45 * len(labels)) if is_bar else 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (scores, colour, marker) in enumerate(zip(plot.series.values(), cycle(SERIES), cycle(_MARKERS))):
        title = _clip(list(plot.series)[number])
        values = np.array([score.value for score in scores.values()])
        low = np.array([score.value if score.low is None else score.low for score in scores.values()])
        high = np.array([score.value if score.high is None else score.high for score in scores.values()])
        if is_bar:
            places = [labels.index(x) + (number - (len(plot.series) - 1) / 2) * thickness for x in scores]
            has_interval = any(score.low is not None for score in scores.values())
            spread = np.maximum([values - low, high - values], 0) if has_interval else None
            error = {"elinewidth": 1.0, "capsize": 2.0, "ecolor": INK}
            axes.barh(places, values, 0.92 * thickness, xerr=spread, error_kw=error, color=colour, label=title)
        else:
            x = [float(point) for point in scores]
            axes.plot(x, values, color=colour, marker=marker, markersize=4, linewidth=1.6, label=title)
            axes.fill_between(x, low, high, color=colour, alpha=0.16 if len(plot.series) <= 4 else 0.06, linewidth=0)
    if is_bar:
        axes.axvline(0, color=SOFT, linewidth=0.8)
        axes.set_yticks(range(len(labels)), [_clip(label) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)  # the first one on top
        axes.set_xlabel(plot.y_title)
    else:
        axes.set_xscale("log" if plot.log_x else "linear")
        if plot.log_x:  # mark the points themselves: 128, 256, 512 say more than powers of ten
            axes.xaxis.set_major_locator(FixedLocator(sorted(map(float, labels))))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            axes.tick_params(axis="x", labelsize=7)
        axes.set(xlabel=plot.x_title, ylabel=plot.y_title)
    axes.grid(visible=False, axis="y" if is_bar else "x")
    if len(plot.series) > 1:
        figure.legend(loc="outside upper left", ncols=2 if max(map(len, plot.series)) > 24 else 3)
    return figure


def save_plots(plots: Sequence[Plot], folder: Path) -> str:
    """Draw plots into `folder/figures` as PNG and SVG; return Markdown that shows them."""
    parts = []
    with apply_style():
        for plot in plots:
            save_figure(draw_plot(plot), folder / "figures", plot.name)
            parts.append(f"[![{plot.title}](figures/{plot.name}.png)](figures/{plot.name}.svg)\n\n**{plot.title}**\n")
    return "\n".join(parts)


def _clip(text: str) -> str:
    text = clean_text(text)
    return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1].rstrip() + "…"
