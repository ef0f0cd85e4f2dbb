"""The header of a Markdown file: title, authors, date and a few more fields, from the YAML that people write there.

Only the plain subset is understood (scalars, folded text, lists, mappings of authors); anything else is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADER = re.compile(r"\A\s{0,100}---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*))?\Z")
_MAX_HEADER_CHARS = 100_000


@dataclass
class FrontMatter:
    """What a header says; empty where it says nothing."""

    title: str = ""
    authors: list[str] = field(default_factory=list)
    year: int | None = None
    lang: str = ""
    abstract: str = ""


def split_front_matter(text: str) -> tuple[FrontMatter, str]:
    """The header of `text` and the text behind it; never raises."""
    match = _HEADER.match(text[:_MAX_HEADER_CHARS])
    if match is None:
        return FrontMatter(), text
    fields = _split_fields(match.group(1))
    if not fields:
        return FrontMatter(), text
    year = re.search(r"\b(?:1[5-9]|20)\d\d\b", " ".join(fields.get("date", [])))
    front = FrontMatter(
        title=_join_scalar(fields.get("title", [])),
        authors=_parse_authors(fields.get("author") or fields.get("authors") or []),
        year=int(year.group()) if year else None,
        lang=_join_scalar(fields.get("lang") or fields.get("language") or [])[:20],
        abstract=_join_scalar(fields.get("abstract", [])),
    )
    return front, text[match.end() :]


def _split_fields(header: str) -> dict[str, list[str]]:
    """Lines that belong to each field without indentation: what follows its colon, then the indented ones."""
    fields: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in header.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _FIELD.match(line)
        if match:
            current = fields.setdefault(match.group(1).lower(), [])
            if (match.group(2) or "").strip():
                current.append(match.group(2).strip())
        elif current is not None and (line[0] in " \t" or line.startswith("-")):
            current.append(line)
    return fields


def _join_scalar(lines: list[str]) -> str:
    """A scalar, also a folded one, as one line."""
    parts = [line.strip() for line in lines]
    if parts and re.fullmatch(r"[>|][+-]?\d?", parts[0]):
        parts = parts[1:]
    return _unquote(" ".join(" ".join(parts).split()))


def _unquote(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return text


def _parse_authors(lines: list[str]) -> list[str]:
    """Names from one string, an inline list, a list of strings, or a list of mappings with a `name`."""
    if not lines:
        return []
    first = lines[0].strip()
    if len(lines) == 1 and not first.startswith("- "):
        inline = (
            first[1:-1].split(",") if first.startswith("[") and first.endswith("]") else re.split(r"\band\b|;", first)
        )
        return [name for part in inline if (name := _unquote(part))]
    names: list[str] = []
    for line in lines:
        part = line.strip().removeprefix("- ").strip()
        match = _FIELD.match(part)
        if match is None:
            if line.strip().startswith("- "):
                names.append(_unquote(part))
        elif match.group(1).lower() == "name" and match.group(2):
            names.append(_unquote(match.group(2)))
    return [name for name in names if name]
