r"""Commands that lost the space after them, as in formulas that were stored without blanks.

    \intx^n     \int x^n       the longest known command that begins the name
    \dx, \f     dx, f          a short name that nobody defines was letters after a blank (`\ f`)
    \\frac12    \ \frac12      a row does not begin with the letters f, r, a, c

Applied to formulas that people type or take from elsewhere, never to papers, which define commands of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection

KNOWN_COMMANDS = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi varpi rho varrho"
    " sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
    " hbar ell imath jmath Re Im aleph infty partial nabla emptyset varnothing prime dagger angle triangle square"
    " int iint iiint oint sum prod coprod bigcup bigcap bigvee bigwedge bigoplus bigotimes bigsqcup"
    " lim limsup liminf sup inf max min sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp"
    " det dim ker coker deg gcd lcm arg hom Pr mod pmod bmod diff"
    " forall exists nexists in notin ni subset subseteq subsetneq supset supseteq cup cap setminus land lor lnot neg"
    " wedge vee times cdot div pm mp ast star circ bullet oplus otimes odot"
    " cdots ldots dots vdots ddots le leq leqslant ge geq geqslant ne neq lt gt ll gg equiv sim simeq approx cong"
    " propto mid nmid parallel perp prec succ models vdash"
    " to gets rightarrow leftarrow Rightarrow Leftarrow leftrightarrow Leftrightarrow implies impliedby iff mapsto"
    " longrightarrow Longrightarrow longleftarrow longmapsto hookrightarrow uparrow downarrow therefore because"
    " left right middle big Big bigg Bigg langle rangle lvert rvert lVert rVert vert Vert lfloor rfloor lceil rceil"
    " frac dfrac tfrac cfrac sqrt binom over choose atop stackrel underbrace overbrace begin end"
    " hat bar tilde vec dot ddot overline underline widehat widetilde overrightarrow"
    " Bbb mathbb mathbf mathrm mathcal mathfrak mathsf mathit boldsymbol text textbf textit textrm mbox operatorname"
    " displaystyle textstyle limits nolimits quad qquad".split()
)
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_MAX_SHORT_NAME = 3  # letters of a name that is taken for letters
_DIFFERENTIALS = re.compile(r"(?:d[A-Za-z])+")
_TEXT_ACCENTS = frozenset({r"\=", r"\."})  # of text: no commands of a formula
_DELIMITERS = ((r"\(", r"\)"), (r"\[", r"\]"))  # of a formula within text, if both are there
_LETTERS = re.compile(r"[A-Za-z]*")
_MIN_ROW_COMMAND = 3  # letters of a command that a row is not thought to begin with


def restore_spaces(text: str, unknown: Collection[str] = (), failed: bool = False) -> str:
    """The formula with its blanks back, or the formula itself if none seem lost.

    Args:
        text: A formula.
        unknown: The commands in it that nobody defines, with their backslash.
        failed: It cannot be read.
    """
    suspect = failed or bool(unknown)
    lost = set(unknown) | (_TEXT_ACCENTS | _find_lone_delimiters(text) if suspect else frozenset())

    def mended(match: re.Match[str]) -> str:
        if match[0] == r"\\":
            name = _LETTERS.match(text, match.end())
            known = name is not None and name[0] in KNOWN_COMMANDS and (suspect or len(name[0]) >= _MIN_ROW_COMMAND)
            return "\\ \\" if known else match[0]
        return _split_command(match[0]) if match[0] in lost else match[0]

    return _COMMAND.sub(mended, text)


def _find_lone_delimiters(text: str) -> set[str]:
    found = {match[0] for match in _COMMAND.finditer(text)}
    return {sign for pair in _DELIMITERS if len(found.intersection(pair)) == 1 for sign in pair}


def _split_command(command: str) -> str:
    name = command[1:]
    for end in range(len(name) - 1, 1, -1):
        if name[:end] in KNOWN_COMMANDS:
            return f"\\{name[:end]} {name[end:]}"
    if len(name) <= _MAX_SHORT_NAME or _DIFFERENTIALS.fullmatch(name):
        return " " + name
    return command
