"""Conversion of LaTeX: packages, undefined commands, diagrams, repairs."""

import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
from py_mini_racer import JSEvalException, JSTimeoutException, MiniRacer

from eqkin.formulas.conversion import convert_formulas, is_diagram_failure
from eqkin.formulas.engine import FormulaEngine, evaluate
from eqkin.formulas.mathml import to_mathml, to_node
from eqkin.formulas.scripts import get_converter_identity
from eqkin.latex.environments import is_diagram, strip_arguments, to_converter_input
from eqkin.latex.macros import load_preludes
from eqkin.latex.outline import parse


def outcome(engine, formula, packages=None, macros=None):
    return convert_formulas(engine, [formula], packages, macros).outcomes[0]


def shown(engine, formula, packages=None):
    conversion = convert_formulas(engine, [formula], packages)
    result = conversion.outcomes[0]
    assert result.failure is None, result.failure
    assert not result.unknown
    assert not result.repaired
    return to_mathml(to_node(conversion.forest, result.tree))


PACKAGES = [
    ("physics", r"\dv{f}{x}", r"\frac{\mathrm{d}f}{\mathrm{d}x}"),
    ("physics", r"\dv[2]{f}{x}", r"\frac{\mathrm{d}^{2}f}{\mathrm{d}x^{2}}"),
    ("physics", r"\pdv{f}{x}{y}", r"\frac{\partial^2f}{\partial x\partial y}"),
    ("physics", r"\qty(\frac12)", r"\left(\frac12\right)"),
    ("physics", r"\braket{a}{b}", r"\left\langle a\middle|b\right\rangle"),
    ("mathtools", r"\coloneqq", r":="),
    ("siunitx", r"\SI{3}{\metre\per\second}", r"3\,\mathrm{m/s}"),
    ("siunitx", r"\num{4}", "4"),
    ("braket", r"\ket{x}\bra{y}", r"\left|x\right\rangle\left\langle y\right|"),
    ("cancel", r"\cancelto{0}{x}", r"\cancel{x}^{0}"),
    ("tensor", r"\tensor{R}{^a_b}", r"R^a_b"),
    ("bbm", r"\mathbbm{1}", r"\mathbb{1}"),
    ("dsfont", r"\mathds{1}", r"\mathbb{1}"),
    ("slashed", r"\slashed{D}", r"\cancel{D}"),
    ("nicefrac", r"\nicefrac{1}{2}", r"{1}/{2}"),
    ("commath", r"\norm{x}", r"\left\|x\right\|"),
    ("upgreek", r"\upmu", r"\mathrm{\mu}"),
    ("unicode-math", r"\symbf{x}\symbb{R}", r"\boldsymbol{x}\mathbb{R}"),
    ("amsmath", r"\intertext{and}x\tag{1}", "x"),
    ("plain", r"\root 3\of x", r"\sqrt[3]{x}"),
    ("plain", r"\eqalign{a&=b\cr c&=d}", r"\begin{aligned}a&=b\cr c&=d\end{aligned}"),
]


@pytest.mark.parametrize(("package", "formula", "meaning"), PACKAGES)
def test_known_packages_have_preludes(engine, package, formula, meaning):
    if package == "mathtools":
        assert outcome(engine, formula, [package]).failure is None
    else:
        assert shown(engine, formula, [package]) == shown(engine, meaning)


# commands that need a context
SURROUNDED = {
    r"\displaylimits": r"\sum\displaylimits_i",
    r"\root": r"\root 3 \of {x}",
    r"\fracwithdelims": r"\fracwithdelims(){a}{b}",
    r"\leftB": r"\leftB x \rightB",
    r"\rightB": r"\leftB x \rightB",
}


