"""Reading formulas as people write them, and reporting where they are wrong."""

import re

import pytest

from eqkin.errors import BadInput, LimitReached
from eqkin.search.query import FormulaReader, OversizedFormula, UnreadableFormula, is_mathml, read_formula_file


@pytest.fixture(scope="module")
def reader():
    return FormulaReader()


@pytest.mark.parametrize(
    "written",
    [
        r"$E = \frac12 m v^2$",
        r"$$ E = \frac12 m v^2 $$",
        r"\[E = \frac12 m v^2\]",
        r"\(E = \frac12 m v^2\)",
        "\\begin{equation}\\label{a}\nE = \\frac12 m v^2\n\\end{equation}",
        r"\begin{align*} E &= \frac12 m v^2 \nonumber \end{align*}",
    ],
)
def test_reader_ignores_delimiters_and_environments(reader, written):
    assert reader.read(written).mathml == reader.read(r"E = \frac12 m v^2").mathml


def test_reader_reads_mathml_as_the_same_tree(reader):
    formula = reader.read(r"\frac{a}{b} + \sqrt{c}")
    again = reader.read(formula.mathml)
    assert again.latex == ""
    assert again.mathml == formula.mathml


@pytest.mark.parametrize("text", ["<math><mi>x</mi></math>", "  <?xml version='1.0'?><math/>", "<m:math>", "<mrow>"])
def test_is_mathml_recognises_markup(text):
    assert is_mathml(text)


@pytest.mark.parametrize("text", ["a < b", "<x, y>", "< m > n", r"\langle m \rangle", "<m|n>"])
def test_is_mathml_rejects_latex_with_angles(text):
    assert not is_mathml(text)


@pytest.mark.parametrize(
    "text",
    [
        r"a + \begin{nope} b",
        r"  $a + \begin{nope} b$ ",
        r"\[ 𝔼𝔼 + \begin{nope} b \]",
        "\\begin{equation}\\label{eq} a + \n\\begin{nope} b \\end{equation}",
        r"\begin{align} x &= y \\ a &= \begin{nope} b \end{align}",
    ],
)
def test_error_has_its_position_in_the_text_as_given(reader, text):
    with pytest.raises(UnreadableFormula, match="nope") as caught:
        reader.read(text)
    assert text[caught.value.problem.position :].startswith(("{nope}", "nope", r"\begin{nope}"))
    assert isinstance(caught.value, BadInput)


def test_error_in_mathml_has_its_position(reader):
    text = "<math>\n<mi>x</mi></mo>\n</math>"
    with pytest.raises(UnreadableFormula) as caught:
        reader.read(text)
    assert text[caught.value.problem.position - 2 :].startswith("</mo>")


@pytest.mark.parametrize("text", ["", "  \n", "$$", "$ $", r"\[\]", "<math></math>"])
def test_reader_refuses_empty_formula(reader, text):
    with pytest.raises(UnreadableFormula):
        reader.read(text)


@pytest.mark.parametrize(
    "text",
    [
        "{" * 5_000 + "}" * 5_000,
        r"\frac" * 4_000,
        "x" * 30_000,
        r"\def\a{\a\a}\a",
        "<math>" + "<mrow>" * 5_000,
        "<math>" + "<mi>x</mi>" * 9_000 + "</math>",
    ],
)
def test_reader_refuses_formula_that_takes_too_much(reader, text):
    with pytest.raises((OversizedFormula, UnreadableFormula)):
        reader.read(text)
    assert reader.read("x").mathml  # the reader still works


def test_reader_refuses_entity_bombs(reader):
    bomb = '<!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><math><mi>&b;</mi></math>'
    with pytest.raises(UnreadableFormula):
        reader.read(bomb)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\intx^n\dX", r"\int x^n dX"),
        (r"\sinx + \pir^2", r"\sin x + \pi r^2"),
        (r"f:\BbbR\to\BbbR", r"f:\Bbb R\to\Bbb R"),
        (r"a\\frac{1}{2}", r"a\ \frac{1}{2}"),
        (r"f:\\begin{pmatrix}a&b\\c&d\end{pmatrix}", r"f:\ \begin{pmatrix}a&b\\c&d\end{pmatrix}"),
        (r"\lim_\limits{x\to0} x", r"\lim\limits_{x\to0} x"),
        (r"\sqrt[n]\frac{a}{b}", r"\sqrt[n]{\frac{a}{b}}"),
    ],
)
def test_reader_repairs_lost_spaces_and_typing_errors(reader, written, meant):
    formula = reader.read(written)
    assert formula.mathml == reader.read(meant).mathml
    assert formula.repairs and not formula.unknown and formula.latex == written


