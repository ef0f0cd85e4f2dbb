"""MathML as a line of text."""

import pytest

from eqkin.formulas.prose import to_unicode
from eqkin.search.query import FormulaReader


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
