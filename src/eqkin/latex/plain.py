r"""Translate formulas in plain text, Unicode or ASCII math, to LaTeX; parts that are LaTeX already stay as they are.

    iħ ∂ψ/∂t = Hψ               i\hbar \frac{\partial ψ}{\partial t} = Hψ
    1/sqrt(1-v²/c²)             \frac{1}{\sqrt{1-\frac{v^{2}}{c^{2}}}}
    sum_i=1^n x_i/n             \sum_{i=1}^{n} \frac{x_{i}}{n}
    |<x,y>| <= ||x|| ||y||      |\langle x,y\rangle | \le \|x\| \|y\|

A slash divides what is written before it without a sign in between by the next factor; letters that follow without a
space belong to that factor (`h/2π`, `∂ψ/∂t`), but `1/2a` is half of a. Brackets around an operand of a slash, around an
index or around an exponent are dropped. Names of commands and functions need no backslash.

Phrases of English and Unicode characters are replaced first. The result is cut into tokens, and `_Parser` reads them by
recursive descent: a sequence consists of signs and products, a product of factors, a factor of an atom and its scripts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from eqkin.latex.signs import (
    ACCENTS,
    ALIASES,
    CALLED_WORDS,
    END,
    FRACTIONS,
    FUNCTIONS,
    INDEXED_WORDS,
    KNOWN_COMMANDS,
    OPERATORS,
    PREFIXES,
    ROOTS,
    WORDS,
    WRAPPED,
    FormulaToken,
    end_command,
    simplify_characters,
    split_tokens,
)

# Longer formulas are not translated.
MAX_CHARACTERS = 4_000
# Two signs are a pair of brackets, such as `|` and `|`, only within so many tokens.
_MAX_BRACKETED = 60
# The name of a command is not longer.
_MAX_COMMAND = 50
_RELATIONS = ("=", "<=", ">=", "!=", ":=", r"\le", r"\ge")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(")]}")
_OPERANDS = ("number", "wildcard", "word", "letter", "command")  # kinds of tokens that begin a factor
_UNCHANGED_SIGNS = frozenset("+-=<>,;:&~*/")
_VERBATIM_COMMAND = re.compile(
    r"\\(?:text[a-z]*|mbox|hbox|operatorname\*?|math(?:rm|bf|bb|cal|frak|sf|it|tt|scr)|label|tag\*?|color|qvar|bm"
    r"|boldsymbol|Bbb|big|Big|bigg|Bigg|begin|end|limits|nolimits|displaystyle|textstyle)(?![A-Za-z])"
)
_PHRASES = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (
            r"\b(?:the )?(integral|sum|product|summation)\s+from\s+(\S+(?:\s*=\s*\S+)?)\s+to\s+(\S+)(?:\s+of\b)?",
            r"\1_{\2}^{\3}",
        ),
        (
            r"\b(int|integral|sum|product)\s+(?:of\s+)?([^\n]{1,80}?)\s+from\s+(\S+(?:\s*=\s*\S+)?)\s+to\s+(\S+)",
            r"\1_{\3}^{\4} \2",
        ),
        (r"\b(?:the )?(sum|product|integral|summation|max|min)\s+over\s+(\S+)(?:\s+of\b)?", r"\1_{\2}"),
        (
            r"\b(?:the )?limit\s+(?:of\s+(?P<what>.{1,60}?)\s+)?as\s+(\w+)\s+(?:goes to|tends to|->|→|approaches)\s+"
            r"(\S+)(?:\s+of\b)?",
            r"lim_{\2 -> \3} \g<what>",
        ),
        (r"\b(?:the )?(integral|sum|product|summation)\s+of\b", r"\1 "),
        (r"\b(?:the )?(?:square root|sqrt) of\b", "sqrt "),
        (r"Σ(?=_|\s+[^\W\d_])", "∑"),
        (r"Π(?=_)", "∏"),
        (r"\s+squared\b", "^2"),
        (r"\s+cubed\b", "^3"),
    )
]
_GREEK = "alpha|beta|gamma|delta|mu|nu|rho|sigma|lambda|kappa|tau"
_GREEK_NAMES = re.compile(rf"(?:{_GREEK}){{2,}}")
_LIMIT = re.compile(r"([A-Za-z])\s?(=|->|→)\s?(-?[A-Za-z0-9∞]+)(?=[\s^,]|$)")
_ENDS_IN_COMMAND = re.compile(r"(?<!\\)(?:\\\\)*+\\[A-Za-z]+$")


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
    parser = _Parser(simplify_characters(plain.replace(END, " ")), is_word)
    try:
        latex = parser.parse_all()
    except RecursionError:
        # Too many brackets, roots or exponents are in each other.
        return Translation(text)
    return Translation(re.sub(r"  +", " ", latex).strip(), parser.repairs)


@dataclass
class _Factor:
    """A factor of a product as LaTeX."""

    latex: str
    kind: str = "letter"  # or number, bracket, function, big, sign
    inner: str | None = None  # what is between the brackets, if it is nothing else
    spaced: bool = False

    @property
    def bare(self) -> str:
        """Its LaTeX without the brackets around it."""
        return self.latex.strip() if self.inner is None else self.inner


def _join_factors(factors: list[_Factor], before: str = "") -> str:
    """Write factors after each other, with spaces where they had some or where a command would grow."""
    latex = before
    for factor in factors:
        is_apart = factor.spaced or _ends_in_command(latex)
        latex += " " + factor.latex if is_apart else factor.latex
    return latex[len(before) :]


def _ends_in_command(latex: str) -> bool:
    return _ENDS_IN_COMMAND.search(latex[-_MAX_COMMAND:]) is not None


class _Parser:
    def __init__(self, text: str, is_word: Callable[[str], bool]) -> None:
        self.text = text
        self.is_word = is_word
        self.tokens = split_tokens(text, is_word)
        self.at = 0
        self.is_prefix = True  # the next factor does not follow another one
        self.repairs: list[str] = []

    def peek(self, ahead: int = 0) -> FormulaToken:
        at = self.at + ahead
        if at < len(self.tokens):
            return self.tokens[at]
        return FormulaToken("end", "", spaced=False, start=len(self.text), end=len(self.text))

    def next(self) -> FormulaToken:
        token = self.peek()
        self.at += 1
        return token

    def parse_all(self) -> str:
        """Translate all tokens; brackets that nothing opens are signs."""
        latex = self.parse_sequence("")
        while self.at < len(self.tokens):
            latex += self.next().text + self.parse_sequence("")
        return latex

    def parse_sequence(self, closing: str) -> str:
        """Translate up to a closing bracket, which is not consumed."""
        out = ""
        product: list[_Factor] = []
        while True:
            token = self.peek()
            if token.kind == "end" or self._closes(token, closing):
                return out + _join_factors(product, out)
            if token.text == "/" and product:
                self._divide(product)
                continue
            before = out.rstrip()
            lacks_operand = not product and (before[-1:] in "(|[{=+-,;:" or _ends_in_command(before))
            if sign := self._read_sign(lacks_operand):
                out += _join_factors(product, out) + (" " if token.spaced else "") + sign
                product = []
                continue
            self.is_prefix = lacks_operand
            product.append(self._read_factor())

    def _parse_until(self, end: int) -> str:
        """Translate up to the token at `end`, which is consumed."""
        tokens = self.tokens
        self.tokens = tokens[:end]
        inner = self.parse_all()
        self.tokens = tokens
        self.at = end + 1
        return inner

    @staticmethod
    def _closes(token: FormulaToken, closing: str) -> bool:
        """Return whether a token ends a sequence; of `)` and `]`, either closes what the other should."""
        if token.text in ("}", r"\right"):
            return True
        return token.text in _CLOSING and closing in (")", "]")

    def _read_sign(self, lacks_operand: bool) -> str:
        """Read an operator or a relation; return "" if the next token begins a factor."""
        token = self.peek()
        if token.text == "<" and lacks_operand and self._find_closing(">", self.at + 1, ("=", "<", "<=", ">=")):
            return ""
        sign = self._translate_sign(token, lacks_operand)
        self.at += bool(sign)
        return sign

    def _translate_sign(self, token: FormulaToken, lacks_operand: bool) -> str:
        text = token.text
        following = self.peek(1)
        if token.kind == "sign":
            return end_command(text)
        # A power and a norm belong to factors, `x~y` without spaces is a product.
        if text in OPERATORS and text not in ("**", "||") and (text != "~" or token.spaced):
            return OPERATORS[text]
        if text == "." and following.spaced and not lacks_operand:
            after_prefix = self.at > 0 and self.tokens[self.at - 1].text in PREFIXES
            return r"\cdot " if token.spaced or after_prefix else ""
        if text == "*" and following.kind != "end" and not lacks_operand:
            return r"\cdot "
        if text == "in" and token.spaced and following.spaced and not lacks_operand:
            return r"\in "
        return text if text in _UNCHANGED_SIGNS else ""

    def _find_closing(self, sign: str, start: int, stops: tuple[str, ...]) -> int | None:
        """Return where `sign` closes what was opened just before `start`; None if there is nothing in between."""
        depth = 0
        for at in range(start, min(start + _MAX_BRACKETED, len(self.tokens))):
            text = self.tokens[at].text
            if depth < 0 or text in stops:
                return None
            if depth == 0 and text == sign:
                return at if at > start else None
            depth += (text in _OPENING) - (text in _CLOSING)
        return None

    # Fractions

    def _divide(self, product: list[_Factor]) -> None:
        """Make a fraction of the end of a product and what follows the slash."""
        self.at += 1
        # A sum or an integral is not part of what is divided.
        start = next((at + 1 for at in reversed(range(len(product))) if product[at].kind == "big"), 0)
        above = product[start:]
        if not above or self.peek().kind == "end":
            product.append(_Factor("/"))
            return
        below = self._read_denominator(len(above) == 1 and above[0].kind == "number")
        # In `D ∂u / ∂x`, only what is differentiated is above.
        if differential := re.match(r"d|\\partial", below):
            begins = re.compile(re.escape(differential[0]) + "(?![A-Za-z])")
            found = (at for at in reversed(range(start + 1, len(product))) if begins.match(product[at].latex))
            start = next(found, start)
            above = product[start:]
        numerator = above[0].inner if len(above) == 1 else None
        if numerator is None:
            numerator = _join_factors(above).strip()
        product[start:] = [_Factor(rf"\frac{{{numerator}}}{{{below}}}", "bracket", spaced=above[0].spaced)]

    def _read_denominator(self, over_number: bool) -> str:
        sign = self.next().text if self.peek().text in ("-", "+") else ""
        factors = [self._read_factor()]
        while factors[0].kind == "big" and not self._ends_product(self.peek()):
            factors.append(self._read_factor())
        # A bracket or a function ends what is below, so does a number below a number: `1/2a` is half of a.
        is_complete = factors[0].kind in ("bracket", "function") or (factors[0].kind == "number" and over_number)
        while not is_complete:
            token = self.peek()
            is_bracket = token.text in ("(", "[")
            if token.spaced or not (token.kind in _OPERANDS or (is_bracket and factors[-1].kind == "letter")):
                break
            factors.append(self._read_factor())
            is_complete = is_bracket and factors[-1].kind in ("bracket", "function")
        inner = factors[0].inner if len(factors) == 1 else None
        return sign + (_join_factors(factors).strip() if inner is None else inner)

    def _ends_product(self, token: FormulaToken) -> bool:
        is_sign = token.text in OPERATORS or token.text in _UNCHANGED_SIGNS - {"*"}
        is_sign |= token.kind == "sign" and token.text[1:].isalpha()
        return token.kind == "end" or is_sign or self._closes(token, ")")

    # Factors

    def _read_factor(self) -> _Factor:
        """Read an operand with its indices, exponents and primes, a function with its argument."""
        spaced = self.peek().spaced
        factor = self._read_atom()
        factor.spaced = spaced
        is_big = factor.kind == "big"
        while self._read_postfix(factor, is_big):
            factor.inner = None
        if factor.kind == "function":
            self._read_argument(factor)
        return factor

    def _read_postfix(self, factor: _Factor, is_big: bool) -> bool:
        """Add one index, exponent, prime or factorial to a factor; return False if there is none."""
        token = self.peek()
        if token.text in ("_", "^", "**"):
            self.at += 1
            script = self._read_script(token.text, is_big, factor.latex)
            # An accent may be written as an index: `x_hat`.
            if token.text == "_" and script in ACCENTS and factor.kind == "letter":
                factor.latex = rf"\{script}{{{factor.latex}}}"
            else:
                sign = "_" if token.text == "_" else "^"
                factor.latex = f"{factor.latex.rstrip() or '{}'}{sign}{{{script}}}"
        elif token.kind == "number" and factor.kind == "letter" and not token.spaced and factor.latex[-1:] != "}":
            # An index, `x1`; but `mc2` is a power.
            self.at += 1
            is_power = factor.latex == "c" and self.at > 2 and self.tokens[self.at - 3].text == "m"
            factor.latex = f"{factor.latex.rstrip()}{'^' if is_power else '_'}{{{token.text}}}"
        elif token.text == "'" or (token.text == "!" and not token.spaced):
            self.at += 1
            factor.latex = factor.latex.rstrip() + token.text
        else:
            return False
        return True

    def _read_argument(self, factor: _Factor) -> None:
        """Add the argument of a function to it: a bracket, or the next factor."""
        token = self.peek()
        is_operand = token.kind == "letter" or (token.spaced and token.kind in _OPERANDS and token.text != r"\left")
        if token.text not in _OPENING and not is_operand:
            return
        argument = self._read_factor()
        if argument.kind == "big":
            factor.latex += " " + argument.latex
        else:
            separator = " " if argument.latex[:1].isalnum() else ""
            factor.latex = factor.latex.rstrip() + separator + argument.latex

    def _read_script(self, sign: str, is_big: bool, base: str) -> str:
        """Read what is below or above `base`, with or without brackets."""
        if sign == "_" and is_big and (limit := self._read_limit()):
            return limit
        minus = ""
        while self.peek().text in ("-", "+", r"\pm"):
            minus += self.next().text
        token = self.peek()
        if token.kind == "end" or token.text in _CLOSING:
            return minus
        if token.text in ("*", "'", "~"):
            return self.next().text
        if token.kind == "word" and sign == "_":
            return minus + self._read_index()
        atom = self._read_atom()
        if atom.kind == "function":
            self._read_argument(atom)
        script = atom.latex if atom.inner is None else atom.inner
        while not is_big and self.peek().text in (("^", "_", "**", "!") if sign == "^" else ("_",)):
            # Scripts of scripts: `e^-x^2`, `x^a_i`.
            inner = self.next().text
            if inner == "!":
                script += "!"
            elif (sign == "^" and inner != "_") or atom.kind == "letter":
                script += f"{'_' if inner == '_' else '^'}{{{self._read_script(inner, False, '')}}}"
        # The whole product is the exponent: `e^ix`, `e^-kt`.
        if sign == "^" and base.strip() == "e" and atom.kind in ("letter", "number"):
            while not self.peek().spaced and self.peek().kind in ("word", "number", "letter"):
                script += self._read_factor().latex
        return minus + script

    def _read_limit(self) -> str:
        """Read what is below a big operator without brackets: `sum_i=1^n`."""
        limit = _LIMIT.match(self.text, self.peek().start)
        if limit is None:
            return ""
        self._skip_to(limit.end())
        arrow = limit[2] if limit[2] == "=" else r"\to "
        return f"{limit[1]}{arrow}{translate_plain(limit[3]).latex}"

    def _skip_to(self, end: int) -> None:
        """Skip the tokens that begin before a place in the text."""
        while self.peek().kind != "end" and self.peek().start < end:
            self.at += 1

    def _read_index(self) -> str:
        """Read letters and digits after an underscore: `u_xx`, `x_max`."""
        first = self.next().text
        letters = [first]
        while self.peek().kind in ("word", "number") and not self.peek().spaced:
            letters.append(self.next().text)
        name = "".join(letters)
        if name in ACCENTS:
            return name
        if name == first and len(name) > 1 and (name in KNOWN_COMMANDS or name in ALIASES):
            self.at -= 1
            return self._read_atom().latex.strip()
        # Several indices: `g_munu`.
        if _GREEK_NAMES.fullmatch(name):
            return "".join(rf"\{greek} " for greek in re.findall(_GREEK, name)).strip()
        if name.isalpha() and len(name) > 2 and self.is_word(name):
            return rf"\text{{{name}}}"
        return " ".join(letters) if max(map(len, letters)) > 1 else name

    # Atoms

    def _read_atom(self) -> _Factor:
        """Read a number, a name, a command with its arguments, or something in brackets."""
        token = self.next()
        text = token.text
        is_prefix = self.is_prefix
        self.is_prefix = True
        if token.kind == "number":
            return _Factor(text, "number")
        if token.kind == "wildcard":
            return _Factor(rf"\qvar{{{text[1]}}}" if len(text) > 1 else "?")
        if token.kind == "word":
            return self._read_word(token)
        if text in ("||", "|", r"\|"):
            return self._read_bars(text, is_prefix)
        if text[:1] == "\\":
            return self._read_command(token)
        if text in _OPENING:
            return self._read_bracket(text)
        if text in ROOTS:
            return self._read_root(text)
        if text == "<" and (end := self._find_closing(">", self.at, ("=", "<", "<=", ">="))):
            return _Factor(rf"\langle {self._parse_until(end)}\rangle ", "bracket")
        return _Factor("" if text in "$#" else text, "letter" if token.kind == "letter" else "sign")

    def _read_bars(self, bar: str, is_prefix: bool) -> _Factor:
        """Read an absolute value, a norm or a ket; a bar after an operand is a sign."""
        latex = "|" if bar == "|" else r"\|"
        end = self._find_closing(bar, self.at, _RELATIONS) if is_prefix else None
        if end is not None:
            return _Factor(f"{latex}{self._parse_until(end)}{latex}", "bracket")
        # A ket such as `|psi>`, unless it is compared with something.
        following = self.peek(2)
        is_end = following.kind in ("end", "operator") or following.text in "+-=*,;)]|<"
        if bar == "|" and self.peek().kind in ("word", "number") and self.peek(1).text == ">" and is_end:
            return _Factor(rf"|{self._parse_until(self.at + 1)}\rangle ", "bracket")
        return _Factor(latex, "sign")

    def _read_bracket(self, opening: str) -> _Factor:
        inner = self.parse_sequence(_OPENING[opening])
        closing = self.peek().text
        if closing == _OPENING[opening] or (closing in (")", "]") and opening != "{"):
            self.at += 1
        else:
            closing = _OPENING[opening]
            where = "at the end" if self.peek().kind == "end" else f"before {self.peek().text}"
            self.repairs.append(f"Added a missing {closing} {where}.")
        # Braces that are not LaTeX hold a set.
        if opening == "{" and "\\" not in self.text and re.search(r"[:,|]|\\in ", inner):
            return _Factor(rf"\{{{inner}\}}", "bracket", inner.strip())
        return _Factor(f"{opening}{inner}{closing}", "bracket", None if opening == "[" else inner.strip())

    def _read_root(self, name: str) -> _Factor:
        index = ROOTS[name]
        if (name == "root" and self.peek().text in ("(", "[")) or (name == "sqrt" and self.peek().text == "["):
            index = self._read_atom().latex[1:-1]
        token = self.peek()
        if token.kind == "end" or token.text in _CLOSING:
            return _Factor(r"\sqrt{}", "bracket")
        start = self.at
        content = self._read_atom()
        following = self.peek()
        if content.kind == "number" and not following.spaced and following.kind == "word" and name != "√":
            # The root of a product: `sqrt 2x`.
            content = _Factor(content.latex + self._read_atom().latex)
        elif following.text in ("_", "^") and name in ("sqrt", "√") and self.at == start + 1:
            self.at = start
            content = self._read_factor()
        return _Factor(rf"\sqrt{f'[{index}]' if index else ''}{{{content.bare}}}", "bracket")

    def _read_word(self, token: FormulaToken) -> _Factor:
        name = token.text
        following = self.peek()
        is_called = following.text in _OPENING and not following.spaced
        if name in ROOTS:
            return self._read_root(name)
        if is_called and name in WRAPPED:
            return _Factor(WRAPPED[name].format(self._read_atom().bare), "letter" if name in ACCENTS else "bracket")
        if is_called and name in FRACTIONS:
            return self._read_two_arguments(FRACTIONS[name])
        meaning = INDEXED_WORDS.get(name) if following.text == "_" else None
        meaning = meaning or (CALLED_WORDS.get(name) if is_called else None) or WORDS.get(name)
        if meaning:
            return _Factor(*meaning)
        if len(name) > 2 and (is_called or self.is_word(name)):
            return _Factor(rf"\text{{{name}}}", "function" if is_called else "letter")
        return _Factor(name)

    def _read_two_arguments(self, command: str) -> _Factor:
        above = self._read_atom().bare
        if self.peek().text in ("(", "{"):
            below = self._read_atom().bare
        else:
            # Both are in one bracket: `frac(a, b)`.
            above, _, below = above.partition(",")
        return _Factor(rf"\{command}{{{above.strip()}}}{{{below.strip()}}}", "bracket")

    def _read_command(self, token: FormulaToken) -> _Factor:
        r"""Read a command of LaTeX with its arguments; `\left` up to `\right`."""
        name = token.text[1:]
        latex = token.text
        if name == "left":
            return self._read_left()
        if _VERBATIM_COMMAND.fullmatch(latex):
            end = _find_group_end(self.text, token.end)
            self._skip_to(end)
            kind = "function" if name.startswith(("operatorname", "text")) else "letter"
            return _Factor(end_command(self.text[token.start : end].replace(END, " ")), kind)
        if name in ("sqrt", "root") and self.peek().text == "[":
            latex += self._read_atom().latex
        is_grouped = self.peek().text == "{"
        while self.peek().text == "{":
            latex += self._read_atom().latex
        if not is_grouped and name in ("sqrt", *ACCENTS) and self.peek().text == "(":
            return _Factor(rf"\{name}{{{self._read_atom().bare}}}", "bracket")
        is_fraction = name in FRACTIONS and name != "choose"
        if not is_grouped and (is_fraction or name == "sqrt"):
            latex += self._read_bare_arguments(1 if name == "sqrt" else 2)
        if name in FUNCTIONS:
            kind = "function"
        elif WORDS.get(name, ("", ""))[1] == "big":
            kind = "big"
            latex += " "
        elif is_grouped or name in ("frac", "sqrt"):
            kind = "bracket"
        else:
            kind = "letter" if name[:1].isalpha() else "sign"
        return _Factor(end_command(latex), kind)

    def _read_left(self) -> _Factor:
        opening = self.next().text
        inner = self.parse_sequence("")
        while self.peek().kind != "end" and self.peek().text not in ("}", r"\right"):
            inner += self.next().text + self.parse_sequence("")
        if self.peek().text != r"\right":
            return _Factor(rf"\left{opening}{inner}", "sign")
        self.at += 1
        latex = rf"\left{opening}{inner}\right{self.next().text}"
        return _Factor(latex, "bracket", inner.strip() if opening == "(" else None)

    def _read_bare_arguments(self, count: int) -> str:
        r"""Read arguments without braces: `\frac ab`, `\frac12`."""
        latex = ""
        for _ in range(count):
            argument = self.peek()
            if argument.kind == "end" or argument.text in _CLOSING:
                break
            if argument.kind == "number" and len(argument.text) > 1:
                return latex + self.next().text
            latex += " " + self._read_atom().latex
        return latex


def _find_group_end(text: str, at: int) -> int:
    """Return the end of the `{...}` groups that follow a command, or of the command itself."""
    while match := re.compile(r"\s*\{").match(text, at):
        depth = 1
        at = match.end()
        while at < len(text) and depth:
            depth += (text[at] == "{") - (text[at] == "}")
            at += 1
    return at
