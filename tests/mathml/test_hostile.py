"""Hostile formulas cost a bounded amount of time and memory and leave the converter working."""

import resource
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqkin.latex import parse
from eqkin.latex.environments import to_converter_input
from eqkin.latex.macros import Macro
from eqkin.limits import LIMITS
from eqkin.mathml.converter import Converter, Failure
from eqkin.mathml.formulas import convert_formulas

N = 100_000
DOUBLING = {rf"\m{chr(97 + i)}": Macro(rf"\m{chr(97 + i)}", (), rf"\m{chr(98 + i)}\m{chr(98 + i)}") for i in range(24)}
TOO_MUCH = {
    "braces": "{" * N + "}" * N,
    "braces within the length": "{" * 9_000 + "}" * 9_000,
    "fractions": r"\frac{" * N + "1" + "}{2}" * N,
    "bare fractions": r"\frac" * N,
    "fractions within the length": r"\frac{1}{" * 150 + "2" + "}" * 150,
    "powers": "x" + "^x" * N,
    "powers within the length": "x^{" * 180 + "x" + "}" * 180,
    "recursion": r"\def\a{\a\a}\a",
    "two recursions": r"\def\a{\b}\def\b{\a}\a",
    "growing argument": r"\def\a#1{\a{#1#1}}\a{xxxxxxxx}",
    "edef": r"\def\a{x}" + r"\edef\a{\a\a}" * 30 + r"\a",
    "gdef": r"\gdef\a{\a\a}\a",
    "one megabyte": "x+" * 500_000,
    "ten thousand columns": r"\begin{matrix}" + "&".join(["x"] * 9_000) + r"\end{matrix}",
    "many columns": r"\begin{matrix}" + "&".join(["x"] * 10_000) + r"\end{matrix}",
    "many rows": r"\begin{matrix}" + r"\\" * 9_000 + r"\end{matrix}",
    "left": r"\left(" * 2_000,
    "environments": r"\begin{matrix}" * 1_400,
    "primes": "x" + "'" * 19_000,
    "long word": r"\text{" + "a" * 19_000 + "}",
    "long number": "1" * 19_000,
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_excessive_formula_is_a_limit_and_the_converter_continues(converter, name):
    bad, good = convert_formulas(converter, [TOO_MUCH[name], "a+b"]).outcomes
    assert bad.failure is not None
    assert bad.failure.reason.startswith("limit: ")
    assert good.failure is None
    assert convert_formulas(converter, ["a+b"]).outcomes[0].failure is None


def test_doubling_macros_are_a_limit(converter):
    bad, good = convert_formulas(converter, [r"\ma", "x"], None, DOUBLING).outcomes
    assert bad.failure is not None
    assert bad.failure.reason == "limit: macro expansion"
    assert good.failure is None


def test_rule_sizes_are_bounded(converter):
    conversion = convert_formulas(converter, [r"\rule{999999999em}{999999999em}"])
    assert conversion.outcomes[0].failure is None
    assert not any("999999999" in lines for lines in conversion.forest.attributes)


@pytest.mark.parametrize(
    "formula",
    ["\ud800", "a\0b", "\u202e", "\\", "$", "}", "\\\0", "é\ud83d", r'\char"D800', r'\text{\char"DFFF}', r'\char"0'],
)
def test_odd_characters_give_a_tree_or_a_failure(converter, formula):
    outcome = convert_formulas(converter, [formula, "x"]).outcomes
    assert isinstance(outcome[0].failure, Failure | None)
    assert outcome[1].failure is None


def test_lone_surrogate_in_a_document_with_macros_gives_a_tree(converter):
    foo = Macro("\\foo", (), "y")
    outcomes = convert_formulas(converter, ["\\foo \ud800", r"\foo"], [], {foo.name: foo}).outcomes
    assert [outcome.failure for outcome in outcomes] == [None, None]


HEAVY = r"\begin{matrix}" + "&".join(["x"] * 9_900) + r"\end{matrix}"


def test_engine_out_of_time_is_replaced():
    converter = Converter(replace(LIMITS, formula_seconds=0.004, batch_seconds=0.004))
    failures = converter.convert([HEAVY]).failures
    assert failures[0] is not None
    assert failures[0].reason == "limit: time"
    patient = Converter()
    assert patient.convert(["x"]).failures == [None]
    patient.close()
    converter.limits = LIMITS
    assert converter.convert([HEAVY, "x"]).failures[1] is None
    converter.close()


def test_engine_out_of_memory_is_replaced():
    converter = Converter(replace(LIMITS, converter_bytes=12_000_000, tree_nodes=1_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failures = converter.convert([HEAVY] * 4).failures
    assert any(f is not None and f.reason == "limit: memory" for f in failures)
    assert converter.convert(["x"]).failures == [None]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000
    converter.close()


SCRIPT = r"""
from dataclasses import replace
from eqkin.limits import LIMITS
from eqkin.mathml.converter import Converter
heavy = r"\begin{matrix}" + "&".join(["x"] * 9900) + r"\end{matrix}"
hasty = Converter(replace(LIMITS, formula_seconds=0.004, batch_seconds=0.004))
hasty.convert([heavy, "x"])
small = Converter(replace(LIMITS, converter_bytes=12_000_000, tree_nodes=1_000_000))
small.convert([heavy] * 3)
dropped = Converter()
dropped.convert(["x"])
del dropped
Converter(replace(LIMITS, formula_seconds=0.004)).convert([heavy])
hasty.convert([heavy])
"""


def test_dropped_engines_and_process_exit_are_silent():
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


PIECES = st.sampled_from(
    r"""\frac \sqrt { } [ ] ^ _ & \\ $ $$ \left( \right) \left. x y 1 + = \alpha \begin{matrix} \end{matrix}
\begin{align} \end{align} \text{ \mathbf \def\a \a #1 # ## \let\b \newcommand{\c} \over \atop \sum \limits ' %
~ \, \quad \unknown \hat \not \color{red} \tag{1} \label{x} \mbox{$ \verb| \iffalse \fi \begin{equation}
\end{equation} \[ \] \section{ \be \begin{cases} \end{cases} \middle| \big \rm \char \mathchoice \expandafter
\csname \endcsname \ifmmode \kern 1em \hskip \raise \qty( \dv \edef \gdef \string \begin \end \left \right""".split()
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@MANY
@given(st.lists(PIECES, max_size=25))
def test_any_mixture_of_commands_gives_a_tree_or_a_failure(converter, pieces):
    conversion = convert_formulas(converter, ["".join(pieces), " ".join(pieces), "x"], ["physics"])
    conversion.forest.validate()
    assert conversion.outcomes[2].failure is None
    assert [o.tree >= 0 for o in conversion.outcomes] == [o.failure is None for o in conversion.outcomes]


@MANY
@given(st.lists(PIECES | st.text(max_size=3), max_size=40))
def test_any_document_is_read_and_converted(converter, pieces):
    text = " ".join(pieces)
    document = parse(text, [text], [text])
    assert len(document.sections) >= 1
    for equation in document.equations:
        assert 0 <= equation.section < len(document.sections)
        latex = to_converter_input(equation.environment, equation.body)
        convert_formulas(converter, [latex], document.packages, document.macros[equation.epoch]).forest.validate()


BASIS = r"""\begin{align}\label{a}\frac{\partial u}{\partial t}&=\sum_{i=1}^{n}\left(x_i^2+\mathbf{A}\right)\\
\text{so }y&=\sqrt{2}\end{align}"""


@MANY
@given(
    st.lists(
        st.tuples(st.integers(0, len(BASIS) - 1), st.integers(0, 8), st.text(r"\{}[]$&%^_#ax ", max_size=2)), max_size=5
    )
)
def test_mutated_document_is_read_and_converted(converter, edits):
    text = BASIS
    for at, length, new in edits:
        text = text[:at] + new + text[at + length :]
    document = parse(text)
    for equation in document.equations:
        conversion = convert_formulas(converter, [to_converter_input(equation.environment, equation.body)])
        conversion.forest.validate()
        (outcome,) = conversion.outcomes
        assert (outcome.tree >= 0) == (outcome.failure is None)
