"""Other notations of formulas: they keep the form of the formula, and those that do not are dropped."""

from types import SimpleNamespace

import numpy as np
import orjson
import pytest
from py_mini_racer import JSTimeoutException

from eqkin.formulas.engine import FormulaEngine
from eqkin.formulas.forest import Forest
from eqkin.formulas.operators import FORM_KINDS
from eqkin.learning import related
from eqkin.learning.related import Notation, NotationWriter

FORMULAS = [
    r"\frac{\partial u}{\partial t} = \alpha \nabla^2 u + \frac{f}{\rho c}",
    r"\hat\beta = (X^\top X)^{-1} X^\top y",
    r"P(A \mid B) = \frac{P(B \mid A) P(A)}{P(B)}",
    r"f(x) = \frac{1}{\sqrt{2\pi\sigma^2}} \exp\left(-\frac{(x-\mu)^2}{2\sigma^2}\right)",
    r"\binom{n}{k} = \frac{n!}{k! (n-k)!}",
    r"\int_0^1 x^{a-1} (1-x)^{b-1} \, dx = \frac{\Gamma(a)\Gamma(b)}{\Gamma(a+b)}",
    r"\mathbb{E}[X^2] \ge (\mathbb{E}[X])^2",
    r"\lVert x + y \rVert \le \lVert x \rVert + \lVert y \rVert",
    r"\sum_{i=1}^n x_i = \ln \left( 1 + \sin x \right)",
    r"m \ddot x + k x = 0",
]


@pytest.fixture(scope="module")
def converter() -> FormulaEngine:
    return FormulaEngine()


@pytest.fixture(scope="module")
def writer() -> NotationWriter:
    return NotationWriter()


@pytest.fixture(scope="module")
def forest() -> Forest:
    converted = FormulaEngine().read(FORMULAS)
    assert not any(converted.failures)
    return converted.forest


def read_forms(forest: Forest) -> np.ndarray:
    parsed = FormulaEngine().parse(forest)
    return parsed.forms[parsed.form_offsets[:-1]]


def test_most_notations_keep_the_form_of_the_formula(writer, forest):
    printed = writer.print(forest, count=20, renamed=0, seed=1)
    distinct = sum(len(set(notations)) for notations in printed)
    notations, source = writer.rewrite(forest, count=20, renamed=0, seed=1)
    assert min(np.bincount(source, minlength=len(FORMULAS))) >= 5
    assert len(source) >= 0.9 * distinct
    kind = FORM_KINDS.index("canonical")
    assert (read_forms(notations)[:, kind] == read_forms(forest)[source, kind]).all()


def test_renamed_notations_keep_the_form_without_names(writer, forest):
    notations, source = writer.rewrite(forest, count=5, renamed=1, seed=1)
    before, after = read_forms(forest)[source], read_forms(notations)
    assert (before[:, FORM_KINDS.index("renamed")] == after[:, FORM_KINDS.index("renamed")]).all()
    assert (before[:, FORM_KINDS.index("canonical")] != after[:, FORM_KINDS.index("canonical")]).mean() > 0.7


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\frac{a}{b}", ["a /b", r"\frac{a }{b }", "b ^{-1}"]),
        (r"\sqrt{x}", [r"\sqrt{x }", "^{1/2}"]),
        (r"e^{-x}", [r"\exp", "e ^{"]),
        (r"A^T", [r"\top", r"\mathsf{T}", "'"]),
        (r"\frac{\partial u}{\partial t}", [r"\dot{u", r"\partial_{t", r"\frac{\partial }{\partial", "u _{t"]),
        (r"\binom nk", [r"\choose", "pmatrix", "C_{n }^{k }"]),
        (r"\mathbb{E}[X]", [r"\langle", "E[", r"\operatorname{E}"]),
        (r"a \le b", [r"\ge", r"\leqslant"]),
        (r"a = b", ["b  =", ":=", r"\equiv"]),
        (r"\log x", [r"\ln"]),
        (r"x + y", ["y  +x"]),
        (r"\overline{z}", ["^{*}"]),
    ],
)
def test_formula_is_printed_in_each_usual_notation(latex, expected, writer, converter):
    [printed] = writer.print(converter.read([latex]).forest, count=120, renamed=0, seed=0)
    missing = [part for part in expected if not any(part in notation.latex for notation in printed)]
    assert missing == []


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\sum_{i=1}^n x_i = y", [r"\int  x (t ) \, d t", r"\sum_{i } x _{i }", "x (i )"]),
        (r"\frac{\partial u(x,t)}{\partial t} = k \nabla^2 u(x,t)", [r"\frac{\partial ^{2} u", r"\frac{d u }{d t }"]),
        (r"\hat H |\psi\rangle = E |\psi\rangle", [r"H  ψ  = E  ψ", r"\hat{H }"]),
        (r"|\langle x, y\rangle| \le \|x\| \|y\|", [r"x ^{\top}", r"\lvert x"]),
        (r"a = b + c", ["a  -b  = c", "-c  = b"]),
        (r"L = \frac{1}{2} m v^2", ["L  = m  v ^{2}", r"F  = \frac{1}{2} m  v ^{2}"]),
        (r"A \cup B = B \cup A", [r"\vee"]),
        (r"p = q = r", ["p  = r", "p  = q"]),
        (r"\max_a Q(a) = V", [r"\sup"]),
    ],
)
def test_formula_is_paraphrased_as_others_would_write_it(latex, expected, writer, converter):
    [printed] = writer.print(converter.read([latex]).forest, count=400, seed=0, paraphrased=1)
    assert all(notation.is_paraphrase for notation in printed)
    missing = [part for part in expected if not any(part in notation.latex for notation in printed)]
    assert missing == []


