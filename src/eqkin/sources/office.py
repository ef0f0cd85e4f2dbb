"""Documents of word processors and other editors.

LyX and PreTeXt documents have LaTeX formulas; pandoc converts Word, Org and Typst documents to LaTeX.
"""

from __future__ import annotations

import subprocess
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException  # type: ignore[import-untyped]
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from eqkin.errors import BadInput, LimitReached
from eqkin.sources.paper import Paper
from eqkin.sources.text import decode_text, escape_percent

_LYX_HEADINGS = frozenset("title author date part chapter section subsection subsubsection paragraph".split())
_SHOWN_INSETS = {"Formula", "Quotes", "Flex", "Float", "Caption", "Box", "Tabular", "Text"}
_PRETEXT_HEADINGS = ("part", "chapter", "section", "subsection")
_DISPLAYS = {"me": "equation*", "men": "equation", "md": "align*", "mdn": "align"}
_LEFT_OUT = {"docinfo", "image", "program", "sage", "interactive", "latex-image", "latex-image-preamble"}
_MAX_DEPTH = 200
PANDOC_FORMATS = {"docx": (".docx",), "org": (".org",), "typst": (".typ",)}
_PANDOC_SECONDS = 60.0  # for one document
_PANDOC_HEAP = "1g"


def read_lyx(raw: bytes, key: str, origin: str) -> Paper:
    r"""Read one `.lyx` file; raises `BadInput` for anything else."""
    lines = decode_text(raw).split("\n")
    if not any(line.startswith("\\begin_document") for line in lines[:20]):
        raise BadInput(f"{origin}: is not a LyX document")
    start = lines.index("\\begin_body") if "\\begin_body" in lines else 0
    head, preamble = lines[:start], ""
    if "\\begin_preamble" in head and "\\end_preamble" in head:
        preamble = "\n".join(head[head.index("\\begin_preamble") + 1 : head.index("\\end_preamble")])
    return Paper(key, "".join(_convert_lyx(lines[start:])), origin, kind="lyx", styles=[preamble] if preamble else [])


def _convert_lyx(lines: list[str]) -> list[str]:
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
            command = rest.rstrip("*").lower()
            parts.append(f"\n\\{command}{{" if command in _LYX_HEADINGS else "\n")
            closing.append("}\n" if command in _LYX_HEADINGS else "\n")
        elif word == "\\end_layout":
            parts.append(closing.pop() if closing else "")
        elif not line.startswith("\\"):
            parts.append(escape_percent(line))
    return parts


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
    if tag in _PRETEXT_HEADINGS and title is not None:
        parts.append(f"\n\\{tag}{{{escape_percent(_join_text(title))}}}\n")
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


def read_with_pandoc(raw: bytes, key: str, origin: str, format_name: str) -> Paper:
    """Convert one document; pandoc runs in its sandbox, so that the document cannot make it read anything else.

    Raises `BadInput` if pandoc is missing or cannot read it, `LimitReached` if it takes too long.
    """
    try:
        import pypandoc  # type: ignore[import-untyped]
    except ImportError as error:
        raise BadInput(f"{origin}: reading .{format_name} needs pandoc: pip install 'eqkin[documents]'") from error
    program = pypandoc.get_pandoc_path()
    options = ["--sandbox", "--standalone", "--from", format_name, "--to", "latex", "--wrap", "preserve"]
    command = [program, *options, "+RTS", f"-M{_PANDOC_HEAP}", "-RTS"]
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=_PANDOC_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise LimitReached(f"{origin}: pandoc takes longer than {_PANDOC_SECONDS:.0f} seconds") from error
    if done.returncode:
        reason = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise BadInput(f"{origin}: pandoc cannot read it ({reason or f'status {done.returncode}'})")
    return Paper(key, decode_text(done.stdout), origin, kind=format_name)
