"""Plots of the report, all in one style: lines with interval bands, bars with error bars; as SVG and PNG."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from itertools import cycle
from typing import TYPE_CHECKING, Any

from eqkin.errors import BadInput
from eqkin.evaluation.report.formatting import clean_text, is_number
from eqkin.evaluation.results import Curve, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID, PAPER = "#22262b", "#5f6670", "#dddad2", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#008a65", "#aa4499", "#b07a00", "#3f8fc4", "#6b6b6b")  # after Okabe and Ito
# So that colour is not all that tells curves apart; when the colours begin anew, lines are broken and bars lighter.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
_DASHES = ("-", "--", ":")
_LIGHTER = (1.0, 0.5, 0.25)
_CROWD = 4  # curves whose bands can still be told apart
_SHORT, _FEW = 6, 24  # characters of labels, and bars, that still fit upright
_LONG = 48  # characters of a label
_STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": "DejaVu Sans",  # it comes with matplotlib: the same figure everywhere
    "font.size": 9.0,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "eqkin",  # the same plot gives the same bytes
    "text.color": INK,
    "text.parse_math": False,  # a dollar is a dollar
    "xtick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
}


def to_svg(plot: Plot, *, text: bool = False) -> bytes:
    """The plot as an SVG file on white; with `text`, letters are text in the reader's font and there is no ground."""
    return _render(plot, "svg", text)


def to_png(plot: Plot) -> bytes:
    """The plot as a PNG file on white."""
    return _render(plot, "png", False)


def _render(plot: Plot, form: str, text: bool) -> bytes:
    picture = BytesIO()
    with apply_style({"svg.fonttype": "none" if text else "path"}):
        metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        draw(plot).savefig(picture, format=form, dpi=150, transparent=text, metadata=metadata)
    return picture.getvalue()


@contextmanager
def apply_style(more: dict[Any, Any] | None = None) -> Iterator[None]:
    """The style of all plots, with some settings more; raises `BadInput` where there is no matplotlib."""
    try:
        import matplotlib
    except ImportError as error:
        raise BadInput("plots need matplotlib: pip install 'eqkin[eval]'") from error
    with matplotlib.rc_context(_STYLE | (more or {})), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a reader's font may have it
        yield


def draw(plot: Plot) -> Figure:
    """The figure; styles are those in force."""
    from matplotlib.figure import Figure

    curves = [
        shown for curve in plot.curves if (shown := _drop_missing(curve, log_x=plot.log_x and plot.kind != "bar")).y
    ]
    labels = (
        _list_categories(curves) if plot.kind == "bar" or any(isinstance(x, str) for c in curves for x in c.x) else []
    )
    lying = plot.kind == "bar" and not _fit_upright(labels, len(curves))
    height = max(2.2, 1.0 + len(labels) * (0.12 + 0.17 * len(curves))) if lying else 3.4
    figure = Figure(figsize=(6.4, min(height, 40.0)), layout="constrained")
    axes = figure.subplots()
    if not curves:
        axes.text(0.5, 0.5, "no figures", ha="center", va="center", transform=axes.transAxes)
    elif plot.kind == "bar":
        _add_legend(figure, curves, _draw_bars(axes, curves, labels, lying))
    else:
        _add_legend(figure, curves, _draw_lines(axes, curves, labels, plot.log_x))
    across, up = (plot.y_title, plot.x_title) if lying else (plot.x_title, plot.y_title)
    axes.set_xlabel(_clip(across, 90))
    axes.set_ylabel(_clip(up))
    axes.grid(visible=False, axis="y" if lying else "x")
    return figure


def _draw_lines(axes: Axes, curves: Sequence[Curve], labels: Sequence[str], log_x: bool) -> list[Any]:
    handles: list[Any] = []
    band = 0.16 if len(curves) <= _CROWD else 0.06
    for number, (curve, colour, marker) in enumerate(zip(curves, cycle(SERIES), cycle(_MARKERS))):
        dashes = _DASHES[min(number // len(SERIES), len(_DASHES) - 1)]
        x = [labels.index(_format_label(x)) for x in curve.x] if labels else [float(x) for x in curve.x]
        handles += axes.plot(x, curve.y, dashes, color=colour, marker=marker, markersize=4, linewidth=1.6)
        if curve.low and len(x) > 1:
            axes.fill_between(x, curve.low, curve.high, color=colour, alpha=band, linewidth=0)
        elif curve.low:
            axes.vlines(x, curve.low, curve.high, color=colour, alpha=0.5, linewidth=3)
    if labels:
        axes.set_xticks(range(len(labels)), labels, **_choose_rotation(labels))
    elif log_x:
        axes.set_xscale("log")
        _set_ticks(axes, sorted({float(x) for curve in curves for x in curve.x}))
    _set_number_format(axes, "y")
    return handles


def _set_ticks(axes: Axes, places: Sequence[float]) -> None:
    """Few points name themselves: 128, 256, 512 say more than powers of ten."""
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    if len(places) <= 10:
        axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))


