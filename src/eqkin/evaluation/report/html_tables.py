"""Tables of the page: figures with their intervals as numbers and as whiskers, the paper's rows told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqkin.evaluation.report.formatting import Cell, clean_text, format_cells, format_heading, get_bounds, get_origin
from eqkin.evaluation.results import Plot, Score, Table, TableColumn, TableRow
from eqkin.markup import SafeHtml, tag

_WIDE = 100.0  # units of a whisker's drawing
_SHORT = 12  # characters of a text that needs no room, such as a p-value
_MANY = 30  # rows that are folded


def table(content: Table, name: str) -> SafeHtml:
    """A table that can be scrolled sideways where it is too wide, with its title as caption."""
    rows = format_cells(content)
    scales = [_scale(column, [row[place] for row in rows]) for place, column in enumerate(content.columns)]
    head = tag("tr", tag("th", "", scope="col", class_="name"), [_heading(column) for column in content.columns])
    body = [_row(row, shown, scales) for row, shown in zip(content.rows, rows, strict=True)]
    caption = tag(
        "caption",
        tag("b", clean_text(content.title), id=f"{name}-title"),
        tag("span", clean_text(content.caption), class_="caption") if content.caption else None,
    )
    inside = tag("table", caption, tag("thead", head), tag("tbody", body), class_="sortable")
    shown = tag("div", inside, class_="scroll", id=name, role="region", aria_labelledby=f"{name}-title", tabindex="0")
    if len(rows) <= _MANY:
        return shown
    return tag("details", tag("summary", f"{clean_text(content.title)}: {len(rows):,} rows"), shown, class_="long")


def data(plot: Plot) -> SafeHtml:
    """The figures behind a plot, folded."""
    rows = [
        TableRow(f"{clean_text(curve.title)}: {x if isinstance(x, str) else f'{x:,.10g}'}",
            {"y": Score(y, *(ends[place] if place < len(ends) else None for ends in (curve.low, curve.high)))})
        for curve in plot.curves
        for place, (x, y) in enumerate(zip(curve.x, curve.y, strict=False))
    ]  # fmt: skip
    column = TableColumn("y", plot.y_title, "share" if _are_shares(rows) else "number", best="")
    shown = format_cells(Table("", "", [column], rows))
    body = [
        tag("tr", tag("th", clean_text(row.title), scope="row"), tag("td", str(line[0]), class_="number"))
        for row, line in zip(rows, shown, strict=True)
    ]
    head = tag("tr", tag("th", clean_text(plot.x_title), scope="col"), tag("th", clean_text(plot.y_title), scope="col"))
    inside = tag("table", tag("thead", head), tag("tbody", body))
    scroll = tag("div", inside, class_="scroll", role="region", aria_label="Figures of the plot", tabindex="0")
    return tag("details", tag("summary", "Its figures"), scroll, class_="data")


def _are_shares(rows: Sequence[TableRow]) -> bool:
    values = [cell.value for row in rows for cell in row.cells.values() if isinstance(cell, Score)]
    return all(not abs(value) > 1 for value in values)


def _heading(column: TableColumn) -> SafeHtml:
    kind = "words" if column.form == "text" else "number"
    return tag("th", clean_text(format_heading(column)), scope="col", class_=kind)


def _row(row: TableRow, shown: Sequence[Cell], scales: Sequence[_Scale]) -> SafeHtml:
    source = get_origin(row)
    name = tag(
        "th",
        clean_text(row.title),
        (" ", tag("span", source, class_="origin")) if source else None,
        tag("span", clean_text(row.note), class_="note") if row.note else None,
        scope="row",
        class_="name",
    )
    return tag("tr", name, map(_cell, shown, scales), class_="elsewhere" if source else None)


def _cell(cell: Cell, scale: _Scale) -> SafeHtml:
    if cell.score is None:
        kind = ("words short" if len(cell.text) <= _SHORT else "words") if scale.words else "number"
        return tag("td", cell.text, "" if scale.words else _room(scale), class_=kind)
    value = tag("b", cell.text, class_="best") if cell.best else tag("span", cell.text)
    interval = tag("span", " ", cell.interval, class_="interval") if cell.interval else _room(scale)
    whisker = _whisker(cell.score, scale) if scale.high > scale.low else None
    return tag("td", value, interval, whisker, class_="number", data_value=repr(float(cell.score.value)))


def _room(scale: _Scale) -> SafeHtml | None:
    """An unseen interval, so that figures without one stand below those that have one."""
    return tag("span", " ", scale.widest, class_="interval room", aria_hidden="true") if scale.widest else None


@dataclass(frozen=True)
class _Scale:
    """What a column's cells have in common."""

    words: bool
    widest: str  # of the intervals; empty: it has none
    low: float = 0.0  # where whiskers begin and end
    high: float = 0.0


def _scale(column: TableColumn, shown: Sequence[Cell]) -> _Scale:
    scores = [cell.score for cell in shown if cell.score]
    ends = [end for score in scores for end in get_bounds(score) or ()]
    widest = max((cell.interval for cell in shown), key=len, default="")
    if not ends or column.form == "text":
        return _Scale(column.form == "text", widest)
    ends += [score.value for score in scores]
    return _Scale(False, widest, min(ends), max(ends))


def _whisker(score: Score, scale: _Scale) -> SafeHtml:
    """The interval as a line and the figure as a dot; hollow, where it has none."""

    def place(value: float) -> str:
        return f"{3 + (value - scale.low) / (scale.high - scale.low) * (_WIDE - 6):.1f}"

    ends = get_bounds(score)
    line = tag("line", x1=place(ends[0]), x2=place(ends[1]), y1="4", y2="4") if ends else None
    dot = tag("circle", cx=place(score.value), cy="4", r="2.4", class_=None if ends else "hollow")
    return tag("svg", line, dot, class_="whisker", viewBox=f"0 0 {_WIDE:.0f} 8", aria_hidden="true")
