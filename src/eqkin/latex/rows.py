r"""Rows of displays as equations of their own.

A row of an alignment or a system that states something is an equation. A row that only continues the one before it
(`+ c`, or anything without a relation) is joined with it; a row that begins with a relation (`= c`) gets the left side
of the row that begins the chain, so that `a = b \\ = c` gives `a = b` and `a = c`. After an inequality, `a \le b \\
= c` gives `a \le c`.

Numbers, labels and final punctuation are not part of a formula: they are taken off, and LaTeX's numbers are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from eqkin.latex.environments import ALIGNED_ENVIRONMENTS, GATHERED_ENVIRONMENTS, PLAIN_ENVIRONMENTS
from eqkin.latex.prose import to_plain_text
from eqkin.limits import LIMITS

_MAX_ROWS = 200
# A relation must follow an alignment mark within so many characters.
_MAX_CELL = 2_000
_RELATION_NAMES = (
    "leqslant|geqslant|leqq|geqq|leq|geq|le|ge|neq|ne|equiv|approx|simeq|sim|cong|propto|coloneqq|eqqcolon|triangleq"
    "|subseteq|subset|supseteq|supset|in|notin|ni|to|rightarrow|longrightarrow|Rightarrow|Longrightarrow|implies|iff"
    "|Leftrightarrow|Longleftrightarrow|mapsto|longmapsto|prec|preceq|succ|succeq|ll|gg|lesssim|gtrsim|asymp|doteq"
    "|stackrel|overset|xrightarrow|leftarrow|gets|sqsubseteq|models|vdash|Leftarrow|impliedby|lt|gt|defeq|eqdef"
)
_RELATION = rf"(?::=|=:|[=<>≤≥≈≡≠∈→⇒⊂⊆∼]|\\(?:{_RELATION_NAMES})(?![A-Za-z]))"
_LOGICAL = re.compile(
    r"\\(?:Rightarrow|Longrightarrow|implies|iff|Leftrightarrow|Longleftrightarrow|impliedby|Leftarrow|therefore"
    r"|because)(?![A-Za-z])|⇒|⇔"
)
_TOKEN = re.compile(
    r"(?P<break>\\\\\*?(?:\s*\[[^\]\\\n]{0,20}\])?|\\cr(?![A-Za-z])|\\tabularnewline(?![A-Za-z]))"
    r"|(?P<open>\\begin\s*\{[^{}]*\}|\{)|(?P<close>\\end\s*\{[^{}]*\}|\})"
    rf"|(?P<relation>{_RELATION})|(?P<mark>&)|(?P<bracket>[(\[]|\\\{{)|(?P<unbracket>[)\]]|\\\}})|\\(?:[A-Za-z]+|.)",
    re.DOTALL,
)
_GROUP_OR_MARK = re.compile(
    r"(?P<open>\\begin\s*\{[^{}]*\}|\{)|(?P<close>\\end\s*\{[^{}]*\}|\})|(?P<mark>&)|\\.", re.DOTALL
)
_TOKEN_BREAK = re.compile(r"\\\\|\\cr(?![A-Za-z])")
RELATION_SIGN = re.compile(_RELATION)
_SPACES = (
    r"(?:[\s&~]|\\(?:[,;:! ]|q?quad(?![A-Za-z])|hspace\*?\s*\{[^{}]*\}|hfill(?![A-Za-z])|phantom\s*\{[^{}]*\})|\{\})*"
)
_LEAD = re.compile(rf"{_SPACES}(?:\\(?:displaystyle|hline)(?![A-Za-z]){_SPACES})*")
_OPERATOR = re.compile(
    r"[+×·÷∪∩∧∨)\]}/*]|-(?![^&]*?=)|\\(?:times|cdot|cup|cap|wedge|vee|oplus|otimes|pm|mp|circ|right|bigr?|Bigr?|biggr?|Biggr?)(?![A-Za-z])"
)
_INNER = re.compile(
    r"\A\s*(?:(?P<brace>\\left\s*(?:\\\{|\\lbrace|\.)|\\Biggl?\s*\\\{)\s*)?\\begin\s*\{(?P<name>split|aligned|alignedat|gathered"
    r"|cases|dcases|array|matrix|align\*?|eqnarray\*?|gather\*?)\}(?:\s*\[[a-z]\])?(?P<argument>\s*\{[^{}]*\})?"
)
_OUTER_END = re.compile(r"\\end\s*\{[a-z]+\*?\}\s*(?:\\right\s*(?:\.|\\\}|\\rbrace))?[\s.,;]*\Z")
_SYSTEMS = ("cases", "dcases", "array", "matrix")


@dataclass
class Row:
    """A row of a display."""

    begin: int  # in the display, after the line break before it
    pieces: list[str]  # of its formula, in order

    @property
    def latex(self) -> str:
        """Its formula, without the alignment marks that are not in groups."""
        text = " ".join(self.pieces)
        if "&" not in text:
            return text
        kept: list[str] = []
        depth = at = 0
        for match in _GROUP_OR_MARK.finditer(text):
            depth += (match.lastgroup == "open") - (match.lastgroup == "close")
            if match.lastgroup == "mark" and depth <= 0:
                kept.append(text[at : match.start()])
                at = match.end()
        return " ".join("".join([*kept, text[at:]]).split())


def split_rows(environment: str, body: str) -> tuple[list[Row], list[int]]:
    """Return the equations that a display consists of (none if it is a single one) and where its lines begin.

    Only lines that LaTeX would number count: not those of a `split` within an `equation`.
    """
    name = environment.removesuffix("*")
    begins = [0]
    if "\\" not in body or len(body) > LIMITS.latex_chars:
        return [], begins
    if name in ALIGNED_ENVIRONMENTS | GATHERED_ENVIRONMENTS and name not in ("multline", "mathpar"):
        lines = _scan_lines(body, 0, len(body), has_pairs="align" in name)
        begins = [line.begin for line in lines if line.is_first] or begins
        if len(lines) > 1:
            return _make_rows(body, lines), begins
    elif name in ("aligned", "gathered", "split", "cases", "dcases"):
        lines = _scan_lines(body, 0, len(body), has_pairs=name == "aligned")
        return _make_rows(body, lines, is_system=name in _SYSTEMS), begins
    elif name not in PLAIN_ENVIRONMENTS:
        return [], begins
    # A single line may consist of one environment that has rows.
    inner = _INNER.match(body)
    last = _OUTER_END.search(body)
    if inner is None or last is None or (inner["name"] in ("array", "matrix") and not inner["brace"]):
        return [], begins
    inside = inner["name"].rstrip("*")
    has_argument = inner["argument"] and inside in ("array", "alignedat", "matrix")
    start = inner.start("argument") if inner["argument"] and not has_argument else inner.end()
    lines = _scan_lines(body, start, last.start(), has_pairs="align" in inside)
    return _make_rows(body, lines, is_system=inside in _SYSTEMS), begins


def _make_rows(body: str, lines: list[_Line], *, is_system: bool = False) -> list[Row]:
    if not 1 < len(lines) <= _MAX_ROWS or (is_system and not all(line.relation for line in lines)):
        return []
    rows = _join_lines(body, lines)
    return rows if len(rows) > 1 else []


@dataclass
class _Line:
    begin: int  # after the line break before it
    start: int  # of its formula
    end: int
    relation: tuple[int, int] | None  # the one at the alignment mark, or the first that is not in brackets
    is_first: bool  # in its row


def _scan_lines(body: str, start: int, end: int, *, has_pairs: bool) -> list[_Line]:
    """Split a body at its outermost line breaks; return none if its groups are not balanced.

    With `has_pairs`, every second mark may begin another equation, as in `align`.
    """
    lines: list[_Line] = []
    # The relations, marks and brackets since the last line break, outside of groups.
    tokens: list[re.Match[str]] = []
    n_marks = depth = 0
    has_relation = False
    is_first = True
    begin = start
    for match in _TOKEN.finditer(body, start, end):
        kind = match.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            return []
        if depth or kind in (None, "open", "close"):
            continue
        is_pair = kind == "mark" and has_pairs and n_marks % 2 == 1 and has_relation
        if kind == "break" or (is_pair and _begins_equation(body, match.end(), end)):
            lines += _make_line(body, begin, match.start(), tokens, is_first=is_first)
            begin = match.end()
            tokens = []
            n_marks = 0
            has_relation = False
            is_first = kind == "break"
        else:
            tokens.append(match)
            n_marks += kind == "mark"
            has_relation |= kind == "relation"
    lines += _make_line(body, begin, end, tokens, is_first=is_first)
    return [] if depth else lines


def _make_line(body: str, begin: int, stop: int, tokens: list[re.Match[str]], *, is_first: bool) -> list[_Line]:
    """Return the line between two line breaks, none if it is empty."""
    start = _skip_lead(body, begin, stop)
    end = start + len(strip_trailing(body[start:stop].rstrip(" \t\n&"))[0])
    if end <= start:
        return []
    # Relations beside an alignment mark, and those that are not in brackets.
    marked: list[re.Match[str]] = []
    outer: list[re.Match[str]] = []
    brackets = 0
    mark: re.Match[str] | None = None
    relation: re.Match[str] | None = None
    for token in tokens:
        if token.lastgroup == "relation":
            relation = token
            # The usual place of a mark is before its relation: `a &= b`.
            if mark and not body[mark.end() : token.start()].strip(" \t\n{}"):
                marked.append(token)
            elif brackets <= 0:
                outer.append(token)
        elif token.lastgroup == "mark":
            mark = token
            # The relation may stand before the mark: `a =& b`.
            if relation and not body[relation.end() : token.start()].strip():
                marked.append(relation)
        else:
            brackets += 1 if token.lastgroup == "bracket" else -1
    inside = (token.span() for token in (*marked, *outer) if start <= token.start() < end)
    return [_Line(begin, start, end, next(inside, None), is_first)]


def _begins_equation(body: str, at: int, end: int) -> bool:
    """Return whether another equation begins after a mark: a left side, then a relation in the same row."""
    end = min(end, at + _MAX_CELL)
    at = _skip_lead(body, at, end)
    row = _TOKEN_BREAK.search(body, at, end)
    found = RELATION_SIGN.search(body, at, row.start() if row else end)
    return found is not None and found.start() > at and not _OPERATOR.match(body, at) and body[at : at + 1] != "-"


@dataclass
class _Chain:
    """What the next lines of a chain `a = b`, `= c`, `< d` lack: its left side, and its relation if one is stronger."""

    left: list[str] = field(default_factory=list)
    is_open: bool = False  # its last row is only the left side
    relation: str = ""  # one that is not an equality


def _join_lines(body: str, lines: list[_Line]) -> list[Row]:
    """Make equations of lines: join those that continue others, and complete those that begin with a relation."""
    rows: list[Row] = []
    chain = _Chain()
    for line in lines:
        is_statement = _skip_implication(body, line)
        text = body[line.start : line.end].strip()
        if rows and not is_statement and _continues(body, line, rows[-1]):
            rows[-1].pieces.append(text)
            if chain.is_open:
                chain.left = list(rows[-1].pieces)
            continue
        if line.relation is None:
            chain = _Chain([text] if line.is_first else [], is_open=True)
            rows.append(Row(line.begin, [text]))
            continue
        start, end = line.relation
        sign = body[start:end]
        if start > line.start:
            left = [body[line.start : start].strip()] if line.is_first else []
            chain = _Chain(left, relation="" if sign == "=" else sign)
            rows.append(Row(line.begin, [text]))
            continue
        # The line begins with a relation: its left side is that of the chain, and after `a < b` it is `a < c`.
        own = [text]
        if sign != "=":
            chain.relation = sign
        elif chain.left and chain.relation:
            own = [chain.relation, body[end : line.end].strip()]
        begin = rows.pop().begin if chain.is_open and rows else line.begin
        chain.is_open = False
        rows.append(Row(begin, [*chain.left, *own]))
    return rows


def _skip_implication(body: str, line: _Line) -> bool:
    """Return whether a line begins with `=>`, so that it is a new statement, which then begins after that sign."""
    logical = _LOGICAL.match(body, line.start)
    if logical is None:
        return False
    line.start = _skip_lead(body, logical.end(), len(body))
    if line.relation and line.relation[0] < line.start:
        found = RELATION_SIGN.search(body, line.start, line.end)
        line.relation = found.span() if found else None
    return True


def _continues(body: str, line: _Line, row: Row) -> bool:
    """Return whether a line goes on with the row before it: it states nothing itself, or that row is not finished."""
    if line.relation is None or _OPERATOR.match(body, line.start):
        return True
    return UNFINISHED.search(row.pieces[-1]) is not None


def _skip_lead(body: str, at: int, end: int) -> int:
    """Return where the formula of a line begins: after spaces and marks."""
    lead = _LEAD.match(body, at, end)
    return lead.end() if lead else at


_NUMBERING = re.compile(
    r"\\(?:(?P<label>label)|(?P<tag>tag)\*?|intertext|shortintertext)\s*+\{(?P<name>(?:[^{}]|\{[^{}]*+\})*+)\}"
    r"|\\(?:(?P<none>nonumber|notag)|qedhere|allowdisplaybreaks|displaybreak)(?![A-Za-z])(?:\s*+\[\d\])?"
    r"|\\l?eqno(?![A-Za-z])\s*+(?P<eqno>\{[^{}]*+\}|\([^()$\\]{0,40}+\)|\\[a-z]{1,2}box\s*+\{[^{}]*+\}|[\d.]++)?"
)
_NUMBERED = frozenset("equation multline dmath eqnarray align flalign alignat xalignat gather IEEEeqnarray".split())
_WITHIN = re.compile(
    r"\\(?:(?:numberwithin|counterwithin)\s*\{equation\}\s*\{(chapter|section|subsection)\}"
    r"|renewcommand\*?\s*\{?\s*\\theequation\s*\}?\s*\{\s*\\the(chapter|section|subsection))"
)
_CHAPTER_CLASS = re.compile(
    r"\\documentclass\s*(?:\[[^\]]*\])?\s*\{(?:book|report|amsbook|memoir|scrbook|scrreprt|tufte-book)\}"
)
_LEVELS = ("chapter", "section", "subsection")
# the end of a formula that goes on
UNFINISHED = re.compile(
    r"(?:[-+=<>(,×·/]|\\(?:times|cdot|cup|cap|wedge|vee|oplus|otimes|pm|mp|leq?|geq?|left|bigl|Bigl|biggl|Biggl|quad|to|frac|in"
    r"|implies|Rightarrow|approx|equiv|sim))\Z"
)
_PUNCTUATION = re.compile(
    r"(?:[\s~]|(?<![\\.])\.(?!\.)|(?<!\\)[,;。，；、](?!\s*\.\.)"
    r"|\\(?:[,;:! ]|(?:q?quad|hfill|par)(?![A-Za-z])))+\Z"
)
_NUMBER = re.compile(
    r"(?:\\q?quad|\\hfill|\\hspace\*?\s*\{[^{}]*\}|[.,;~]|\\[,;: ])\s*(?:\\(?:text|mbox|mathrm|rm|tag\*?)\s*\{)?"
    r"\(\s*((?:[A-Z]\.?)?\d{1,3}(?:[.\-–]\d{1,3}){0,3}[a-z]?'?)\s*\)\}?\Z"
)
_FINAL_TEXT = re.compile(
    r"(?P<before>\\q?quad(?![A-Za-z])\s*|[.,;]\s*(?:\\(?:[,;: ]|q?quad(?![A-Za-z]))\s*)*)"
    r"\\(?:text|mbox|textrm|hbox|textit|mathrm)\s*\{\s*(?P<text>[^{}$\\]*)\}\Z"
)
_CJK = "\u3000-\u303f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef"
_FINAL_PROSE = re.compile(rf"(?<=[^\s{_CJK}])\s*[{_CJK}][{_CJK}A-Za-z0-9\s,.:;()]*\Z")
_NEEDS_REST = re.compile(rf"{UNFINISHED.pattern}|\\(?:left|right|middle)?\Z|\.\Z")
_MAX_ENDINGS = 8
# A longer number of an equation is cut.
_MAX_NUMBER = 50
_TAIL_CHARS = 300
# So many characters of Chinese, Japanese or Korean are a sentence rather than a symbol.
_MIN_PROSE = 3


@dataclass(frozen=True)
class NumberingMark:
    """A command that numbers or names a row: its place in the formula without it, and what it says."""

    at: int
    kind: str  # label, tag, none
    name: str = ""


def strip_numbering(latex: str) -> tuple[str, list[NumberingMark]]:
    r"""Remove `\label`, `\tag`, `\nonumber` and the like from a display; return what they say."""
    marks: list[NumberingMark] = []
    kept = ""
    at = 0
    for match in _NUMBERING.finditer(latex):
        kept += latex[at : match.start()]
        at = match.end()
        if match["label"]:
            marks.append(NumberingMark(len(kept), "label", match["name"].strip()))
        elif match["tag"] or match["eqno"]:
            number = to_plain_text(match["name"] or match["eqno"] or "").strip()
            if number[:1] == "(" and number[-1:] == ")":
                number = number[1:-1].strip()
            marks.append(NumberingMark(len(kept), "tag", number[:_MAX_NUMBER]))
        elif match["none"]:
            marks.append(NumberingMark(len(kept), "none"))
    return kept + latex[at:], marks


def strip_trailing(body: str) -> tuple[str, str]:
    r"""Return a formula without punctuation and prose at its end, and the number `(3.6)` that stood there, or ""."""
    number = ""
    for _ in range(_MAX_ENDINGS):
        start = _find_prose(body)
        if start is None and not number and (found := _NUMBER.search(body, max(len(body) - _TAIL_CHARS, 0))):
            start = found.start()
            number = found[1]
        if start is None:
            start = _find_ending(body)
        if start is None:
            break
        body = body[:start]
    return body, number


def _find_prose(body: str) -> int | None:
    """Return where a sentence of Chinese, Japanese or Korean begins that ends the text."""
    found = None if body.isascii() else _FINAL_PROSE.search(body, max(len(body) - _TAIL_CHARS, 0))
    if found is None or len(found[0].strip()) < _MIN_PROSE or _is_within_group(body, found.start()):
        return None
    return found.start()


def _find_ending(body: str) -> int | None:
    """Return where final punctuation or text begins that the formula before it does not need."""
    tail = max(len(body) - _TAIL_CHARS, 0)
    found = _FINAL_TEXT.search(body, tail) or _PUNCTUATION.search(body, tail)
    if found is None or _NEEDS_REST.search(body[max(found.start() - 20, 0) : found.start()].rstrip()):
        return None
    return found.start()


def _is_within_group(text: str, at: int) -> bool:
    return text.count("{", at) - text.count("\\{", at) != text.count("}", at) - text.count("\\}", at)


@dataclass
class EquationCounter:
    r"""Numbers equations as LaTeX does; a text without a preamble has only the numbers that it states itself."""

    is_active: bool = False
    within: str = ""  # chapter, section or subsection, "" to number through
    number: int = 0
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LEVELS, 0))
    is_appendix: bool = False
    letters: int = -1  # equations so far in `subequations`, -1 outside of it

    @classmethod
    def for_document(cls, preamble: str | None) -> EquationCounter:
        """Make the counter of a document; `preamble` None if it has none."""
        if preamble is None:
            return cls()
        within = _WITHIN.search(preamble)
        chapters = _CHAPTER_CLASS.search(preamble)
        return cls(True, (within[1] or within[2]) if within else "chapter" if chapters else "")

    def read_prose(self, prose: str) -> None:
        """Note what the prose before the next equation or heading changes."""
        if "\\appendix" in prose:
            self.is_appendix = True
            self.parts = dict.fromkeys(_LEVELS, 0)
        begin = prose.rfind("\\begin{subequations}")
        end = prose.rfind("\\end{subequations}")
        if begin > end:
            self.number += 1
            self.letters = 0
        elif end >= 0:
            self.letters = -1

    def count_heading(self, name: str) -> None:
        """Count a heading, given as `section` or `section*`."""
        if name in self.parts:
            self.parts[name] += 1
            for below in _LEVELS[_LEVELS.index(name) + 1 :]:
                self.parts[below] = 0
            if self.within and _LEVELS.index(name) <= _LEVELS.index(self.within):
                self.number = 0

    def number_line(self, environment: str, marks: Iterable[NumberingMark]) -> str:
        """Return the number of a line with these marks, "" if it has none."""
        kinds = {mark.kind: mark.name for mark in marks}
        if "tag" in kinds:
            return kinds["tag"]
        if not self.is_active or "none" in kinds or environment not in _NUMBERED:
            return ""
        if self.letters >= 0:
            self.letters += 1
            return self._format() + chr(96 + min(self.letters, 26))
        self.number += 1
        return self._format()

    def _format(self) -> str:
        levels = _LEVELS[: _LEVELS.index(self.within) + 1] if self.within else ()
        numbers = [str(self.parts[level]) for level in levels if level != "chapter" or self.parts[level]]
        if self.is_appendix and numbers:
            numbers[0] = chr(64 + min(max(int(numbers[0]), 1), 26))
        return ".".join([*numbers, str(self.number)])
