r"""Where the headings and display equations of a document stand.

One pass with one regular expression; outermost environments only, in document order. An opening without its end is
passed over, and an end that the rest of the text lacks is sought once, so the work stays linear whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, INNER_ENVIRONMENTS
from eqkin.latex.scan import find_bracket_end, find_group_end, skip_space

HEADING_LEVELS = dict(part=0, chapter=1, section=2, subsection=3, subsubsection=4, paragraph=5, subparagraph=6)
_MAX_HEADING = 5_000
_MATH_SIGNS = frozenset({"$", "$$", "\\[", "\\("})
# every alternative starts with a plain character: that lets the engine skip to the next "\" or "$"
_EVENT = re.compile(
    r"\\(?:begin\s*+\{([A-Za-z]++\*?)\}"
    r"|p(?:art|aragraph)\*?\s*+(?=[\[{])|chapter\*?\s*+(?=[\[{])|s(?:ection|ub(?:(?:sub)?section|paragraph))\*?\s*+(?=[\[{])"
    r"|\[|\()"
    r"|\$\$?"
)
# inline math only matters where two of its signs, or an environment in it, could be taken for a display
_EVENT_WITHOUT_DOLLARS = re.compile(_EVENT.pattern.removesuffix(r"|\$\$?"))
_INLINE = re.compile(r"\$(?:[^$\\\n]++|\\.|\n(?![ \t]*+\n))++\$|\\\((?:[^\\]++|\\(?![()\[\]]).)++\\\)", re.DOTALL)
_CLOSING_BRACKET = re.compile(r"(?<!\\)(?:\\\\)*+\\\]")
_CLOSING_DOLLARS = re.compile(r"(?<!\\)(?:\\\\)*+\$\$")
_NAMES = [name for base in DISPLAY_ENVIRONMENTS for name in (base, base + "*")]
_END_PATTERNS = {name: re.compile(rf"\\end\s*+\{{{re.escape(name)}\}}") for name in _NAMES}
_OPENS_INNER = re.compile(r"\\begin\s*+\{(?:" + "|".join(sorted(INNER_ENVIRONMENTS)) + r")\*?\}")
_SIDE_PATTERNS = {
    name: re.compile(rf"\\(begin|end)\s*+\{{{re.escape(name)}\}}")
    for name in _NAMES
    if name.rstrip("*") in INNER_ENVIRONMENTS
}


def read_heading(text: str, at: int) -> tuple[str, int]:
    """The braced argument at `at`, an optional bracketed one before it passed over."""
    at = skip_space(text, at)
    if text[at : at + 1] == "[":
        end = find_bracket_end(text, at)
        at = skip_space(text, end) if end > 0 else at + 1
    if text[at : at + 1] != "{":
        return "", at
    end = find_group_end(text, at)
    if end < 0 or end - at > _MAX_HEADING:
        line = text.find("\n", at)
        end = line if line > 0 else len(text)
        return text[at + 1 : end], end
    return text[at + 1 : end - 1], end


class _ClosingFinder:
    """Finds the end of a display, and remembers what there is none of."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.missing: set[str] = set()
        self.unbalanced: set[str] = set()

    def find(self, name: str, at: int) -> tuple[int, int] | None:
        """Where the display `name` whose content starts at `at` ends: (end of content, end of display)."""
        if name in self.missing:
            return None
        if name in _SIDE_PATTERNS and name not in self.unbalanced and (span := self._find_nested(name, at)):
            return span
        pattern = {"\\[": _CLOSING_BRACKET, "$$": _CLOSING_DOLLARS}.get(name) or _END_PATTERNS[name]
        match = pattern.search(self.body, at)
        if match is None:
            self.missing.add(name)
            return None
        return (match.end() - 2 if name in ("\\[", "$$") else match.start()), match.end()

    def _find_nested(self, name: str, at: int) -> tuple[int, int] | None:
        depth = 1
        for match in _SIDE_PATTERNS[name].finditer(self.body, at):
            depth += 1 if match[1] == "begin" else -1
            if depth == 0:
                return match.span()
        self.unbalanced.add(name)
        return None


def _is_escaped(body: str, at: int) -> bool:
    r"""Whether an odd number of backslashes stands before `at`: `\$`, `\\[2pt]`."""
    start = at
    while start > 0 and body[start - 1] == "\\":
        start -= 1
    return (at - start) % 2 == 1


def iter_events(body: str) -> Iterator[tuple[int, int, str, str]]:
    r"""Spans of headings and display equations: (start, end, environment or "\section", content)."""
    at = 0
    search = (_EVENT if "$$" in body or _OPENS_INNER.search(body) else _EVENT_WITHOUT_DOLLARS).search
    closings = _ClosingFinder(body)
    while match := search(body, at):
        start, at = match.span()
        sign, name = match[0][:2], match[1]
        if name:
            if name not in _END_PATTERNS:
                continue
        elif sign in _MATH_SIGNS:
            if body[start - 1 : start] == "\\" and _is_escaped(body, start):
                at = start + 1
                continue
            if sign in ("$", "\\("):
                inline = _INLINE.match(body, start)
                at = inline.end() if inline else at
                continue
        else:
            title, at = read_heading(body, at)
            yield start, at, match[0].rstrip("* \t\r\n\f\v"), title
            continue
        span = closings.find(name or sign, at)
        if span is not None:
            yield start, span[1], name or "DISPLAY", body[at : span[0]]
            at = span[1]
