r"""A document's structure: its sections, the display equations in them, the prose around, its macros and packages.

One pass with one regular expression over the text; outermost environments only, in document order, each equation once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ..limits import LIMITS
from .citations import cited_ids
from .environments import DISPLAY
from .macros import RESERVED, Definition, Environment, Macro, find_definitions
from .prose import EQUATION_MARK, plain_text
from .scan import bracket_end, group_end, skip_space, strip_comments
from .structural import expand_structural

_LEVELS = {"part": 0, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5, "subparagraph": 6}
# every alternative starts with a plain character: that lets the engine skip to the next "\" or "$"
_EVENT = re.compile(
    r"\\(?:begin\s*\{(?P<environment>[A-Za-z]+\*?)\}"
    r"|(?P<section>part|chapter|(?:sub){0,2}section|(?:sub)?paragraph)\*?\s*(?=[\[{])"
    r"|(?P<bracket>\[))"
    r"|\$(?P<dollars>\$?)"
)
_INLINE = re.compile(r"\$(?:[^$\\\n]++|\\.|\n(?![ \t]*\n))++\$", re.DOTALL)
_PACKAGES = re.compile(r"\\(?:usepackage|RequirePackage)\s*(?:\[[^\]]*\])?\s*\{([^{}]*)\}")
_LABEL = re.compile(r"\\label\s*\{([^{}]*)\}")
_DROPPED = re.compile(r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag|qedhere|allowdisplaybreaks|displaybreak)(?![A-Za-z])(?:\s*\[\d\])?")
_TITLE = re.compile(r"\\title\s*(?=[\[{])")
_CLOSING_BRACKET = re.compile(r"(?<!\\)(?:\\\\)*\\\]")
_CLOSING_DOLLARS = re.compile(r"(?<!\\)\$\$")
_ENDS = {name: re.compile(rf"\\end\s*\{{{re.escape(name)}\}}") for base in DISPLAY for name in (base, base + "*")}


@dataclass
class Section:
    """A heading and the prose below it, up to the next heading; equations stand in it as `EQUATION_MARK`."""

    title: str
    level: int
    text: str = ""


@dataclass
class Equation:
    """A display equation as it stands in the document."""

    environment: str  # "align*", "DISPLAY" for \[ \] and $$, "eqkinmathml"
    body: str  # without label and numbering commands
    section: int  # index into Document.sections
    label: str = ""
    epoch: int = 0  # which macro table holds here
    position: int = 0  # character offset of its mark in the section's text


@dataclass
class Document:
    """What `parse` finds."""

    title: str = ""
    sections: list[Section] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    packages: list[str] | None = None  # None: the text has no preamble
    macros: list[dict[str, Macro]] = field(default_factory=list)  # one table an epoch
    cites: list[str] = field(default_factory=list)
    truncated: bool = False  # more equations than the limit


def parse(text: str, styles: list[str] | None = None, bibliographies: list[str] | None = None) -> Document:
    """Read a LaTeX document (or a text that looks like one) with its local styles and bibliographies."""
    text = strip_comments(text.replace(EQUATION_MARK, " "))
    style = strip_comments("\n".join(styles or []))
    document = Document(cites=cited_ids(text, bibliographies or []))
    begin = text.find("\\begin{document}")
    if begin >= 0:
        document.packages = _packages([text[:begin], style])
    elif style or "\\usepackage" in text:
        document.packages = _packages([text, style]) or None

    style_macros, style_environments = _collect(style)
    definitions = find_definitions(text)
    environments = style_environments | {d.value.name: d.value for d in definitions if isinstance(d.value, Environment)}
    body, changes = _without_definitions(text, definitions, begin)
    table = dict(style_macros)
    for at, macro in changes:
        if at < 0:  # in the order TeX sees them: a \let copies what its target means at that point
            table[macro.name] = _resolved(macro, table)
        else:  # a name first defined in the body means the same before it
            table.setdefault(macro.name, _resolved(macro, table))
    document.macros = [table]
    body, changes = expand_structural(body, table, environments, [(at, m) for at, m in changes if at >= 0])
    title = _TITLE.search(text)
    if title:
        document.title = plain_text(_argument(text, title.end())[0])[:500]
    _scan(body, changes, document)
    return document


def _packages(texts: list[str]) -> list[str]:
    names = (name.strip() for text in texts for group in _PACKAGES.findall(text) for name in group.split(","))
    return list(dict.fromkeys(name.rsplit("/", 1)[-1] for name in names if name))


@lru_cache(maxsize=8)  # chapters of one work come one after the other and share their styles
def _collect(style: str) -> tuple[dict[str, Macro], dict[str, Environment]]:
    macros: dict[str, Macro] = {}
    environments: dict[str, Environment] = {}
    for definition in find_definitions(style):
        if isinstance(definition.value, Macro):
            if definition.value.name not in RESERVED:
                macros[definition.value.name] = _resolved(definition.value, macros)
        else:
            environments[definition.value.name] = definition.value
    return macros, environments


def _resolved(macro: Macro, table: dict[str, Macro]) -> Macro:
    r"""A \let of a macro we know is that macro under another name; of anything else it stays an alias."""
    target = table.get(macro.alias) if macro.alias else None
    return Macro(macro.name, target.args, target.body, target.prefix, target.alias) if target else macro


def _without_definitions(text: str, definitions: list[Definition], begin: int) -> tuple[str, list[tuple[int, Macro]]]:
    """The body with its definitions cut out, and the definitions with their place in it (-1: before the body)."""
    start = begin + len("\\begin{document}") if begin >= 0 else 0
    end = text.rfind("\\end{document}")
    end = end if end > start else len(text)
    pieces: list[str] = []
    changes: list[tuple[int, Macro]] = []
    at, length = start, 0
    for definition in definitions:
        if definition.start >= at and definition.end <= end and definition.start >= start:
            pieces.append(text[at : definition.start])
            length += definition.start - at
            at = definition.end
        if isinstance(definition.value, Macro) and definition.value.name not in RESERVED:
            changes.append((length if definition.start >= start else -1, definition.value))
    pieces.append(text[at:end])
    return "".join(pieces), changes


def _argument(text: str, at: int) -> tuple[str, int]:
    """The braced argument at `at`, an optional bracketed one before it passed over."""
    at = skip_space(text, at)
    if text[at : at + 1] == "[":
        end = bracket_end(text, at)
        at = skip_space(text, end) if end > 0 else at + 1
    if text[at : at + 1] != "{":
        return "", at
    end = group_end(text, at)
    if end < 0 or end - at > 5000:
        line = text.find("\n", at)
        end = line if line > 0 else len(text)
        return text[at + 1 : end], end
    return text[at + 1 : end - 1], end


def _scan(body: str, changes: list[tuple[int, Macro]], document: Document) -> None:
    sections = document.sections
    sections.append(Section("", 0))
    pieces: list[str] = []
    at = 0

    def close() -> None:
        sections[-1].text = plain_text("".join(pieces))
        pieces.clear()

    for start, end, environment, inner in _events(body):
        pieces.append(body[at:start])
        at = end
        if environment.startswith("\\"):
            close()
            sections.append(Section(plain_text(inner)[:500], _LEVELS[environment[1:]] + 1))
            continue
        if len(document.equations) >= LIMITS.equations_per_paper:
            document.truncated = True
            break
        while changes and changes[0][0] <= start:
            _apply(changes.pop(0)[1], document.macros)
        label = _LABEL.search(inner)
        inner = _DROPPED.sub("", inner).strip()
        if inner:
            pieces.append(EQUATION_MARK)
            equation = Equation(environment, inner, len(sections) - 1, label[1].strip() if label else "")
            equation.epoch = len(document.macros) - 1
            document.equations.append(equation)
    pieces.append(body[at:])
    close()
    _place(document)


def _apply(macro: Macro, tables: list[dict[str, Macro]]) -> None:
    """A definition in the body: a new table only if it changes what a name means."""
    macro = _resolved(macro, tables[-1])
    if tables[-1].get(macro.name) != macro and macro.alias != macro.name:
        tables.append({**tables[-1], macro.name: macro})


def _place(document: Document) -> None:
    """Equation positions from the marks left in the sections' plain text."""
    cursors = [0] * len(document.sections)
    for equation in document.equations:
        at = document.sections[equation.section].text.find(EQUATION_MARK, cursors[equation.section])
        equation.position = max(at, 0)
        cursors[equation.section] = at + 1


def _events(body: str) -> Iterator[tuple[int, int, str, str]]:
    r"""Spans of headings and display equations: (start, end, environment or "\section", content)."""
    at = 0
    search = _EVENT.search
    while match := search(body, at):
        start, at = match.span()
        kind = match.lastgroup
        if kind == "environment":
            name = match["environment"]
            closing = _ENDS.get(name)
            if closing is None:
                continue
        elif kind == "section":
            title, at = _argument(body, at)
            yield start, at, "\\" + match["section"], title
            continue
        elif body[start - 1 : start] == "\\":  # \\[2pt] or \$
            at = start + 1
            continue
        elif kind == "bracket":
            name, closing = "DISPLAY", _CLOSING_BRACKET
        elif match["dollars"]:
            name, closing = "DISPLAY", _CLOSING_DOLLARS
        else:
            inline = _INLINE.match(body, start)
            at = inline.end() if inline else at
            continue
        end = closing.search(body, at)
        if end is None:
            continue
        yield start, end.end(), name, body[at : end.end() - 2 if kind == "bracket" else end.start()]
        at = end.end()
