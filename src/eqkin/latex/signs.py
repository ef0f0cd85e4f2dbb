r"""Tokens of typed formulas, their names and signs as tables, and Unicode characters as LaTeX.

The tables are text: one column of names, or names each followed by what they mean.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial


def read_pairs(text: str) -> dict[str, str]:
    """Read a table of names, each followed by what it means."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def end_command(latex: str) -> str:
    """Return LaTeX with a space after it if it ends in letters, which could be taken for a longer name."""
    return latex + " " if latex[-1:].isalpha() else latex


KNOWN_COMMANDS = frozenset(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi varpi rho varrho
    sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    hbar ell imath jmath Re Im aleph infty partial nabla emptyset varnothing prime dagger angle triangle square
    int iint iiint oint sum prod coprod bigcup bigcap bigvee bigwedge bigoplus bigotimes bigsqcup
    lim limsup liminf sup inf max min sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp
    det dim ker coker deg gcd lcm arg hom Pr mod pmod bmod diff
    forall exists nexists in notin ni subset subseteq subsetneq supset supseteq cup cap setminus land lor lnot neg
    wedge vee times cdot div pm mp ast star circ bullet oplus otimes odot
    cdots ldots dots vdots ddots le leq leqslant ge geq geqslant ne neq lt gt ll gg equiv sim simeq approx cong
    propto mid nmid parallel perp prec succ models vdash
    to gets rightarrow leftarrow Rightarrow Leftarrow leftrightarrow Leftrightarrow implies impliedby iff mapsto
    longrightarrow Longrightarrow longleftarrow longmapsto hookrightarrow uparrow downarrow therefore because
    left right middle big Big bigg Bigg langle rangle lvert rvert lVert rVert vert Vert lfloor rfloor lceil rceil
    frac dfrac tfrac cfrac sqrt binom over choose atop stackrel underbrace overbrace begin end
    hat bar tilde vec dot ddot overline underline widehat widetilde overrightarrow
    Bbb mathbb mathbf mathrm mathcal mathfrak mathsf mathit boldsymbol text textbf textit textrm mbox operatorname
    displaystyle textstyle limits nolimits quad qquad
    """.split()
)
SIGN_COMMANDS = frozenset(
    """
    forall exists nexists in notin ni subset subseteq subsetneq supset supseteq cup cap setminus land lor wedge vee
    times cdot div pm mp ast star circ bullet oplus otimes odot le leq leqslant ge geq geqslant ne neq lt gt ll gg
    equiv sim simeq approx cong propto mid nmid parallel perp prec succ models vdash to gets rightarrow leftarrow
    Rightarrow Leftarrow leftrightarrow Leftrightarrow implies impliedby iff mapsto longrightarrow Longrightarrow
    longleftarrow longmapsto hookrightarrow therefore because quad qquad middle
    """.split()
)
# Words of a sentence that are also names of commands.
_ENGLISH_COMMANDS = frozenset(
    """
    in to over left right star text because therefore square angle big end begin hat bar dot vec tilde choose atop not
    middle mid bullet prime arg deg hom mod triangle Big models gets sec dim ker limits diff lg inf ast circ quad mp pm
    le ge ne ni lt gt ll gg div vert vdash bmod pmod Pr mbox owns
    """.split()
)

FUNCTIONS = frozenset(
    """
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp max min sup inf det dim ker deg gcd
    arg Pr limsup liminf
    """.split()
)
ACCENTS = frozenset("hat bar tilde vec dot ddot overline underline widehat widetilde".split())
_NAMED_OPERATORS = """
    argmax argmin sgn sign erf erfc sinc softmax sigmoid relu ReLU tr Tr trace rank diag vec Var Cov Corr var cov corr
    Bias MSE KL JS Attention span curl div grad lcm arccot arsinh arcosh artanh cis supp conv proj Res Re Im MultiHead
    LayerNorm FFN Beta erfi Li Ei Si Ci Ai logit cdf pdf id mod Hom End Aut Gal ord
    """.split()
_ALIASED_FUNCTIONS = read_pairs("asin arcsin  acos arccos  atan arctan  cosec csc")
_BIG_OPERATORS = read_pairs(
    """
    sum sum  prod prod  product prod  int int  integral int  oint oint  iint iint  iiint iiint  lim lim  limit lim
    coprod coprod  bigcup bigcup  bigcap bigcap  max max  min min  sup sup  argmax argmax  argmin argmin  summation sum
    """
)
ALIASES = read_pairs(
    """
    infinity infty  oo infty  inf infty  eps epsilon  grad nabla  del nabla  laplacian nabla^2  lamda lambda  ohm Omega
    """
)
ROOTS = {"sqrt": "", "root": "", "cbrt": "3", "√": "", "∛": "3", "∜": "4"}
WRAPPED = {
    "abs": "|{}|",
    "norm": r"\|{}\|",
    "floor": r"\lfloor {}\rfloor ",
    "ceil": r"\lceil {}\rceil ",
} | {accent: rf"\{accent}{{{{{{}}}}}}" for accent in ACCENTS}
FRACTIONS = {"frac": "frac", "dfrac": "frac", "tfrac": "frac", "binom": "binom", "choose": "binom"}

# What a word means: its LaTeX and its kind, one of letter, function and big (for operators with limits).
Meanings = dict[str, tuple[str, str]]
_LETTERS: Meanings = {
    name: (rf"\{command} ", "letter") for name, command in ({name: name for name in KNOWN_COMMANDS} | ALIASES).items()
}
_FUNCTIONS: Meanings = {
    **{name: (rf"\operatorname{{{name}}}", "function") for name in _NAMED_OPERATORS},
    **{name: (rf"\{command} ", "function") for name, command in _ALIASED_FUNCTIONS.items()},
    **{name: (rf"\{name} ", "function") for name in FUNCTIONS},
}
_BIG: Meanings = {
    name: (rf"\{command} " if command in KNOWN_COMMANDS else rf"\operatorname*{{{command}}}", "big")
    for name, command in _BIG_OPERATORS.items()
}
# Some words are functions only when they are called, `grad(f)`; some are big operators only with an index, `max_x`.
CALLED_WORDS = {name: _FUNCTIONS.pop(name) for name in "inf Beta vec div id Re Im grad".split()}
INDEXED_WORDS = {name: _BIG.pop(name) for name in ("max", "min", "sup")} | {"inf": CALLED_WORDS["inf"]}
WORDS = {**_LETTERS, **_FUNCTIONS, **_BIG}

# Words that are read as one name, not as a product of letters.
NAMES = frozenset((WORDS.keys() - _ENGLISH_COMMANDS) | {*_FUNCTIONS, *CALLED_WORDS, *ROOTS, *WRAPPED, "choose"})
# Names of signs and functions that need no backslash.
MATH_NAMES = NAMES - frozenset(
    """
    text span sign rank trace product limit id div Attention sigmoid softmax curl norm floor summation laplacian Bias
    root Hom End supp conv del choose √ ∛ ∜
    """.split()
)

OPERATORS = {
    sign: end_command(latex)
    for sign, latex in read_pairs(
        r"""
        <=> \Leftrightarrow   <-> \leftrightarrow   --> \to   ==> \Rightarrow   |-> \mapsto   ... \dots   +/- \pm
        => \Rightarrow   <= \le   =< \le   >= \ge   != \ne   =/= \ne   /= \ne   == =   -> \to   <- \gets   := :=
        ~= \approx   ~~ \approx   +- \pm   -+ \mp   << \ll   >> \gg   || \|   ** ^   ~ \sim
        """
    ).items()
}
_SIGNS = read_pairs(
    r"""
    − -   – -   — -   ‐ -   ħ \hbar   ℏ \hbar   ∂ \partial   ∞ \infty   ≤ \le   ≥ \ge   ≠ \ne   ≈ \approx   ≡ \equiv
    ∼ \sim   → \to   ⟶ \to   ⇒ \Rightarrow   ⇔ \Leftrightarrow   × \times   · \cdot   ⋅ \cdot   ∙ \cdot   ÷ /   ∕ /
    ⁄ /   ± \pm   ∓ \mp   … \dots   ⋯ \cdots   ‖ \|   ∥ \|   ∣ |   ′ '   ’ '   ″ ''   ‘ '   ∇ \nabla   ∆ \Delta
    ∑ \sum   ∏ \prod   ∫ \int   ∮ \oint   ∬ \iint   ∭ \iiint   ⟨ \langle   ⟩ \rangle   〈 \langle   〉 \rangle
    ⟦ [   ⟧ ]   † \dagger   ⊤ \top   ∘ \circ   ° ^{\circ}   % \%   # \#   ≔ :=   ∶ :   ℓ \ell
    ½ 1/2   ⅓ 1/3   ¼ 1/4   ¾ 3/4   ⅔ 2/3   ⅕ 1/5   ⅙ 1/6   ⅛ 1/8
    """
)
END = "\x01"  # ends a command that replaces a character: what follows is not spaced
_ACCENT_MARKS = read_pairs(
    "0302 hat  0303 tilde  0304 bar  0305 overline  0307 dot  0308 ddot  20d7 vec  030c check  0306 breve"
    "  0331 underline  0332 underline"
)
_ACCENT_COMMANDS = {chr(int(code, 16)): command for code, command in _ACCENT_MARKS.items()}
_ACCENTED = re.compile(f"(.)([{''.join(_ACCENT_COMMANDS)}]+)", re.DOTALL)
_STYLES = read_pairs("BOLD mathbf  DOUBLE-STRUCK mathbb  SCRIPT mathcal  FRAKTUR mathfrak  SANS-SERIF mathsf")


def _list_scripts(kind: str) -> dict[int, str]:
    """Return the small characters of a kind, "<super>" or "<sub>", and what they stand for, as Unicode says."""
    codes = (*range(0xB2, 0xBB), *range(0x2070, 0x209D), *range(0x1D2C, 0x1D6B), *range(0x1D9B, 0x1DC0), 0x2C7C)
    parts = {code: unicodedata.decomposition(chr(code)).split() for code in codes}
    return {code: chr(int(own[1], 16)) for code, own in parts.items() if own[:1] == [kind] and len(own) == 2}


_SCRIPTS = {"^": _list_scripts("<super>"), "_": _list_scripts("<sub>")}
SIGN_CHARACTERS = frozenset({*_SIGNS, *(chr(code) for table in _SCRIPTS.values() for code in table)}) - frozenset(
    "–—‐’‘%#°"
)


def simplify_characters(text: str) -> str:
    """Replace Unicode characters of formulas by LaTeX or ASCII; letters that are not Latin stay."""
    text = unicodedata.normalize("NFC", text)
    decomposed = unicodedata.normalize("NFD", text)
    if not _ACCENT_COMMANDS.keys().isdisjoint(decomposed):
        text = _ACCENTED.sub(_write_accents, decomposed)
    for sign, table in _SCRIPTS.items():
        run = f"[{''.join(map(chr, table))}]+"
        text = re.sub(run, partial(_write_script, sign), text)
    return "".join(map(_simplify_character, text))


def _write_script(sign: str, match: re.Match[str]) -> str:
    return f"{sign}{{{match[0].translate(_SCRIPTS[sign])}}}"


def _write_accents(match: re.Match[str]) -> str:
    latex = match[1]
    for mark in match[2]:
        latex = rf"\{_ACCENT_COMMANDS[mark]}{{{latex}}}"
    return latex


def _simplify_character(character: str) -> str:
    if character in _SIGNS:
        latex = _SIGNS[character]
        return latex + END if latex[-1].isalpha() else latex
    if unicodedata.combining(character):
        return ""
    is_alphanumeric = 0x1D400 <= ord(character) <= 0x1D7FF
    if character < "\u0080" or (character.isalpha() and not is_alphanumeric):
        return character
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and len(plain) == 1:
        name = unicodedata.name(character, "")
        style = next((command for word, command in _STYLES.items() if word in name), "")
        return rf"\{style}{{{plain}}}" if style else _simplify_character(plain)
    return " " if character.isspace() else character


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
