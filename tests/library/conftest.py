"""Small sources and libraries for the tests of the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqkin.api import Library

ARTICLE = r"""\documentclass{article}
\usepackage{amsmath}
\newcommand{\half}{\frac12}
\title{On %(name)s}
\begin{document}
\section{First}
Energy of %(name)s is conserved.
\begin{equation}\label{energy-%(name)s} E = \half m v^2 + V(x_{%(number)d}) \end{equation}
\section{Second}
Here we use a macro nobody defines, and one that cannot be parsed.
\begin{align} \mystery{a}{b} &= c \\ d &= e \end{align}
\[ \begin{nonsense} x \end{nonsense} \]
\[ \xymatrix{A \ar[r] & B} \]
\begin{thebibliography}{9}\bibitem{a} Someone, arXiv:17%(number)02d.03762. \end{thebibliography}
\end{document}
"""


def write_article(folder: Path, number: int, name: str | None = None) -> Path:
    """An article of three equations (one degraded, one failed) and a diagram."""
    folder.mkdir(exist_ok=True)
    path = folder / f"a{number}.tex"
    path.write_text(ARTICLE % {"name": name or f"subject{number}", "number": number})
    return path


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """A folder of three articles."""
    for number in (1, 2, 3):
        write_article(tmp_path / "papers", number)
    return tmp_path / "papers"


@pytest.fixture
def library(tmp_path: Path, papers: Path) -> Library:
    """A library of those articles."""
    opened = Library.open(tmp_path / "library", create=True)
    opened.add(papers)
    return opened
