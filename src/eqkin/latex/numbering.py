r"""Numbers, labels and other things in a display that are not part of the formula."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from eqkin.latex.prose import to_plain_text

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
_LAST_PUNCTUATION = "~.,;:!。，；、dlr"  # or white space: how it ends, perhaps with quad, hfill, par
_PUNCTUATION_CHARS = " \t\n\r\f\v\x1c\x1d\x1e\x1f~.,;:!\\quadhfilpr"  # all that it consists of in ASCII
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
_TAIL_CHARS = 300
_MIN_PROSE = 3  # characters of Chinese, Japanese or Korean that are a sentence rather than a symbol


@dataclass(frozen=True)
class NumberingMark:
    """A command that numbers or names a row: its place in the formula without it, and what it says."""

    at: int
    kind: str  # label, tag, none
    name: str = ""


def strip_numbering(latex: str) -> tuple[str, list[NumberingMark]]:
    r"""Remove `\label`, `\tag`, `\nonumber` and the like from a display; return what they say."""
    if "\\" not in latex:
        return latex, []
    marks, pieces, at, length = list[NumberingMark](), list[str](), 0, 0
    for match in _NUMBERING.finditer(latex):
        pieces.append(latex[at : match.start()])
        length += match.start() - at
        at = match.end()
        if match["label"]:
            marks.append(NumberingMark(length, "label", match["name"].strip()))
        elif match["tag"] or match["eqno"]:
            number = to_plain_text(match["name"] or match["eqno"] or "").strip()
            number = number[1:-1].strip() if number[:1] == "(" and number[-1:] == ")" else number
            marks.append(NumberingMark(length, "tag", number[:50]))
        elif match["none"]:
            marks.append(NumberingMark(length, "none"))
    return "".join([*pieces, latex[at:]]), marks


def strip_trailing(body: str) -> tuple[str, str]:
    r"""Return a formula without punctuation and prose at its end, and the number `(3.6)` that stood there, or ""."""
    number = ""
    for _ in range(_MAX_ENDINGS):  # the last character rules out most searches
        tail, found = max(len(body) - _TAIL_CHARS, 0), None
        if not body.isascii():
            found = _FINAL_PROSE.search(body, tail)
        if found and len(found[0].strip()) >= _MIN_PROSE and not _is_within_group(body, found.start()):
            body = body[: found.start()]
            continue
        if not number and body.endswith((")", ")}")) and (found := _NUMBER.search(body, tail)):
            number, body = found[1], body[: found.start()]
            continue
        found = _FINAL_TEXT.search(body, tail) if body.endswith("}") else None
        if found is None and (body[-1:].isspace() or body[-1:] in _LAST_PUNCTUATION):
            found = _PUNCTUATION.search(
                body, max(tail, len(body.rstrip(_PUNCTUATION_CHARS))) if body.isascii() else tail
            )
        if found is None or _NEEDS_REST.search(body[max(found.start() - 20, 0) : found.start()].rstrip()):
            break
        body = body[: found.start()]
    return body, number


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
        begin, end = prose.rfind("\\begin{subequations}"), prose.rfind("\\end{subequations}")
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