def _draw_bars(axes: Axes, curves: Sequence[Curve], labels: Sequence[str], lying: bool) -> list[Any]:
    handles: list[Any] = []
    thick = 0.8 / len(curves)
    for number, (curve, colour) in enumerate(zip(curves, cycle(SERIES), strict=False)):
        shift = (number - (len(curves) - 1) / 2) * thick
        places = [labels.index(_format_label(x)) + shift for x in curve.x]
        spread = None
        if curve.low:
            spread = [[max(y - low, 0) for y, low in zip(curve.y, curve.low, strict=True)],
                      [max(high - y, 0) for y, high in zip(curve.y, curve.high, strict=True)]]  # fmt: skip
        look: dict[str, Any] = {"color": colour, "alpha": _LIGHTER[min(number // len(SERIES), len(_LIGHTER) - 1)]}
        error = {"elinewidth": 1.0, "capsize": 2.0, "ecolor": INK}
        if lying:
            handles.append(axes.barh(places, curve.y, thick * 0.92, xerr=spread, error_kw=error, **look))
        else:
            handles.append(axes.bar(places, curve.y, thick * 0.92, yerr=spread, error_kw=error, **look))
    if any(value < 0 for curve in curves for value in curve.y + curve.low):
        (axes.axvline if lying else axes.axhline)(0, color=SOFT, linewidth=0.8)
    if lying:
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)  # the first one on top
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_xticks(range(len(labels)), labels)
        axes.tick_params(axis="x", length=0)
    _set_number_format(axes, "x" if lying else "y")
    return handles


def _set_number_format(axes: Axes, which: str) -> None:
    from matplotlib.ticker import MaxNLocator, ScalarFormatter, StrMethodFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(6))
    large = max(map(abs, axis.get_view_interval())) >= 1_000
    as_they_are = ScalarFormatter(useOffset=False)
    as_they_are.set_scientific(False)
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}") if large else as_they_are)


def _add_legend(figure: Figure, curves: Sequence[Curve], handles: Sequence[Any]) -> None:
    """Above the plot, one entry a curve; a single curve needs none."""
    if len(curves) < 2:
        return
    numbers = [str(number) for number in range(len(curves))]
    legend = figure.legend(handles, numbers, loc="outside upper left", ncols=min(3, len(curves)))
    for entry, curve in zip(legend.get_texts(), curves, strict=True):
        entry.set_text(_clip(curve.title))  # afterwards: labels that begin with _ are no labels to matplotlib


def _drop_missing(curve: Curve, *, log_x: bool) -> Curve:
    """What of a curve can be drawn; its intervals only if all of it has one."""
    kept = [
        place
        for place, (x, y) in enumerate(zip(curve.x, curve.y, strict=False))
        if is_number(y) and (isinstance(x, str) or (is_number(x) and not (log_x and x <= 0)))
    ]
    low, high = ([ends[place] for place in kept if place < len(ends)] for ends in (curve.low, curve.high))
    whole = len(low) == len(high) == len(kept) and all(map(is_number, low + high))
    return Curve(
        curve.title,
        [curve.x[place] for place in kept],
        [curve.y[place] for place in kept],
        low if whole else [],
        high if whole else [],
    )


def _list_categories(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(_format_label(x) for curve in curves for x in curve.x))


def _format_label(x: float | str) -> str:
    return _clip(x) if isinstance(x, str) else f"{x:,.10g}"


def _clip(text: str, most: int = _LONG) -> str:
    text = clean_text(text)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _fit_upright(labels: Sequence[str], curves: int) -> bool:
    return all(len(label) <= _SHORT for label in labels) and len(labels) * curves <= _FEW


def _choose_rotation(labels: Sequence[str]) -> dict[str, Any]:
    long = sum(map(len, labels)) > 70
    return {"rotation": 30, "ha": "right"} if long else {}