def test_paraphrases_can_be_parsed_and_most_have_another_form(writer, forest):
    paraphrases, source = writer.rewrite(forest, count=10, seed=1, paraphrased=1)
    assert min(np.bincount(source, minlength=len(FORMULAS))) >= 3
    assert FormulaEngine().parse(paraphrases).unparsed.max() == 0
    kind = FORM_KINDS.index("canonical")
    assert (read_forms(paraphrases)[:, kind] != read_forms(forest)[source, kind]).mean() > 0.5


def test_notations_depend_only_on_the_seed(forest):
    runs = [NotationWriter().print(forest, count=3, renamed=0.5, paraphrased=0.5, seed=seed) for seed in (4, 4, 5)]
    assert runs[0] == runs[1] != runs[2]


class CarelessWriter(NotationWriter):
    """Prints notations of `a = b` that mean something else, cannot be converted, or change nothing."""

    def print(self, forest: Forest, **settings: object) -> list[list[Notation]]:
        wrong = [("a = c", False), ("x = x", True), ("a + b", False), (r"\frac{", False), ("a = b", False)]
        return [[Notation(*notation, False) for notation in [*wrong, ("b = a", False), ("x = y", True)]]]


def test_notations_with_another_form_are_dropped(converter):
    notations, source = CarelessWriter().rewrite(converter.read(["a = b"]).forest, count=7, renamed=0, seed=0)
    assert "".join(notations.texts[text] for text in notations.text) == "b=ax=y"
    assert source.tolist() == [0, 0]


def test_formulas_without_another_notation_are_left_out(writer, converter):
    notations, source = writer.rewrite(converter.read(["x"]).forest, count=2, renamed=0.0, seed=0)
    assert len(notations) == len(source) == 0


def test_batch_that_takes_too_long_is_divided(forest, monkeypatch):
    expected = NotationWriter().print(forest, count=2, renamed=0.5, seed=0)
    start_engine, longest = related.start_engine, []

    def start_slow_engine(*arguments):
        engine, finish = start_engine(*arguments)
        write = engine.eval("writeNotations")

        def write_slowly(payload, timeout_sec):
            trees = len(orjson.loads(payload)["seeds"])
            longest.append(trees)
            if trees > 2:
                raise JSTimeoutException
            return write(payload, timeout_sec=timeout_sec)

        return SimpleNamespace(eval=lambda name: write_slowly), finish

    monkeypatch.setattr(related, "start_engine", start_slow_engine)
    assert NotationWriter().print(forest, count=2, renamed=0.5, seed=0) == expected
    assert max(longest) == len(forest) and min(longest) <= 2
