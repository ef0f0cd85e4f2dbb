"""Jupyter notebooks (formats 3 and 4): text cells as Markdown, LaTeX outputs as equations, without code."""

from __future__ import annotations

import json
import re
from typing import Any

from eqkin.errors import BadInput
from eqkin.sources.markdown import FrontMatter, MarkdownConverter, split_front_matter
from eqkin.sources.paper import Paper
from eqkin.sources.text import clean_text, decode_text, format_display_math, format_heading

_DELIMITERS = re.compile(r"\A\s*(?:\$\$(.*)\$\$|\$(.*)\$|\\\[(.*)\\\]|\\\((.*)\\\))\s*\Z", re.DOTALL)


def read_notebook(raw: bytes, key: str, origin: str) -> Paper:
    """Return the paper in a notebook; raise `BadInput` if it is not one."""
    try:
        book = json.loads(decode_text(raw))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{origin}: is not a notebook ({error})") from error
    if not isinstance(book, dict) or not (
        isinstance(book.get("cells"), list) or isinstance(book.get("worksheets"), list)
    ):
        raise BadInput(f"{origin}: is not a notebook (JSON without cells)")
    title = ""
    texts: list[str] = []
    front = FrontMatter()
    for part in (book, *(book.get("worksheets") or [])):
        cells = part.get("cells") if isinstance(part, dict) else None
        for cell in cells if isinstance(cells, list) else []:
            if isinstance(cell, dict):
                source = clean_text(_join_lines(cell.get("source")))
                if not texts and cell.get("cell_type") in ("raw", "markdown"):  # Quarto's header
                    front, source = split_front_matter(source)
                text, first_heading = _convert_cell(cell, source)
                title = title or first_heading
                texts.append(text)
    metadata = book.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    own_title, listed = metadata.get("title"), metadata.get("authors")
    names = (
        [entry.get("name") if isinstance(entry, dict) else entry for entry in listed or []]
        if isinstance(listed, list)
        else []
    )
    return Paper(
        key,
        clean_text("\n\n".join(texts)),
        origin,
        kind="ipynb",
        title=clean_text(own_title if isinstance(own_title, str) and own_title.strip() else front.title or title),
        authors=[name for name in names if isinstance(name, str)] or front.authors,
        year=front.year,
        lang=front.lang,
        abstract=front.abstract,
        doi=front.doi,
    )


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
        return format_heading(level if isinstance(level, int) else 1, source), source.strip()
    if kind == "raw":
        metadata = cell.get("metadata")
        mime = metadata.get("raw_mimetype") or metadata.get("format") if isinstance(metadata, dict) else ""
        return (source, "") if mime in ("text/latex", "latex") else ("", "")
    outputs = cell.get("outputs")
    if kind == "code" and isinstance(outputs, list):
        return "".join(_convert_output(output) for output in outputs if isinstance(output, dict)), ""
    return "", ""


def _convert_output(output: dict[str, Any]) -> str:
    """Return a LaTeX output as display math; tables and other text environments are kept as they are."""
    data = output.get("data")
    latex = _join_lines((data if isinstance(data, dict) else {}).get("text/latex") or output.get("latex")).strip()
    match = _DELIMITERS.match(latex)
    if match:
        body = next(group for group in match.groups() if group is not None)
        return format_display_math(re.sub(r"\A\s*\\displaystyle\b", "", body))
    return f"\n{latex}\n" if latex else ""
