r"""The outline of a document: its sections, display equations, prose, macros and packages.

Headings and displays are found in one pass with one regular expression, outermost environments only. An opening without
its end is ignored, and an end missing from the rest of the text is searched for once, so the work is linear for any
text.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from eqkin.latex.environments import (
    DISPLAY_ENVIRONMENTS,
    INNER_ENVIRONMENTS,
    MATHML_ENVIRONMENT,
    MacroChange,
    expand_alias,
    expand_environment_commands,
    expand_structural,
    strip_arguments,
)
from eqkin.latex.macros import RESERVED_COMMANDS, Definition, Environment, Macro, find_definitions
from eqkin.latex.prose import EQUATION_MARK, INLINE_FORMULA, iter_inline_formulas, to_plain_text
from eqkin.latex.rows import EquationCounter, split_rows, strip_numbering, strip_trailing
from eqkin.latex.scan import Scanner, strip_comments
from eqkin.latex.titles import TitlePage, clean_heading, find_cited_ids, read_heading, read_title_page
from eqkin.limits import LIMITS

_BEGIN_DOCUMENT = "\\begin{document}"
_END_DOCUMENT = "\\end{document}"
_HEADING_LEVELS = dict(part=0, chapter=1, section=2, subsection=3, subsubsection=4, paragraph=5, subparagraph=6)
_PACKAGES = re.compile(r"\\(?:usepackage|RequirePackage)\s*+(?:\[[^\]\\]*+\])?\s*+\{([^{}]*+)\}")
_MATH_SIGNS = frozenset({"$", "$$", "\\[", "\\("})
# every alternative starts with a plain character: that lets the engine skip to the next "\" or "$"
_EVENT = re.compile(
    r"\\(?:begin\s*+\{([A-Za-z]++\*?)\}"
    r"|p(?:art|aragraph)\*?\s*+(?=[\[{])|chapter\*?\s*+(?=[\[{])"
    r"|s(?:ection|ub(?:(?:sub)?section|paragraph))\*?\s*+(?=[\[{])"
    r"|\[|\()"
    r"|\$\$?"
)
# inline math only matters where two of its signs, or an environment in it, could be taken for a display
_EVENT_WITHOUT_DOLLARS = re.compile(_EVENT.pattern.removesuffix(r"|\$\$?"))
# An inline formula that is worth an entry has so many different letters.
MIN_SYMBOLS = 3
_STATEMENT = re.compile(r"[=<>≤≥≈≡∼]|\\(?:leq?|geq?|[lg]eqslant|neq?|approx|equiv|sim|simeq|propto|cong)(?![A-Za-z])")
_SENTENCE = re.compile(r"(?:(?<![\\A-Za-z])[A-Za-z]{3,}[,.]?\s+){3}")
_NOT_SYMBOLS = re.compile(
    r"\\(?:math|text|operatorname|left|right|[dt]?frac|sqrt|cdot|times|[lg]eq?|sim|q?quad|[cl]?dots|hat|bar|tilde|vec|rm"
    r"|bf|in|to|begin|end|limits|displaystyle)[a-z]*(?![A-Za-z])"
)
_SYMBOL = re.compile(r"\\[A-Za-z]+|[^\W\d_]")
_NAMES = [name for base in DISPLAY_ENVIRONMENTS for name in (base, base + "*")]
_END_PATTERNS = {name: re.compile(rf"\\end\s*+\{{{re.escape(name)}\}}") for name in _NAMES} | {
    "\\[": re.compile(r"(?<!\\)(?:\\\\)*+\\\]"),
    "$$": re.compile(r"(?<!\\)(?:\\\\)*+\$\$"),
}
_OPENS_INNER = re.compile(r"\\begin\s*+\{(?:" + "|".join(sorted(INNER_ENVIRONMENTS)) + r")\*?\}")
_SIDE_PATTERNS = {
    name: re.compile(rf"\\(begin|end)\s*+\{{{re.escape(name)}\}}")
    for name in _NAMES
    if name.rstrip("*") in INNER_ENVIRONMENTS
}


@dataclass
class Section:
    """A heading and the LaTeX below it up to the next one, with an `EQUATION_MARK` in place of each equation."""

    title: str
    level: int
    latex: str = ""
    epoch: int = 0  # index of the macro table that holds at its end

    @cached_property
    def text(self) -> str:
        """Its prose as plain text, with the marks."""
        return to_plain_text(self.latex)


@dataclass
class Equation:
    """A display equation of a document."""

    environment: str  # "align*", "DISPLAY" for \\[ \\] and $$, "eqkinmathml"
    body: str  # without labels, numbers, final punctuation and text
    section: int = 0  # index into Document.sections
    mark: int = 0  # number of marks before its own in the section; of an inline formula its offset in the section
    label: str = ""
    epoch: int = 0  # index of the macro table that holds here
    printed: str = ""  # its number: "3.6"
    whole: int = -1  # of a row: index of its display in Document.equations
    inline: bool = False


@dataclass
class Document:
    """The outline of a document."""

    about: TitlePage = field(default_factory=TitlePage)
    sections: list[Section] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)  # displays, then rows, then inline formulas
    packages: list[str] | None = None  # None: the text has no preamble
    macros: list[dict[str, Macro]] = field(default_factory=list)  # one table per epoch
    cites: list[str] = field(default_factory=list)
    truncated: bool = False  # more equations than the limit


def parse(
    text: str,
    styles: list[str] | None = None,
    bibliographies: list[str] | None = None,
    *,
    rows: bool = False,
    inline: bool = False,
) -> Document:
    """Read a LaTeX document (or a text that looks like one) with its local styles and bibliographies.

    With `rows`, the rows of displays are equations too; with `inline`, also inline formulas that say something.
    """
    text = expand_environment_commands(strip_comments(text.replace(EQUATION_MARK, " ")))
    style = strip_comments("\n".join(styles or []))
    document = Document(cites=find_cited_ids(text, bibliographies or []))
    begin = text.find(_BEGIN_DOCUMENT)
    # In the definition of a macro, it does not begin the document: the text is read as a whole.
    if begin >= 0 and _is_within_braces(text, begin):
        begin = -1
    if begin >= 0:
        document.packages = _find_packages([text[:begin], style])
    elif style or "\\usepackage" in text:
        document.packages = _find_packages([text, style]) or None

    style_macros, style_environments = _collect_definitions(style)
    definitions = [*_find_preamble_definitions(text[: max(begin, 0)]), *find_definitions(text, max(begin, 0))]
    environments = style_environments | {d.value.name: d.value for d in definitions if isinstance(d.value, Environment)}
    body, changes = _remove_definitions(text, definitions, begin)
    table = dict(style_macros)
    for at, macro in changes:
        # The preamble is read in the order in which TeX sees it: a \let copies what its target means at that point. A
        # name that is first defined in the body means the same before it.
        if at < 0:
            _define(macro, table)
        else:
            table.setdefault(macro.name, _resolve_alias(macro, table))
    document.macros = [table]
    changes = [(at, macro) for at, macro in changes if at >= 0]
    body, changes = expand_structural(body, macros=table, environments=environments, changes=changes)
    document.about = read_title_page(text, table)
    counter = EquationCounter.for_document(text[:begin] + style if begin >= 0 else None)
    outliner = _Outliner(document, changes, counter)
    outliner.read(body)
    if rows:
        document.equations += outliner.rows
    if inline:
        _add_inline_formulas(document)
    return document


def _is_within_braces(text: str, at: int) -> bool:
    """Return whether a group of the definition before `at` is still open there."""
    start = max(text.rfind("\\newcommand", 0, at), text.rfind("\\def", 0, at))
    if start < 0 or at - start > 2000:
        return False
    before = text[start:at]
    return before.count("{") - before.count("\\{") > before.count("}") - before.count("\\}")


def _find_packages(texts: list[str]) -> list[str]:
    names = (name.strip() for text in texts for group in _PACKAGES.findall(text) for name in group.split(","))
    return list(dict.fromkeys(name.rsplit("/", 1)[-1] for name in names if name))


# chapters of one work come one after the other and share their preamble and styles
_find_preamble_definitions = lru_cache(maxsize=8)(find_definitions)


@lru_cache(maxsize=8)
def _collect_definitions(style: str) -> tuple[dict[str, Macro], dict[str, Environment]]:
    macros: dict[str, Macro] = {}
    environments: dict[str, Environment] = {}
    for definition in find_definitions(style):
        if isinstance(definition.value, Environment):
            environments[definition.value.name] = definition.value
        elif definition.value.name not in RESERVED_COMMANDS:
            _define(definition.value, macros)
    return macros, environments


def _define(macro: Macro, table: dict[str, Macro]) -> bool:
    """Enter a definition in a table; return whether that changes anything."""
    macro = _resolve_alias(macro, table)
    if macro.alias == macro.name or table.get(macro.name) == macro or (macro.weak and macro.name in table):
        return False
    table[macro.name] = macro
    return True


def _resolve_alias(macro: Macro, table: dict[str, Macro]) -> Macro:
    r"""Replace a \let of a known macro by that macro under the new name; any other \let stays an alias."""
    if not macro.alias:
        return macro
    target = table.get(macro.alias)
    if target is not None:
        return replace(target, name=macro.name, weak=False)
    written = expand_alias(macro.alias)
    return Macro(macro.name, (), written) if written else macro


def _remove_definitions(text: str, definitions: list[Definition], begin: int) -> tuple[str, list[MacroChange]]:
    """Return the body without its definitions, and all macros with their offset in it (-1: before the body)."""
    start = begin + len(_BEGIN_DOCUMENT) if begin >= 0 else 0
    end = text.rfind(_END_DOCUMENT)
    end = end if end > start and not _is_within_braces(text, end) else len(text)
    pieces: list[str] = []
    changes: list[MacroChange] = []
    at = start
    length = 0
    for definition in definitions:
        if definition.start >= at and definition.end <= end and definition.start >= start:
            pieces.append(text[at : definition.start])
            length += definition.start - at
            at = definition.end
        if isinstance(definition.value, Macro) and definition.value.name not in RESERVED_COMMANDS:
            changes.append((length if definition.start >= start else -1, definition.value))
    pieces.append(text[at:end])
    return "".join(pieces), changes


class _Outliner:
    """Adds the sections and equations of a body to a document, in order."""

    def __init__(self, document: Document, changes: list[MacroChange], counter: EquationCounter) -> None:
        self.document = document
        self.rows: list[Equation] = []
        self._changes = deque(changes)
        self._counter = counter
        self._pieces: list[str] = []  # of the prose of the section
        self._marks = 0  # equations of the section
        document.sections.append(Section("", 0))

    def read(self, body: str) -> None:
        """Read the body up to its end or to the limit of equations."""
        at = 0
        for start, end, environment, inner in _iter_events(body):
            prose = body[at:start]
            at = end
            self._pieces.append(prose)
            self._counter.read_prose(prose)
            if environment.startswith("\\"):
                self._add_heading(environment[1:], inner)
            elif display := _read_display(environment, inner, self._counter):
                if len(self.document.equations) >= LIMITS.equations_per_paper:
                    self.document.truncated = True
                    break
                self._apply_changes(start)
                self._add_display(display)
        self._pieces.append(body[at:])
        self._end_section()

    def _end_section(self) -> None:
        section = self.document.sections[-1]
        section.latex = "".join(self._pieces)
        section.epoch = len(self.document.macros) - 1
        self._pieces = []
        self._marks = 0

    def _add_heading(self, command: str, title: str) -> None:
        self._end_section()
        self._counter.count_heading(command)
        level = _HEADING_LEVELS[command.rstrip("*")] + 1
        self.document.sections.append(Section(clean_heading(title, self.document.macros[-1]), level))

    def _apply_changes(self, at: int) -> None:
        """Begin a new table of macros if the definitions up to `at` change what a name means."""
        if not self._changes or self._changes[0][0] > at:
            return
        tables = self.document.macros
        table = dict(tables[-1])
        is_changed = False
        while self._changes and self._changes[0][0] <= at:
            is_changed |= _define(self._changes.popleft()[1], table)
        if is_changed:
            # Above the limit the last table is replaced: the document goes on with what holds at its end.
            del tables[LIMITS.macro_tables - 1 :]
            tables.append(table)

    def _add_display(self, display: list[Equation]) -> None:
        document = self.document
        for equation in display:
            equation.section = len(document.sections) - 1
            equation.mark = self._marks
            equation.epoch = len(document.macros) - 1
            equation.whole = len(document.equations)
        display[0].whole = -1
        document.equations.append(display[0])
        self.rows += display[1:]
        self._pieces.append(EQUATION_MARK)
        self._marks += 1


def _read_display(environment: str, inner: str, counter: EquationCounter) -> list[Equation]:
    """Return a display and then its rows, without their places in the document; none if it is empty."""
    if environment == MATHML_ENVIRONMENT:
        return [Equation(environment, inner.strip())] if inner.strip() else []
    inner, marks = strip_numbering(strip_arguments(environment, inner))
    body = inner.strip()
    offset = inner.find(body)
    body, number = strip_trailing(body)
    if not body:
        return []
    # The marks of numbers and labels belong to the line, and to the row, in which they stand.
    places = [max(mark.at - offset, 0) for mark in marks]
    end = len(inner) + 1
    rows, begins = split_rows(environment, body)
    # Numbers of lines, by where they begin.
    printed: dict[int, str] = {}
    for begin, following in pairwise([*begins, end]):
        here = [mark for at, mark in zip(places, marks, strict=True) if begin <= at < following]
        printed[begin] = counter.number_line(environment, here) or (number if following == end else "")
    labels = [(at, mark.name) for at, mark in zip(places, marks, strict=True) if mark.kind == "label"]
    label = labels[0][1] if labels else ""
    found = [Equation(environment, body, label=label, printed=next(filter(None, printed.values()), ""))]
    for row, following in zip(rows, [*(row.begin for row in rows[1:]), end], strict=False):
        own = [name for at, name in labels if row.begin <= at < following]
        numbers = [text for begin, text in printed.items() if row.begin <= begin < following and text]
        equation = Equation("DISPLAY", row.latex, label=own[0] if own else "", printed=numbers[-1] if numbers else "")
        found.append(equation)
    return found


def _add_inline_formulas(document: Document) -> None:
    """Add the inline formulas that are statements or large, each text once."""
    seen: set[str] = set()
    for number, section in enumerate(document.sections):
        for match in iter_inline_formulas(section.latex):
            body = strip_trailing(match[0].strip("$").removeprefix("\\(").removesuffix("\\)").strip())[0]
            if body in seen or not is_worth_indexing(body):
                continue
            if len(document.equations) >= LIMITS.equations_per_paper:
                document.truncated = True
                return
            seen.add(body)
            equation = Equation("DISPLAY", body, section=number, mark=match.start(), epoch=section.epoch, inline=True)
            document.equations.append(equation)


def is_worth_indexing(formula: str) -> bool:
    """Return whether an inline formula is worth an entry: an equality or inequality of several symbols."""
    # A sentence in it stands between two signs for money.
    if _STATEMENT.search(formula) is None or _SENTENCE.search(formula):
        return False
    return len(set(_SYMBOL.findall(_NOT_SYMBOLS.sub(" ", formula)))) >= MIN_SYMBOLS


def _iter_events(body: str) -> Iterator[tuple[int, int, str, str]]:
    r"""Yield headings and display equations as (start, end, environment or "\section" or "\section*", content)."""
    search = (_EVENT if "$$" in body or _OPENS_INNER.search(body) else _EVENT_WITHOUT_DOLLARS).search
    scanner = Scanner(body)
    endings = _EndingFinder(body)
    at = 0
    while match := search(body, at):
        start, at = match.span()
        name = match[1]
        sign = match[0][:2]
        if name is None and sign not in _MATH_SIGNS:
            title, at = read_heading(scanner, at)
            yield start, at, match[0].rstrip(" \t\r\n\f\v"), title
        elif name is None and _is_escaped(body, start):
            at = start + 1
        elif name is None and sign in ("$", "\\("):
            # Inline math is skipped as a whole, so that its signs and environments are not taken for a display.
            inline = INLINE_FORMULA.match(body, start)
            at = inline.end() if inline else at
        elif (name is None or name in _END_PATTERNS) and (span := endings.find(name or sign, at)):
            yield start, span[1], name or "DISPLAY", body[at : span[0]]
            at = span[1]


def _is_escaped(text: str, at: int) -> bool:
    r"""Return whether an odd number of backslashes stands before `at`: `\$`, `\\[2pt]`."""
    before = at
    while before > 0 and text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1


class _EndingFinder:
    """Finds the end of a display, and remembers which ends the rest of the text lacks."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.missing: set[str] = set()
        self.unbalanced: set[str] = set()

    def find(self, name: str, at: int) -> tuple[int, int] | None:
        """Return the end of the content that starts at `at` and the end of its display `name`; None if it has none."""
        if name in self.missing:
            return None
        if name in _SIDE_PATTERNS and name not in self.unbalanced:
            depth = 1
            for side in _SIDE_PATTERNS[name].finditer(self.body, at):
                depth += 1 if side[1] == "begin" else -1
                if depth == 0:
                    return side.span()
            self.unbalanced.add(name)
        match = _END_PATTERNS[name].search(self.body, at)
        if match is None:
            self.missing.add(name)
            return None
        return (match.end() - 2 if name in ("\\[", "$$") else match.start()), match.end()
