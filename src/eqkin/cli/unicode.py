"""MathML as one line of Unicode, near enough to read in a terminal: E = −∑_(i<j) Jᵢⱼ sᵢ sⱼ."""

from __future__ import annotations

import re

from eqkin.errors import EqkinError
from eqkin.mathml.tree import Node, parse_mathml

_UP = dict(zip("0123456789+-−=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVWβγδθφχ′∗*",
               "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᵝᵞᵟᶿᵠᵡ′**", strict=True))  # fmt: skip
_DOWN = dict(zip("0123456789+-−=()aehijklmnoprstuvxβγρφχ",
                 "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵩᵪ", strict=True))  # fmt: skip
_ACCENTS = {
    "^": "\u0302", "ˆ": "\u0302", "~": "\u0303", "˜": "\u0303", "ˉ": "\u0304", "¯": "\u0304", "‾": "\u0304",
    "˙": "\u0307", "¨": "\u0308", "⃗": "\u20d7", "→": "\u20d7", "ˇ": "\u030c", "˘": "\u0306",
}  # fmt: skip
_DOUBLE = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "𝔸𝔹ℂ𝔻𝔼𝔽𝔾ℍ𝕀𝕁𝕂𝕃𝕄ℕ𝕆ℙℚℝ𝕊𝕋𝕌𝕍𝕎𝕏𝕐ℤ", strict=True))
_SPACED = frozenset("=≠<>≤≥≪≫≈≡∼≃≅∝+−±∓→←↦⇒⇔∈∉⊂⊆⊃∪∩∧∨×⋅∣∥⊗⊕:,;≔")
_WORD = re.compile(r"[^\W\d_]{2,}")
_BLANKS = re.compile(r"\s+")


def unicode_of(mathml: str) -> str:
    """A line of text for MathML; empty if it cannot be read."""
    try:
        text = _text(parse_mathml(mathml))
    except EqkinError:
        return ""
    text = re.sub(r"([(\[{⟨]) ", r"\1", text)
    return _BLANKS.sub(" ", re.sub(r" ([)\]},;.⟩])", r"\1", text)).strip()


def _text(node: Node) -> str:
    children = node.children
    match node.tag, len(children):
        case "mfrac", 2:
            above, below = _text(children[0]).strip(), _text(children[1]).strip()
            if node.attributes.get("linethickness", "") in ("0", "0px", "0pt", "0em"):
                return f"({above} ¦ {below})"
            return f"{_grouped(above)}/{_grouped(below)} "
        case "msqrt", _:
            return f"√{_grouped(_row(children))}"
        case "mroot", 2:
            return f"{_script(_text(children[1]), _UP, '^')}√{_grouped(_text(children[0]))}"
        case (("msub" | "munder"), 2):
            return _text(children[0]).rstrip() + _script(_text(children[1]), _DOWN, "_") + _gap(children[0])
        case (("msup" | "mover"), 2):
            return _above(node) + _gap(children[0])
        case (("msubsup" | "munderover"), 3):
            below, above = _script(_text(children[1]), _DOWN, "_"), _script(_text(children[2]), _UP, "^")
            return _text(children[0]).rstrip() + below + above + _gap(children[0])
        case "mtable", _:
            return "; ".join(_text(row).strip() for row in children)
        case (("mtr" | "mlabeledtr"), _):
            return " ".join(_text(cell).strip() for cell in children)
        case (("mspace" | "mphantom"), _):
            return " "
    return _row(children) if children else _leaf(node)


def _row(nodes: list[Node]) -> str:
    """Members one after another; letters that would run into a word stand apart from functions and scripts."""
    pieces: list[str] = []
    for node in nodes:
        piece = _text(node)
        if pieces and piece and (_is_script(node) or _WORD.match(piece)) and pieces[-1][-1:].isalnum():
            pieces.append(" ")
        elif pieces and _WORD.fullmatch(pieces[-1]) and piece[:1].isalnum():
            pieces.append(" ")
        pieces.append(piece)
    return "".join(pieces)


def _is_script(node: Node) -> bool:
    return node.tag in ("msub", "msup", "msubsup", "mfrac", "msqrt")


def _leaf(node: Node) -> str:
    text = node.text
    if text in ("\u2061", "\u2062", "\u2063", "\u2064"):  # invisible: applied to, times, comma, plus
        return " " if text == "\u2061" else ""
    if node.attributes.get("mathvariant") == "double-struck":
        return "".join(_DOUBLE.get(letter, letter) for letter in text)
    if len(text) == 1 and text in _SPACED:
        return f"{text} " if text in ",;" else f" {text} "
    return f" {text} " if node.tag == "mtext" else text


def _above(node: Node) -> str:
    base, mark = _text(node.children[0]), _text(node.children[1]).strip()
    if node.tag == "mover" and mark in _ACCENTS:
        return base + _ACCENTS[mark] if len(base.strip()) == 1 else f"{_grouped(base)}{_ACCENTS[mark]}"
    return base.rstrip() + _script(mark, _UP, "^")


def _gap(base: Node) -> str:
    return " " if base.tag == "mo" or base.text in ("lim", "max", "min", "sup", "inf") else ""


def _script(text: str, letters: dict[str, str], mark: str) -> str:
    text = text.strip()
    plain = text.replace(" ", "")
    if plain and all(letter in letters for letter in plain):
        return "".join(letters[letter] for letter in plain)
    return f"{mark}{plain}" if len(plain) <= 1 else f"{mark}({plain})"


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 1 or text.isalnum() else f"({text})"
