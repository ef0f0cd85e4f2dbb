"""Tables as LaTeX, to be put into a paper: each a booktabs `tabular` in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eqkin.evaluation.report.formatting import Cell, clean_text, format_cells, format_heading, get_origin
from eqkin.evaluation.results import Table, TableColumn, TableRow

_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the start of a row it would be the length that \\ and \midrule may take
    "]": "{]}",
    "*": "{*}",  # the same
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "µ": r"$\mu$",
    "\xa0": "~",
}
_LATIN = "\u017f"  # pdflatex knows the letters up to here
_SPECIAL = re.compile("[" + re.escape("".join(_CHARACTERS)) + "]|-(?=-)")


def write_latex(table: Table) -> str:
    """The table; rows from elsewhere are in italics."""
    shape = "l" + "".join("l" if column.form == "text" else "r" for column in table.columns)
    lines = [
        f"% {clean_text(table.title)}",
        *([f"% {clean_text(table.caption)}"] if table.caption else []),
        r"% Needs \usepackage{booktabs}.",
        *_warn_of_characters(table),
        f"\\begin{{tabular}}{{@{{}}{shape}@{{}}}}",
        r"\toprule",
        " & ".join(["", *(_format_heading(column) for column in table.columns)]).strip() + r" \\",
        r"\midrule",
        *_format_rows(table),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """A text that LaTeX prints as it is."""
    return _SPECIAL.sub(lambda found: _CHARACTERS.get(found[0], "-{}"), clean_text(text))


def _warn_of_characters(table: Table) -> list[str]:
    """A word of warning where pdflatex would stop at a character."""
    texts = [column.title for column in table.columns] + [row.title for row in table.rows]
    texts += [cell.text for line in format_cells(table) for cell in line]
    letters = {letter for text in texts for letter in clean_text(text)}
    found = sorted(letter for letter in letters if letter > _LATIN and letter not in _CHARACTERS)
    return [f"% Needs lualatex or xelatex, with a font that has these: {' '.join(found)}"] if found else []


def _format_heading(column: TableColumn) -> str:
    return escape(format_heading(column))


def _format_rows(table: Table) -> Sequence[str]:
    """A rule stands where rows from here and rows from elsewhere meet."""
    lines: list[str] = []
    for place, (row, shown) in enumerate(zip(table.rows, format_cells(table), strict=True)):
        if place and bool(get_origin(row)) != bool(get_origin(table.rows[place - 1])):
            lines.append(r"\midrule")
        lines.append(" & ".join([_format_name(row), *map(_format_cell, shown)]) + r" \\")
    return lines


def _format_name(row: TableRow) -> str:
    source = get_origin(row)
    return f"\\textit{{{escape(row.title)}}} ({escape(source)})" if source else escape(row.title)


def _format_cell(cell: Cell) -> str:
    text = f"\\textbf{{{escape(cell.text)}}}" if cell.best else escape(cell.text)
    return f"{text} {{\\scriptsize {cell.interval.replace('−', '$-$')}}}" if cell.interval else text
