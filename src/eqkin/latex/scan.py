"""The small scanner under everything that reads LaTeX: braces, comments, verbatim text.

LaTeX cannot be parsed without running it; what we need of it (definitions, sections, display environments) can be found
with a few regular expressions and a brace matcher, fast and without ever failing on odd input.
"""

from __future__ import annotations

import re

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BRACKET = re.compile(r"\\.|[{}\]]", re.DOTALL)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*(?=[^\s]))?")
_VERBATIM = re.compile(
    r"\\begin\s*\{(verbatim\*?|Verbatim|lstlisting|minted|comment|alltt|filecontents\*?|mdframedcode)\}.*?\\end\s*\{\1\}"
    r"|\\iffalse\b.*?\\fi\b"
    r"|\\verb\*?([^\sA-Za-z*])[^\n]*?\2",
    re.DOTALL,
)
_SPACE = re.compile(r"\s*")


def skip_space(text: str, at: int) -> int:
    """Index of the first character at or after `at` that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


_REACH = 100_000  # a group that does not close within so many characters is taken as never closing


def group_end(text: str, at: int) -> int:
    """Index just after the group whose `{` stands at `at`; -1 if it does not close."""
    depth = 0
    for match in _BRACE.finditer(text, at, at + _REACH):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


def bracket_end(text: str, at: int) -> int:
    """Index just after the `]` that closes the `[` at `at`, braces respected; -1 if it does not close."""
    depth = 0
    for match in _BRACKET.finditer(text, at + 1, at + 1 + _REACH):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth < 0:
                return -1
        elif token == "]" and depth == 0:
            return match.end()
    return -1


def read_group(text: str, at: int) -> tuple[str, int] | None:
    """The content of the `{...}` at or after white space at `at`, and the index after it; None if there is none."""
    at = skip_space(text, at)
    if text[at : at + 1] != "{":
        return None
    end = group_end(text, at)
    return (text[at + 1 : end - 1], end) if end > 0 else None


def read_bracket(text: str, at: int) -> tuple[str, int] | None:
    """The content of the `[...]` at or after white space at `at`, and the index after it; None if there is none."""
    at = skip_space(text, at)
    if text[at : at + 1] != "[":
        return None
    end = bracket_end(text, at)
    return (text[at + 1 : end - 1], end) if end > 0 else None


def strip_comments(text: str) -> str:
    """Drop `%` comments (not `\\%`), verbatim text, comment environments and what stands between `\\iffalse` and `\\fi`."""
    if "%" in text:
        text = _COMMENT.sub(r"\1", text)
    if "\\verb" in text or "\\begin" in text or "\\iffalse" in text:
        text = _VERBATIM.sub(" ", text)
    return text
