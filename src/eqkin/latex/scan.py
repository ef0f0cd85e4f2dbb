"""The small scanner under everything that reads LaTeX: braces, comments, verbatim text.

LaTeX cannot be parsed without running it; what we need of it (definitions, sections, display environments) can be found
with a few regular expressions and a brace matcher, fast and without ever failing on odd input. Whatever the input, the
work grows no faster than its length: patterns do not backtrack, and what is once known to be missing is not sought
again.
"""

from __future__ import annotations

import re
from array import array

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BRACKET = re.compile(r"\\.|[{}\]]", re.DOTALL)
_PAIR = re.compile(r"\\.|[{}\[\]]", re.DOTALL)
_COMMENT = re.compile(r"%(?:(?<!\\%)|(?<=[^\\]\\\\%))[^\n]*+(?:\n[ \t]*+(?=\S))?")
_HIDDEN = re.compile(
    r"%(?:(?<!\\%)|(?<=[^\\]\\\\%))[^\n]*+(?:\n[ \t]*+(?=\S))?"
    r"|\\begin\s*+\{(?P<verbatim>verbatim\*?|Verbatim|lstlisting|minted|comment|alltt|filecontents\*?)\}"
    r"|\\(?P<iffalse>iffalse)(?![A-Za-z])"
    r"|\\verb\*?+(?P<verb>[^\sA-Za-z*])"
)
_CONDITIONAL = re.compile(
    r"\\(?:(?P<fi>fi)|(?P<other>else)|if(?!f(?![a-z])|thenelse|str|defined|empty)[a-zA-Z]*+)(?![A-Za-z])"
)
_SPACE = re.compile(r"\s*")
_NEAR_CHARS = 5_000  # almost every group closes within so many characters


def skip_space(text: str, at: int) -> int:
    """Index of the first character at or after `at` that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


# Where the groups of the last difficult text close: all of them found in one pass, asked for one by one.
_pairs: tuple[str | None, array[int]] = (None, array("i"))


def _find_pair_end(text: str, at: int) -> int:
    global _pairs
    known = _pairs
    if known[0] is not text:
        _pairs = known = (text, _find_all_pairs(text))
    return known[1][at]


def _find_all_pairs(text: str) -> array[int]:
    """For every `{` and `[` of a text the index after its end, -1 for everything else."""
    ends = array("i", [-1]) * len(text)
    braces = array("i")
    brackets: list[tuple[int, int]] = []  # (depth of braces, index) of those that are open
    for match in _PAIR.finditer(text):
        token, at = match[0], match.start()
        if token == "{":
            braces.append(at)
        elif token == "[":
            brackets.append((len(braces), at))
        elif token == "]":
            while brackets and brackets[-1][0] == len(braces):
                ends[brackets.pop()[1]] = at + 1
        elif token == "}":
            while brackets and brackets[-1][0] == len(braces):
                brackets.pop()
            if braces:
                ends[braces.pop()] = at + 1
    return ends


def clear_pairs() -> None:
    """Let go of the text that was scanned last."""
    global _pairs
    _pairs = (None, array("i"))


def find_group_end(text: str, at: int) -> int:
    """Index just after the group whose `{` stands at `at`; -1 if it does not close."""
    if _pairs[0] is text:
        return _find_pair_end(text, at)
    depth = 0
    for match in _BRACE.finditer(text, at, at + _NEAR_CHARS):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1 if at + _NEAR_CHARS >= len(text) else _find_pair_end(text, at)


def find_bracket_end(text: str, at: int) -> int:
    """Index just after the `]` that closes the `[` at `at`, braces respected; -1 if it does not close."""
    if _pairs[0] is text:
        return _find_pair_end(text, at)
    depth = 0
    for match in _BRACKET.finditer(text, at + 1, at + _NEAR_CHARS):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth < 0:
                return -1
        elif token == "]" and depth == 0:
            return match.end()
    return -1 if at + _NEAR_CHARS >= len(text) else _find_pair_end(text, at)


def read_group(text: str, at: int) -> tuple[str, int] | None:
    """The content of the `{...}` at or after white space at `at`, and the index after it; None if there is none."""
    at = skip_space(text, at)
    if text[at : at + 1] != "{":
        return None
    end = find_group_end(text, at)
    return (text[at + 1 : end - 1], end) if end > 0 else None


def read_bracket(text: str, at: int) -> tuple[str, int] | None:
    """The content of the `[...]` at or after white space at `at`, and the index after it; None if there is none."""
    at = skip_space(text, at)
    if text[at : at + 1] != "[":
        return None
    end = find_bracket_end(text, at)
    return (text[at + 1 : end - 1], end) if end > 0 else None


def strip_comments(text: str) -> str:
    r"""Drop `%` comments (not `\%`), verbatim text, comment environments and what `\iffalse` hides."""
    if not ("\\verb" in text or "\\iffalse" in text or "\\begin" in text and _HIDDEN_ENVIRONMENT.search(text)):
        return _COMMENT.sub("", text) if "%" in text else text
    pieces: list[str] = []
    missing: set[str] = set()  # endings the rest of the text has not
    at = 0
    while match := _HIDDEN.search(text, at):
        pieces.append(text[at : match.start()])
        at = match.end()
        kind = match.lastgroup
        if kind is None:  # a comment
            continue
        kept, end = (
            _read_conditional(text, at, missing)
            if kind == "iffalse"
            else ("", _find_verbatim_end(text, match, missing))
        )
        pieces.append(kept if end > at else match[0])
        at = max(end, at)
    pieces.append(text[at:])
    return "".join(pieces)


_HIDDEN_ENVIRONMENT = re.compile(r"\{(?:[vV]erbatim|lstlisting|minted|comment|alltt|filecontents)\*?\}")


def _find_verbatim_end(text: str, match: re.Match[str], missing: set[str]) -> int:
    if match.lastgroup == "verb":
        line = text.find("\n", match.end(), match.end() + 1000)
        return text.find(match["verb"], match.end(), line if line >= 0 else match.end() + 1000) + 1
    ending = f"\\end{{{match['verbatim']}}}"
    end = -1 if ending in missing else text.find(ending, match.end())
    if end < 0:
        missing.add(ending)
        return -1
    return end + len(ending)


def _read_conditional(text: str, at: int, missing: set[str]) -> tuple[str, int]:
    r"""What is left of `\iffalse ... \else kept \fi`, and where it ends; (-1 if it does not)."""
    depth, kept = 1, -1
    if "\\fi" in missing:
        return "", -1
    for match in _CONDITIONAL.finditer(text, at):
        if match["fi"]:
            depth -= 1
            if depth == 0:
                return (text[kept : match.start()] if kept >= 0 else " "), match.end()
        elif match["other"]:
            kept = match.end() if depth == 1 and kept < 0 else kept
        else:
            depth += 1
    missing.add("\\fi")
    first = re.compile(r"\\fi(?![A-Za-z])").search(text, at)  # miscounted: some name only looks like a conditional
    return " ", first.end() if first else -1
