"""Display environments: which there are, and how each is written for the converter.

KaTeX knows `aligned`, `gathered`, `array`, `cases`, ... but not every environment people use around them; the outer
environment is rewritten to one it knows. An alignment of one row is the same as no alignment: it is taken off, so that
`equation` and a one-line `align` give the same tree.
"""

from __future__ import annotations

import re

from eqkin.latex.scan import read_bracket, read_group
from eqkin.limits import LIMITS

PLAIN_ENVIRONMENTS = frozenset("equation displaymath dmath DISPLAY".split())
ALIGNED_ENVIRONMENTS = frozenset(
    "eqnarray align flalign alignat xalignat xxalignat IEEEeqnarray subeqnarray darray dgroup".split()
)
GATHERED_ENVIRONMENTS = frozenset("gather multline dseries mathpar".split())
CASES_ENVIRONMENTS = frozenset("numcases subnumcases".split())
WRAPPER_ENVIRONMENTS = frozenset({"empheq"})
# environments that are math only if they stand in text by themselves
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

# what KaTeX has no environment for, written as one it has
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
_COLUMNS = re.compile(r"[lcrLCRX|]")
# commands that draw: an equation that needs one is a picture
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
    """Whether a display is a picture (commutative diagram, drawing, graphic, proof tree) rather than an equation."""
    return DIAGRAM.search(body) is not None


def to_converter_input(environment: str, body: str) -> str:
    """One display environment's body as LaTeX that the converter takes in display mode."""
    if len(body) > LIMITS.latex_chars:  # the converter will say so
        return body
    name = environment.removesuffix("*")
    if name in WRAPPER_ENVIRONMENTS:
        name, body = _unwrap_empheq(body)
    if "\\begin" in body:
        body = rewrite_environments(body)
    body = _strip_last_break(body)
    if name in PLAIN_ENVIRONMENTS:
        return body
    if name in CASES_ENVIRONMENTS:
        head = read_group(body, 0) or ("", 0)
        return rf"{head[0]}\begin{{cases}}{body[head[1] :]}\end{{cases}}"
    if name in INNER_ENVIRONMENTS:
        return rewrite_environments(rf"\begin{{{environment}}}{body}\end{{{environment}}}")
    if name in ("alignat", "xalignat", "xxalignat"):
        body = _skip_argument(body)
    elif name == "IEEEeqnarray":
        body = body[(read_bracket(body, 0) or ("", 0))[1] :]
        body = _skip_argument(body)
    return _write_rows(name, body)


def _write_rows(name: str, body: str) -> str:
    """Rows of an alignment; a single one needs none."""
    if not _ROW_BREAK.search(body):
        return _AMPERSAND.sub(" ", body)
    nested = "\\begin" in body
    if name in GATHERED_ENVIRONMENTS:
        body = body if nested else _AMPERSAND.sub(" ", body)
        return rf"\begin{{gathered}}{body}\end{{gathered}}"
    if name in ("eqnarray", "IEEEeqnarray", "subeqnarray") and not nested:
        body = "".join(_merge_columns(part) for part in _ROW_END.split(body))
    return rf"\begin{{aligned}}{body}\end{{aligned}}"


def _strip_last_break(body: str) -> str:
    body = body.strip()
    while True:
        space = _ROW_SPACE.search(body, max(len(body) - 40, 0)) if body.endswith("]") else None
        if space is None and not body.endswith("\\\\"):
            return body
        body = body[: space.start() if space else -2].rstrip()


def _merge_columns(row: str) -> str:
    """A row `a &=& b` of an eqnarray as `a &= b`."""
    marks = list(_AMPERSAND.finditer(row))
    return row if len(marks) < 2 else row[: marks[1].start()] + " " + row[marks[1].end() :]


def _skip_argument(body: str) -> str:
    group = read_group(body, 0)
    return body[group[1] :] if group else body


