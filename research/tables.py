"""Tables of scores: rounded, with intervals, the best value marked; as Markdown and JSON.

`Table` holds figures and `format_cells` is the only place where a `Score` becomes text. JSON is `dataclasses.asdict`
of the records.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eqkin.evaluation.measures import Score

# Origins of a row's figures: measured here, the paper's own, those of others.
MEASURED = "measured"
PAPER = "paper"
PUBLISHED = "published"
# Shown for a figure that is missing or not finite.
MISSING = "–"
# Decimals of numbers, by the largest of their column.
_DECIMALS = ((1_000, 0), (100, 1), (1, 2))
# Small numbers keep at least so many digits.
_SIGNIFICANT_DIGITS = 2
# Longer tables are folded in Markdown.
_MAX_UNFOLDED_ROWS = 30
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]|[\u202a-\u202e\u2066-\u2069]")
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&]|^#|(?<!\w)@)|^([-+=]|\d+[.)])(?=\s)|(?<=\w)://")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    key: str
    title: str
    # "share": .507; "percent": 50.7 (the value is 0..1); "number": 1,300; "text".
    form: str = "share"
    # Which value is best: "high", "low" or "" for neither.
    best: str = "high"


@dataclass(frozen=True)
class TableRow:
    """The figures of one system."""

    title: str
    # By the key of the column; columns may be missing.
    cells: dict[str, Score | str]
    origin: str = MEASURED
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table of an evaluation."""

    # For file names: letters, digits and hyphens.
    name: str
    title: str
    columns: list[TableColumn]
    rows: list[TableRow]
    caption: str = ""
    # Shows the data itself, which may not be free to publish: not for Markdown.
    quotes: bool = False


@dataclass(frozen=True)
class ExperimentResult:
    """The tables of one evaluation, with its data and settings."""

    # Its name: letters, digits and hyphens.
    experiment: str
    title: str
    tables: list[Table] = field(default_factory=list)
    # Warnings about the figures.
    notes: list[str] = field(default_factory=list)
    # Data and settings: digests, sizes, seeds.
    facts: dict[str, str] = field(default_factory=dict)

    def mark_small_run(self) -> ExperimentResult:
        """Return the result with a title and a note that say that its figures mean nothing."""
        note = "A small run: systems were hardly trained, its figures mean nothing."
        return replace(self, title=f"{self.title} (small run)", notes=[note, *self.notes])


@dataclass(frozen=True)
class Cell:
    """A figure or a text as it is shown."""

    text: str
    # As in "[.488, .525]"; empty if there is none.
    interval: str = ""
    # Among the measured figures of its column.
    best: bool = False

    def __str__(self) -> str:
        return f"{self.text} {self.interval}".strip()


def format_cells(table: Table) -> list[list[Cell]]:
    """Format the figures of a table, row by row."""
    columns = [_format_column(column, table.rows) for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in table.rows]


def format_score(score: Score, form: str) -> str:
    """Format a single figure with its interval: `.507 [.488, .525]`, `50.7 [48.8, 52.5]`, `1,300`."""
    return str(_format_cell(score, TableColumn("", "", form), _choose_decimals([score]), None))


def format_heading(column: TableColumn) -> str:
    """Return a column's title with its unit."""
    return column.title + (" (%)" if column.form == "percent" and "%" not in column.title else "")


def clean_text(text: str) -> str:
    """Put a text on one line and drop control and direction characters: text of papers must not steer a terminal."""
    return " ".join(_UNPRINTABLE.sub("", text).split())


