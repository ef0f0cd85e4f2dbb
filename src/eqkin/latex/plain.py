r"""Translate formulas in plain text, Unicode or ASCII math, to LaTeX; parts that are LaTeX already stay as they are.

    iħ ∂ψ/∂t = Hψ               i\hbar \frac{\partial ψ}{\partial t} = Hψ
    1/sqrt(1-v²/c²)             \frac{1}{\sqrt{1-\frac{v^{2}}{c^{2}}}}
    sum_i=1^n x_i/n             \sum_{i=1}^{n} \frac{x_{i}}{n}
    |<x,y>| <= ||x|| ||y||      |\langle x,y\rangle | \le \|x\| \|y\|

A slash divides what is written before it without a sign in between by the next factor; letters that follow without a
space belong to that factor (`h/2π`, `∂ψ/∂t`), but `1/2a` is half of a. Brackets around an operand of a slash, around an
index or around an exponent are dropped. Names of commands and functions need no backslash.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

from eqkin.latex.typed import KNOWN_COMMANDS

MAX_CHARACTERS = 4_000  # longer formulas are not translated
_END = "\x01"  # ends a command that replaces a character; what follows is not spaced
_SCRIPT_CHARACTERS = {  # as Unicode describes them: "<super> 0032"
    chr(code): (parts[0], chr(int(parts[1], 16)))
    for code in (*range(0xB2, 0xBB), *range(0x2070, 0x209D), *range(0x1D2C, 0x1D6B), *range(0x1D9B, 0x1DC0), 0x2C7C)
    if len(parts := unicodedata.decomposition(chr(code)).split()) == 2 and parts[0] in ("<super>", "<sub>")
}
_ACCENT_MARKS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "overline", "\u0307": "dot", "\u0308": "ddot",
    "\u20d7": "vec", "\u030c": "check", "\u0306": "breve", "\u0331": "underline", "\u0332": "underline",
}  # fmt: skip
_STYLES = {
    "BOLD": "mathbf", "DOUBLE-STRUCK": "mathbb", "SCRIPT": "mathcal", "FRAKTUR": "mathfrak", "SANS-SERIF": "mathsf",
}  # fmt: skip
_SIGNS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "ħ": r"\hbar ", "ℏ": r"\hbar ", "∂": r"\partial ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ", "∼": r"\sim ", "→": r"\to ",
    "⟶": r"\to ", "⇒": r"\Rightarrow ", "⇔": r"\Leftrightarrow ", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/", "±": r"\pm ", "∓": r"\mp ", "…": r"\dots ", "⋯": r"\cdots ",
    "‖": r"\|", "∥": r"\|", "∣": "|", "′": "'", "’": "'", "″": "''", "‘": "'", "∇": r"\nabla ", "∆": r"\Delta ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "∮": r"\oint ", "∬": r"\iint ", "∭": r"\iiint ", "⟨": r"\langle ",
    "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle ", "⟦": "[", "⟧": "]", "†": r"\dagger ", "⊤": r"\top ",
    "ᵀ": r"^{T}", "∘": r"\circ ", "°": r"^{\circ}", "%": r"\%", "#": r"\#", "≔": ":=", "∶": ":", "ℓ": r"\ell ",
}  # fmt: skip
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "¼": "1/4", "¾": "3/4", "⅔": "2/3", "⅕": "1/5", "⅙": "1/6", "⅛": "1/8"}
_OPERATORS = {
    "<=>": r"\Leftrightarrow ", "<->": r"\leftrightarrow ", "-->": r"\to ", "==>": r"\Rightarrow ", "|->": r"\mapsto ",
    "...": r"\dots ", "+/-": r"\pm ", "=>": r"\Rightarrow ", "<=": r"\le ", "=<": r"\le ", ">=": r"\ge ",
    "!=": r"\ne ", "=/=": r"\ne ", "/=": r"\ne ", "==": "=", "->": r"\to ", "<-": r"\gets ", ":=": ":=",
    "~=": r"\approx ", "~~": r"\approx ", "+-": r"\pm ", "-+": r"\mp ", "<<": r"\ll ", ">>": r"\gg ", "||": r"\|",
    "**": "^", "~": r"\sim ",
}  # fmt: skip
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp max min sup inf det dim ker deg gcd"
    " arg Pr limsup liminf".split()
)
_OPERATOR_NAMES = {
    **{name: name for name in "argmax argmin sgn sign erf erfc sinc softmax sigmoid relu ReLU tr Tr trace rank diag vec"
       " Var Cov Corr var cov corr Bias MSE KL JS Attention span curl div grad lcm arccot arsinh arcosh artanh asin"
       " acos atan cosec cis supp conv proj Res Re Im MultiHead LayerNorm FFN Beta Gamma erfi Li Ei Si Ci Ai logit cdf"
       " pdf id mod Hom End Aut Gal ord".split()},
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "cosec": "csc",
}  # fmt: skip
_BIG_OPERATORS = {
    "sum": "sum", "prod": "prod", "product": "prod", "int": "int", "integral": "int", "oint": "oint", "iint": "iint",
    "iiint": "iiint", "lim": "lim", "limit": "lim", "coprod": "coprod", "bigcup": "bigcup", "bigcap": "bigcap",
    "max": "max", "min": "min", "sup": "sup", "argmax": "argmax", "argmin": "argmin", "summation": "sum",
}  # fmt: skip
_ALIASES = {
    "infinity": "infty", "oo": "infty", "inf": "infty", "eps": "epsilon", "grad": "nabla", "del": "nabla",
    "laplacian": "nabla^2", "lamda": "lambda", "ohm": "Omega",
}  # fmt: skip
# words of a sentence that are also names of commands
_ENGLISH_COMMANDS = frozenset(
    "in to over left right star text because therefore square angle big end begin hat bar dot vec tilde choose atop not"
    " middle mid star bullet prime arg deg hom mod square triangle Big because models gets sec dim ker limits diff lg"
    " inf ast circ quad mp pm le ge ne ni lt gt ll gg div vert vdash bmod pmod Pr mbox owns".split()
)
_PREFIXES = (r"\partial", r"\Delta", r"\nabla", "partial", "Delta", "nabla")  # a space after them means nothing
_RELATIONS = ("=", "<=", ">=", "!=", ":=", r"\le", r"\ge")
_ROOTS = {"sqrt": "", "root": "", "cbrt": "3", "√": "", "∛": "3", "∜": "4"}
_WRAPPED = {"abs": ("|", "|"), "norm": (r"\|", r"\|"), "floor": (r"\lfloor ", r"\rfloor "),
            "ceil": (r"\lceil ", r"\rceil ")}  # fmt: skip
_ACCENTS = frozenset("hat bar tilde vec dot ddot overline underline widehat widetilde".split())
_VERBATIM_COMMANDS = re.compile(
    r"\\(?:text[a-z]*|mbox|hbox|operatorname\*?|math(?:rm|bf|bb|cal|frak|sf|it|tt|scr)|label|tag\*?|color|qvar|bm"
    r"|boldsymbol|Bbb|big|Big|bigg|Bigg|begin|end|limits|nolimits|displaystyle|textstyle)(?![A-Za-z])"
)
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>\d+(?:[.,]\d+)*|\.\d+)"
    r"|(?P<wildcard>\?(?:[^\W\d_](?![^\W\d_]))?)"
    r"|(?P<command>\\(?:[A-Za-z]+\x01?|.)|\\$)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<operator><=>|<->|-->|==>|\|->|\.\.\.|\+/-|=/=|=>|<=|=<|>=|!=|/=|==|->|<-|:=|~=|~~|\+-|-\+|<<|>>|\|\||\*\*)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b(?:the )?(integral|sum|product|summation)\s+from\s+(\S+(?:\s*=\s*\S+)?)\s+to\s+(\S+)(?:\s+of\b)?",
         r"\1_{\2}^{\3}"),
        (r"\b(int|integral|sum|product)\s+(?:of\s+)?([^\n]{1,80}?)\s+from\s+(\S+(?:\s*=\s*\S+)?)\s+to\s+(\S+)",
         r"\1_{\3}^{\4} \2"),
        (r"\b(?:the )?(sum|product|integral|summation|max|min)\s+over\s+(\S+)(?:\s+of\b)?", r"\1_{\2}"),
        (r"\b(?:the )?limit\s+(?:of\s+(?P<what>.{1,60}?)\s+)?as\s+(\w+)\s+(?:goes to|tends to|->|→|approaches)\s+(\S+)"
         r"(?:\s+of\b)?", r"lim_{\2 -> \3} \g<what>"),
        (r"\b(?:the )?(integral|sum|product|summation)\s+of\b", r"\1 "),
        (r"\b(?:the )?(?:square root|sqrt) of\b", "sqrt "),
        (r"Σ(?=_|\s+[^\W\d_])", "∑"),
        (r"Π(?=_)", "∏"),
        (r"\s+squared\b", "^2"),
        (r"\s+cubed\b", "^3"),
    )
)  # fmt: skip
_GREEK = "alpha|beta|gamma|delta|mu|nu|rho|sigma|lambda|kappa|tau"
_GREEK_NAMES = re.compile(rf"(?:{_GREEK}){{2,}}")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(")]}")
_LIMIT = re.compile(r"([A-Za-z])\s?(=|->|→)\s?(-?[A-Za-z0-9∞]+)(?=[\s^,]|$)")


def simplify_characters(text: str) -> str:
    """Replace Unicode characters of formulas by LaTeX or ASCII; letters that are not Latin stay."""
    text = "".join(_FRACTIONS.get(c, c) for c in unicodedata.normalize("NFC", text))
    out: list[str] = []
    script = ""  # "^" or "_" while a run of small digits and letters lasts
    decomposed = unicodedata.normalize("NFD", text)
    for character in decomposed if any(mark in _ACCENT_MARKS for mark in decomposed) else text:
        if character in _SCRIPT_CHARACTERS:
            kind, plain = _SCRIPT_CHARACTERS[character]
            sign = "^" if kind == "<super>" else "_"
            if script == sign:
                out[-1] = out[-1][:-1] + _SIGNS.get(plain, plain) + "}"
            else:
                out.append(f"{sign}{{{_SIGNS.get(plain, plain)}}}")
            script = sign
            continue
        script = ""
        if character in _ACCENT_MARKS and out:
            out[-1] = rf"\{_ACCENT_MARKS[character]}{{{out[-1]}}}"
        elif not unicodedata.combining(character):
            out.append(_simplify_character(character))
    return "".join(out)


_SPACED_COMMAND = re.compile(r"(?<=[A-Za-z]) $")


def _simplify_character(character: str) -> str:
    if character in _SIGNS:
        return _SPACED_COMMAND.sub(_END, _SIGNS[character])
    if character < "\u0080" or character.isalpha() and not 0x1D400 <= ord(character) <= 0x1D7FF:
        return character
    plain = unicodedata.normalize("NFKC", character)
    if plain != character and len(plain) == 1:
        name = unicodedata.name(character, "")
        style = next((command for word, command in _STYLES.items() if word in name), "")
        return rf"\{style}{{{plain}}}" if style else _SIGNS.get(plain, plain)
    return " " if character.isspace() else character


@dataclass
class _Token:
    kind: str
    text: str
    spaced: bool  # a space comes before it
    start: int
    end: int


@dataclass
class _Factor:
    """A factor of a product as LaTeX."""

    latex: str
    spaced: bool = False
    kind: str = ""  # number, letter, bracket, function, big, sign
    inner: str | None = None  # what is between the brackets, if it is nothing else


@dataclass
class Translation:
    """A formula as LaTeX, and what was repaired on the way, in plain sentences."""

    latex: str
    repairs: list[str] = field(default_factory=list)


def translate_plain(text: str, is_word: Callable[[str], bool] = lambda word: False) -> Translation:
    """Translate a formula in plain text to LaTeX.

    Args:
        text: Unicode, ASCII math and LaTeX, mixed in any way.
        is_word: Whether a run of letters is a word, not a product of letters.
    """
    if len(text) > MAX_CHARACTERS:
        return Translation(text)
    plain = text
    for pattern, replacement in _PHRASES:
        plain = pattern.sub(replacement, plain)
    parser = _Parser(simplify_characters(plain.replace(_END, " ")), is_word)
    try:
        latex = parser.parse_sequence("")
        while parser.at < len(parser.tokens):  # a bracket that nothing opens
            latex += parser.next().text + parser.parse_sequence("")
    except RecursionError:  # too many brackets, roots or exponents in each other
        return Translation(text)
    return Translation(re.sub(r"  +", " ", latex).strip(), parser.repairs)


class _Parser:
    def __init__(self, text: str, is_word: Callable[[str], bool]) -> None:
        self.text, self.is_word, self.at = text, is_word, 0
        self.repairs: list[str] = []
        self.tokens: list[_Token] = []
        spaced = False
        for match in _TOKEN.finditer(text):
            kind, start = match.lastgroup or "", match.start()
            if kind == "space":
                spaced = not (self.tokens and self.tokens[-1].text in _PREFIXES)
                continue
            parts = _split_word(match[0], start, is_word) if kind == "word" else [(match[0].rstrip(_END), start)]
            for part, start in parts:
                self.tokens.append(_Token(kind, part, spaced, start, start + len(part)))
                spaced = False
        self.is_prefix = True  # the next factor does not follow another one

    def peek(self, ahead: int = 0) -> _Token:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else _Token("end", "", False, len(self.text), len(self.text))

    def next(self) -> _Token:
        token = self.peek()
        self.at += 1
        return token

    def parse_sequence(self, closing: str) -> str:
        """Translate up to a closing bracket, which is not consumed."""
        out: list[str] = []
        product: list[_Factor] = []

        def flush() -> None:
            for factor in product:
                separator = " " if factor.spaced or _ends_in_command(out[-1] if out else "") else ""
                out.append(separator + factor.latex)
            product.clear()

        while True:
            token = self.peek()
            if token.kind == "end" or self._closes(token, closing):
                flush()
                return "".join(out)
            if token.text == "/" and product:
                self._divide(product)
                continue
            text = "".join(out[-2:]).rstrip()
            lacks_operand = not product and (not text or text[-1] in "(|[{=+-,;:" or _ends_in_command(text))
            if sign := self._read_sign(token, lacks_operand):
                flush()
                out.append((" " if token.spaced else "") + sign)
                continue
            self.is_prefix = lacks_operand
            product.append(self._read_factor())

    @staticmethod
    def _closes(token: _Token, closing: str) -> bool:
        if token.text in ("}", r"\right"):
            return True
        return token.text in _CLOSING and closing in (")", "]") if closing != token.text else bool(closing)

    def _read_sign(self, token: _Token, lacks_operand: bool) -> str:
        """Read an operator or a relation; return "" if the next token begins a factor."""
        text = token.text
        if text == "<" and lacks_operand and self._find_angle() is not None:
            return ""
        if text in _OPERATORS and text not in ("**", "||") and not (text == "~" and not token.spaced):
            self.at += 1
            return _OPERATORS[text]
        if token.kind == "command":
            is_sign = text[1:] in _SIGN_COMMANDS or not text[1:2].isalpha() and text not in (r"\{", r"\|")
            self.at += is_sign
            return text + " " * text[-1:].isalpha() if is_sign else ""
        after_prefix = self.at > 0 and self.tokens[self.at - 1].text in _PREFIXES
        if text == "." and (token.spaced or after_prefix) and self.peek(1).spaced and not lacks_operand:
            self.at += 1
            return r"\cdot "
        if text in "+-=<>,;:&~*" and token.kind in ("other", "operator"):
            self.at += 1
            following = self.peek()
            if text == "*" and following.kind not in ("end",) and not lacks_operand:
                return r"\cdot "
            return text
        if text == "/":
            self.at += 1
            return "/"
        if text == "in" and token.spaced and self.peek(1).spaced and not lacks_operand:
            self.at += 1
            return r"\in "
        return ""

    def _find_angle(self) -> int | None:
        """Return the position of the `>` that closes the `<` here."""
        depth = 0
        for ahead in range(1, 60):
            token = self.peek(ahead)
            if token.kind == "end" or token.text in ("=", "<", "<=", ">="):
                return None
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth < 0:
                return None
            if token.text == ">" and depth == 0:
                return self.at + ahead if ahead > 1 else None
        return None

    def _divide(self, product: list[_Factor]) -> None:
        self.at += 1
        start = next((at + 1 for at in range(len(product) - 1, -1, -1) if product[at].kind == "big"), 0)
        above = product[start:]
        if not above or self.peek().kind == "end":
            product.append(_Factor("/"))
            return
        below = self._read_denominator(len(above) == 1 and above[0].kind == "number")
        if below[:1] == "d" or below.startswith(r"\partial"):  # D ∂u / ∂x: only what is differentiated is above
            differential = re.compile(r"d(?![A-Za-z])" if below[0] == "d" else r"\\partial")
            first = next(
                (at for at in range(len(product) - 1, start, -1) if differential.match(product[at].latex)), start
            )
            start, above = first, product[first:]
        numerator = above[0].inner if len(above) == 1 and above[0].inner is not None else _join(above)
        del product[start:]
        product.append(_Factor(rf"\frac{{{numerator}}}{{{below}}}", above[0].spaced, "bracket"))

    def _read_denominator(self, over_number: bool) -> str:
        sign = self.next().text if self.peek().text in ("-", "+") else ""
        first = self._read_factor()
        factors = [first]
        while first.kind == "big" and not self._ends_product(self.peek()):
            factors.append(self._read_factor())
        stops = first.kind in ("bracket", "function") or (first.kind == "number" and over_number)
        while not stops:
            token = self.peek()
            begins = token.kind in ("word", "number", "wildcard") or token.text in "([" or _is_letter(token)
            if token.kind == "command":
                begins = token.text[1:] not in _SIGN_COMMANDS and token.text[1:2].isalpha()
            if token.kind == "end" or token.spaced or not begins or self._closes(token, ")"):
                if not (factors[-1].latex in (r"\partial ", r"\Delta ") and token.kind != "end"):
                    break
            if token.text in "([" and factors[-1].kind != "letter":
                break
            factors.append(self._read_factor())
            stops = factors[-1].kind in ("bracket", "function") and token.text in "(["
        inner = factors[0].inner if len(factors) == 1 else None
        return sign + (inner if inner is not None else _join(factors))

    def _ends_product(self, token: _Token) -> bool:
        is_sign = token.text in _OPERATORS or (token.text in "+-=<>,;:&~/" and token.kind != "word")
        is_sign |= token.kind == "command" and token.text[1:] in _SIGN_COMMANDS
        return token.kind == "end" or is_sign or self._closes(token, ")")

    def _read_factor(self) -> _Factor:
        """Read an operand with its indices, exponents and primes."""
        token = self.peek()
        factor = self._read_atom()
        factor.spaced = token.spaced
        big = factor.kind == "big"
        while True:
            token = self.peek()
            if token.text in ("_", "^", "**") and token.kind != "end":
                self.at += 1
                script = self._read_script(token.text, big, factor.latex)
                if token.text == "_" and script in _ACCENTS and factor.kind == "letter":
                    factor.latex = rf"\{script}{{{factor.latex}}}"
                else:
                    base = factor.latex.rstrip() if factor.latex.strip() else "{}"
                    factor.latex = f"{base}{'_' if token.text == '_' else '^'}{{{script}}}"
            elif token.kind == "number" and factor.kind == "letter" and not token.spaced and factor.latex[-1:] != "}":
                self.at += 1  # x1, and mc2 for mc^2
                is_power = factor.latex == "c" and self.at > 2 and self.tokens[self.at - 3].text == "m"
                factor.latex = f"{factor.latex.rstrip()}{'^' if is_power else '_'}{{{token.text}}}"
            elif token.text in ("'", "!") and (token.text == "'" or not token.spaced):
                self.at += 1
                factor.latex = factor.latex.rstrip() + token.text
            else:
                break
            factor.inner = None
        if factor.kind == "function":
            self._read_argument(factor)
        return factor

    def _read_argument(self, factor: _Factor) -> None:
        """Add the argument of a function to it: a bracket, or the next factor."""
        token = self.peek()
        if (
            token.text in ("(", "[", "{")
            or (
                token.spaced
                and (token.kind in ("word", "number", "wildcard") or (token.kind == "command" and _is_operand(token)))
            )
            or _is_letter(token)
        ):
            argument = self._read_factor()
            if argument.kind != "big":
                factor.latex = factor.latex.rstrip() + (" " if argument.latex[:1].isalnum() else "") + argument.latex
            else:
                factor.latex += " " + argument.latex

    def _read_script(self, sign: str, big: bool, base: str) -> str:
        if sign == "_" and big and (limit := self._read_limit()):
            return limit
        minus = ""
        while self.peek().text in ("-", "+", r"\pm"):
            minus += self.next().text
        token = self.peek()
        if token.kind == "end" or token.text in _CLOSING:
            return minus
        if token.text in ("*", "'", "~"):
            self.at += 1
            return token.text
        if token.kind == "word" and sign == "_":
            return minus + self._read_index()
        atom = self._read_atom()
        out = atom.inner if atom.inner is not None else atom.latex
        if atom.kind == "function":
            self._read_argument(atom)
            out = atom.latex
        while self.peek().text in ("^", "_", "**", "!") and (sign == "^" or self.peek().text == "_") and not big:
            inner = self.next().text  # e^-x^2, x^a_i
            if inner == "!":
                out += "!"
            elif sign == "^" and inner != "_" or atom.kind == "letter":
                out += f"{'_' if inner == '_' else '^'}{{{self._read_script(inner, False, '')}}}"
        if sign == "^" and base.strip() == "e":  # e^ix, e^-kt
            while (
                atom.kind in ("letter", "number")
                and not self.peek().spaced
                and (self.peek().kind in ("word", "number") or _is_letter(self.peek()))
            ):
                out += self._read_factor().latex
        return minus + out

    def _read_limit(self) -> str:
        """Read what is below a big operator without brackets: `sum_i=1^n`."""
        limit = _LIMIT.match(self.text, self.peek().start)
        if limit is None:
            return ""
        while self.peek().kind != "end" and self.peek().start < limit.end():
            self.at += 1
        arrow = limit[2] if limit[2] == "=" else r"\to "
        return f"{limit[1]}{arrow}{translate_plain(limit[3]).latex}"

    def _read_index(self) -> str:
        """Read letters and digits after an underscore: `u_xx`, `x_max`."""
        letters: list[str] = []
        while self.peek().kind in ("word", "number") and (not letters or not self.peek().spaced):
            letters.append(self.next().text)
        name = "".join(letters)
        if name in _ACCENTS:
            return name
        if len(letters) == 1 and len(name) > 1 and (name in KNOWN_COMMANDS or name in _ALIASES):
            self.at -= 1
            return self._read_atom().latex.strip()
        if _GREEK_NAMES.fullmatch(name):  # g_munu
            return "".join(rf"\{greek} " for greek in re.findall(_GREEK, name)).strip()
        if name.isalpha() and len(name) > 2 and self.is_word(name):
            return rf"\text{{{name}}}"
        return " ".join(letters) if any(len(x) > 1 for x in letters) else name

    def _read_atom(self) -> _Factor:
        token = self.next()
        text = token.text
        is_prefix, self.is_prefix = self.is_prefix, True
        if token.kind == "number":
            return _Factor(text, kind="number")
        if token.kind == "wildcard":
            return _Factor(rf"\qvar{{{text[1]}}}" if len(text) > 1 else "?", kind="letter")
        if token.kind == "word":
            return self._read_word(token)
        if token.kind == "command" and text != r"\|":
            return self._read_command(token)
        if text in _OPENING:
            return self._read_bracket(text)
        if text == "<":
            return self._read_angle()
        if text in ("||", "|", r"\|"):
            return self._read_bars(text, is_prefix)
        if text in _ROOTS:
            return self._read_root(text)
        return _Factor(text if text not in "$#" else "", kind="letter" if text.isalpha() else "sign")

    def _read_angle(self) -> _Factor:
        self.at -= 1
        end = self._find_angle()
        self.at += 1
        if end is None:
            return _Factor("<", kind="sign")
        return _Factor(rf"\langle {self._parse_until(end)}\rangle ", kind="bracket")

    def _parse_until(self, end: int) -> str:
        """Translate up to a token, which is consumed."""
        tokens, self.tokens = self.tokens, self.tokens[:end]
        inner = self.parse_sequence("")
        while self.at < end:
            inner += self.next().text + self.parse_sequence("")
        self.tokens, self.at = tokens, end + 1
        return inner

    def _read_bars(self, bar: str, is_prefix: bool) -> _Factor:
        """Read an absolute value, a norm or a ket; a bar after an operand is a sign."""
        latex = "|" if bar == "|" else r"\|"
        if is_prefix:
            depth = 0
            for ahead in range(60):
                token = self.peek(ahead)
                if token.kind == "end" or depth < 0 or (not ahead and token.text == bar) or token.text in _RELATIONS:
                    break
                if depth == 0 and ahead and token.text == bar:
                    return _Factor(f"{latex}{self._parse_until(self.at + ahead)}{latex}", kind="bracket")
                depth += (token.text in _OPENING) - (token.text in _CLOSING)
        content, angle, following = self.peek(), self.peek(1), self.peek(2)
        is_end = following.kind == "end" or following.text in "+-=*,;)]|<" or following.kind == "operator"
        if bar == "|" and content.kind in ("word", "number") and angle.text == ">" and is_end:
            return _Factor(rf"|{self._parse_until(self.at + 1)}\rangle ", kind="bracket")  # a ket
        return _Factor(latex, kind="sign")

    def _read_bracket(self, opening: str) -> _Factor:
        inner = self.parse_sequence(_OPENING[opening])
        closing = self.peek().text
        if closing == _OPENING[opening] or (closing in _CLOSING and closing != "}" and opening != "{"):
            self.at += 1
        else:
            closing = _OPENING[opening]
            where = "at the end" if self.peek().kind == "end" else f"before {self.peek().text}"
            self.repairs.append(f"Added a missing {closing} {where}.")
        if opening == "{" and "\\" not in self.text and re.search(r"[:,|]|\\in ", inner):  # a set
            return _Factor(rf"\{{{inner}\}}", kind="bracket", inner=inner.strip())
        return _Factor(f"{opening}{inner}{closing}", kind="bracket", inner=None if opening == "[" else inner.strip())

    def _read_root(self, name: str) -> _Factor:
        index = _ROOTS[name]
        if (name == "root" and self.peek().text in ("(", "[")) or (name == "sqrt" and self.peek().text == "["):
            index = self._read_atom().latex[1:-1]
        token = self.peek()
        if token.kind == "end" or token.text in _CLOSING:
            return _Factor(r"\sqrt{}", kind="bracket")
        content = self._read_atom()
        if content.kind == "number" and not self.peek().spaced and self.peek().kind == "word" and name != "√":
            content = _Factor(content.latex + self._read_atom().latex)
        elif (
            content.inner is None
            and self.peek().text in ("_", "^")
            and name in ("sqrt", "√")
            and token.text not in "([{"
        ):
            self.at -= 1
            if self.tokens[self.at] is token:
                content = self._read_factor()
            else:
                self.at += 1
        inner = content.inner if content.inner is not None else content.latex.strip()
        return _Factor(rf"\sqrt{f'[{index}]' if index else ''}{{{inner}}}", kind="bracket")

    def _read_word(self, token: _Token) -> _Factor:
        name, following = token.text, self.peek()
        calls = following.text in ("(", "{", "[") and not following.spaced
        if name in _ROOTS:
            return self._read_root(name)
        if name in _WRAPPED and calls:
            left, right = _WRAPPED[name]
            return _Factor(f"{left}{self._read_atom().inner}{right}", kind="bracket")
        if name in _ACCENTS and calls:
            return _Factor(rf"\{name}{{{self._read_atom().inner}}}", kind="letter")
        if name in ("frac", "dfrac", "tfrac", "binom", "choose") and calls:
            return self._read_two_arguments("binom" if name in ("binom", "choose") else "frac")
        if name in _BIG_OPERATORS and (name not in _FUNCTIONS or following.text == "_"):
            command = _BIG_OPERATORS[name]
            known = rf"\{command} " if command in KNOWN_COMMANDS else rf"\operatorname*{{{command}}}"
            return _Factor(known, kind="big")
        if name in _FUNCTIONS and not (name == "inf" and not (calls or following.text == "_")):
            return _Factor(rf"\{name} ", kind="function")
        if name in _OPERATOR_NAMES and (calls or name not in ("Gamma", "Beta", "vec", "div", "id", "Re", "Im", "grad")):
            command = _OPERATOR_NAMES[name]
            if name != "Gamma":
                known = rf"\{command} " if command in _FUNCTIONS else rf"\operatorname{{{command}}}"
                return _Factor(known, kind="function")
        if name in _ALIASES:
            return _Factor(rf"\{_ALIASES[name]} ", kind="letter")
        if len(name) > 1 and name in KNOWN_COMMANDS:
            return _Factor(rf"\{name} ", kind="letter")
        if len(name) > 2 and (calls or self.is_word(name)):
            return _Factor(rf"\text{{{name}}}", kind="function" if calls else "letter")
        return _Factor(name, kind="letter")

    def _read_two_arguments(self, command: str) -> _Factor:
        first = self._read_atom()
        if self.peek().text in ("(", "{"):
            return _Factor(rf"\{command}{{{first.inner}}}{{{self._read_atom().inner}}}", kind="bracket")
        above, _, below = (first.inner or "").partition(",")
        return _Factor(rf"\{command}{{{above.strip()}}}{{{below.strip()}}}", kind="bracket")

    def _read_command(self, token: _Token) -> _Factor:
        r"""Read a command of LaTeX with its arguments; `\left` up to `\right`."""
        name = token.text[1:]
        if name == "left":
            return self._read_left()
        if _VERBATIM_COMMANDS.fullmatch(token.text):
            end = _find_group_end(self.text, token.end)
            while self.peek().kind != "end" and self.peek().start < end:
                self.at += 1
            latex = self.text[token.start : end].replace(_END, " ")
            kind = "function" if name.startswith(("operatorname", "text")) else "letter"
            return _Factor(latex + " " * (latex[-1:].isalpha()), kind=kind)
        latex = token.text
        if name in ("sqrt", "root") and self.peek().text == "[":
            latex += self._read_atom().latex
        grouped = False
        while self.peek().text == "{":
            latex += self._read_atom().latex
            grouped = True
        if not grouped and name in ("sqrt", *_ACCENTS) and self.peek().text == "(":
            return _Factor(rf"\{name}{{{self._read_atom().inner}}}", kind="bracket")
        if name in _BIG_OPERATORS and name not in _FUNCTIONS:
            return _Factor(latex + " ", kind="big")
        if name in ("frac", "sqrt", "binom", "dfrac", "tfrac") and not grouped:
            latex += self._read_bare_arguments(1 if name == "sqrt" else 2)
        kind = "function" if name in _FUNCTIONS else "bracket" if grouped or name in ("frac", "sqrt") else "letter"
        if kind == "letter" and not name[:1].isalpha():
            kind = "sign"
        return _Factor(latex + " " * (latex[-1:].isalpha()), kind=kind)

    def _read_left(self) -> _Factor:
        opening = self.next().text
        inner = self.parse_sequence("")
        while self.peek().kind != "end" and self.peek().text not in ("}", r"\right"):
            inner += self.next().text + self.parse_sequence("")
        if self.peek().text != r"\right":
            return _Factor(rf"\left{opening}{inner}", kind="sign")
        self.at += 1
        latex = rf"\left{opening}{inner}\right{self.next().text}"
        return _Factor(latex, kind="bracket", inner=inner.strip() if opening == "(" else None)

    def _read_bare_arguments(self, count: int) -> str:
        r"""Read arguments without braces: `\frac ab`, `\frac12`."""
        latex = ""
        for _ in range(count):
            argument = self.peek()
            if argument.kind == "end" or argument.text in _CLOSING:
                break
            if argument.kind == "number" and len(argument.text) > 1:
                self.at += 1
                return latex + argument.text
            latex += " " + self._read_atom().latex
        return latex


_SIGN_COMMANDS = frozenset(
    "forall exists nexists in notin ni subset subseteq subsetneq supset supseteq cup cap setminus land lor wedge vee"
    " times cdot div pm mp ast star circ bullet oplus otimes odot le leq leqslant ge geq geqslant ne neq lt gt ll gg"
    " equiv sim simeq approx cong propto mid nmid parallel perp prec succ models vdash to gets rightarrow leftarrow"
    " Rightarrow Leftarrow leftrightarrow Leftrightarrow implies impliedby iff mapsto longrightarrow Longrightarrow"
    " longleftarrow longmapsto hookrightarrow therefore because quad qquad middle".split()
)


def _split_word(word: str, start: int, is_word: Callable[[str], bool]) -> list[tuple[str, int]]:
    """Split a run of letters into names and single letters: `mc`, `dx`, `sinx`, `2pi` (without the number)."""
    if len(word) == 1 or word == "in" or _is_name(word) or (len(word) > 2 and is_word(word)):
        return [(word, start)]
    parts: list[tuple[str, int]] = []
    at = 0
    while at < len(word):
        length = next((n for n in range(min(len(word) - at, 8), 2, -1) if word[at : at + n] in _GLUED_NAMES), 1)
        if (
            length == 1
            and word[at : at + 2] in ("pi", "mu", "nu", "xi")
            and word in ("dmu", "dxi", "dnu", "ipi", "kpi")
        ):
            length = 2
        parts.append((word[at : at + length], start + at))
        at += length
    return parts


def _is_name(word: str) -> bool:
    return (
        word in _ROOTS or word in _WRAPPED or word in _ACCENTS or word in _BIG_OPERATORS or word in _FUNCTIONS
        or word in _OPERATOR_NAMES or word in _ALIASES or word in ("frac", "binom", "choose")
        or (word in KNOWN_COMMANDS and word not in _ENGLISH_COMMANDS)
    )  # fmt: skip


_GLUED_NAMES = frozenset(
    "alpha beta gamma delta epsilon theta lambda sigma omega phi psi rho tau eta Delta Omega Sigma Gamma hbar partial"
    " sqrt sin cos tan log exp".split()
)


def _is_letter(token: _Token) -> bool:
    return token.kind == "other" and token.text.isalpha()


def _is_operand(token: _Token) -> bool:
    return (
        token.text[1:] not in _SIGN_COMMANDS and token.text[1:2].isalpha() and token.text not in (r"\right", r"\left")
    )


def _ends_in_command(text: str) -> bool:
    return re.search(r"\\[A-Za-z]+$", text) is not None


def _join(factors: list[_Factor]) -> str:
    out = ""
    for factor in factors:
        out += (" " if out and (factor.spaced or _ends_in_command(out)) else "") + factor.latex
    return out.strip()


def _find_group_end(text: str, at: int) -> int:
    """Return the end of the `{...}` groups that follow a command, or of the command itself."""
    while True:
        match = re.compile(r"\s*\{").match(text, at)
        if not match:
            return at
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        at = end


SIGN_CHARACTERS = frozenset({*_SIGNS, *_FRACTIONS, *_SCRIPT_CHARACTERS}) - frozenset("–—‐’‘%#°")
# names of signs and functions that need no backslash
MATH_NAMES = frozenset(
    {*_FUNCTIONS, *_OPERATOR_NAMES, *_BIG_OPERATORS, *_ALIASES, *_WRAPPED, *_ACCENTS, "frac", "binom", "sqrt", "cbrt"}
    | (KNOWN_COMMANDS - _ENGLISH_COMMANDS)
) - frozenset(
    "text span sign rank trace product limit del id div Attention sigmoid softmax curl norm floor summation laplacian"
    " Bias root Hom End supp conv".split()
)
