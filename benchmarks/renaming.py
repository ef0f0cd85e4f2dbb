r"""Other letters for a paper's formulas: a permutation of Latin and Greek letters that leaves everything else alone.

Letters change places only with letters of the same use (indices with indices, functions with functions), so that the
formulas stay as likely as they were. What is no variable is not touched: names of commands and environments, text,
labels, units of length, columns of arrays, `d`, `e` and `\pi`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_LATIN_GROUPS = ("abcpqrs", "fgh", "ijklmn", "tuvwxyz", "ABCDEFGH", "JKLMNPQ", "RSTUVWXYZ")
_GREEK_GROUPS = (
    "alpha beta gamma delta kappa",
    "epsilon varepsilon zeta eta",
    "lambda mu nu xi",
    "theta vartheta phi varphi psi chi",
    "rho sigma tau omega",
    "Gamma Theta Lambda Phi Psi Omega",
)
_MAX_VARIABLES = 3  # letters in a row that are variables side by side; longer ones are somebody's word
_GROUP = r"\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
_TOKEN = re.compile(
    rf"\\(?:begin|end)\s*+{_GROUP}(?:\s*+\[[^\]]*+\])?(?:\s*+{_GROUP})?"
    r"|\\(?:text[a-z]*+|mbox|hbox|fbox|operatorname|math(?:rm|bb|sf|tt|op|it)|label|tag|(?:eq|page|c|C|auto)?ref"
    r"|cite[a-z]*+|[hv]space|color|SI|si|num|qty|unit|ce|intertext|shortintertext|stackrel|rule|includegraphics)"
    rf"(?![A-Za-z])\*?\s*+(?:\[[^\]]*+\]\s*+)?{_GROUP}"
    r"|\\(?:rm|it|sf|tt|mathrm|mathbb|operatorname)(?![A-Za-z])\s*+[A-Za-z]*+"
    r"|\\[A-Za-z@]++|\\."
    r"|[0-9]\s*+(?:pt|em|ex|mm|cm|in|mu|bp|pc)(?![A-Za-z])"
    r"|[A-Za-z]++",
    re.DOTALL,
)


@dataclass(frozen=True)
class LetterPermutation:
    """A permutation of letters."""

    latin: dict[int, str]  # as `str.translate` takes it
    greek: dict[str, str]  # names of commands, with their backslashes

    def __call__(self, formula: str) -> str:
        """A formula (the inside of math) in other letters."""
        return _TOKEN.sub(self._rename_token, formula)

    def _rename_token(self, match: re.Match[str]) -> str:
        token: str = match[0]
        if token[0] == "\\":
            return self.greek.get(token, token)
        return token.translate(self.latin) if len(token) <= _MAX_VARIABLES and token.isalpha() else token


def draw_permutation(generator: np.random.Generator) -> LetterPermutation:
    """A renaming by chance, each as likely as any other."""
    latin: dict[int, str] = {}
    for letters in _LATIN_GROUPS:
        order = generator.permutation(len(letters))
        latin |= {ord(letter): letters[place] for letter, place in zip(letters, order, strict=True)}
    greek: dict[str, str] = {}
    for names in (group.split() for group in _GREEK_GROUPS):
        order = generator.permutation(len(names))
        greek |= {rf"\{name}": rf"\{names[place]}" for name, place in zip(names, order, strict=True)}
    return LetterPermutation(latin, greek)
