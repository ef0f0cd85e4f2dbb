"""Rows of displays, their labels and numbers, and what is not part of a formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.latex.outline import parse
from eqkin.latex.rows import split_rows, strip_trailing


def rows(text):
    return [e.body for e in parse(text, rows=True).equations if e.whole >= 0]


@pytest.mark.parametrize(
    ("display", "expected"),
    [
        (r"\begin{align} a &= b, \\ c &= d. \end{align}", ["a = b", "c = d"]),
        (r"\begin{align*} f &= a + b \\ &= c \\ &\quad + d \end{align*}", ["f = a + b", "f = c + d"]),
        (r"\begin{eqnarray} f &=& a \nonumber\\ &<& b \\ &=& c \end{eqnarray}", ["f = a", "f < b", "f < c"]),
        (r"\begin{align} &(a+b)^2 \\ &= c \\ &= d \end{align}", ["(a+b)^2 = c", "(a+b)^2 = d"]),
        (r"\begin{align} E[x|q=a] &= b \\ &= c \end{align}", ["E[x|q=a] = b", "E[x|q=a] = c"]),
        (r"\begin{align} a &= b & c &= d \\ e &= f & g &= h \end{align}", ["a = b", "c = d", "e = f", "g = h"]),
        (r"\begin{alignat}{2} a &= b \\ c &= d \end{alignat}", ["a = b", "c = d"]),
        (r"\[ \begin{cases} x + y = 1 \\ x - y = 2 \end{cases} \]", ["x + y = 1", "x - y = 2"]),
        (r"\[ \left\{\begin{array}{l} x' = y \\ y' = -x \end{array}\right. \]", ["x' = y", "y' = -x"]),
        (r"\begin{equation}\begin{split} a &= b \\ &\Rightarrow c = d \end{split}\end{equation}", ["a = b", "c = d"]),
        (r"\[ |x| = \begin{cases} x & x > 0 \\ -x & x < 0 \end{cases} \]", []),
        (r"\[ A = \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]", []),
        (r"\begin{align} p =& a + b + \\ & c + d \end{align}", []),
        (r"\begin{multline} a = b \\ + c \end{multline}", []),
        (r"\begin{align} A &= \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \\ B &= C \end{align}",
         [r"A = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "B = C"]),
    ],
)  # fmt: skip
def test_rows_that_state_something_are_equations(display, expected):
    assert rows(display) == expected


def test_rows_follow_the_displays_and_point_to_them():
    document = parse(r"\[x\] \begin{align}a&=b\\c&=d\end{align} \[y\]", rows=True)
    assert [(e.body, e.whole, e.mark) for e in document.equations[3:]] == [("a=b", 1, 1), ("c=d", 1, 1)]
    assert [e.body for e in parse(r"\begin{align}a&=b\\c&=d\end{align}").equations] == [r"a&=b\\c&=d"]


def test_rows_have_their_own_labels_and_numbers():
    document = parse(
        r"""\documentclass{article}\numberwithin{equation}{section}\begin{document}\section{A}
        \begin{equation}\label{e} z \end{equation} \section*{B} \section{C}
        \begin{align} \label{first} a &= b \\ c &= d \nonumber \\ e &= f \tag{$*$} \\ g &= h \label{last} \end{align}
        \begin{subequations} \begin{equation} x \end{equation} \begin{equation} y \end{equation} \end{subequations}
        \[ u \eqno (7) \] \appendix \section{D} \begin{equation} w \end{equation}\end{document}""",
        rows=True,
    )
    found = [(e.label, e.printed) for e in document.equations]
    displays, lines = found[:6], found[6:]
    assert displays == [("e", "1.1"), ("first", "2.1"), ("", "2.3a"), ("", "2.3b"), ("", "7"), ("", "A.1")]
    assert lines == [("first", "2.1"), ("", ""), ("", r"\(*\)"), ("last", "2.2")]


def test_text_without_preamble_has_only_the_numbers_it_states():
    assert [e.printed for e in parse(r"\begin{equation}a\end{equation} $$b \quad (3.6)$$").equations] == ["", "3.6"]


@pytest.mark.parametrize(
    ("written", "formula", "number"),
    [
        (r"E = mc^2,", "E = mc^2", ""),
        (r"E = mc^2 \ . \quad", "E = mc^2", ""),
        (r"f(x) = 2. \qquad (3.6)", "f(x) = 2", "3.6"),
        (r"y = f(3)", "y = f(3)", ""),
        (r"x = 1 \hfill \text{(A.2)}", "x = 1", "A.2"),
        ("softmax(x)V具体代码如下。祝", "softmax(x)V", ""),
        (r"x = 1, \quad \text{as required}", "x = 1", ""),
        (r"x = \text{constant}", r"x = \text{constant}", ""),
        (r"\text{利润} = \text{收入成本}", r"\text{利润} = \text{收入成本}", ""),
        (r"\left. f \right.", r"\left. f \right.", ""),
        (r"a, b, \ldots", r"a, b, \ldots", ""),
        (r"\{1, 2, ...", r"\{1, 2, ...", ""),
        (r"x\,", "x", ""),
    ],
)
def test_numbers_punctuation_and_prose_at_the_end_are_not_part_of_a_formula(written, formula, number):
    assert strip_trailing(written) == (formula, number)


@given(st.text(alphabet="ab=+-&\\{}[]()$., \nleftrighbegnd", max_size=200))
def test_rows_of_any_text_are_parts_of_it(text):
    for environment in ("align", "DISPLAY", "cases"):
        for row in split_rows(environment, text)[0]:
            assert 0 <= row.begin <= len(text)
            assert row.latex is not None


def test_inline_formulas_that_state_something_are_equations_once():
    text = (
        r"\section{S} Let $x$ and $m = \tanh(\beta J m + h)$ with \(n \ge 1\); again $m = \tanh(\beta J m + h)$. $$d$$"
    )
    document = parse(text, inline=True)
    assert [(e.body, e.inline) for e in document.equations] == [("d", False), (r"m = \tanh(\beta J m + h)", True)]
    section, inline = document.sections[1], document.equations[1]
    assert section.latex[inline.mark :].startswith("$m =") and inline.section == 1