@pytest.mark.parametrize("package", sorted(load_preludes()))
def test_every_command_of_every_prelude_converts(engine, package):
    macros = load_preludes()[package]
    arguments = {name: "{x}" * sum(kind[0] == "m" for kind in macro.args) for name, macro in macros.items()}
    uses = [SURROUNDED.get(name, f"x {name}{arguments[name]} y") for name in macros]
    results = convert_formulas(engine, uses, [package]).outcomes
    assert [(use, r.failure, r.unknown) for use, r in zip(uses, results, strict=True) if r.failure or r.unknown] == []


def test_command_of_an_unloaded_package_is_borrowed(engine):
    result = outcome(engine, r"\ket{\psi}")
    assert result.failure is None
    assert result.unknown == ()


@pytest.mark.parametrize(
    ("formula", "meaning", "unknown"),
    [
        (r"\unheard + 1", r"\mathrm{unheard} + 1", (r"\unheard",)),
        (r"\unheard{a}{b}", r"\operatorname{unheard}{a}{b}", (r"\unheard",)),
        (r"\unheard{} x \unseen", r"\mathrm{unheard}{} x \mathrm{unseen}", (r"\unheard", r"\unseen")),
    ],
)
def test_undefined_command_is_shown_by_name_and_reported(engine, formula, meaning, unknown):
    result = convert_formulas(engine, [formula])
    assert set(result.outcomes[0].unknown) == set(unknown)
    if "{}" not in formula:
        assert to_mathml(to_node(result.forest, 0)) == shown(engine, meaning)


def test_argument_count_of_undefined_commands_is_guessed_from_all_uses(engine):
    uses = [r"\f{a}{b}", r"\f{a} {c}+\f x y", r"\f{x}{y}z"]
    result = convert_formulas(engine, uses)
    assert to_mathml(to_node(result.forest, 0)) == shown(engine, r"\operatorname{f}{a}{b}")
    assert to_mathml(to_node(result.forest, 1)) == shown(engine, r"\operatorname{f}{a}{c}+\operatorname{f}xy")
    result = convert_formulas(engine, [r"\f+\foo{a}"])
    assert to_mathml(to_node(result.forest, 0)) == shown(engine, r"\mathrm{f}+\operatorname{foo}{a}")


def test_undefined_commands_do_not_affect_other_formulas(engine):
    results = convert_formulas(engine, ["x", r"\nobody x", "y"]).outcomes
    assert [bool(r.unknown) for r in results] == [False, True, False]
    assert sorted(r.tree for r in results) == [0, 1, 2]


@pytest.mark.parametrize(
    "body",
    [
        r"\begin{tikzcd} A \arrow[r] & B \end{tikzcd}",
        r"\xymatrix{A \ar[r] & B}",
        r"\begin{CD} A @>>> B \end{CD}",
        r"\AxiomC{$A$}\UnaryInfC{$B$}\DisplayProof",
        r"\includegraphics{x.pdf}",
        r"\begin{prooftree}\end{prooftree}",
    ],
)
def test_pictures_are_diagrams(body):
    assert is_diagram(body)


@pytest.mark.parametrize("body", ["x+y", r"\xyz + \inputs", r"\text{a diagram}", r"\begin{matrix}a\end{matrix}"])
def test_equations_are_not_diagrams(body):
    assert not is_diagram(body)


def test_picture_behind_a_macro_is_a_diagram_failure(engine):
    macros = parse(r"\newcommand{\pic}{\xymatrix{A}}").macros[0]
    result = outcome(engine, r"\pic", None, macros)
    assert result.failure is not None
    assert is_diagram_failure(result.failure)


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        (r"a &= b", r"\begin{aligned}a &= b\end{aligned}"),
        (r"\text{a $x$} $ y", r"\text{a x } y"),
        (r"x^a^b", r"x^a{}^b"),
        (r"\text{a_b}", r"\text{a\_b}"),
        (r"\left( x", r"( x"),
        (r"\frac{a}{b", r"\frac{a}{b}"),
        (r"a}+b", "a+b"),
        (r"x_1_2 + \frac{a}{b", r"x_1{}_2 + \frac{a}{b}"),
    ],
)
def test_mistakes_are_repaired_and_reported(engine, broken, repaired):
    conversion = convert_formulas(engine, [broken])
    result = conversion.outcomes[0]
    assert result.failure is None, result.failure
    assert result.repaired
    assert to_mathml(to_node(conversion.forest, 0)) == shown(engine, repaired)


