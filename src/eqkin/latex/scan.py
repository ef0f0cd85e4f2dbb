"""The scanner below everything that reads LaTeX: braces, brackets, comments, verbatim text.

LaTeX cannot be parsed without running it. What eqkin needs (definitions, sections, displays) can be found with regular
expressions and a brace matcher, fast and without failing on odd input. The work is linear in the length of any input:
patterns do not backtrack, and an ending that is known to be missing is not searched for again.
"""

from __future__ import annotations

import re
from array import array

_PAIR = re.compile(r"\\.|[{}\[\]]", re.DOTALL)
_COMMENT = re.compile(r"%(?:(?<!\\%)|(?<=[^\\]\\\\%))[^\n]*+(?:\n[ \t]*+(?=\S))?")
_HIDDEN = re.compile(
    _COMMENT.pattern
    + r"|\\begin\s*+\{(?P<verbatim>verbatim\*?|Verbatim|lstlisting|minted|comment|alltt|filecontents\*?)\}"
    r"|\\(?P<iffalse>iffalse)(?![A-Za-z])"
    r"|\\verb\*?+(?P<verb>[^\sA-Za-z*])"
)
_CONDITIONAL = re.compile(
    r"\\(?:(?P<fi>fi)|(?P<other>else)|if(?!f(?![a-z])|thenelse|str|defined|empty)[a-zA-Z]*+)(?![A-Za-z])"
)
_FI = re.compile(r"\\fi(?![A-Za-z])")
_SPACE = re.compile(r"\s*")
_ARGUMENT = re.compile(r"\\[A-Za-z@]+|\\?.", re.DOTALL)
# The marks of \verb are not further apart.
_MAX_VERB = 1_000


class Scanner:
    """Finds the groups of one text; the ends of all groups are found in one pass when the first is asked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ends: array[int] | None = None

    def skip_space(self, at: int) -> int:
        """Return the index of the first character at or after `at` that is not white space."""
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def find_end(self, at: int) -> int:
        """Return the index after the group that the `{` or `[` at `at` opens; -1 if it does not close."""
        if self._ends is None:
            self._ends = _find_all_ends(self.text)
        return self._ends[at]

    def read_group(self, at: int) -> tuple[str, int] | None:
        """Return the content of the `{...}` after white space at `at` and the index after it; None if there is none."""
        return self._read("{", at)

    def read_bracket(self, at: int) -> tuple[str, int] | None:
        """Return the content of the `[...]` after white space at `at` and the index after it; None if there is none."""
        return self._read("[", at)

    def read_argument(self, at: int) -> tuple[str, int]:
        """Return what TeX takes for an argument at `at`, a group or a single token, and the index after it."""
        token = _ARGUMENT.match(self.text, self.skip_space(at))
        return self.read_group(at) or ((token[0], token.end()) if token else ("", at))

    def skip_group(self, at: int) -> int:
        """Return the index after the `{...}` at `at`; `at` if there is none."""
        group = self.read_group(at)
        return group[1] if group else at

    def skip_bracket(self, at: int) -> int:
        """Return the index after the `[...]` at `at`; `at` if there is none."""
        bracket = self.read_bracket(at)
        return bracket[1] if bracket else at

    def _read(self, opening: str, at: int) -> tuple[str, int] | None:
        at = self.skip_space(at)
        if self.text[at : at + 1] != opening:
            return None
        end = self.find_end(at)
        return (self.text[at + 1 : end - 1], end) if end > 0 else None


def _find_all_ends(text: str) -> array[int]:
    """Return for every `{` and `[` of a text the index after its end, -1 for everything else."""
    ends = array("i", [-1]) * len(text)
    braces = array("i")
    # Open brackets: the depth of braces, and the index.
    brackets: list[tuple[int, int]] = []
    for match in _PAIR.finditer(text):
        token = match[0]
        at = match.start()
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


def strip_comments(text: str) -> str:
    r"""Remove `%` comments (not `\%`), verbatim text, comment environments and what `\iffalse` hides."""
    pieces: list[str] = []
    # Endings that the rest of the text lacks are not searched for again.
    missing: set[str] = set()
    at = 0
    while match := _HIDDEN.search(text, at):
        pieces.append(text[at : match.start()])
        at = match.end()
        kind = match.lastgroup
        # A comment goes as a whole.
        if kind is None:
            continue
        kept = ""
        end = -1
        if kind == "iffalse":
            kept, end = _read_conditional(text, at, missing)
        elif kind == "verb":
            line = text.find("\n", at, at + _MAX_VERB)
            end = text.find(match["verb"], at, line if line >= 0 else at + _MAX_VERB) + 1
        elif (ending := f"\\end{{{match['verbatim']}}}") not in missing:
            end = text.find(ending, at)
            if end < 0:
                missing.add(ending)
            else:
                end += len(ending)
        pieces.append(kept if end > at else match[0])
        at = max(end, at)
    pieces.append(text[at:])
    return "".join(pieces)


def _read_conditional(text: str, at: int, missing: set[str]) -> tuple[str, int]:
    r"""Return what remains of `\iffalse ... \else kept \fi` and the index after it, -1 if it has no end."""
    if "\\fi" in missing:
        return "", -1
    depth = 1
    kept = -1
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
    # Some name only looks like a conditional, so the count was wrong.
    first = _FI.search(text, at)
    return " ", first.end() if first else -1
