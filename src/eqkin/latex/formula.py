r"""A formula as a person types it: with or without `$`, `$$`, `\[ \]`, `\( \)` or a display environment around it."""

from __future__ import annotations

import re

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, to_converter_input

_DELIMITER_PAIRS = (("$$", "$$"), ("$", "$"), ("\\[", "\\]"), ("\\(", "\\)"))
_ENVIRONMENT = re.compile(r"\\begin\s*\{([A-Za-z]+\*?)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_NOISE = re.compile(r"\\label\s*\{[^{}]*\}|\\(?:nonumber|notag)(?![A-Za-z])")


def clean_typed_formula(text: str) -> str:
    """What the converter takes for a formula typed by a person."""
    text = _NOISE.sub("", text).strip()
    for opening, closing in _DELIMITER_PAIRS:
        if len(text) >= len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : len(text) - len(closing)].strip()
            break
    match = _ENVIRONMENT.fullmatch(text)
    if match and match[1].removesuffix("*") in DISPLAY_ENVIRONMENTS:
        return to_converter_input(match[1], match[2])
    return to_converter_input("DISPLAY", text)
