"""Hostile formulas cost a bounded amount of time and memory and leave the engine working."""

import resource
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import Failure, FormulaEngine, start_engine
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.latex.environments import to_converter_input
from eqkin.latex.macros import Macro
from eqkin.latex.outline import parse
from eqkin.limits import LIMITS

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
def test_excessive_formula_is_a_limit_and_the_converter_continues(engine, name):
    bad, good = convert_formulas(engine, [TOO_MUCH[name], "a+b"]).outcomes
    assert bad.failure is not None
    assert bad.failure.reason.startswith("limit: ")
    assert good.failure is None
    assert convert_formulas(engine, ["a+b"]).outcomes[0].failure is None


def test_doubling_macros_are_a_limit(engine):
    bad, good = convert_formulas(engine, [r"\ma", "x"], None, DOUBLING).outcomes
    assert bad.failure is not None
    assert bad.failure.reason == "limit: macro expansion"
    assert good.failure is None


def test_rule_sizes_are_bounded(engine):
    conversion = convert_formulas(engine, [r"\rule{999999999em}{999999999em}"])
    assert conversion.outcomes[0].failure is None
    assert not any("999999999" in lines for lines in conversion.forest.attributes)


@pytest.mark.parametrize(
    "formula",
    ["\ud800", "a\0b", "\u202e", "\\", "$", "}", "\\\0", "é\ud83d", r'\char"D800', r'\text{\char"DFFF}', r'\char"0'],
)
def test_odd_characters_give_a_tree_or_a_failure(engine, formula):
    outcome = convert_formulas(engine, [formula, "x"]).outcomes
    assert isinstance(outcome[0].failure, Failure | None)
    assert outcome[1].failure is None


def test_lone_surrogate_in_a_document_with_macros_gives_a_tree(engine):
    foo = Macro("\\foo", (), "y")
    outcomes = convert_formulas(engine, ["\\foo \ud800", r"\foo"], [], {foo.name: foo}).outcomes
    assert [outcome.failure for outcome in outcomes] == [None, None]


HEAVY = r"\begin{matrix}" + "&".join(["x"] * 9_900) + r"\end{matrix}"


def test_engine_out_of_time_is_replaced():
    engine = FormulaEngine(replace(LIMITS, formula_seconds=0.004, batch_seconds=0.004))
    failures = engine.read([HEAVY]).failures
    assert failures[0] is not None
    assert failures[0].reason == "limit: time"
    patient = FormulaEngine()
    assert patient.read(["x"]).failures == [None]
    patient.close()
    engine.limits = LIMITS
    assert engine.read([HEAVY, "x"]).failures[1] is None
    engine.close()


def test_engine_out_of_memory_is_replaced():
    limits = replace(LIMITS, converter_bytes=14_000_000, tree_nodes=10_000_000, latex_chars=400_000, formula_seconds=5)
    engine = FormulaEngine(limits)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    larger = r"\begin{matrix}" + "&".join(["x"] * 190_000) + r"\end{matrix}"
    failures = engine.read([HEAVY, larger, HEAVY]).failures
    assert [f and f.reason for f in failures] == [None, "limit: memory", None]
    assert engine.read(["x"]).failures == [None]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000
    engine.close()


@pytest.fixture
def engines(monkeypatch):
    """The engines that are started."""
    started = []

    def start(*arguments):
        started.append(start_engine(*arguments))
        return started[-1]

    monkeypatch.setattr("eqkin.formulas.engine.start_engine", start)
    return started


def name_command(number):
    return "\\zz" + "".join(chr(97 + int(digit)) for digit in str(number))


