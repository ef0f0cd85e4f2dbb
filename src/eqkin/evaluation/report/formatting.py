"""How figures become text: the one place where a `Score` is rounded, marked as best and given its interval."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eqkin.evaluation.results import MEASURED, Score, Table, TableColumn, TableRow

MISSING = "–"  # in place of a figure that is missing or no number
_DECIMALS = ((1_000, 0), (100, 1), (1, 2))  # of numbers, by the largest of their column
_SIGNIFICANT_DIGITS = 2  # digits that small numbers keep at least
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]|[\u202a-\u202e\u2066-\u2069]")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class Cell:
    """A figure or a text as it is shown."""

    text: str
    interval: str = ""  # "[.488, .525]"; empty: there is none
    best: bool = False  # of the measured ones in its column
    score: Score | None = None  # None: a text, or no number

    def __str__(self) -> str:
        return f"{self.text} {self.interval}".strip()


def clean_text(text: str) -> str:
    """A text on one line, without characters that only a terminal or nobody understands."""
    return _BLANKS.sub(" ", _UNPRINTABLE.sub("", text)).strip()


def make_slug(text: str) -> str:
    """For names of files and anchors: lower case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:80].strip("-") or "x"


def make_slugs(texts: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """A name for each, no two alike."""
    names: list[str] = []
    for text in texts:
        name, number = make_slug(text), 2
        while name in names or name in taken:
            name, number = f"{make_slug(text)}-{number}", number + 1
        names.append(name)
    return names


def format_cells(table: Table) -> list[list[Cell]]:
    """The table's figures as they are shown, row by row."""
    columns = [_format_column(column, table.rows) for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in table.rows]


def get_origin(row: TableRow) -> str:
    """Where a row's figures come from, if not from here: "paper", "published"."""
    return "" if row.origin == MEASURED else clean_text(row.origin)


def format_heading(column: TableColumn) -> str:
    """A column's title with its unit."""
    return column.title + (" (%)" if column.form == "percent" and "%" not in column.title else "")


def format_score(score: Score, form: str) -> str:
    """A single figure with its interval: `.507 [.488, .525]`, `50.7 [48.8, 52.5]`, `1,300`."""
    return str(_format_cell(score, TableColumn("", "", form), _choose_decimals([score]), None))


def is_number(value: float | None) -> bool:
    """Whether there is a value that can be shown."""
    return value is not None and math.isfinite(value)


def get_bounds(score: Score) -> tuple[float, float] | None:
    """The ends of a score's interval, if it has both."""
    if score.low is None or score.high is None or not (math.isfinite(score.low) and math.isfinite(score.high)):
        return None
    return score.low, score.high


def _format_column(column: TableColumn, rows: Sequence[TableRow]) -> list[Cell]:
    values = [row.cells.get(column.key) for row in rows]
    scores = [value for value in values if isinstance(value, Score) and is_number(value.value)]
    decimals = _choose_decimals(scores)
    best = _find_best(column, rows, decimals)
    return [_format_cell(value, column, decimals, best if row.origin == MEASURED else None)
            for row, value in zip(rows, values, strict=True)]  # fmt: skip


def _format_cell(value: Score | str | None, column: TableColumn, decimals: int, best: str | None) -> Cell:
    if isinstance(value, str):
        return Cell(clean_text(value))
    if value is None or not is_number(value.value):
        return Cell(MISSING)
    ends = get_bounds(value)
    decimals = max(decimals, _count_digits(value.value, *ends or ()))  # the same for a figure and its interval
    text = _format_number(value.value, column.form, decimals)
    interval = f"[{', '.join(_format_number(end, column.form, decimals) for end in ends)}]" if ends else ""
    return Cell(text, interval, text == best, value)


def _find_best(column: TableColumn, rows: Sequence[TableRow], decimals: int) -> str | None:
    """The best measured figure of a column as it is printed, so that equal ones are marked alike; None: no contest."""
    found = [row.cells.get(column.key) for row in rows if row.origin == MEASURED]
    scores = [score for score in found if isinstance(score, Score) and is_number(score.value)]
    if len(scores) < 2 or column.best not in ("high", "low") or column.form == "text":
        return None
    order = max if column.best == "high" else min
    return _format_cell(order(scores, key=lambda score: score.value), column, decimals, None).text


def _choose_decimals(scores: Sequence[Score]) -> int:
    """Of the numbers in a column: none if all are whole, else fewer the larger they are."""
    values = [abs(score.value) for score in scores if is_number(score.value)]
    ends = [abs(end) for score in scores for end in get_bounds(score) or ()]
    if not values or all(value == int(value) for value in values + ends):
        return 0
    return next((decimals for least, decimals in _DECIMALS if max(values) >= least), 3)


def _count_digits(*values: float) -> int:
    """Decimals that the largest of some numbers needs, to keep its significant digits."""
    largest = max(map(abs, values))
    if all(value == int(value) for value in values):
        return 0
    return min(_SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest)), 9)


def _format_number(value: float, form: str, decimals: int) -> str:
    if form == "share":
        text = f"{abs(value):.3f}".removeprefix("0") if abs(value) < 1 else f"{abs(value):.3f}"
    elif form == "percent":
        text = f"{100 * abs(value):.1f}"
    else:
        text = f"{abs(value):,.{decimals}f}"
    return f"−{text}" if value < 0 and any(digit in text for digit in "123456789") else text