def to_markdown(table: Table) -> str:
    """Convert a table to Markdown, with its title and caption; long tables are folded."""
    headings = [escape_markdown(format_heading(column)) for column in table.columns]
    marks = ["---", *("---" if column.form == "text" else "---:" for column in table.columns)]
    lines = [f"| {' | '.join(['', *headings])} |", f"|{'|'.join(marks)}|"]
    for row, cells in zip(table.rows, format_cells(table), strict=True):
        name = escape_markdown(row.title)
        if row.origin != MEASURED:
            name = f"*{name}* ({escape_markdown(row.origin)})"
        if row.note:
            name += f" ({escape_markdown(row.note)})"
        texts = [f"**{escape_markdown(cell.text)}**" if cell.best else escape_markdown(cell.text) for cell in cells]
        shown = [f"{text} {cell.interval}".rstrip() for text, cell in zip(texts, cells, strict=True)]
        lines.append(f"| {' | '.join([name, *shown])} |")
    caption = f" {escape_markdown(table.caption)}" if table.caption else ""
    text = f"**{escape_markdown(table.title)}.**{caption}\n\n" + "\n".join(lines) + "\n"
    if len(table.rows) <= _MAX_UNFOLDED_ROWS:
        return text
    summary = f"{html.escape(clean_text(table.title))}: {len(table.rows):,} rows"
    return f"<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it as it is, also inside a table."""

    def escape(found: re.Match[str]) -> str:
        if found[0] == "://":
            # Otherwise it would become a link.
            return ":&#47;/"
        if found[0] in "<>&":
            return html.escape(found[0])
        return f"\\{found[0]}" if found[1] else f"{found[0][:-1]}\\{found[0][-1]}"

    return _MARKDOWN_SPECIAL.sub(escape, clean_text(text))


def _format_column(column: TableColumn, rows: Sequence[TableRow]) -> list[Cell]:
    values = [row.cells.get(column.key) for row in rows]
    decimals = _choose_decimals([value for value in values if isinstance(value, Score)])
    measured = [
        value
        for row, value in zip(rows, values, strict=True)
        if row.origin == MEASURED and isinstance(value, Score) and math.isfinite(value.value)
    ]
    # The best value as text: figures that look equal are marked alike.
    best = None
    if len(measured) > 1 and column.best in ("high", "low") and column.form != "text":
        choose = max if column.best == "high" else min
        best = _format_cell(choose(measured, key=lambda score: score.value), column, decimals, None).text
    return [
        _format_cell(value, column, decimals, best if row.origin == MEASURED else None)
        for row, value in zip(rows, values, strict=True)
    ]


def _format_cell(value: Score | str | None, column: TableColumn, decimals: int, best: str | None) -> Cell:
    if isinstance(value, str):
        return Cell(clean_text(value))
    if value is None or not math.isfinite(value.value):
        return Cell(MISSING)
    bounds = _get_bounds(value)
    # A figure and its interval have the same number of decimals.
    decimals = max(decimals, _count_digits(value.value, *bounds))
    text = _format_number(value.value, column.form, decimals)
    interval = f"[{', '.join(_format_number(bound, column.form, decimals) for bound in bounds)}]" if bounds else ""
    return Cell(text, interval, text == best)


def _get_bounds(score: Score) -> tuple[float, ...]:
    """Return the ends of a score's interval; empty if it does not have both."""
    if score.low is None or score.high is None or not (math.isfinite(score.low) and math.isfinite(score.high)):
        return ()
    return score.low, score.high


def _choose_decimals(scores: Sequence[Score]) -> int:
    """Choose the decimals of a column: none if all its numbers are whole, otherwise fewer the larger they are."""
    finite = [score for score in scores if math.isfinite(score.value)]
    values = [abs(score.value) for score in finite]
    bounds = [abs(bound) for score in finite for bound in _get_bounds(score)]
    if not values or all(value == int(value) for value in values + bounds):
        return 0
    return next((decimals for least, decimals in _DECIMALS if max(values) >= least), 3)


def _count_digits(*values: float) -> int:
    """Count the decimals that the largest of some numbers needs to keep its significant digits."""
    if all(value == int(value) for value in values):
        return 0
    return min(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(max(map(abs, values)))), 9)


def _format_number(value: float, form: str, decimals: int) -> str:
    if form == "share":
        text = f"{abs(value):.3f}".removeprefix("0") if abs(value) < 1 else f"{abs(value):.3f}"
    elif form == "percent":
        text = f"{100 * abs(value):.1f}"
    else:
        text = f"{abs(value):,.{decimals}f}"
    return f"−{text}" if value < 0 and any(digit in text for digit in "123456789") else text
