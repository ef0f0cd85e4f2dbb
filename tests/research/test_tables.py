"""Tables: figures as text and Markdown, also of hostile content."""

from __future__ import annotations

import math
import re

import pytest

from research.tables import (
    PAPER,
    Score,
    Table,
    TableColumn,
    TableRow,
    escape_markdown,
    format_cells,
    format_score,
    to_markdown,
)

EVIL = (
    "<script>alert(1)</script><img src=https://example.org/x.png onerror=alert(2)> & _x_ 100% \\evil{ $a^b$ #1 ~ | `c`"
)


@pytest.fixture
def hostile() -> Table:
    columns = [
        TableColumn("a", f"{EVIL} [A]"),
        TableColumn("b", "* plain\nnew line", "number", "low"),
        TableColumn("c", "words", "text"),
    ]
    rows = [
        TableRow("[5pt] " + EVIL, {"a": Score(math.nan), "b": Score(1234567.5), "c": EVIL}, note=EVIL),
        TableRow("* x", {"a": Score(-0.25, None, 0.5), "b": Score(0.00012, 0.0001, 0.0002)}, origin="made & <up>"),
        TableRow("\x00\x1b[31mred\u202e", {"b": Score(math.inf), "c": "[x](javascript:y)"}),
        TableRow("_", {}),
    ]
    return Table("evil", EVIL, columns, rows, EVIL)


@pytest.mark.parametrize(
    ("score", "form", "text"),
    [
        (Score(0.507, 0.488, 0.525), "share", ".507 [.488, .525]"),
        (Score(1.0, 0.9996, 1.0), "share", "1.000 [1.000, 1.000]"),
        (Score(-0.02, -0.05, 0.01), "share", "−.020 [−.050, .010]"),
        (Score(-0.0001), "share", ".000"),
        (Score(0.507, 0.488, 0.525), "percent", "50.7 [48.8, 52.5]"),
        (Score(1300), "number", "1,300"),
        (Score(232985.4), "number", "232,985"),
        (Score(165.04, 120.5, 201), "number", "165.0 [120.5, 201.0]"),
        (Score(0.00012), "number", "0.00012"),
        (Score(0), "number", "0"),
        (Score(0.5, None, 0.6), "share", ".500"),
        (Score(0.5, math.nan, 0.6), "share", ".500"),
        (Score(math.nan, 0.1, 0.2), "share", "–"),
        (Score(-math.inf), "number", "–"),
    ],
)
def test_format_score_rounds_figure_and_interval(score, form, text):
    assert format_score(score, form) == text


def test_format_cells_marks_best_measured_values_only():
    columns = [
        TableColumn("a", "a"),
        TableColumn("b", "b", "number", "low"),
        TableColumn("c", "c", best=""),
        TableColumn("d", "d"),
    ]
    rows = [
        TableRow("one", {"a": Score(0.5071), "b": Score(2.0), "c": Score(1.0), "d": Score(0.1)}),
        TableRow("two", {"a": Score(0.5069), "b": Score(1.5), "c": Score(2.0), "d": Score(math.nan)}),
        TableRow("three", {"a": Score(0.4), "b": Score(9.0)}),
        TableRow("paper", {"a": Score(0.9), "b": Score(0.1), "d": Score(0.9)}, PAPER),
    ]
    best = [[cell.best for cell in row] for row in format_cells(Table("t", "t", columns, rows))]
    assert best == [[True, False, False, False], [True, True, False, False], [False] * 4, [False] * 4]


def test_format_cells_gives_numbers_of_a_column_equal_decimals():
    rows = [TableRow("", {"a": Score(value)}) for value in (106.17, 165.0, 0.034)]
    shown = format_cells(Table("t", "t", [TableColumn("a", "a", "number")], rows))
    assert [row[0].text for row in shown] == ["106.2", "165.0", "0.034"]


def test_format_cells_gives_figure_the_decimals_of_its_interval():
    scores = [Score(-29.7), Score(-0.072, -0.38, 0.26), Score(0.002, 0.001, 0.004), Score(-29.7)]
    rows = [TableRow("", {"a": score}) for score in scores]
    shown = format_cells(Table("t", "t", [TableColumn("a", "a", "number")], rows))
    assert [str(row[0]) for row in shown] == ["−29.70", "−0.07 [−0.38, 0.26]", "0.0020 [0.0010, 0.0040]", "−29.70"]
    assert [row[0].best for row in shown] == [False, False, True, False]


def test_markdown_shows_figures_intervals_and_origins():
    rows = [
        TableRow("eqkin", {"r1": Score(0.561, 0.551, 0.571)}, note="batch 8"),
        TableRow("other", {"r1": Score(0.4)}),
        TableRow("Graph-CNN", {"r1": Score(0.507)}, PAPER),
    ]
    assert to_markdown(Table("t", "Recall", [TableColumn("r1", "R@1")], rows, "Of 10 pairs.")).splitlines() == [
        "**Recall.** Of 10 pairs.",
        "",
        "|  | R@1 |",
        "|---|---:|",
        "| eqkin (batch 8) | **.561** [.551, .571] |",
        "| other | .400 |",
        "| *Graph-CNN* (paper) | .507 |",
    ]


def test_markdown_of_hostile_table_has_no_markup_and_equal_cells(hostile):
    text = to_markdown(hostile)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 6
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not re.search(r"<script|<img|(?<!\\)\]\(javascript|https://", text)


def test_markdown_folds_long_tables():
    rows = [TableRow(str(number), {}) for number in range(31)]
    assert "Many: 31 rows</summary>" in to_markdown(Table("t", "Many", [], rows))
    assert "<details>" not in to_markdown(Table("t", "Few", [], rows[:30]))


def test_escape_markdown_keeps_what_is_shown():
    assert escape_markdown("# a_b | <c> & $d$") == r"\# a\_b \| &lt;c&gt; &amp; \$d\$"
    assert escape_markdown("1. x") == r"1\. x"
