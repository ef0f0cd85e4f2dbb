r"""Prose as plain text: LaTeX without its commands.

Inline math stays LaTeX, always as `\(...\)`, so that both words and symbols can be searched and math can be shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from eqkin.latex.signs import read_pairs

EQUATION_MARK = "\ufffc"  # marks the place of a display equation in the prose
_DOLLAR_BODY = r"\$(?:[^$\\\n]++|\\.|\n(?![ \t]*+\n))++"
_IN_PARENTHESES = re.compile(r"\\\((?:[^\\]++|\\(?![()\[\]]).)++\\\)", re.DOTALL)
INLINE_FORMULA = re.compile(rf"{_DOLLAR_BODY}\$|{_IN_PARENTHESES.pattern}", re.DOTALL)
_PERHAPS_OPEN = re.compile(rf"{_DOLLAR_BODY}(?:\$|(?P<open>))|{_IN_PARENTHESES.pattern}", re.DOTALL)
# Context of an equation, on each side.
_CONTEXT_CHARS = 400

_DROP_WITH_ARGUMENT = re.compile(
    r"\\(?:label|ref|eqref|cref|Cref|autoref|pageref|nameref|cite[a-zA-Z]*\*?|nocite|bibliography|bibliographystyle"
    r"|index|vspace\*?|hspace\*?|includegraphics|input|include|usepackage|begin|end|todo|url|setlength|addtolength"
    r"|setcounter|hypertarget|thispagestyle|pagestyle|color|fontsize|selectfont|glsadd|phantomsection"
    r"|addcontentsline)"
    r"(?![A-Za-z])\s*+(?:\[[^\]\ufffc]{0,300}+\]\s*+){0,2}(?:\{[^{}\ufffc]*+\})?(?:\[[^\]\n\ufffc]{0,200}+\])?"
)
_NO_PROSE = re.compile(r"\\begin\{(thebibliography|tikzpicture|tikzcd|axis)\}[^\ufffc]*?\\end\{\1\}")
# \"u, \"{u}, \'\i; accents named by a letter need a brace or a space: \c{c}, \v s, but not \bf
_ACCENT = re.compile(
    r"\\(?:([`'^\"~=.])\s*+(?:\{\\?([A-Za-z])\}|\\?([A-Za-z]))"
    r"|([uvHcdbrkt])(?:\s*+\{\\?([A-Za-z])\}|\s++\\?([A-Za-z])(?![A-Za-z])))"
)
_SYMBOLS = {
    "&": "&", "%": "%", "$": "$", "#": "#", "_": "_", "{": "{", "}": "}", ",": " ", ";": " ", ":": " ", "!": "",
    " ": " ", "\\": " ", "-": "", "/": "", "@": "", "(": "(", ")": ")",
}  # fmt: skip
_LETTER_COMMANDS = read_pairs(
    """
    ss ß  ae æ  AE Æ  oe œ  OE Œ  o ø  O Ø  l ł  L Ł  aa å  AA Å  i ı  j ȷ  ldots …  dots …  textendash –  textemdash —
    TeX TeX  LaTeX LaTeX  S §  P ¶
    """
) | {"quad": " ", "qquad": " ", "par": "\n\n", "item": "\n", "newline": "\n", "footnote": " "}
_COMBINING = {
    accent: chr(int(code, 16))
    for accent, code in read_pairs(
        """
        ` 0300  ' 0301  ^ 0302  " 0308  ~ 0303  = 0304  . 0307
        u 0306  v 030c  H 030b  c 0327  d 0323  b 0331  r 030a  k 0328  t 0361
        """
    ).items()
}
# Inline math is kept whole, commands outside of it are removed. Every alternative starts with a plain character: that
# lets the engine skip ordinary words.
_TOKEN = re.compile(
    r"\$(?:[^$\\]++|\\.)++\$"
    r"|\\(?:\((?:[^\\]++|\\(?![()]))++\\\)|([A-Za-z]++)\*?\s*+(?:\[[^\]\n\ufffc]{0,200}+\])?|[^A-Za-z])"
    r"|\{|\}|~|``|''|---?|\t|\r|  +",
    re.DOTALL,
)
_LINES = re.compile(r"\n[ \n]*\n[ \n]*")
_PLAIN_TOKENS = {
    "{": "", "}": "", "~": " ", "``": '"', "''": '"', "--": "–", "---": "—", "\t": " ", "\r": " ", "$": "$",
}  # fmt: skip


def iter_inline_formulas(text: str) -> Iterator[re.Match[str]]:
    r"""Yield the inline formulas of a text, in one pass.

    After a dollar sign that nothing closes, no other one up to the end of its paragraph starts a formula: one that
    could is escaped (`\$`), and the search from there would end at the same place.
    """
    at = 0
    while match := _PERHAPS_OPEN.search(text, at):
        at = match.end()
        if match.lastgroup != "open":
            yield match
        else:
            yield from _IN_PARENTHESES.finditer(text, match.start(), at)


def _replace_token(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] == "$" and len(token) > 1:
        return rf"\({token[1:-1].strip()}\)"
    if token[0] == "\\":
        word = match[1]
        if word:
            return _LETTER_COMMANDS.get(word, "")
        return token if len(token) > 2 else _SYMBOLS.get(token[1], "")
    if token[0] == " ":
        return " "
    return _PLAIN_TOKENS.get(token, token)


def _replace_accent(match: re.Match[str]) -> str:
    accent = match[1] or match[4]
    letter = match[2] or match[3] or match[5] or match[6]
    return unicodedata.normalize("NFC", letter + _COMBINING[accent])


def to_plain_text(latex: str) -> str:
    """Return the plain text of LaTeX prose; equation marks stay where they are."""
    if "\\" in latex:
        latex = _NO_PROSE.sub(" ", latex)
        latex = _DROP_WITH_ARGUMENT.sub(" ", latex)
        latex = _ACCENT.sub(_replace_accent, latex)
    latex = _TOKEN.sub(_replace_token, latex)
    latex = _LINES.sub("\n\n", latex)
    return latex.strip(" \n")


def extract_context(prose: str, mark: int) -> tuple[str, str]:
    """Return the text just before and after the equation with this mark number in a section's plain text."""
    at = -1
    for _ in range(mark + 1):
        at = prose.find(EQUATION_MARK, at + 1)
    if at < 0:
        return "", ""
    before = prose[max(0, at - _CONTEXT_CHARS) : at].rpartition(EQUATION_MARK)[2]
    after = prose[at + 1 : at + 1 + _CONTEXT_CHARS].partition(EQUATION_MARK)[0]
    # The window may cut an inline formula.
    if before.find(r"\)") >= 0 and not 0 <= before.find(r"\(") < before.find(r"\)"):
        before = before.partition(r"\)")[2]
    if after.rfind(r"\(") > after.rfind(r"\)"):
        after = after.rpartition(r"\(")[0]
    return before.strip(), after.strip()
