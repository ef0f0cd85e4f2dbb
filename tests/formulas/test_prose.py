"""Prose with inline math, as a page and a terminal show it."""

import pytest

from eqkin.formulas.prose import ProseSegment, format_prose, render_passages, render_prose, to_unicode
from eqkin.limits import LIMITS
from eqkin.search.query import FormulaReader


def test_prose_is_split_into_words_and_mathml():
    words, formula, rest = render_prose(r"On \(p\)-adic <b>groups</b>")
    assert (words, rest) == (ProseSegment("On "), ProseSegment("-adic <b>groups</b>"))
    assert formula.text == "p" and formula.mathml.startswith("<math ") and "<mi>p</mi>" in formula.mathml


def test_formula_that_cannot_be_read_is_shown_as_words():
    assert render_prose(r"a \(\frac{x\) b") == [ProseSegment("a "), ProseSegment("x"), ProseSegment(" b")]


def test_passages_share_their_formulas():
    first, second = render_passages([r"\(x^2\)", r"see \(x^2\)"])
    assert first[0] == second[1]


def test_prose_with_more_formulas_than_fit_into_one_call_is_complete():
    texts = [rf"\(x_{{{number}}} + \unknown\)" for number in range(LIMITS.batch_formulas + 5)]
    passages = render_passages(texts)
    assert [segment.text for passage in passages for segment in passage] == [text[2:-2] for text in texts]
    assert all('display="block"' not in passage[0].mathml and "<mn>" in passage[0].mathml for passage in passages)


def test_terminal_shows_inline_math_as_unicode():
    assert format_prose(r"for \(\alpha^2 \le 1\), $5") == "for α² ≤ 1, $5"


@pytest.mark.parametrize(
    ("latex", "line"),
    [
        (r"E = -\sum_{i<j} J_{ij} s_i s_j", "E = − ∑_(i<j) Jᵢⱼ sᵢ sⱼ"),
        (r"\frac{\sqrt{\pi}}{2}", "(√π)/2"),
        (r"\sqrt{12} + \sqrt{2\pi}", "√12 + √(2π)"),
        (r"\hat H \psi", "Ĥψ"),
        (r"\sum_{n=1}^{N} x^{n+1}", "∑ₙ₌₁ᴺ xⁿ⁺¹"),
        (r"\sin x", "sin x"),
        (r"x \in \mathbb{R}^n", "x ∈ ℝⁿ"),
        (r"\begin{pmatrix}a&b\\c&d\end{pmatrix}", "(a b; c d)"),
    ],
)
def test_to_unicode_formats_mathml_in_one_line(latex, line):
    reader = FormulaReader(1)
    assert to_unicode(reader.read(latex).mathml).replace("H\u0302", "Ĥ") == line
    assert to_unicode("<no") == ""
