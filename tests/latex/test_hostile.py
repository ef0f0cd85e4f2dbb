"""Hostile texts, long enough that quadratic work would take many minutes."""

import pytest

from eqkin.latex.environments import DISPLAY_ENVIRONMENTS, simplify_columns, to_converter_input
from eqkin.latex.outline import parse
from eqkin.latex.scan import Scanner

UNITS = r"""{ } [ ] $ \ % \begin{ \begin{equation} \begin{array} \begin{array}\begin{array}\end{array} \[ \] \( $$
\section{ \section[ \section[{] \def\a \def\a{ \newcommand{\a}{ \newcommand{\a}[1] \let\a \verb| \verb1
\iffalse| \begin{verbatim} \usepackage[ \cite[ \a[ \label{ \bibitem arxiv| $\ \$ \\[ \title{ \be \be\ee
\newenvironment{a} \endalign \align \DeclarePairedDelimiter{\a} \NewDocumentCommand{\a}{ & \begin{comment}
\def\a{}\[x\] \section{a} eprint| \expandafter\def\csname| \if\iffalse \"{ \c{""".replace("|", " ").split("\n")
UNITS = [unit.replace("~", " ") for line in UNITS for unit in line.split()] + [
    "arxiv   ",
    "\\iffalse ",
    "@a{\n",
    "\n ",
    "$a\n\n",
    " ",
    "\\verb|",
]
PREAMBLE = r"\def\be{\begin{equation}}\def\ee{\end{equation}}\begin{document}\begin{thebibliography}"


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("preamble", ["", PREAMBLE])
def test_parse_of_long_repetitive_text_gives_a_document_of_its_size(unit, preamble):
    text = preamble + unit * (100_000 // len(unit))
    document = parse(text, [], [text], rows=True, inline=True)
    assert all(0 <= equation.section < len(document.sections) for equation in document.equations)
    parts = [section.latex for section in document.sections] + [equation.body for equation in document.equations]
    assert sum(map(len, parts)) <= 8 * len(text)


@pytest.mark.parametrize("unit", UNITS)
def test_converter_input_is_not_much_longer_than_the_equation(unit):
    body = (unit * 20_000)[:20_000]
    for name in sorted(DISPLAY_ENVIRONMENTS):
        assert len(to_converter_input(name, body)) <= 3 * len(body) + 1_000


def test_simplified_column_specifications_are_bounded():
    spec = "c"
    for _ in range(50):
        spec = "*{99}{" + spec + "}"
    assert len(simplify_columns(spec)) <= 200
    assert simplify_columns("*{3}{c|}r") == "c|c|c|r"
    assert simplify_columns("@{x}l!{y}p{3cm}>{z}X") == "lcc"


@pytest.mark.parametrize("filler", ["", "x" * 6_000, "{}" * 6_000])
def test_scanner_finds_long_groups_like_short_ones(filler):
    text = "{[" + filler + r"\}\]" + "]}" + "{"
    scanner = Scanner(text)
    assert scanner.find_end(0) == len(text) - 1
    assert scanner.find_end(1) == len(text) - 2
    assert scanner.find_end(len(text) - 1) == -1
    assert Scanner("[{" + filler + "]}").find_end(0) == -1
    assert Scanner("[" + filler + "}]").find_end(0) == -1
