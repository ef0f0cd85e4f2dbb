"""LyX documents: formulas are LaTeX already, layouts become headings and paragraphs."""

from __future__ import annotations

from eqkin.errors import BadInput
from eqkin.sources.paper import Paper
from eqkin.sources.text import decode_text, escape_percent

_COMMANDS = {
    "Title": "title",
    "Author": "author",
    "Date": "date",
    "Part": "part",
    "Chapter": "chapter",
    "Section": "section",
    "Subsection": "subsection",
    "Subsubsection": "subsubsection",
    "Paragraph": "paragraph",
}
_SHOWN_INSETS = {"Formula", "Quotes", "Flex", "Float", "Caption", "Box", "Tabular", "Text"}


def read_lyx(raw: bytes, key: str, origin: str) -> Paper:
    r"""Read one `.lyx` file; raises `BadInput` for anything else."""
    lines = decode_text(raw).split("\n")
    if not any(line.startswith("\\begin_document") for line in lines[:20]):
        raise BadInput(f"{origin}: is not a LyX document")
    preamble, body = _split_preamble(lines)
    return Paper(key, "".join(_convert_body(body)), origin, kind="lyx", styles=[preamble] if preamble else [])


def _split_preamble(lines: list[str]) -> tuple[str, list[str]]:
    """Return the LaTeX preamble and the lines of the body."""
    start = lines.index("\\begin_body") if "\\begin_body" in lines else 0
    if "\\begin_preamble" not in lines[:start] or "\\end_preamble" not in lines[:start]:
        return "", lines[start:]
    return "\n".join(lines[lines.index("\\begin_preamble") + 1 : lines.index("\\end_preamble")]), lines[start:]


def _convert_body(lines: list[str]) -> list[str]:
    parts: list[str] = []
    closing: list[str] = []  # what ends each open layout
    insets: list[str] = []  # kinds of the open insets
    hidden = 0  # open insets that are left out: notes, raw TeX, references, pictures
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "\\end_inset":
            if insets:
                hidden -= insets.pop() not in _SHOWN_INSETS
        elif word == "\\begin_inset":
            insets.append(rest.partition(" ")[0])
            hidden += insets[-1] not in _SHOWN_INSETS
            if insets[-1] == "Formula" and not hidden:
                parts.append(rest.partition(" ")[2] + "\n")
        elif hidden:
            continue
        elif insets and insets[-1] == "Formula":
            parts.append(line + "\n")
        elif word == "\\begin_layout":
            command = _COMMANDS.get(rest.rstrip("*"))
            parts.append(f"\n\\{command}{{" if command else "\n")
            closing.append("}\n" if command else "\n")
        elif word == "\\end_layout":
            parts.append(closing.pop() if closing else "")
        elif not line.startswith("\\"):
            parts.append(escape_percent(line))
    return parts