def test_formula_that_cannot_be_repaired_fails_as_it_was_written(engine):
    written = r"x_1_2 + \begin{nonsense} y"
    result = outcome(engine, written)
    assert result.failure.position == written.index("_2") and "Double subscript" in result.failure.message
    assert not result.repaired and result.tree == -1


def test_alignment_of_one_row_is_an_equation(engine):
    plain = shown(engine, "a=b")
    for environment in ("equation", "align", "align*", "gather", "multline", "eqnarray", "flalign*", "DISPLAY"):
        body = "a&=&b" if environment == "eqnarray" else "a&=b" if "align" in environment else "a=b"
        assert shown(engine, to_converter_input(environment, body)) == plain, environment
        assert shown(engine, to_converter_input(environment, body + r" \\ ")) == plain, environment
        assert shown(engine, to_converter_input(environment, body + r" \\[2pt] ")) == plain, environment
    assert shown(engine, to_converter_input("alignat", strip_arguments("alignat", "{2} a&=b"))) == plain


@pytest.mark.parametrize(
    ("environment", "body"),
    [
        ("align", r"a&=b\\c&=d"),
        ("eqnarray", r"a&=&b\\c&=&d"),
        ("eqnarray", r"\lefteqn{a}\\&=&b \nonumber \\ & & + c"),
        ("gather", r"a=b\\c=d"),
        ("multline", r"a=b\\+c"),
        ("alignat", r"{2}a&=b&c&=d\\e&=f&g&=h"),
        ("IEEEeqnarray", r"{rCl}a&=&b\\c&=&d"),
        ("numcases", r"{f(x)=} 1 & x>0\\0 & x<0"),
        ("empheq", r"[left=\empheqlbrace]{align}a&=b\\c&=d"),
        ("array", r"{@{}l*{2}{c|}>{x}p{3cm}}a&b&c&d"),
        ("equation", r"\begin{split}a&=b\\&=c\end{split}"),
        ("equation", r"\begin{small}\begin{align*}a&=b\\&=c\end{align*}\end{small}"),
        ("equation", r"\begin{dcases*}a & if $x$\\b & else\end{dcases*}"),
        ("dmath", r"a=b"),
    ],
)
def test_environments_are_rewritten_for_the_converter(engine, environment, body):
    shown(engine, to_converter_input(environment, body))


def test_eqnarray_and_align_give_one_tree(engine):
    one = shown(engine, to_converter_input("eqnarray", r"a&=&b\\c&=&d"))
    assert one == shown(engine, to_converter_input("align", r"a&= b\\c&= d"))


def test_results_do_not_depend_on_the_batch(engine):
    texts = [f"x_{{{i}}}" if i % 7 else r"\begin{none}" for i in range(150)]
    together = convert_formulas(engine, texts)
    alone = [convert_formulas(engine, [text]) for text in texts]
    for at, (outcome, single) in enumerate(zip(together.outcomes, alone, strict=True)):
        assert (outcome.failure is None) == (single.outcomes[0].failure is None), texts[at]
        if outcome.failure is None:
            chosen = together.forest.select([outcome.tree]).canonicalise()
            assert chosen.to_bytes() == single.forest.canonicalise().to_bytes()


def test_failures_are_classified(engine):
    reasons = {
        r"\begin{nosuch}x\end{nosuch}": "unknown environment",
        r"\htmlClass{a}{x}": "refused command",
        "x" * 20_001: "limit: size",
    }
    for formula, reason in reasons.items():
        failure = outcome(engine, formula).failure
        assert failure is not None
        assert failure.reason == reason


