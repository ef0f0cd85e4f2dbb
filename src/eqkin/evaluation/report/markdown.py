"""The report as Markdown, for docs/RESULTS.md: short, with the same tables and with plots as files."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence

from eqkin.evaluation.report.formatting import Cell, clean_text, format_cells, format_heading, get_origin
from eqkin.evaluation.report.verdict import verdict
from eqkin.evaluation.results import ExperimentResult, Table, TableRow, WorkedExample

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&]|^#|(?<!\w)@)|^([-+=]|\d+[.)])(?=\s)|(?<=\w)://")
_MAX_UNFOLDED_ROWS = 30  # rows that are folded
_INTRODUCTION = """\
# Results

Written by `eqkin report` from the saved results of `eqkin evaluate`; do not edit. "The paper" is Pfahler and Morik,
*Semantic Search in Millions of Equations*, KDD 2020. Brackets hold 95 % intervals, the best measured value of a column
is bold. Rows in italics, marked "paper" or "published", are other people's figures, on their own data and without an
interval.
"""


def write_markdown(
    results: Sequence[ExperimentResult], missing: Mapping[str, str], pictures: Mapping[tuple[int, int], str]
) -> str:
    """The whole page; `pictures` are the addresses of the plots without their ending, by result and plot."""
    parts = [_INTRODUCTION, _summary(results)]
    if missing:
        parts.append("Not run yet: " + ", ".join(f"{name} (`{command}`)" for name, command in missing.items()) + ".\n")
    for number, result in enumerate(results):
        parts += _format_section(result, {plot: name for (owner, plot), name in pictures.items() if owner == number})
    return "\n".join(parts)


def escape(words: str) -> str:
    """A text that Markdown shows as it is, also inside a table."""
    return _SPECIAL.sub(_escape_match, clean_text(words))


def _escape_match(found: re.Match[str]) -> str:
    if found[0] == "://":
        return ":&#47;/"  # or it would become a link
    if found[0] in "<>&":
        return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}[found[0]]
    return f"\\{found[0]}" if found[1] else f"{found[0][:-1]}\\{found[0][-1]}"


def format_code(words: str) -> str:
    """A text in a code span, with a fence longer than any in it."""
    words = clean_text(words)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", words)), default=0))
    pad = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{fence}{pad}{words}{pad}{fence}" if words else ""


def _summary(results: Sequence[ExperimentResult]) -> str:
    lines = ["| | the paper | here |", "|---|---|---|"]
    for result in results:
        found = verdict(result)
        answer = f"**{found.words}**: " if found.words else ""
        lines.append(f"| {escape(result.title)} | {escape(result.claim)} | {answer}{escape(found.finding)} |")
    return "\n".join(lines) + "\n"


def _format_section(result: ExperimentResult, pictures: Mapping[int, str]) -> list[str]:
    parts = [f"## {escape(result.title)}\n"]
    parts += ["\n".join(f"- {escape(finding)}" for finding in result.findings) + "\n"] if result.findings else []
    parts += [_format_table(table) for table in result.tables if not table.quotes]
    for number, plot in enumerate(result.plots):
        title, address = escape(plot.title), pictures[number]
        caption = f"\n\n{escape(plot.caption)}" if plot.caption else ""
        parts.append(f"[![{title}]({address}.png)]({address}.svg)\n\n**{title}**{caption}\n")
    parts += [_format_example(example) for example in result.examples]
    if result.differences:
        listed = "\n".join(f"- {escape(difference)}" for difference in result.differences)
        parts.append(f"What differs from the paper, and why:\n\n{listed}\n")
    if result.facts:
        told = "; ".join(f"{escape(name)}: {format_code(fact)}" for name, fact in result.facts.items())
        parts.append(f"Data and settings: {told}.\n")
    return parts


def _format_table(table: Table) -> str:
    titles = [escape(format_heading(column)) for column in table.columns]
    marks = ["---", *("---" if column.form == "text" else "---:" for column in table.columns)]
    lines = [f"| {' | '.join(['', *titles])} |", f"|{'|'.join(marks)}|"]
    lines += [
        f"| {' | '.join([_format_name(row), *map(_format_cell, shown)])} |"
        for row, shown in zip(table.rows, format_cells(table), strict=True)
    ]
    caption = f" {escape(table.caption)}" if table.caption else ""
    whole = f"**{escape(table.title)}.**{caption}\n\n" + "\n".join(lines) + "\n"
    if len(table.rows) <= _MAX_UNFOLDED_ROWS:
        return whole
    summary = f"{html.escape(clean_text(table.title))}: {len(table.rows):,} rows"
    return f"<details><summary>{summary}</summary>\n\n{whole}\n</details>\n"


def _format_name(row: TableRow) -> str:
    source = get_origin(row)
    note = f" ({escape(row.note)})" if row.note else ""
    return f"*{escape(row.title)}* ({escape(source)}){note}" if source else f"{escape(row.title)}{note}"


def _format_cell(cell: Cell) -> str:
    words = f"**{escape(cell.text)}**" if cell.best else escape(cell.text)
    return f"{words} {cell.interval}" if cell.interval else words


def _format_example(example: WorkedExample) -> str:
    caption = f" {escape(example.caption)}" if example.caption else ""
    lines = [f"**{escape(example.title)}.**{caption}", "", f"- query: {format_code(example.latex)}"]
    for hit in example.hits:
        told = "; ".join(escape(part) for part in (hit.where, hit.note) if part)
        lines.append(f"- rank {hit.rank}: {format_code(hit.latex)}" + (f", {told}" if told else ""))
    return "\n".join(lines) + "\n"
