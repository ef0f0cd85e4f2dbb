"""Sections, display equations and prose of a document."""

import pytest

from eqkin.latex.outline import parse
from eqkin.latex.prose import EQUATION_MARK, to_plain_text
from tests.limits import changed_limits

NUMBERED = "equation eqnarray multline gather align flalign alignat dmath".split()


def bodies(text, **options):
    return [equation.body for equation in parse(text, **options).equations]


@pytest.mark.parametrize("star", ["", "*"])
@pytest.mark.parametrize("name", NUMBERED)
def test_every_display_environment_is_found(name, star):
    document = parse(rf"before \begin{{{name}{star}}} a=b \end{{{name}{star}}} after")
    assert [(e.environment, e.body) for e in document.equations] == [(name + star, "a=b")]


@pytest.mark.parametrize("name", ["array", "aligned", "split", "cases", "matrix", "pmatrix"])
def test_inner_environments_are_displays_only_outside_of_math(name):
    inner = rf"\begin{{{name}}} a \end{{{name}}}"
    assert len(bodies(inner)) == 1
    assert bodies(rf"\begin{{equation}} x = {inner} \end{{equation}}") == [rf"x = {inner}"]
    assert bodies(rf"\[ {inner} \] and $$ {inner} $$") == [inner, inner]


NESTED = r"\begin{array}{c} \begin{array}{c} a \end{array} \\ b \end{array}"
MATRIX = r"$\begin{pmatrix}a\end{pmatrix}$"
CASES = r"\(x = \begin{cases}a\\b\end{cases}\)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\[ a=b \]", ["a=b"]),
        ("$$ a=b $$", ["a=b"]),
        ("$$a=b$$.", ["a=b"]),
        (r"\\ \[a=b\]", ["a=b"]),
        (r"\begin {displaymath}a=b\end {displaymath}", ["a=b"]),
        (NESTED + " then " + NESTED, [r"{c} \begin{array}{c} a \end{array} \\ b"] * 2),
        (
            r"$$1$$ \begin{align}2\end{align} \[3\] \begin{gather*}4\end{gather*} \begin{equation}$$5$$\end{equation}",
            ["1", "2", "3", "4", "$$5$$"],
        ),
        (r"It costs 5\$ and 6\$, $x$ and \(y\), \\[2pt] a row, \\$z$ and $\$$; $$d$$.", ["d"]),
        (rf"text {MATRIX} more {CASES}", []),
        (rf"\\({MATRIX}) \( lost \[d\]", ["d"]),
        (rf"text {CASES} more $$d$$ and {MATRIX}", ["d"]),
        (r"\begin{equation} lost \begin{align}a\end{align} \[ lost too $$b$$", ["a", "b"]),
        (r"$$ $$ \begin{equation}\label{x}\end{equation} $$$$", []),
        (r"\iffalse $$no$$ \else $$yes$$ \fi $$2$$", ["yes", "2"]),
        ("$$5\\% $$ 10\\% \\\\% $$no$$\n$$2$$", ["5\\%", "2"]),
        (r"\begin{document}$$1$$\end{document}$$2$$", ["1"]),
        (
            "\\newcommand{\\Begin}{\\begin{document}\\maketitle}\n\\newcommand{\\End}{\\bibliography{x}\\end{document}}\n"
            "\\Begin $$a = b$$ \\End\n",
            ["a = b"],
        ),
    ],
)
def test_displays_are_found_each_once_and_in_order(text, expected):
    assert bodies(text) == expected


def test_numbering_is_removed_and_the_label_kept():
    document = parse(
        r"\begin{equation}\label{eq:one} a = b \notag \qedhere \end{equation} $$c\eqno(1.2)$$ $$d\leqno{(3)}$$"
    )
    assert [e.body for e in document.equations] == ["a = b", "c", "d"]
    assert document.equations[0].label == "eq:one"


