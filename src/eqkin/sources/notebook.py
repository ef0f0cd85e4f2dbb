"""Jupyter notebooks (formats 3 and 4): text cells as Markdown, LaTeX outputs as equations, without code."""

from __future__ import annotations

import json
import re
from typing import Any

from eqkin.errors import BadInput
from eqkin.sources.markdown import MarkdownConverter, read_front_matter
from eqkin.sources.paper import Paper, clean_text, decode_text, escape_percent, format_display_math, format_heading

_DELIMITERS = re.compile(r"\A\s*(?:\$\$(.*)\$\$|\$(.*)\$|\\\[(.*)\\\]|\\\((.*)\\\))\s*\Z", re.DOTALL)


def read_notebook(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in a notebook; raise `BadInput` if it is not one."""
    try:
        book = json.loads(decode_text(raw))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{origin}: is not a notebook ({error})") from error
    # Format 3 has its cells in worksheets.
    parts = [part for part in [book, *_get_list(book, "worksheets")] if isinstance(part, dict)]
    if not any(isinstance(part.get(name), list) for part in parts[:1] for name in ("cells", "worksheets")):
        raise BadInput(f"{origin}: is not a notebook (JSON without cells)")
    paper = Paper(key, "", origin, kind="ipynb")
    first_heading = ""
    texts: list[str] = []
    for cell in (cell for part in parts for cell in _get_list(part, "cells") if isinstance(cell, dict)):
        source = clean_text(_join_lines(cell.get("source")))
        # The first cell may be the header of a Quarto document.
        if not texts and cell.get("cell_type") in ("raw", "markdown"):
            source = read_front_matter(source, paper)
        text, heading = _convert_cell(cell, source)
        first_heading = first_heading or heading
        texts.append(text)
    paper.text = clean_text("\n\n".join(texts))
    metadata = book.get("metadata")
    title = _get(metadata, "title")
    is_titled = isinstance(title, str) and title.strip()
    paper.title = clean_text(title if is_titled else paper.title or first_heading)
    listed = [entry.get("name") if isinstance(entry, dict) else entry for entry in _get_list(metadata, "authors")]
    paper.authors = [name for name in listed if isinstance(name, str)] or paper.authors
    return paper


def _get(value: Any, name: str) -> Any:
    """Return a field of a mapping, None of anything else."""
    return value.get(name) if isinstance(value, dict) else None


def _get_list(value: Any, name: str) -> list[Any]:
    found = _get(value, name)
    return found if isinstance(found, list) else []


def _join_lines(value: Any) -> str:
    """Return a multi-line string, which notebooks store as a string or a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _convert_cell(cell: dict[str, Any], source: str) -> tuple[str, str]:
    """Return the text of a cell and its first heading."""
    kind = cell.get("cell_type")
    if kind == "markdown":
        converter = MarkdownConverter(source)
        return converter.convert(), converter.first_heading
    if kind == "heading":
        level = cell.get("level")
        heading = escape_percent(source)
        return format_heading(level if isinstance(level, int) else 1, heading), source.strip()
    if kind == "raw":
        metadata = cell.get("metadata")
        mime = _get(metadata, "raw_mimetype") or _get(metadata, "format")
        return (source, "") if mime in ("text/latex", "latex") else ("", "")
    if kind == "code":
        outputs = (output for output in _get_list(cell, "outputs") if isinstance(output, dict))
        return "".join(map(_convert_output, outputs)), ""
    return "", ""


def _convert_output(output: dict[str, Any]) -> str:
    """Return a LaTeX output as display math; tables and other text environments are kept as they are."""
    latex = _join_lines(_get(output.get("data"), "text/latex") or output.get("latex")).strip()
    match = _DELIMITERS.match(latex)
    if match:
        body = next(group for group in match.groups() if group is not None)
        return format_display_math(re.sub(r"\A\s*\\displaystyle\b", "", body))
    return f"\n{latex}\n" if latex else ""
