"""PreTeXt documents: XML whose formulas are LaTeX."""

from __future__ import annotations

from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from eqkin.errors import BadInput
from eqkin.sources.paper import Paper
from eqkin.sources.text import escape_percent

_HEADINGS = {"part": "part", "chapter": "chapter", "section": "section", "subsection": "subsection"}
_DISPLAYS = {"me": "equation*", "men": "equation", "md": "align*", "mdn": "align"}
_LEFT_OUT = {"docinfo", "image", "program", "sage", "interactive", "latex-image", "latex-image-preamble"}
_MAX_DEPTH = 200


def read_pretext(raw: bytes, key: str, origin: str) -> Paper:
    """Read one PreTeXt file; `<xi:include>` is left out, give the files themselves. Raises `BadInput`."""
    try:
        root: Element = fromstring(raw, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError, RecursionError) as error:
        raise BadInput(f"{origin}: is not XML that can be read ({error})") from error
    is_known = root.tag == "pretext" or any(root.find(f".//{tag}") is not None for tag in ("p", *_DISPLAYS))
    if not is_known:
        raise BadInput(f"{origin}: is not a PreTeXt document (<{root.tag}>)")
    parts: list[str] = []
    _convert_element(root, parts, 0)
    macros = [macros.text or "" for macros in root.iter("macros")]
    title = next((_join_text(element) for element in root.iter("title")), "")
    authors = [_join_text(name) for name in root.iterfind(".//author/personname")]
    return Paper(key, "".join(parts), origin, kind="pretext", title=title, authors=authors, styles=macros)


def _convert_element(element: Element, parts: list[str], depth: int) -> None:
    tag = element.tag if isinstance(element.tag, str) else ""  # comments have none
    if depth > _MAX_DEPTH or tag in _LEFT_OUT or tag.startswith("{"):
        return
    if tag == "m":
        parts.append(f"${_join_text(element)}$")
        return
    if tag in _DISPLAYS:
        rows = [_join_text(row) + _make_label(row) for row in element.iter("mrow")] or [_join_text(element)]
        body = " \\\\\n".join(rows) + _make_label(element)
        parts.append(f"\n\\begin{{{_DISPLAYS[tag]}}}{body}\\end{{{_DISPLAYS[tag]}}}\n")
        return
    title = element.find("title")
    if tag in _HEADINGS and title is not None:
        parts.append(f"\n\\{_HEADINGS[tag]}{{{escape_percent(_join_text(title))}}}\n")
    parts.append(escape_percent(element.text or ""))
    for child in element:
        if child is not title:
            _convert_element(child, parts, depth + 1)
        parts.append(escape_percent(child.tail or ""))
    if tag in ("p", "title"):
        parts.append("\n\n")


def _join_text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def _make_label(element: Element) -> str:
    name = element.get("{http://www.w3.org/XML/1998/namespace}id") or element.get("label")
    return f"\\label{{{name}}}" if name else ""
