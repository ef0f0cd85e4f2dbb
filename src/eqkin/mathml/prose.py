r"""Prose with inline math, as records have it (`\(...\)`), as pieces of text and MathML that a page can show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock

from eqkin.latex.typed import clean_typed_formula
from eqkin.mathml.converter import Converter
from eqkin.trees.mathml import to_mathml, to_node

_FORMULA = re.compile(r"\\\((.*?)\\\)", re.DOTALL)
_MARKUP = re.compile(r"\\(?:[A-Za-z]+ ?|.)|[{}$]", re.DOTALL)
_MAX_CACHED = 20_000  # formulas
_LOCK = Lock()  # a converter serves one thread at a time
_CACHE: dict[str, str] = {}  # MathML by LaTeX, "" for what cannot be read


@dataclass(frozen=True)
class ProseSegment:
    """A piece of prose: words, or a formula with its MathML, which has known elements only and needs no escaping."""

    text: str  # words, or the formula's LaTeX
    mathml: str = ""  # "" for words


@cache
def _get_converter() -> Converter:
    return Converter()


def render_prose(text: str) -> list[ProseSegment]:
    """Split prose into words and formulas; a formula that cannot be read becomes words."""
    return render_passages([text])[0]


def render_passages(texts: Iterable[str]) -> list[list[ProseSegment]]:
    """Do the same for several texts, with one call of the converter."""
    split = [_FORMULA.split(text) for text in texts]
    rendered = _convert({latex for pieces in split for latex in pieces[1::2]})
    passages = []
    for pieces in split:
        segments = []
        for number, piece in enumerate(pieces):
            mathml = rendered[piece] if number % 2 else ""
            segments.append(ProseSegment(piece if mathml or number % 2 == 0 else _MARKUP.sub("", piece), mathml))
        passages.append([segment for segment in segments if segment.text])
    return passages


def _convert(formulas: set[str]) -> dict[str, str]:
    with _LOCK:
        new = sorted(formula for formula in formulas if formula not in _CACHE)
        if len(_CACHE) + len(new) > _MAX_CACHED:
            _CACHE.clear()
            new = sorted(formulas)
        if new:
            _CACHE.update(zip(new, _render_inline(new), strict=True))
        return {formula: _CACHE[formula] for formula in formulas}


def _render_inline(formulas: Sequence[str]) -> list[str]:
    converter, cleaned = _get_converter(), [clean_typed_formula(formula) for formula in formulas]
    converter.open_document([], [], cleaned)  # says what undefined commands mean
    converted = converter.convert(cleaned, display=False)
    trees = iter(range(len(converted.forest)))
    return [
        "" if failed else to_mathml(to_node(converted.forest, next(trees)), display=False)
        for failed in converted.failures
    ]
