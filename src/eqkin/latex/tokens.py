"""Cut a typed formula into tokens: numbers, names, commands, signs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from eqkin.latex.signs import END, NAMES, OPERATORS, SIGN_COMMANDS

# A space after them means nothing.
PREFIXES = (r"\partial", r"\Delta", r"\nabla", "partial", "Delta", "nabla")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>\d+(?:[.,]\d+)*|\.\d+)"
    r"|(?P<wildcard>\?(?:[^\W\d_](?![^\W\d_]))?)"
    rf"|(?P<sign>\\(?:(?:{'|'.join(SIGN_COMMANDS)})(?![A-Za-z]){END}?|[^A-Za-z{{|]|\Z))"
    rf"|(?P<delimiter>\\(?:[{{|]|right(?![A-Za-z])))"
    rf"|(?P<command>\\[A-Za-z]+{END}?)"
    r"|(?P<word>[A-Za-z]+)"
    rf"|(?P<operator>{'|'.join(re.escape(sign) for sign in sorted(OPERATORS, key=len, reverse=True) if sign != '~')})"
    r"|(?P<letter>[^\W\d_])"
    r"|(?P<other>.)",
    re.DOTALL,
)
# A run of letters as a product: Greek names and functions within it, else single letters. `pi`, `mu`, `nu` and `xi` are
# too short to be looked for everywhere.
_GLUED_NAME = re.compile(
    r"(?<=^d)(?:mu|xi|nu)$|(?<=^[ik])pi$|epsilon|partial|lambda|alpha|gamma|delta|theta|sigma|omega|Delta|Omega|Sigma"
    r"|Gamma|beta|hbar|sqrt|phi|psi|rho|tau|eta|sin|cos|tan|log|exp|[A-Za-z]"
)


@dataclass
class FormulaToken:
    """A token, its place in the formula, and whether a space comes before it."""

    kind: str  # the name of a group of `_TOKEN`, or "end"
    text: str
    spaced: bool
    start: int
    end: int


def split_tokens(text: str, is_word: Callable[[str], bool]) -> list[FormulaToken]:
    """Return the tokens of a formula; runs of letters that are no names are cut into letters."""
    tokens: list[FormulaToken] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "space":
            spaced = not (tokens and tokens[-1].text in PREFIXES)
            continue
        parts = [match]
        if kind == "word" and not _is_one_name(match[0], is_word):
            parts = list(_GLUED_NAME.finditer(match[0]))
        start = match.start()
        for part in parts:
            end = start + len(part[0].rstrip(END))
            tokens.append(FormulaToken(kind, text[start:end], spaced=spaced, start=start, end=end))
            start = end
            spaced = False
    return tokens


def _is_one_name(word: str, is_word: Callable[[str], bool]) -> bool:
    return len(word) == 1 or word == "in" or word in NAMES or (len(word) > 2 and is_word(word))
