r"""Rows of displays as equations of their own.

A row of an alignment or a system that states something is an equation. A row that only continues the one before it
(`+ c`, or anything without a relation) is joined with it; a row that begins with a relation (`= c`) gets the left side
of the row that begins the chain, so that `a = b \\ = c` gives `a = b` and `a = c`. After an inequality, `a \le b \\
= c` gives `a \le c`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eqkin.latex.environments import ALIGNED_ENVIRONMENTS, GATHERED_ENVIRONMENTS, PLAIN_ENVIRONMENTS
from eqkin.latex.numbering import UNFINISHED, strip_trailing
from eqkin.limits import LIMITS

_MAX_ROWS = 200
_MAX_CELL = 2_000  # characters in which a relation must follow an alignment mark
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


@dataclass(frozen=True)
class Row:
    """A row of a display."""

    begin: int  # after the line break before it
    start: int  # of its own formula
    end: int
    spans: str  # of the display's LaTeX, as `start-end` separated by blanks


def extract_row(latex: str, spans: str) -> str:
    """Return the LaTeX of a row of a display."""
    pieces = []
    for span in spans.split(" "):
        start, _, end = span.partition("-")
        pieces.append(latex[int(start) : int(end)].strip())
    text, depth = " ".join(pieces), 0
    if "&" not in text:
        return text
    out, at = [], 0
    for match in _GROUP_OR_MARK.finditer(text):
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
        elif kind == "mark" and depth <= 0:
            out.append(text[at : match.start()])
            at = match.end()
    return " ".join("".join([*out, text[at:]]).split())


def split_rows(environment: str, body: str) -> tuple[list[Row], list[int]]:
    """Return the equations that a display consists of (none if it is a single one) and where its lines begin.

    Only lines that LaTeX would number count: not those of a `split` within an `equation`.
    """
    name = environment.removesuffix("*")
    begins = [0]
    if "\\" not in body or len(body) > LIMITS.latex_chars:
        return [], begins
    if name in ALIGNED_ENVIRONMENTS | GATHERED_ENVIRONMENTS and name not in ("multline", "mathpar"):
        lines = _scan_lines(body, 0, len(body), has_pairs="align" in name) or []
        begins = [line.begin for line in lines if line.is_first] or begins
        if len(lines) > 1:
            return _make_rows(body, lines), begins
    elif name in ("aligned", "gathered", "split", "cases", "dcases"):
        lines = _scan_lines(body, 0, len(body), has_pairs=name == "aligned") or []
        return _make_rows(body, lines, is_system=name in _SYSTEMS), begins
    elif name not in PLAIN_ENVIRONMENTS:
        return [], begins
    inner, last = _INNER.match(body), _OUTER_END.search(body)
    if inner is None or last is None or (inner["name"] in ("array", "matrix") and not inner["brace"]):
        return [], begins
    inside, start = inner["name"].rstrip("*"), inner.end()
    if inner["argument"] and inside not in ("array", "alignedat", "matrix"):
        start = inner.start("argument")
    lines = _scan_lines(body, start, last.start(), has_pairs="align" in inside) or []
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
    is_first: bool = True  # in its row


def _scan_lines(body: str, start: int, end: int, *, has_pairs: bool) -> list[_Line] | None:
    """Split a body at its outermost line breaks; None if its groups are not balanced.

    With `has_pairs`, every second mark may begin another equation, as in `align`.
    """
    lines: list[_Line] = []
    depth, brackets, marks, at = 0, 0, 0, start
    relations: list[tuple[int, int, int]] = []  # start, end, depth of brackets
    mark = -1  # end of the last one

    def add(stop: int, is_first: bool) -> None:
        lead = _LEAD.match(body, at, stop)
        first = lead.end() if lead else at
        last = first + len(strip_trailing(body[first:stop].rstrip(" \t\n&"))[0])
        if last > first:
            here = [r for r in relations if first <= r[0] < last]
            chosen = next((r for r in here if r[2] < 0), None) or next((r for r in here if r[2] == 0), None)
            lines.append(_Line(at, first, last, chosen[:2] if chosen else None, is_first))

    is_first = True
    for match in _TOKEN.finditer(body, start, end):
        kind = match.lastgroup
        is_pair = has_pairs and marks % 2 == 1 and bool(relations)
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return None
        elif depth or kind is None:
            continue
        elif kind == "break" or (is_pair and kind == "mark" and _begins_equation(body, match.end(), end)):
            add(match.start(), is_first)
            is_first = kind == "break"
            at, relations, brackets, marks, mark = match.end(), [], 0, 0, -1
        elif kind == "relation":
            is_marked = mark >= 0 and not body[mark : match.start()].strip(" \t\n{}")
            relations.append((*match.span(), -1 if is_marked else max(brackets, 0)))
        elif kind == "mark":
            marks += 1
            mark = match.end()
            if relations and not body[relations[-1][1] : match.start()].strip():  # `a =& b`
                relations[-1] = (*relations[-1][:2], -1)
        else:
            brackets += 1 if kind == "bracket" else -1
    add(end, is_first)
    return lines if depth == 0 else None


def _begins_equation(body: str, at: int, end: int) -> bool:
    """Return whether another equation begins after a mark: a left side, then a relation in the same row."""
    end = min(end, at + _MAX_CELL)
    lead = _LEAD.match(body, at, end)
    at = lead.end() if lead else at
    row = _TOKEN_BREAK.search(body, at, end)
    found = RELATION_SIGN.search(body, at, row.start() if row else end)
    return found is not None and found.start() > at and not _OPERATOR.match(body, at) and body[at : at + 1] != "-"


def _join_lines(body: str, lines: list[_Line]) -> list[Row]:
    """Make equations of lines: join those that continue others, and complete those that begin with a relation."""
    rows: list[Row] = []
    left = ""  # the span of the left side of the chain
    is_open = False  # the last row is only the left side of a chain
    stronger: tuple[int, int] | None = None  # a relation of the chain that is not an equality
    for line in lines:
        logical = _LOGICAL.match(body, line.start)
        if logical:  # a new statement: "=> a = b"
            lead = _LEAD.match(body, logical.end())
            line.start = lead.end() if lead else logical.end()
            if line.relation and line.relation[0] < line.start:
                found = RELATION_SIGN.search(body, line.start, line.end)
                line.relation = found.span() if found else None
        own, relation = f"{line.start}-{line.end}", line.relation
        previous = body[rows[-1].start : rows[-1].end] if rows else ""
        if (
            rows
            and not logical
            and (relation is None or _OPERATOR.match(body, line.start) or UNFINISHED.search(previous))
        ):
            last = rows.pop()
            rows.append(Row(last.begin, last.start, line.end, f"{last.spans} {own}"))
            left = rows[-1].spans if is_open else left
        elif relation is not None and relation[0] == line.start:
            is_equal = body[relation[0] : relation[1]] == "="
            if left and stronger and is_equal:
                own = f"{stronger[0]}-{stronger[1]} {relation[1]}-{line.end}"
            elif not is_equal:
                stronger = relation
            begin = rows.pop().begin if is_open and rows else line.begin
            is_open = False
            rows.append(Row(begin, line.start, line.end, f"{left} {own}" if left else own))
        else:
            is_open = relation is None
            left = (f"{line.start}-{relation[0]}" if relation else own) if line.is_first else ""
            stronger = relation if relation and body[relation[0] : relation[1]] != "=" else None
            rows.append(Row(line.begin, line.start, line.end, own))
    return rows