BOMBS = {
    "doubled argument": ({r"\a": Macro(r"\a", (("m",),), r"\a{#1#1}")}, r"\a{x}"),
    "doubled argument, defined in the formula": ({}, r"\def\a#1{\a{#1#1}}\a{x}"),
    "doubling macros": (DOUBLING, r"\ma"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_macro_bombs_do_not_cost_an_engine_each(engines, name):
    definitions, bomb = BOMBS[name]
    engine = FormulaEngine()
    outcomes = convert_formulas(engine, [f"{i}{bomb}" for i in range(40)] + ["x"], [], definitions).outcomes
    assert all(outcome.failure and outcome.failure.reason.startswith("limit: ") for outcome in outcomes[:-1])
    assert outcomes[-1].failure is None
    assert len(engines) == 1
    engine.close()


def test_thousands_of_undefined_commands_per_formula_do_not_cost_an_engine_each(engines):
    names = iter(range(24 * 2_000))
    formulas = ["".join(name_command(next(names)) for _ in range(2_000)) for _ in range(24)]
    engine = FormulaEngine()
    outcomes = convert_formulas(engine, ["x", *formulas, "y"]).outcomes
    assert [outcomes[i].failure for i in (0, -1)] == [None, None]
    assert all(outcome.failure is not None for outcome in outcomes[1:-1])
    assert len(engines) == 1
    engine.close()


def test_undefined_commands_get_the_arguments_that_most_uses_have(engine):
    outcomes = convert_formulas(engine, [r"\foo{a}{b}", r"\foo{c} {d}", r"\foo", r"\foobar{x}"]).outcomes
    assert [outcome.unknown for outcome in outcomes if outcome.failure is None][0] == (r"\foo",)
    forest = convert_formulas(engine, [r"\foo{a}{b}", r"\foo{c} {d}"]).forest
    assert forest.sizes.tolist()[0] == forest.sizes.tolist()[1]


def test_formulas_after_the_time_of_a_batch_come_in_the_next(engines):
    engine = FormulaEngine(replace(LIMITS, batch_seconds=0.0))
    assert engine.read([f"x_{i}" for i in range(30)]).failures == [None] * 30
    assert len(engines) == 1
    engine.close()


def test_formulas_with_many_symbols_do_not_cost_others_theirs(engine):
    formulas = ["+".join(str(10_000 + 2_500 * i + k) for k in range(1_900)) for i in range(30)]
    assert engine.read([*formulas, "x"]).failures == [None] * 31


def test_formulas_fail_after_the_time_of_their_paper(engine):
    late = convert_formulas(engine, ["x", "y"], deadline=0.0).outcomes
    assert [outcome.failure.reason for outcome in late] == ["limit: time for the paper"] * 2
    assert convert_formulas(engine, ["x"]).outcomes[0].failure is None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=4) | st.sampled_from([r"\text{", "}", "^", r"\color{", "\uffff", "\ufffe", "\x1b"])))
def test_mathml_of_any_formula_is_xml(engine, pieces):
    text = "".join(pieces)
    conversion = convert_formulas(engine, [text, rf"\text{{{text}}}", rf"\mathrm{{{text}}}"])
    for outcome in conversion.outcomes:
        if outcome.failure is None:
            ElementTree.fromstring(to_mathml(to_node(conversion.forest, outcome.tree)))


def test_address_space_limit_is_an_error_instead_of_an_abort():
    script = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (9 << 30, resource.RLIM_INFINITY))\n"
    script += "from eqkin.formulas.engine import FormulaEngine; FormulaEngine().read(['x'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "ulimit -v unlimited" in done.stderr.splitlines()[-1]) == (1, True)


SCRIPT = r"""
from dataclasses import replace
from eqkin.limits import LIMITS
from eqkin.formulas.engine import FormulaEngine
heavy = r"\begin{matrix}" + "&".join(["x"] * 9900) + r"\end{matrix}"
hasty = FormulaEngine(replace(LIMITS, formula_seconds=0.004, batch_seconds=0.004))
hasty.read([heavy, "x"])
small = FormulaEngine(replace(LIMITS, converter_bytes=12_000_000, tree_nodes=1_000_000))
small.read([heavy] * 6)
dropped = FormulaEngine()
dropped.read(["x"])
del dropped
FormulaEngine(replace(LIMITS, formula_seconds=0.004)).read([heavy])
hasty.read([heavy])
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
def test_any_mixture_of_commands_gives_a_tree_or_a_failure(engine, pieces):
    conversion = convert_formulas(engine, ["".join(pieces), " ".join(pieces), "x"], ["physics"])
    conversion.forest.validate()
    assert conversion.outcomes[2].failure is None
    assert [o.tree >= 0 for o in conversion.outcomes] == [o.failure is None for o in conversion.outcomes]


@MANY
@given(st.lists(PIECES | st.text(max_size=3), max_size=40))
def test_any_document_is_read_and_converted(engine, pieces):
    text = " ".join(pieces)
    document = parse(text, [text], [text])
    assert len(document.sections) >= 1
    for equation in document.equations:
        assert 0 <= equation.section < len(document.sections)
        latex = to_converter_input(equation.environment, equation.body)
        convert_formulas(engine, [latex], document.packages, document.macros[equation.epoch]).forest.validate()


BASIS = r"""\begin{align}\label{a}\frac{\partial u}{\partial t}&=\sum_{i=1}^{n}\left(x_i^2+\mathbf{A}\right)\\
\text{so }y&=\sqrt{2}\end{align}"""


@MANY
@given(
    st.lists(
        st.tuples(st.integers(0, len(BASIS) - 1), st.integers(0, 8), st.text(r"\{}[]$&%^_#ax ", max_size=2)), max_size=5
    )
)
def test_mutated_document_is_read_and_converted(engine, edits):
    text = BASIS
    for at, length, new in edits:
        text = text[:at] + new + text[at + length :]
    document = parse(text)
    for equation in document.equations:
        conversion = convert_formulas(engine, [to_converter_input(equation.environment, equation.body)])
        conversion.forest.validate()
        (outcome,) = conversion.outcomes
        assert (outcome.tree >= 0) == (outcome.failure is None)