def _unwrap_empheq(body: str) -> tuple[str, str]:
    r"""`\begin{empheq}[options]{align*}`: the environment it wraps, and the rest."""
    at = (read_bracket(body, 0) or ("", 0))[1]
    group = read_group(body, at)
    if group is None:
        return "align", body
    inner = group[0].split("=")[0].strip().removesuffix("*")
    return (inner if inner in DISPLAY_ENVIRONMENTS else "align"), body[group[1] :]


def rewrite_environments(body: str) -> str:
    """Rename the environments in an equation that KaTeX does not know to ones it does; take off those for layout."""
    if "cases*}" in body:
        body = _TEXT_CASES.sub(_wrap_text_column, body)
    pieces: list[str] = []
    at = 0
    stack: list[str] = []
    for match in _BEGIN_OR_END.finditer(body):
        if match.start() < at:
            continue
        which, name = match[1], match[2].strip()
        target = "" if name in _DROPPED_ENVIRONMENTS else _RENAMED_ENVIRONMENTS.get(name, name)
        if which == "end":
            target = stack.pop() if stack else target
        else:
            stack.append(target)
        end = match.end()
        pieces.append(body[at : match.start()])
        if target:
            pieces.append(rf"\{which}{{{target}}}")
        if which == "begin":
            text, end = _rewrite_arguments(body, end, name, target)
            pieces.append(text)
        at = end
    pieces.append(body[at:])
    return "".join(pieces)


def _wrap_text_column(match: re.Match[str]) -> str:
    """`cases*` of mathtools: its second column is text."""
    rows = (row.split("&", 1) for row in match[2].split("\\\\"))
    written = "\\\\".join(rf"{row[0]}&\text{{{row[1]}}}" if len(row) == 2 else row[0] for row in rows)
    return f"{match[1]}}}{written}{match[3]}}}"


def _rewrite_arguments(body: str, at: int, name: str, target: str) -> tuple[str, int]:
    r"""What follows `\begin{name}`: options are dropped, column specifications are reduced to l, c, r."""
    if target in ("aligned", "gathered", "split", "cases", "dcases", "alignedat", "array", "rcases") or not target:
        bracket = read_bracket(body, at)
        if bracket and (len(bracket[0]) <= 3 or not target):
            at = bracket[1]
    if target == "array":
        spec = read_group(body, at)
        if name in ("tabular*", "IEEEeqnarraybox*") and spec:
            spec = read_group(body, spec[1])
        if spec is None:
            return "{" + "c" * 12 + "}", at
        return "{" + simplify_columns(spec[0]) + "}", spec[1]
    if target == "" and name in ("minipage", "adjustbox", "tcolorbox"):
        spec = read_group(body, at)
        if spec and name != "tcolorbox":
            at = spec[1]
    if name in ("numcases", "subnumcases"):
        spec = read_group(body, at)
        at = spec[1] if spec else at
    return "", at


def simplify_columns(spec: str, depth: int = 0) -> str:
    r"""A column specification as l, c, r and rules: `@{}` `!{}` `>{}` `p{}` `*{3}{c}` are resolved or dropped."""
    out: list[str] = []
    at = 0
    while at < len(spec) and len(out) < _MAX_COLUMNS:
        letter = spec[at]
        at += 1
        if letter in "@!><":
            group = read_group(spec, at)
            at = group[1] if group else at
        elif letter in "pmbwSDsX":
            group = read_group(spec, at)
            at = group[1] if group else at
            out.append("c")
        elif letter == "*":
            count = read_group(spec, at)
            columns = read_group(spec, count[1]) if count else None
            if count and columns:
                times = int(count[0]) if re.fullmatch(r"\s*[0-9]{1,2}\s*", count[0]) else 1
                out.extend(simplify_columns(columns[0], depth + 1) * times if depth < 3 else "c")
                at = columns[1]
        elif _COLUMNS.match(letter):
            out.append(letter.lower() if letter != "|" else "|")
        elif letter == ":":
            out.append(":")
    return "".join(out[:_MAX_COLUMNS]) or "c"