def test_reader_keeps_the_text_if_a_repair_is_not_better(reader):
    formula = reader.read(r"\nobodysmacro{x}")
    assert formula.unknown == (r"\nobodysmacro",) and not formula.repairs
    rows = reader.read(r"\begin{aligned}a\\b\\\frac12\end{aligned}")
    assert not rows.repairs and rows.mathml.count("<mtr>") == 3


def test_reader_decodes_entities(reader):
    formula = reader.read(r"\begin{matrix} a &amp; b \\ c &amp; d \end{matrix} &lt; 1")
    assert formula.mathml == reader.read(r"\begin{matrix} a & b \\ c & d \end{matrix} < 1").mathml
    assert "&amp;" in formula.latex and not formula.repairs
    assert reader.read("&lt;math&gt;&lt;mi&gt;x&lt;/mi&gt;&lt;/math&gt;").mathml == reader.read("x").mathml.replace(
        "<mrow>", ""
    ).replace("</mrow>", "")


@pytest.mark.parametrize(
    "text",
    [r"a &lt; b &lt; ?c + \begin{nope} b", r"$?a &lt; ?a + \begin{nope} &amp; b$", r"\qvar{x}\qvar{y}\begin{nope}"],
)
def test_error_has_its_position_before_rewriting(reader, text):
    with pytest.raises(UnreadableFormula, match="nope") as caught:
        reader.read(text)
    assert text[caught.value.problem.position :].startswith(("{nope}", "nope", r"\begin{nope}"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("?a^2+?b^2=?c^2", ("?a", "?b", "?c")),
        (r"\frac{\qvar{a}}{\qvar{ a }+\qvar{b}}", ("?a", "?b")),
        (r"\int ?f d?x", ("?f", "?x")),
        (r"\int?f(x)d?xd?y", ("?f", "?x", "?y")),
        (r"\frac?a?b \hat?v x_?n^?m 2?k", ("?a", "?b", "?v", "?n", "?m", "?k")),
        (r"\qvar{x_1} + \qvar{\alpha} + \operatorname{?f} ?ω", ("?x1", "?alpha", "?f", "?ω")),
        (r"x = ?", ("?1",)),
        (r"?^2 + \frac{?}{\sin ?} = \int ? \, d? + f(?)", ("?1", "?2", "?3", "?4", "?5", "?6")),
        (r"\sum_{?}^{?} ? + \qvar{1}", ("?2", "?3", "?4", "?1")),
        (r"\frac{a}{b}? + y ? b", ()),
        (r"\text{is it ?x} \mbox{?y} \&?", ()),
        (r"what is f(x)?Why answer?x 4?Yes ? x", ()),
        ("<math><mi>?x</mi><mo>?</mo></math>", ("?x",)),
    ],
)
def test_reader_reads_wildcards_as_leaves(reader, text, names):
    formula = reader.read(text)
    assert formula.wildcards == names
    assert not formula.repairs and not formula.unknown
    for name in names:
        assert f">{name}</mi>" in formula.mathml
    assert reader.read(formula.mathml).wildcards == names
    assert not re.search("[\ua000-\ua48c]", formula.mathml)  # no placeholder is left


def test_reader_reads_wildcards_only_if_asked(reader):
    assert reader.read("?x", wildcards=False).wildcards == ()
    assert ">?</mo><mi>x</mi>" in reader.read("?x", wildcards=False).mathml
    assert "\ua000" in reader.read("?x + \ua000").mathml  # a character that is also a placeholder
    with pytest.raises(UnreadableFormula) as caught:
        reader.read(r"?x \unit{\begin{?y}}")
    assert "\ua000" not in str(caught.value) and "\ua001" not in str(caught.value)


def test_read_formula_file(tmp_path):
    (tmp_path / "a.tex").write_text("\ufeff$x^2$")
    (tmp_path / "b.tex").write_bytes(b"\xff\xfe")
    (tmp_path / "c.tex").write_bytes(b"x" * 5_000_000)
    assert read_formula_file(tmp_path / "a.tex") == "$x^2$"
    with pytest.raises(BadInput, match="UTF-8"):
        read_formula_file(tmp_path / "b.tex")
    with pytest.raises(LimitReached):
        read_formula_file(tmp_path / "c.tex")
    with pytest.raises(BadInput, match="cannot be read"):
        read_formula_file(tmp_path / "none.tex")
    (tmp_path / "d.tex").write_text("\\documentclass{article}\\begin{document}$x$\\end{document}")
    with pytest.raises(BadInput, match="similar-papers"):
        read_formula_file(tmp_path / "d.tex")