@pytest.mark.parametrize(
    "formula", [r"\includegraphics{x.png}", r"\htmlId{a}{x}", r"\htmlStyle{color:red}{x}", r"\htmlData{a=b}{x}"]
)
def test_untrusted_commands_are_refused(engine, formula):
    assert outcome(engine, formula).failure is not None


def test_links_leave_only_their_text(engine):
    markup = shown(engine, r"\href{javascript:alert(1)}{x} + \url{http://example.org}")
    assert "javascript" not in markup
    assert "href" not in markup


def test_display_and_inline_differ():
    engine = FormulaEngine()
    display = engine.read([r"\sum_{i=1}^n i"]).forest
    inline = engine.read([r"\sum_{i=1}^n i"], display=False).forest
    assert "munderover" in display.tags
    assert "munderover" not in inline.tags
    engine.close()
    engine.close()
    assert np.array_equal(engine.read([r"\sum_{i=1}^n i"]).forest.tag, display.tag)


def test_converter_identity_names_katex():
    name = get_converter_identity()
    assert name.name == "katex"
    assert len(name.sha256) == 64


def test_rows_of_an_eqnarray_may_end_with_cr(engine):
    written = to_converter_input("eqnarray", r"a &=& b \cr c &=& d \cr")
    assert written.count("&") == 2
    assert convert_formulas(engine, [written]).outcomes[0].failure is None


def test_tex_programming_fails_instead_of_being_spelled_out(engine):
    (outcome,) = convert_formulas(engine, [r"\ifnum1=1 a\else b\fi"]).outcomes
    assert outcome.failure is not None
    assert outcome.failure.reason == "undefined command"


def test_leaves_contain_only_text(engine):
    result = convert_formulas(engine, [r"a \overset{x}{=} b \mathop{\underline{y}}"])
    markup = to_mathml(to_node(result.forest, 0))
    assert not re.search(r"<m[inos](?: [^>]*)?><m", markup), markup


def test_definitions_in_a_formula_end_with_it(engine):
    outcomes = convert_formulas(engine, [r"\gdef\a#1{#1}\a x", "x", r"\gdef x"]).outcomes
    assert outcomes[1].failure is None
    assert convert_formulas(engine, ["x"]).outcomes[0].failure is None


@pytest.mark.parametrize("written", [r"\mbox{\boldmath $x$}", r"\text{\boldmath$x$}", r"\pmb{x}"])
def test_bold_formulas_in_boxes_are_bold(engine, written):
    assert 'mathvariant="bold-italic"' in shown(engine, written)


def test_engines_of_several_threads_start_one_after_the_other(monkeypatch):
    meeting, met = Barrier(2), []

    class Watched(MiniRacer):
        def __init__(self):
            try:
                meeting.wait(timeout=0.2)
                met.append(True)  # V8 would set itself up twice, and end the process now and then
            except BrokenBarrierError:
                meeting.reset()
            super().__init__()

    monkeypatch.setattr("eqkin.formulas.engine.MiniRacer", Watched)
    with ThreadPoolExecutor(2) as pool:
        trees = list(pool.map(lambda formula: FormulaEngine().read([formula]).forest, ["x", "y"]))
    assert [len(forest) for forest in trees] == [1, 1]
    assert not met


@pytest.fixture
def bare_engine():
    with MiniRacer() as engine:
        yield engine


def test_stopped_script_does_not_answer_the_next_one(bare_engine):
    with pytest.raises(JSTimeoutException):
        evaluate(bare_engine, "for (;;);", 0.1)
    assert evaluate(bare_engine, "6 * 7", 60) == 42


def test_failing_script_does_not_answer_the_next_one(bare_engine):
    with pytest.raises(JSEvalException, match="is not defined"):
        evaluate(bare_engine, "unknown", 60)
    assert evaluate(bare_engine, "6 * 7", 60) == 42


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timers that send signals")
def test_interrupted_script_does_not_answer_the_next_one(bare_engine):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            evaluate(bare_engine, "for (;;);", 60)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert evaluate(bare_engine, "6 * 7", 60) == 42
