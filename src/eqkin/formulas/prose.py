r"""Prose with inline math, as records have it (`\(...\)`): as pieces of text and MathML for a page, or for a terminal.

A terminal shows formulas as one line of Unicode: E = −∑_(i<j) Jᵢⱼ sᵢ sⱼ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

from eqkin.errors import EqkinError
from eqkin.formulas.engine import FormulaContext, borrow_engine
from eqkin.formulas.mathml import Node, parse_mathml, to_mathml, to_node
from eqkin.latex.typed import clean_typed_formula

_FORMULA = re.compile(r"\\\((.*?)\\\)", re.DOTALL)
_MARKUP = re.compile(r"\\(?:[A-Za-z]+ ?|.)|[{}$]", re.DOTALL)
_SUPERSCRIPTS = dict(zip("0123456789+-−=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVWβγδθφχ′∗*",
               "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵝᵞᵟᶿᵠᵡ′**", strict=True))  # fmt: skip
_SUBSCRIPTS = dict(zip("0123456789+-−=()aehijklmnoprstuvxβγρφχ",
                 "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ", strict=True))  # fmt: skip
_ACCENTS = {
    "^": "\u0302", "ˆ": "\u0302", "~": "\u0303", "˜": "\u0303", "ˉ": "\u0304", "¯": "\u0304", "‾": "\u0304",
    "˙": "\u0307", "¨": "\u0308", "⃗": "\u20d7", "→": "\u20d7", "ˇ": "\u030c", "˘": "\u0306",
}  # fmt: skip
_DOUBLE_STRUCK = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "𝔸𝔹ℂ𝔻𝔼𝔽𝔾ℍ𝕀𝕁𝕂𝕃𝕄ℕ𝕆ℙℚℝ𝕊𝕋𝕌𝕍𝕎𝕏𝕐ℤ", strict=True))
_SPACED_OPERATORS = frozenset("=≠<>≤≥≪≫≈≡∼≃≅∝+−±∓→←↦⇒⇔∈∉⊂⊆⊃∪∩∧∨×⋅∣∥⊗⊕:,;≔")
_WORD = re.compile(r"[^\W\d_]{2,}")
_SCRIPT_TAGS = ("msub", "msup", "msubsup", "mfrac", "msqrt")
_WHITESPACE = re.compile(r"\s+")
# Formulas whose MathML is kept.
_MAX_CACHED = 20_000
# Protects the cache.
_LOCK = Lock()
# MathML by LaTeX; "" for what cannot be read.
_CACHE: dict[str, str] = {}


@dataclass(frozen=True)
class ProseSegment:
    """A piece of prose: words, or a formula with its MathML, which has known elements only and needs no escaping."""

    # Words, or the formula's LaTeX.
    text: str
    # "" for words.
    mathml: str = ""


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
    cleaned = [clean_typed_formula(formula) for formula in formulas]
    with borrow_engine() as engine:
        # The document says what undefined commands mean.
        converted = engine.read(cleaned, FormulaContext(formulas=cleaned), display=False, operators=False)
    trees = iter(range(len(converted.forest)))
    return [
        "" if failed else to_mathml(to_node(converted.forest, next(trees)), display=False)
        for failed in converted.failures
    ]


def to_unicode(mathml: str) -> str:
    """Return a line of text for MathML; empty if it cannot be parsed."""
    try:
        text = _format_node(parse_mathml(mathml))
    except EqkinError:
        return ""
    text = re.sub(r"([(\[{⟨]) ", r"\1", text)
    return _WHITESPACE.sub(" ", re.sub(r" ([)\]},;.⟩])", r"\1", text)).strip()


def _format_node(node: Node) -> str:
    children = node.children
    match node.tag, len(children):
        case "mfrac", 2:
            above, below = _format_node(children[0]).strip(), _format_node(children[1]).strip()
            if node.attributes.get("linethickness", "") in ("0", "0px", "0pt", "0em"):
                return f"({above} ¦ {below})"
            return f"{_parenthesize(above)}/{_parenthesize(below)} "
        case "msqrt", _:
            return _format_root(_format_row(children))
        case "mroot", 2:
            index = _format_script(_format_node(children[1]), _SUPERSCRIPTS, "^")
            return index + _format_root(_format_node(children[0]))
        case (("msub" | "munder"), 2):
            return (
                _format_node(children[0]).rstrip()
                + _format_script(_format_node(children[1]), _SUBSCRIPTS, "_")
                + _get_gap(children[0])
            )
        case (("msup" | "mover"), 2):
            return _format_superscript(node) + _get_gap(children[0])
        case (("msubsup" | "munderover"), 3):
            below, above = (
                _format_script(_format_node(children[1]), _SUBSCRIPTS, "_"),
                _format_script(_format_node(children[2]), _SUPERSCRIPTS, "^"),
            )
            return _format_node(children[0]).rstrip() + below + above + _get_gap(children[0])
        case "mtable", _:
            return "; ".join(_format_node(row).strip() for row in children)
        case (("mtr" | "mlabeledtr"), _):
            return " ".join(_format_node(cell).strip() for cell in children)
        case (("mspace" | "mphantom"), _):
            return " "
    return _format_row(children) if children else _format_leaf(node)


def _format_row(nodes: list[Node]) -> str:
    """Join the members of a row; a space separates letters from functions and scripts."""
    pieces: list[str] = []
    for node in nodes:
        piece = _format_node(node)
        if pieces and piece and (node.tag in _SCRIPT_TAGS or _WORD.match(piece)) and pieces[-1][-1:].isalnum():
            pieces.append(" ")
        elif pieces and _WORD.fullmatch(pieces[-1]) and piece[:1].isalnum():
            pieces.append(" ")
        pieces.append(piece)
    return "".join(pieces)


def _format_leaf(node: Node) -> str:
    text = node.text
    # Invisible signs: applied to, times, comma, plus.
    if text in ("\u2061", "\u2062", "\u2063", "\u2064"):
        return " " if text == "\u2061" else ""
    if node.attributes.get("mathvariant") == "double-struck":
        return "".join(_DOUBLE_STRUCK.get(letter, letter) for letter in text)
    if len(text) == 1 and text in _SPACED_OPERATORS:
        return f"{text} " if text in ",;" else f" {text} "
    return f" {text} " if node.tag == "mtext" else text


def _format_superscript(node: Node) -> str:
    base, mark = _format_node(node.children[0]), _format_node(node.children[1]).strip()
    if node.tag == "mover" and mark in _ACCENTS:
        return base + _ACCENTS[mark] if len(base.strip()) == 1 else f"{_parenthesize(base)}{_ACCENTS[mark]}"
    return base.rstrip() + _format_script(mark, _SUPERSCRIPTS, "^")


def _get_gap(base: Node) -> str:
    return " " if base.tag == "mo" or base.text in ("lim", "max", "min", "sup", "inf") else ""


def _format_script(text: str, letters: dict[str, str], mark: str) -> str:
    text = text.strip()
    plain = text.replace(" ", "")
    if plain and all(letter in letters for letter in plain):
        return "".join(letters[letter] for letter in plain)
    return f"{mark}{plain}" if len(plain) <= 1 else f"{mark}({plain})"


def _format_root(text: str) -> str:
    text = text.strip()
    return f"√{text}" if len(text) <= 1 or text.isdecimal() else f"√({text})"


def _parenthesize(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 1 or text.isalnum() else f"({text})"


def format_prose(text: str) -> str:
    r"""Return prose with its inline math, given as `\(...\)`, as Unicode."""
    return "".join(
        to_unicode(piece.mathml) or piece.text if piece.mathml else piece.text for piece in render_prose(text)
    )
