"""Figures of the experiments: lines with interval bands and bars with error bars, in the style of `eqkin.plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqkin.evaluation.tables import clean_text
from eqkin.plots import INK, SERIES, SOFT, apply_style, save_figure
from eqkin.statistics import Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Markers and line styles, so that curves differ not only by colour.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
_LINE_STYLES = ("-", "--", ":")
_MAX_LABEL = 48


@dataclass(frozen=True)
class Plot:
    """A figure of one measure: its scores over numbers (lines) or names (bars) for each series."""

    name: str  # for file names
    title: str
    y_title: str
    series: Mapping[str, Mapping[Any, Score]]
    x_title: str = ""
    log_x: bool = False


def draw_plot(plot: Plot) -> Figure:
    """Draw lines if all x are numbers, otherwise horizontal bars; call it within `apply_style`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    points = [x for scores in plot.series.values() for x in scores]
    is_bar = any(isinstance(x, str) for x in points)
    labels = list(dict.fromkeys(points))
    height = max(2.2, 1.0 + len(labels) * (0.12 + 0.17 * len(plot.series))) if is_bar else 3.4
    figure = Figure(figsize=(6.4, min(height, 40.0)), layout="constrained")
    axes = figure.subplots()
    handles: list[Any] = []
    for number, (scores, colour, marker) in enumerate(zip(plot.series.values(), cycle(SERIES), cycle(_MARKERS))):
        values = [score.value for score in scores.values()]
        low = [score.value if score.low is None else score.low for score in scores.values()]
        high = [score.value if score.high is None else score.high for score in scores.values()]
        if is_bar:
            thickness = 0.8 / len(plot.series)
            shift = (number - (len(plot.series) - 1) / 2) * thickness
            spread = [
                [max(value - end, 0) for value, end in zip(values, low, strict=True)],
                [max(end - value, 0) for value, end in zip(values, high, strict=True)],
            ]
            places = [labels.index(x) + shift for x in scores]
            error = {"elinewidth": 1.0, "capsize": 2.0, "ecolor": INK}
            has_interval = any(score.low is not None for score in scores.values())
            bars = axes.barh(
                places, values, thickness * 0.92, xerr=spread if has_interval else None, error_kw=error, color=colour
            )
            handles.append(bars)
        else:
            style = _LINE_STYLES[min(number // len(SERIES), len(_LINE_STYLES) - 1)]
            x = [float(point) for point in scores]
            handles += axes.plot(x, values, style, color=colour, marker=marker, markersize=4, linewidth=1.6)
            axes.fill_between(x, low, high, color=colour, alpha=0.16 if len(plot.series) <= 4 else 0.06, linewidth=0)
    if is_bar:
        axes.axvline(0, color=SOFT, linewidth=0.8)
        axes.set_yticks(range(len(labels)), [_clip(str(label)) for label in labels])
        axes.set_ylim(len(labels) - 0.4, -0.6)  # the first one on top
        axes.set_xlabel(_clip(plot.y_title))
    else:
        axes.set_xscale("log" if plot.log_x else "linear")
        if plot.log_x:  # mark the points themselves: 128, 256, 512 say more than powers of ten
            axes.xaxis.set_major_locator(FixedLocator(sorted({float(point) for point in points})))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            axes.tick_params(axis="x", labelsize=7)
        axes.set_xlabel(_clip(plot.x_title))
        axes.set_ylabel(_clip(plot.y_title))
    axes.grid(visible=False, axis="y" if is_bar else "x")
    if len(plot.series) > 1:
        titles = [_clip(title) for title in plot.series]
        columns = 2 if max(map(len, titles)) > 24 else 3
        figure.legend(handles, titles, loc="outside upper left", ncols=min(columns, len(handles)))
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
