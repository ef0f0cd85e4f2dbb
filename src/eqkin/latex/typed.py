r"""Clean up formulas that people type or copy: HTML entities, delimiters and environments, lost spaces.

`RewrittenText` remembers the original places of characters, so that errors can point at the text as it was given.

Lost spaces, in formulas that were stored without them:

    \intx^n     \int x^n       the longest known command that begins the name
    \dx, \f     dx, f          a short undefined name was letters after a space (`\ f`)
    \\frac12    \ \frac12      a row does not begin with the letters f, r, a, c

Spaces are restored in typed formulas only, never in papers, which define commands of their own.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from html.entities import html5

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, strip_arguments, to_converter_input
from eqkin.latex.signs import KNOWN_COMMANDS

_AMPERSAND = r"&(?:amp;)?"  # some pages are escaped twice
_ENTITY = re.compile(_AMPERSAND + r"(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DELIMITER_PAIRS = (("$$", "$$"), ("$", "$"), ("\\[", "\\]"), ("\\(", "\\)"))
_ENVIRONMENT = re.compile(r"\\begin\s*\{([A-Za-z]+\*?)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_NOISE = re.compile(r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
# An undefined name of so few letters was letters after a space.
_MAX_SHORT_NAME = 3
_DIFFERENTIALS = re.compile(r"(?:d[A-Za-z])+")
_TEXT_ACCENTS = frozenset({r"\=", r"\."})  # commands of text, not of formulas
_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"))  # of a formula in text, if both occur
_LETTERS = re.compile(r"[A-Za-z]*")
# A row is unlikely to begin with the letters of a command that is as long.
_MIN_ROW_COMMAND = 3


@dataclass(frozen=True)
class RewrittenText:
    """A text with some parts replaced, and where each character and the end were in the original text."""

    text: str
    origins: tuple[int, ...] = ()  # empty for a text in which nothing was replaced

    def find_origin(self, at: int) -> int:
        """Return the original place of a character; within a replaced part, the start of what it replaces."""
        return self.origins[min(at, len(self.text))] if self.origins else at


def rewrite_matches(pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> RewrittenText:
    """Replace the matches of a pattern; a match replaced by itself counts as unchanged."""
    pieces: list[str] = []
    origins: list[int] = []
    at = 0
    for match in pattern.finditer(text):
        new = replacement(match)
        if new == match[0]:
            continue
        pieces += [text[at : match.start()], new]
        origins += [*range(at, match.start()), *[match.start()] * len(new)]
        at = match.end()
    return RewrittenText("".join([*pieces, text[at:]]), (*origins, *range(at, len(text) + 1)))


def decode_entities(text: str) -> RewrittenText:
    """Decode HTML entities; an ampersand that does not begin one stays.

    Spaces of any kind become plain ones, invisible characters are removed.
    """
    return rewrite_matches(_ENTITY, _decode_entity, text)


def _decode_entity(match: re.Match[str]) -> str:
    name = match[1]
    if not name.startswith("#") and name + ";" not in html5:
        return "&" + name + ";" if match[0] == f"&amp;{name};" else match[0]
    return "".join(_simplify_character(character) for character in html.unescape(f"&{name};"))


def _simplify_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Zs" or character in "\t\n\r":
        return " "
    return "" if category in ("Cc", "Cf", "Cs", "Co", "Cn") or character == "\ufffd" else character


def clean_typed_formula(text: str) -> str:
    """Remove delimiters, labels and an outer environment from a typed formula; return what the converter takes."""
    text = _NOISE.sub("", text).strip()
    for opening, closing in _DELIMITER_PAIRS:
        if len(text) >= len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
            break
    match = _ENVIRONMENT.fullmatch(text)
    if match and match[1].removesuffix("*") in DISPLAY_ENVIRONMENTS:
        return to_converter_input(match[1], strip_arguments(match[1], match[2]))
    return to_converter_input("DISPLAY", text)


def restore_spaces(text: str, unknown: Collection[str] = (), failed: bool = False) -> str:
    """Return the formula with its lost spaces restored, or the formula itself if none seem lost.

    Args:
        text: A formula.
        unknown: The undefined commands in it, with their backslash.
        failed: The formula could not be read.
    """
    suspect = failed or bool(unknown)
    lost = set(unknown)
    if suspect:
        found = {match[0] for match in _COMMAND.finditer(text)}
        lone = (sign for pair in _DELIMITERS if len(found.intersection(pair)) == 1 for sign in pair)
        lost |= {*_TEXT_ACCENTS, *lone}

    def restore(match: re.Match[str]) -> str:
        if match[0] == r"\\":
            name = _LETTERS.match(text, match.end())
            known = name is not None and name[0] in KNOWN_COMMANDS and (suspect or len(name[0]) >= _MIN_ROW_COMMAND)
            return "\\ \\" if known else match[0]
        return _split_command(match[0]) if match[0] in lost else match[0]

    return _COMMAND.sub(restore, text)


def _split_command(command: str) -> str:
    name = command[1:]
    for end in range(len(name) - 1, 1, -1):
        if name[:end] in KNOWN_COMMANDS:
            return f"\\{name[:end]} {name[end:]}"
    if len(name) <= _MAX_SHORT_NAME or _DIFFERENTIALS.fullmatch(name):
        return " " + name
    return command
