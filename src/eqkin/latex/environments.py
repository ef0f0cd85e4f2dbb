r"""Display environments and how each is rewritten for the converter.

KaTeX knows `aligned`, `gathered`, `array`, `cases`, ... but not every environment that people use around them; the
outer environment is rewritten to one it knows. An alignment of one row means nothing and is removed, so that `equation`
and a one-line `align` give the same tree.

Macros that open or close displays are expanded before the outline of a document is read: `\be ... \ee`,
`\newenvironment{eq}{\begin{equation}}{...}`, `\let\bea\eqnarray`, AMS-TeX's `\align ... \endalign`. All other macros
are left to the converter, which expands them like TeX.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from eqkin.latex.macros import Environment, Macro, fill_arguments
from eqkin.latex.scan import Scanner
from eqkin.limits import LIMITS

PLAIN_ENVIRONMENTS = frozenset("equation displaymath dmath DISPLAY".split())
ALIGNED_ENVIRONMENTS = frozenset(
    "eqnarray align flalign alignat xalignat xxalignat IEEEeqnarray subeqnarray darray dgroup".split()
)
GATHERED_ENVIRONMENTS = frozenset("gather multline dseries mathpar".split())
CASES_ENVIRONMENTS = frozenset("numcases subnumcases".split())
WRAPPER_ENVIRONMENTS = frozenset({"empheq"})
# environments that are displays only outside of math
INNER_ENVIRONMENTS = frozenset(
    "array aligned alignedat gathered split cases dcases rcases matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix"
    " smallmatrix".split()
)
MATHML_ENVIRONMENT = "eqkinmathml"
DISPLAY_ENVIRONMENTS = (
    PLAIN_ENVIRONMENTS
    | ALIGNED_ENVIRONMENTS
    | GATHERED_ENVIRONMENTS
    | CASES_ENVIRONMENTS
    | WRAPPER_ENVIRONMENTS
    | INNER_ENVIRONMENTS
    | {MATHML_ENVIRONMENT}
)

# environments that KaTeX lacks, and the one it has instead
_RENAMED_ENVIRONMENTS = {
    name: target
    for target, names in {
        "aligned": "align align* flalign flalign* eqnarray eqnarray* aligned* subalign",
        "gathered": "gather* gather multline multline* multlined lgathered rgathered equation equation* displaymath",
        "dcases": "dcases*",
        "cases": "cases* sistema lcases numcases subnumcases",
        "rcases": "rcases*",
        "matrix": "NiceMatrix",
        "pmatrix": "pNiceMatrix psmallmatrix psmallmatrix* smallpmatrix pmat spmatrix",
        "bmatrix": "bNiceMatrix bsmallmatrix bsmallmatrix* smallbmatrix",
        "vmatrix": "vNiceMatrix vsmallmatrix",
        "Bmatrix": "BNiceMatrix Bsmallmatrix",
        "Vmatrix": "Vsmallmatrix",
        "smallmatrix": "smallmatrix*",
        "array": "IEEEeqnarraybox IEEEeqnarray IEEEeqnarray* tabular tabular* NiceArray array* block pNiceArray"
        " bNiceArray blockarray",
        "split": "split*",
        "alignedat": "alignat alignat* xalignat xalignat*",
    }.items()
    for name in names.split()
}
_DROPPED_ENVIRONMENTS = frozenset(
    "center small footnotesize scriptsize tiny large Large normalsize flushleft flushright minipage subequations"
    " adjustbox scope figure table proof math mathsmall spreadlines onehalfspace singlespace doublespace tcolorbox"
    " mdframed framed quote itemize enumerate displaybreak minimize landscape autobreak breqn frame columns column"
    " block* tightcenter".split()
)
_BEGIN_OR_END = re.compile(r"\\(begin|end)\s*+\{([^{}]*+)\}")
_ROW_BREAK = re.compile(r"\\\\|\\cr(?![A-Za-z])|\\newline|\\tabularnewline|\\begin\s*\{")
_ROW_END = re.compile(r"(\\\\|\\cr(?![A-Za-z]))")
_AMPERSAND = re.compile(r"(?<!\\)&")
_TEXT_CASES = re.compile(r"(\\begin\{[dr]?cases)\*\}(.*?)(\\end\{[dr]?cases)\*\}", re.DOTALL)
_ROW_SPACE = re.compile(r"\\\\\s*+\[[^\]\\]*+\]$")
_MAX_COLUMNS = 200
# Longer brackets are not options such as `[t]`.
_MAX_OPTION = 3
# Repeated columns, `*{3}{...}`, are resolved so deep.
_MAX_REPEAT_DEPTH = 3
# commands that draw: an equation with one of them is a picture
DIAGRAM_COMMANDS = frozenset(
    r"\xymatrix \xygraph \xy \diagram \Qcircuit \includegraphics \tikz \feynmandiagram \tikzfig \begindc \epsfig"
    r" \epsfbox \drawline \put \line \fmfleft \psfig \adjincludegraphics \xyoption \dynkin \AxiomC \AXC \UnaryInfC"
    r" \DisplayProof".split()
)
DIAGRAM = re.compile(
    r"\\(?:(?:xymatrix|xygraph|xy|diagram|begindc|Qcircuit|feynmandiagram|includegraphics|tikz|tikzfig|epsfig|young"
    r"|ytableaushort|input|AxiomC|AXC|DisplayProof)(?![A-Za-z])"
    r"|begin\s*\{\s*(?:tikzcd|tikzpicture|CD|xy|diagram|picture|feynman|quantikz|yquant|pspicture|pgfpicture|codi"
    r"|forest|prooftree"
    r"|ytableau|psmatrix|circuitikz|axis|fmfgraph\*?|fmffile|dynkinDiagram|tabularx|lstlisting|longtable"
    r"|algorithmic|overpic)\s*\})"
)


def is_diagram(body: str) -> bool:
    """Return whether a display is a picture (commutative diagram, drawing, proof tree) rather than an equation."""
    return DIAGRAM.search(body) is not None


def to_converter_input(environment: str, body: str) -> str:
    """Rewrite the body of a display environment as LaTeX that the converter takes in display mode."""
    # The converter will refuse it.
    if len(body) > LIMITS.latex_chars:
        return body
    name = environment.removesuffix("*")
    if name in WRAPPER_ENVIRONMENTS:
        name, body = _unwrap_empheq(body)
    if "\\begin" in body:
        body = rewrite_environments(body)
    body = body.strip()
    # A break after the last row would begin an empty one.
    while (space := _ROW_SPACE.search(body, max(len(body) - 40, 0))) or body.endswith("\\\\"):
        body = body[: space.start() if space else -2].rstrip()
    if name in PLAIN_ENVIRONMENTS:
        return body
    if name in CASES_ENVIRONMENTS:
        head = Scanner(body).read_group(0) or ("", 0)
        return rf"{head[0]}\begin{{cases}}{body[head[1] :]}\end{{cases}}"
    if name in INNER_ENVIRONMENTS:
        return rewrite_environments(rf"\begin{{{environment}}}{body}\end{{{environment}}}")
    # A single row needs no alignment.
    if not _ROW_BREAK.search(body):
        return _AMPERSAND.sub(" ", body)
    # Within another environment, `&` and line breaks belong to that.
    is_nested = "\\begin" in body
    if name in GATHERED_ENVIRONMENTS:
        body = body if is_nested else _AMPERSAND.sub(" ", body)
        return rf"\begin{{gathered}}{body}\end{{gathered}}"
    if name in ("eqnarray", "IEEEeqnarray", "subeqnarray") and not is_nested:
        body = "".join(_merge_columns(part) for part in _ROW_END.split(body))
    return rf"\begin{{aligned}}{body}\end{{aligned}}"


def strip_arguments(environment: str, body: str) -> str:
    r"""Remove the argument before the rows of `alignat` and `IEEEeqnarray`: `{2}`, `{rCl}`."""
    name = environment.removesuffix("*")
    if name not in ("alignat", "xalignat", "xxalignat", "IEEEeqnarray"):
        return body
    scanner = Scanner(body)
    at = scanner.skip_bracket(0) if name == "IEEEeqnarray" else 0
    return body[scanner.skip_group(at) :]


def _merge_columns(row: str) -> str:
    """Write a row `a &=& b` of an eqnarray as `a &= b`."""
    marks = list(_AMPERSAND.finditer(row))
    return row if len(marks) < 2 else row[: marks[1].start()] + " " + row[marks[1].end() :]


def _unwrap_empheq(body: str) -> tuple[str, str]:
    r"""Return the environment that `\begin{empheq}[options]{align*}` wraps, and the rest."""
    scanner = Scanner(body)
    group = scanner.read_group(scanner.skip_bracket(0))
    if group is None:
        return "align", body
    inner = group[0].split("=")[0].strip().removesuffix("*")
    return (inner if inner in DISPLAY_ENVIRONMENTS else "align"), body[group[1] :]


def rewrite_environments(body: str) -> str:
    """Rename environments that KaTeX does not know to ones it does; remove environments for layout."""
    if "cases*}" in body:
        body = _TEXT_CASES.sub(_wrap_text_column, body)
    scanner = Scanner(body)
    pieces: list[str] = []
    opened: list[str] = []
    at = 0
    for match in _BEGIN_OR_END.finditer(body):
        # Within the arguments of the last one.
        if match.start() < at:
            continue
        which = match[1]
        name = match[2].strip()
        target = "" if name in _DROPPED_ENVIRONMENTS else _RENAMED_ENVIRONMENTS.get(name, name)
        # What an environment is called at its beginning decides what it is called at its end.
        if which == "end" and opened:
            target = opened.pop()
        pieces.append(body[at : match.start()])
        at = match.end()
        if target:
            pieces.append(rf"\{which}{{{target}}}")
        if which == "begin":
            opened.append(target)
            arguments, at = _rewrite_arguments(scanner, at, name=name, target=target)
            pieces.append(arguments)
    return "".join([*pieces, body[at:]])


def _wrap_text_column(match: re.Match[str]) -> str:
    """Mark the second column of mathtools' `cases*` as text."""
    rows = (row.split("&", 1) for row in match[2].split("\\\\"))
    written = "\\\\".join(rf"{row[0]}&\text{{{row[1]}}}" if len(row) == 2 else row[0] for row in rows)
    return f"{match[1]}}}{written}{match[3]}}}"


