"""Formulas in the style of papers convert without loss."""

import pytest

from eqkin.formulas.conversion import convert_formulas
from eqkin.latex.environments import to_converter_input
from eqkin.latex.outline import parse

PREAMBLE = r"""\documentclass[aps,prd,twocolumn]{revtex4}
\usepackage{amsmath,bm,slashed}
\newcommand{\be}{\begin{equation}} \newcommand{\ee}{\end{equation}}
\def\bea{\begin{eqnarray}} \def\eea{\end{eqnarray}}
\newcommand{\beqn}[1]{\begin{equation}\label{#1}}
\def\ba{\begin{array}} \def\ea{\end{array}}
\let\bey\eqnarray \let\eey\endeqnarray
\newcommand{\nn}{\nonumber \\}
\def\lsim{\mathrel{\rlap{\lower4pt\hbox{\hskip1pt$\sim$}}\raise1pt\hbox{$<$}}}
\def\half{{\textstyle{1\over 2}}}
\def\frac#1#2{{#1 \over #2}}
\renewcommand{\vec}[1]{{\bf #1}}
\def\Tr{\mathop{\rm Tr}\nolimits}
\def\d{{\rm d}} \def\pa{\partial}
\newcommand{\ket}[1]{|#1\rangle}
\def\choice#1;#2.{\left(#1\atop #2\right)}
\begin{document}
"""
DISPLAYS = [
    r"\be {\cal L} = -{1\over 4} F_{\mu\nu}F^{\mu\nu} + \bar\psi (i\slashed{D}-m)\psi \ee",
    r"\bea E &=& m c^2 \nn &=& \sqrt{p^2c^2+m^2c^4} \,. \label{e} \eea",
    r"\be \ba{ll} a & b \\ c & d \ea \ee",
    r"\beqn{x} m_{\nu} \lsim 0.1~{\rm eV} \ee",
    r"$$ x = y \eqno(1) $$",
    r"$$\eqalign{a &= b \cr &= c \cr}\eqno(2.3)$$",
    r"$$\eqalignno{a &= b & (1)\cr c&=d &(2)\cr}$$",
    r"$$\align a &= b\\ &= c \endalign$$",
    r"$$f=\cases x, & y>0\\ -x & y<0\endcases$$",
    r"$$\pmatrix a & b\\ c&d\endpmatrix$$",
    r"\bey a &=& b \\ c &=& d \eey",
    r"\[ \vec{x}\cdot\vec{p} = {\bm \sigma}\cdot{\bm B}\]",
    r"\begin{eqnarray*} \lefteqn{\int_0^\infty \d x\, e^{-x}} \\ & & = 1 \end{eqnarray*}",
    r"\be \left\{ \begin{array}{l@{\quad}l} x & {\rm if}\ x>0 \\ 0 & \mbox{otherwise} \end{array}\right. \ee",
    r"\be \Tr \, \rho \ln \rho = \half \sum_{i\neq j} s_is_j \ee",
    r"$$ \matrix{1 & 0\cr 0 & 1\cr} \buildrel \rm def \over = {\bf 1} $$",
    r"$$ n \choose k $$",
    r"$$\displaylines{a=b\cr c=d}$$",
    r"\begin{subequations}\begin{align} a&=b \tag{1a}\\ c&=d, \intertext{and} e&=f\end{align}\end{subequations}",
    r"\begin{widetext}\be \frac{\pa u}{\pa t} + (u\cdot\nabla)u = -\frac1\rho \nabla p\ee\end{widetext}",
    r"\be \int\!\!\!\int d^2x \; \Bigl( {\hbox{\boldmath $\nabla$}} \phi \Bigr)^2 = \mbox{\boldmath $x$} \ee",
    r"\be \choice n;k. = {n! \over k!(n-k)!} \ee",
    r"\be \mathop{\sum_{i=1}}_{i\ne j}^{N} {\rm tr} \, {\mathbf A}_{ij} \ee",
    r"\be A^{\dag} \raisebox{-1ex}{$\stackrel{\textstyle <}{\sim}$} B + \root 3 \of {x}\ee",
    r"\be \ket{\uparrow}\otimes\ket{\downarrow} \ , \; \not\! p + \openone \ee",
    r"\be \color{red} x \color[rgb]{1,0,0} y {\color{blue!50!black} z}\textcolor[HTML]{ff0000}{w}\ee",
    r"\be \begin{array}{rcl} \displaystyle a & = & b \\[2mm] \noalign{\medskip} c &=& d \end{array}\ee",
    r"\begin{IEEEeqnarray}{rCl} a &=& b \IEEEnonumber\\ c&=&d \IEEEyesnumber\end{IEEEeqnarray}",
    r"\be \xrightarrow[a]{b} \underbrace{x}_{\mbox{\scriptsize eff}} \hspace*{1cm} \hfill \rule{0pt}{3ex}\ee",
    r"\be {\it e.g.} \; {\sf T} \; {\tt x} {\sl y} {\sc z} \; \underset{x}{\mathrm{arg\,min}}\ee",
]


@pytest.mark.parametrize("display", DISPLAYS)
def test_displays_in_the_style_of_papers_convert_undegraded(engine, display):
    document = parse(PREAMBLE + display + "\n\\end{document}")
    (equation,) = document.equations
    latex = to_converter_input(equation.environment, equation.body)
    (outcome,) = convert_formulas(engine, [latex], document.packages, document.macros[equation.epoch]).outcomes
    assert outcome.failure is None, outcome.failure
    assert outcome.unknown == ()
    assert not outcome.repaired
