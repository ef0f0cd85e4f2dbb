r"""Macros that open or close displays, written out in the text before its structure is read.

`\be ... \ee`, `\newenvironment{eq}{\begin{equation}}{...}`, `\let\bea\eqnarray`, AMS-TeX's `\align ... \endalign`. All
other macros are left to the converter, which expands them the way TeX does.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS
from eqkin.latex.macros import Argument, Environment, Macro
from eqkin.latex.scan import read_bracket, read_group, skip_space

_NAMES = "|".join(sorted((re.escape(name) for name in DISPLAY_ENVIRONMENTS), key=len, reverse=True))
_OPENS_DISPLAY = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_NAMES})\*?\}}|(?<!\\)\\\[|(?<!\\)\\\]|\$\$")
_INNER_PAIR = re.compile(r"\\begin\s*+\{([A-Za-z]*+)\*?\}.*\\end\s*+\{\1\*?\}", re.DOTALL)
_OUTER_NAMES = "equation|displaymath|eqnarray|align|alignat|flalign|gather|multline|dmath"
_OUTER = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_OUTER_NAMES})\*?\}}|\\\[|\\\]|\$\$")
_PARAMETER = re.compile(r"#([1-9])")
_COMMANDS = (
    "equation|displaymath|eqnarray|align|alignat|gather|multline|aligned|gathered|split|cases|matrix|pmatrix"
    "|bmatrix|vmatrix"
    "|Vmatrix|smallmatrix"
)
_END_COMMAND = re.compile(rf"\\end({_COMMANDS})(?![A-Za-z])")
_ALIASED = re.compile(rf"\\(end)?({_COMMANDS}|array)(?![A-Za-z])")
_EXPANSION_ROUNDS = 3  # a macro may stand for another one


def expand_environment_commands(text: str) -> str:
    r"""Write `\align ... \endalign` as `\begin{align} ... \end{align}`, in a text that closes environments that way."""
    names = set(_END_COMMAND.findall(text))
    if not names:
        return text
    used = "|".join(sorted(names, key=len, reverse=True))
    return re.sub(
        rf"\\(?:\\|(end)?({used})(\*?)(?![A-Za-z]))",
        lambda m: _write_environment(m[1], m[2] + m[3]) if m[2] and not _is_defined(text, m.start()) else m[0],
        text,
    )


def _write_environment(end: str | None, name: str) -> str:
    return rf"\{'end' if end else 'begin'}{{{name}}}"


def _is_defined(text: str, at: int) -> bool:
    r"""Whether the command at `at` is the object of a \def or \let."""
    return text[max(at - 20, 0) : at].rstrip(" ={").endswith(("def", "let", "newcommand")) or bool(
        re.search(r"\\let\s*\\[A-Za-z]+\s*=?\s*$", text[max(at - 40, 0) : at])
    )


def expand_alias(command: str) -> str:
    r"""What `\equation` or `\endequation` stands for, "" for a command that opens or closes no environment."""
    match = _ALIASED.fullmatch(command)
    return _write_environment(match[1], match[2]) if match else ""


def _is_structural(macro: Macro) -> bool:
    # plain searches first: hardly any macro opens or closes anything
    body = macro.body
    if "\\begin" not in body and "\\end" not in body and "\\[" not in body and "\\]" not in body and "$$" not in body:
        return False
    if macro.alias or any(kind[0] in "ud" for kind in macro.args) or not _OPENS_DISPLAY.search(body):
        return False
    return bool(_OUTER.search(body)) or not _INNER_PAIR.search(body)


def expand_structural(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[tuple[int, Macro]]
) -> tuple[str, list[tuple[int, Macro]]]:
    """Write out structural macros and environments in `text`; `changes` are moved along with the text they stand at."""
    chosen = {name: macro for name, macro in macros.items() if _is_structural(macro)}
    opened = {n: e for n, e in environments.items() if n not in DISPLAY_ENVIRONMENTS and _OPENS_DISPLAY.search(e.begin)}
    for _ in range(_EXPANSION_ROUNDS if chosen or opened else 0):
        text, changes, changed = _expand_once(text, chosen, opened, changes)
        if not changed:
            break
    return text, changes


def _expand_once(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[tuple[int, Macro]]
) -> tuple[str, list[tuple[int, Macro]], bool]:
    # one plain "\" first, then the names: that lets the engine skip ordinary words
    names = "|".join(sorted((re.escape(name[1:]) for name in macros), key=len, reverse=True)) or "(?!)"
    wrappers = "|".join(re.escape(name) for name in environments) or "(?!)"
    pattern = re.compile(
        rf"\\(?:(?P<macro>{names})(?![A-Za-z@])|(?P<side>begin|end)\s*+\{{(?P<environment>{wrappers})\}})"
    )
    pieces: list[str] = []
    starts, shifts = [0], [0]  # from old offset starts[i] on, new minus old offset is shifts[i]
    at, length, most = 0, 0, 2 * len(text) + 2_000_000
    while (match := pattern.search(text, at)) and length < most:
        if match["macro"]:
            macro = macros["\\" + match["macro"]]
            values, end = _read_arguments(text, match.end(), macro.args)
            written = _fill_parameters(macro.body, values)
        elif match["side"] == "begin":
            environment = environments[match["environment"]]
            values, end = _read_arguments(text, match.end(), environment.args)
            written = _fill_parameters(environment.begin, values)
        else:
            written, end = environments[match["environment"]].end, match.end()
        pieces += [text[at : match.start()], written]
        length += match.start() - at + len(written)
        at = end
        starts.append(end)
        shifts.append(length - end)
    if at == 0:
        return text, changes, False
    pieces.append(text[at:])
    moved = [(offset + shifts[bisect_right(starts, offset) - 1], macro) for offset, macro in changes]
    return "".join(pieces), moved, True


def _read_arguments(text: str, at: int, kinds: tuple[Argument, ...]) -> tuple[list[str], int]:
    values: list[str] = []
    for kind in kinds:
        if kind[0] == "s":
            at = skip_space(text, at)
            at += text[at : at + 1] == "*"
            values.append("")
            continue
        optional = kind[0] in "og"
        found = read_bracket(text, at) if kind[0] == "o" else read_group(text, at)
        if found is None and optional:
            found = (kind[1] if len(kind) > 1 else "", at)
        elif found is None:  # a single token
            at = skip_space(text, at)
            found = (text[at : at + 1], at + 1)
        values.append(found[0])
        at = found[1]
    return values, at


def _fill_parameters(body: str, values: list[str]) -> str:
    if "#" not in body:
        return body + " "
    return _PARAMETER.sub(lambda m: values[int(m[1]) - 1] if int(m[1]) <= len(values) else "", body)
