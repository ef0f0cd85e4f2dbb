r"""Macros that open or close displays (`\be ... \ee`, `\newenvironment{eq}{\begin{equation}}{...}`) are written out in the text
before its structure is read; all other macros are left to the converter, which expands them the way TeX does.
"""

from __future__ import annotations

import re

from .environments import DISPLAY
from .macros import Argument, Environment, Macro
from .scan import read_bracket, read_group, skip_space

_NAMES = "|".join(sorted((re.escape(name) for name in DISPLAY), key=len, reverse=True))
_OPENS_DISPLAY = re.compile(rf"\\(?:begin|end)\s*\{{(?:{_NAMES})\*?\}}|(?<!\\)\\\[|(?<!\\)\\\]|\$\$")
_INNER_PAIR = re.compile(r"\\begin\s*\{([A-Za-z]*)\*?\}.*\\end\s*\{\1\*?\}", re.DOTALL)
_OUTER = re.compile(r"\\(?:begin|end)\s*\{(?:equation|displaymath|eqnarray|align|alignat|flalign|gather|multline|dmath)\*?\}|\\\[|\\\]|\$\$")
_PARAMETER = re.compile(r"#([1-9])")


def _is_structural(macro: Macro) -> bool:
    if not _OPENS_DISPLAY.search(macro.body):
        return False
    return bool(_OUTER.search(macro.body)) or not _INNER_PAIR.search(macro.body)


def expand_structural(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[tuple[int, Macro]]
) -> tuple[str, list[tuple[int, Macro]]]:
    """Write out structural macros and environments in `text`; `changes` are moved along with the text they stand at."""
    chosen = {name: macro for name, macro in macros.items() if not macro.alias and _is_structural(macro)}
    chosen = {n: m for n, m in chosen.items() if not any(a[0] in "ud" for a in m.args)}
    opened = {n: e for n, e in environments.items() if n not in DISPLAY and _OPENS_DISPLAY.search(e.begin)}
    for _ in range(3):  # a macro may stand for another one
        if not chosen and not opened:
            break
        text, changes, changed = _write_out(text, chosen, opened, changes)
        if not changed:
            break
    return text, changes


def _write_out(
    text: str, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[tuple[int, Macro]]
) -> tuple[str, list[tuple[int, Macro]], bool]:
    names = "|".join(sorted((re.escape(name) for name in macros), key=len, reverse=True)) or "(?!)"
    starred = "|".join(re.escape(name) for name in environments) or "(?!)"
    pattern = re.compile(rf"(?P<macro>{names})(?![A-Za-z@])|\\(?P<side>begin|end)\s*\{{(?P<environment>{starred})\}}")
    pieces: list[str] = []
    shifts: list[tuple[int, int]] = [(0, 0)]  # (old offset, new minus old from there on)
    at, length, budget = 0, 0, len(text) + 1_000_000
    while (match := pattern.search(text, at)) and length < 2 * budget:
        if match["macro"]:
            macro = macros[match["macro"]]
            values, end = _read_arguments(text, match.end(), macro.args)
            written = _fill(macro.body, values)
        else:
            environment = environments[match["environment"]]
            if match["side"] == "begin":
                values, end = _read_arguments(text, match.end(), environment.args)
                written = _fill(environment.begin, values)
            else:
                written, end = environment.end, match.end()
        pieces += [text[at : match.start()], written]
        if not match["macro"] or not text[end : end + 1].isalpha():
            pass
        length += match.start() - at + len(written)
        at = end
        shifts.append((end, length - end))
    if at == 0:
        return text, changes, False
    pieces.append(text[at:])
    moved = [(offset + next(s for start, s in reversed(shifts) if start <= offset), macro) for offset, macro in changes]
    return "".join(pieces), moved, True


def _read_arguments(text: str, at: int, kinds: tuple[Argument, ...]) -> tuple[list[str], int]:
    values: list[str] = []
    for kind in kinds:
        if kind[0] == "s":
            at = skip_space(text, at)
            starred = text[at : at + 1] == "*"
            at += starred
            values.append("")
        elif kind[0] == "o":
            bracket = read_bracket(text, at)
            values.append(bracket[0] if bracket else (kind[1] if len(kind) > 1 else ""))
            at = bracket[1] if bracket else at
        else:
            group = read_group(text, at)
            if group:
                values.append(group[0])
                at = group[1]
            else:
                at = skip_space(text, at)
                values.append(text[at : at + 1])
                at += 1
    return values, at


def _fill(body: str, values: list[str]) -> str:
    if "#" not in body:
        return body + " "
    return _PARAMETER.sub(lambda m: values[int(m[1]) - 1] if int(m[1]) <= len(values) else "", body)