def test_sections_of_every_level_are_found():
    text = r"""Start $$0$$ \chapter{One} a \section*{Two} b $$1$$ \subsection[short]{Three {\bf x}} c
    \subsubsection{Four} \paragraph{Five} $$2$$ \subparagraph*{Six} end"""
    document = parse(text)
    assert [s.title for s in document.sections] == ["", "One", "Two", "Three x", "Four", "Five", "Six"]
    assert [s.level for s in document.sections] == [0, 2, 3, 4, 5, 6, 7]
    assert [e.section for e in document.equations] == [0, 2, 5]


def test_prose_has_marks_in_place_of_equations():
    document = parse(r"\section{A} one $$x$$ two \textbf{three} \[y\] four \section{B} five $$z$$")
    assert [(equation.section, equation.mark) for equation in document.equations] == [(1, 0), (1, 1), (2, 0)]
    first = document.sections[1].text
    assert [part.strip() for part in first.split(EQUATION_MARK)] == ["one", "two three", "four"]


def test_mark_in_the_source_is_not_an_equation():
    document = parse(f"a {EQUATION_MARK} b $$x$$")
    assert document.sections[0].text.count(EQUATION_MARK) == 1


def test_title_and_prose_are_plain_text():
    document = parse(
        r"\title[s]{On {\em M\"uller}'s \LaTeX} \begin{document}See~\cite{a}, $x^2$ -- \emph{all} of it.\end{document}"
    )
    assert document.about.title == "On Müller's LaTeX"
    assert document.sections[0].text.split() == ["See", ",", r"\(x^2\)", "–", "all", "of", "it."]


@pytest.mark.parametrize(
    "hidden",
    [
        "% $$no$$\n",
        "\\begin{comment}$$no$$\\end{comment}",
        "\\begin{verbatim}% $$no$$\\end{verbatim}",
        "\\begin{lstlisting}$$no$$\\end{lstlisting}",
        "\\verb|$$no$$|",
        "\\verb*+$$no$$ % +",
        "\\iffalse $$no$$ \\fi ",
        "\\iffalse \\ifx a b $$no$$ \\fi $$no$$ \\fi ",
    ],
)
def test_hidden_text_is_not_read(hidden):
    assert bodies(f"$$1$$ {hidden} $$2$$") == ["1", "2"]


def test_packages_come_from_the_preamble_and_the_styles():
    text = r"\documentclass{a}\usepackage[x]{amsmath, physics}\RequirePackage{local/mine}\begin{document}\end{document}"
    assert parse(text, [r"\RequirePackage{bm}"]).packages == ["amsmath", "physics", "mine", "bm"]
    assert parse("no preamble").packages is None


@changed_limits(equations_per_paper=3)
def test_number_of_equations_is_limited():
    document = parse("$$x$$" * 5)
    assert len(document.equations) == 3
    assert document.truncated
    assert not parse("$$x$$" * 3).truncated


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (
            r"G\"odel, Erd\H{o}s, \v{C}ech, na\"{\i}ve, Poincar\'e",
            "Gödel, Erdős, Čech, naïve, Poincaré",
        ),
        (r"{\bf bold} {\it x} \textbf{y}", "bold x y"),
        (r"``quoted'' --- and so on\ldots", '"quoted" — and so on…'),
        (r"\v s \c c \bf d", "š ç d"),
    ],
)
def test_accents_and_signs_become_characters(written, plain):
    assert to_plain_text(written) == plain


def test_numbering_and_intertext_are_removed_from_the_formula():
    (equation,) = parse(r"\begin{align} a &= b \tag{1} \\ \intertext{and} c &= d \label{x} \end{align}").equations
    assert "tag" not in equation.body and "intertext" not in equation.body and equation.label == "x"


def test_prose_excludes_bibliographies_pictures_and_options():
    text = r"""\section{A} Words. \begin{enumerate}[label=(\alph*)] \item one \end{enumerate}
\begin{tikzpicture} \draw (0,0) -- (1,1); \end{tikzpicture} \[x\] Last.
\begin{thebibliography}{9} \bibitem{a} Someone. \end{thebibliography}"""
    prose = parse(text).sections[1].text
    assert "label" not in prose and "(0,0)" not in prose and "Someone" not in prose
    assert "Words." in prose and "one" in prose and "Last." in prose