def _rewrite_arguments(scanner: Scanner, at: int, *, name: str, target: str) -> tuple[str, int]:
    r"""Rewrite what follows `\begin{name}`: options are dropped, column specifications reduced to l, c, r."""
    if target in ("aligned", "gathered", "split", "cases", "dcases", "alignedat", "array", "rcases", ""):
        bracket = scanner.read_bracket(at)
        # Longer ones are part of the formula.
        if bracket and (len(bracket[0]) <= _MAX_OPTION or not target):
            at = bracket[1]
    if target == "array":
        if name in ("tabular*", "IEEEeqnarraybox*") and scanner.skip_group(scanner.skip_group(at)) > at:
            at = scanner.skip_group(at)
        spec = scanner.read_group(at)
        return ("{" + simplify_columns(spec[0]) + "}", spec[1]) if spec else ("{" + "c" * 12 + "}", at)
    if name in ("minipage", "adjustbox", "numcases", "subnumcases"):
        at = scanner.skip_group(at)
    return "", at


def simplify_columns(spec: str, depth: int = 0) -> str:
    r"""Reduce a column specification to l, c, r and rules: resolve or drop `@{}` `!{}` `>{}` `p{}` `*{3}{c}`."""
    columns = ""
    scanner = Scanner(spec)
    at = 0
    while at < len(spec) and len(columns) < _MAX_COLUMNS:
        letter = spec[at]
        at += 1
        if letter in "lcrLCR|:":
            columns += letter.lower()
        elif letter in "@!><":
            at = scanner.skip_group(at)
        elif letter in "pmbwSDsX":
            at = scanner.skip_group(at)
            columns += "c"
        elif letter == "*" and (count := scanner.read_group(at)) and (repeated := scanner.read_group(count[1])):
            times = int(count[0]) if re.fullmatch(r"\s*[0-9]{1,2}\s*", count[0]) else 1
            columns += simplify_columns(repeated[0], depth + 1) * times if depth < _MAX_REPEAT_DEPTH else "c"
            at = repeated[1]
    return columns[:_MAX_COLUMNS] or "c"


