r"""Expand macros that open or close displays, before the outline of a document is read.

`\be ... \ee`, `\newenvironment{eq}{\begin{equation}}{...}`, `\let\bea\eqnarray`, AMS-TeX's `\align ... \endalign`. All
other macros are left to the converter, which expands them like TeX.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS
from eqkin.latex.macros import Argument, Environment, Macro
from eqkin.latex.scan import Scanner

_NAMES = "|".join(sorted((re.escape(name) for name in DISPLAY_ENVIRONMENTS), key=len, reverse=True))
_OPENS_DISPLAY = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_NAMES})\*?\}}|(?<!\\)\\\[|(?<!\\)\\\]|\$\$")
_INNER_PAIR = re.compile(r"\\begin\s*+\{([A-Za-z]*+)\*?\}.*\\end\s*+\{\1\*?\}", re.DOTALL)
_OUTER_NAMES = "equation|displaymath|eqnarray|align|alignat|flalign|gather|multline|dmath"
_OUTER = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_OUTER_NAMES})\*?\}}|\\\[|\\\]|\$\$")
_PARAMETER = re.compile(r"#([1-9])")
_COMMANDS = (
    "equation|displaymath|eqnarray|align|alignat|gather|multline|aligned|gathered|split|cases|matrix|pmatrix"
    "|bmatrix|vmatrix|Vmatrix|smallmatrix"
)
_END_COMMAND = re.compile(rf"\\end({_COMMANDS})(?![A-Za-z])")
_ALIASED = re.compile(rf"\\(end)?({_COMMANDS}|array)(?![A-Za-z])")
_LET = re.compile(r"\\let\s*\\[A-Za-z]+\s*=?\s*$")
_EXPANSION_ROUNDS = 3  # a macro may expand to another one

_MAX_EXPANDED = 20_000  # characters of a short text with its macros expanded
_MACRO_ROUNDS = 5
_SINGLE_TOKEN = re.compile(r"\\[A-Za-z]+|\\?.", re.DOTALL)
_CONTROL_WORD_END = re.compile(r"\\[A-Za-z@]+\Z")
_CONTROL_WORD = re.compile(r"\\[A-Za-z@]+\*?")

MacroChange = tuple[int, Macro]  # offset in the text from which the macro holds


def expand_environment_commands(text: str) -> str:
    r"""Write `\align ... \endalign` as `\begin{align} ... \end{align}`, in a text that closes environments that way."""
    names = set(_END_COMMAND.findall(text))
    if not names:
        return text

    def replace(match: re.Match[str]) -> str:
        at = match.start()
        if not match[2] or text[max(at - 20, 0) : at].rstrip(" ={").endswith(("def", "let", "newcommand")):
            return match[0]
        is_let = _LET.search(text[max(at - 40, 0) : at]) is not None
        return match[0] if is_let else _write_environment(match[1], match[2] + match[3])

    used = "|".join(sorted(names, key=len, reverse=True))
    return re.sub(rf"\\(?:\\|(end)?({used})(\*?)(?![A-Za-z]))", replace, text)


def expand_alias(command: str) -> str:
    r"""Return what `\equation` or `\endequation` means, "" for a command that does not open or close an environment."""
    match = _ALIASED.fullmatch(command)
    return _write_environment(match[1], match[2]) if match else ""


def _write_environment(end: str | None, name: str) -> str:
    return rf"\{'end' if end else 'begin'}{{{name}}}"


def expand_structural(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[MacroChange]
) -> tuple[str, list[MacroChange]]:
    """Expand structural macros and environments in `text`; the offsets of `changes` follow the text."""
    chosen = {name: macro for name, macro in macros.items() if _is_structural(macro)}
    opened = {n: e for n, e in environments.items() if n not in DISPLAY_ENVIRONMENTS and _OPENS_DISPLAY.search(e.begin)}
    for _ in range(_EXPANSION_ROUNDS if chosen or opened else 0):
        expanded, changes = _expand_once(text, chosen, opened, changes)
        if expanded is text:
            break
        text = expanded
    return text, changes


def _is_structural(macro: Macro) -> bool:
    body = macro.body
    if not any(sign in body for sign in ("\\begin", "\\end", "\\[", "\\]", "$$")):  # fast, and true of most macros
        return False
    if macro.alias or any(kind[0] in "ud" for kind in macro.args) or not _OPENS_DISPLAY.search(body):
        return False
    return bool(_OUTER.search(body)) or not _INNER_PAIR.search(body)


def _expand_once(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[MacroChange]
) -> tuple[str, list[MacroChange]]:
    # one plain "\" first, then the names: that lets the engine skip ordinary words
    names = "|".join(sorted((re.escape(name[1:]) for name in macros), key=len, reverse=True)) or "(?!)"
    wrappers = "|".join(re.escape(name) for name in environments) or "(?!)"
    pattern = re.compile(
        rf"\\(?:(?P<macro>{names})(?![A-Za-z@])|(?P<side>begin|end)\s*+\{{(?P<environment>{wrappers})\}})"
    )
    scanner, pieces = Scanner(text), list[str]()
    starts, shifts = [0], [0]  # from old offset starts[i] on, new minus old offset is shifts[i]
    at, length, most = 0, 0, 2 * len(text) + 2_000_000
    while (match := pattern.search(text, at)) and length < most:
        if match["macro"]:
            macro = macros["\\" + match["macro"]]
            written, end = _expand_macro(scanner, match.end(), macro.args, macro.body)
        else:
            environment = environments[match["environment"]]
            if match["side"] == "begin":
                written, end = _expand_macro(scanner, match.end(), environment.args, environment.begin)
            else:
                written, end = environment.end, match.end()
        pieces += [text[at : match.start()], written]
        length += match.start() - at + len(written)
        at = end
        starts.append(end)
        shifts.append(length - end)
    if at == 0:
        return text, changes
    pieces.append(text[at:])
    moved = [(offset + shifts[bisect_right(starts, offset) - 1], macro) for offset, macro in changes]
    return "".join(pieces), moved


def expand_macros(text: str, find_macro: Callable[[str], Macro | None]) -> str:
    """Expand the macros in a short text such as a title, given by name; what would grow too much stays as it is."""
    for _ in range(_MACRO_ROUNDS):
        macros = {word: find_macro(word.rstrip("*")) for word in set(_CONTROL_WORD.findall(text))}
        if not any(macros.values()):
            break
        scanner, pieces, at, done = Scanner(text), list[str](), 0, 0
        while match := _CONTROL_WORD.search(text, at):
            macro, at = macros[match[0]], match.end()
            if macro is None or macro.alias or macro.prefix or any(kind[0] in "ud" for kind in macro.args):
                continue
            pieces.append(text[done : match.start()])
            written, at = _expand_macro(scanner, match.start() + len(match[0].rstrip("*")), macro.args, macro.body)
            is_after_word = written[:1].isalpha() and _CONTROL_WORD_END.search("".join(pieces[-2:])[-50:])
            pieces.append(f" {written}" if is_after_word else written)
            done = at
        expanded = "".join([*pieces, text[done:]])
        if expanded == text or len(expanded) > _MAX_EXPANDED:
            break
        text = expanded
    return text


def _expand_macro(scanner: Scanner, at: int, kinds: tuple[Argument, ...], body: str) -> tuple[str, int]:
    """Return the body with the arguments at `at` filled in, and the index after them."""
    values: list[str] = []
    for kind in kinds:
        if kind[0] == "s":
            at = scanner.skip_space(at)
            at += scanner.text[at : at + 1] == "*"
            values.append("")
            continue
        found = scanner.read_bracket(at) if kind[0] == "o" else scanner.read_group(at)
        if found is None and kind[0] in "og":
            found = (kind[1] if len(kind) > 1 else "", at)
        elif found is None:
            token = _SINGLE_TOKEN.match(scanner.text, scanner.skip_space(at))
            found = (token[0], token.end()) if token else ("", at)
        values.append(found[0])
        at = found[1]
    if "#" not in body:
        return body + " ", at
    return _PARAMETER.sub(lambda m: values[int(m[1]) - 1] if int(m[1]) <= len(values) else "", body), at