_NAMES = "|".join(sorted((re.escape(name) for name in DISPLAY_ENVIRONMENTS), key=len, reverse=True))
_OPENS_DISPLAY = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_NAMES})\*?\}}|(?<!\\)\\\[|(?<!\\)\\\]|\$\$")
_INNER_PAIR = re.compile(r"\\begin\s*+\{([A-Za-z]*+)\*?\}.*\\end\s*+\{\1\*?\}", re.DOTALL)
_OUTER_NAMES = "equation|displaymath|eqnarray|align|alignat|flalign|gather|multline|dmath"
_OUTER = re.compile(rf"\\(?:begin|end)\s*+\{{(?:{_OUTER_NAMES})\*?\}}|\\\[|\\\]|\$\$")
_COMMANDS = (
    "equation|displaymath|eqnarray|align|alignat|gather|multline|aligned|gathered|split|cases|matrix|pmatrix"
    "|bmatrix|vmatrix|Vmatrix|smallmatrix"
)
_END_COMMAND = re.compile(rf"\\end({_COMMANDS})(?![A-Za-z])")
_ALIASED = re.compile(rf"\\(end)?({_COMMANDS}|array)(?![A-Za-z])")
_LET = re.compile(r"\\let\s*\\[A-Za-z]+\s*=?\s*$")
# A macro may expand to another one.
_EXPANSION_ROUNDS = 3
# Expansion stops when the text is twice as long, and by so many characters more.
_MAX_GROWTH = 2_000_000


# The offset in the text from which the macro holds, and the macro.
MacroChange = tuple[int, Macro]


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
    text: str, *, macros: dict[str, Macro], environments: dict[str, Environment], changes: list[MacroChange]
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
    scanner = Scanner(text)
    pieces: list[str] = []
    # From old offset starts[i] on, new minus old offset is shifts[i].
    starts = [0]
    shifts = [0]
    length = at = 0
    while (match := pattern.search(text, at)) and length < 2 * len(text) + _MAX_GROWTH:
        if match["macro"]:
            macro = macros["\\" + match["macro"]]
            written, end = fill_arguments(scanner, match.end(), kinds=macro.args, body=macro.body)
        elif match["side"] == "begin":
            environment = environments[match["environment"]]
            written, end = fill_arguments(scanner, match.end(), kinds=environment.args, body=environment.begin)
        else:
            written = environments[match["environment"]].end
            end = match.end()
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
