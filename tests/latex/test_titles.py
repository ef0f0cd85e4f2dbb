"""Titles, authors, years and languages of documents."""

import pytest

from eqkin.latex.outline import parse
from eqkin.latex.titles import clean_authors, detect_language, normalise_language


def read(preamble):
    return parse(rf"\documentclass{{article}} {preamble} \begin{{document}}x\end{{document}}").about


@pytest.mark.parametrize(
    ("written", "title"),
    [
        (
            r"\def\npart{III}\newcommand\course[1]{The #1} \title{Part \npart\ --- \course{course}}",
            "Part III — The course",
        ),
        (
            r"\title{\rule\linewidth{1pt} Complex Analysis \\[2ex] \large Notes\thanks{See \cite{x}}}",
            "Complex Analysis Notes",
        ),
        (
            r"\title{\Huge\textcolor{red}{On \texorpdfstring{$p$}{p}-adic} \href{http://x.y}{groups}}",
            r"On \(p\)-adic groups",
        ),
        (r"\title[Short]{CAMB~2: 100\% \textbf{fast}}", "CAMB 2: 100% fast"),
        (r"\title{Title} \title{A real one}", "A real one"),
        (r"\title{Your Title Here}", ""),
        (r"\hypersetup{pdftitle={Named in the PDF}}", "Named in the PDF"),
        (r"\def\loop{\loop\loop} \title{\loop}", ""),
    ],
)
def test_title_is_text_with_macros_expanded_and_layout_dropped(written, title):
    assert read(written).title == title


@pytest.mark.parametrize(
    ("written", "authors"),
    [
        (
            r"\author{Ada Lovelace\thanks{London} \and Emmy N\"other$^1$ \\ G\"ottingen}",
            ["Ada Lovelace", "Emmy Nöther"],
        ),
        (r"\author{Bruno A., Daniel Schad, and Shravan V.}", ["Bruno A.", "Daniel Schad", "Shravan V."]),
        (
            r"\author{Miguel Gonz\'alez and Jos\'e Abascal ${ }^{\text{a)}}$\\Madrid}",
            ["Miguel González", "José Abascal"],
        ),
        (r"\author[Bio]{Bob Week\corref{1}} \ead{b@x.y} \author[Bio]{Steve Krone}", ["Bob Week", "Steve Krone"]),
        (r"\def\who{J. Smith}\author{Based on lectures by \who \\\small Notes taken by me}", ["J. Smith"]),
        (r"\author{\begin{tabular}{c} Gabriel Peyr{\'e} \\ CNRS \end{tabular}}", ["Gabriel Peyré"]),
        (r"\author{U.S. Department of Energy}", ["U.S. Department of Energy"]),
        (r"\author{John von Neumann (1903)}", ["John von Neumann"]),
        (r"\author{Your Name}", []),
        (r"\author{A. A. Author and B. B. Author}", []),
        (r"\author{}", []),
    ],
)
def test_authors_are_names_without_affiliations_and_placeholders(written, authors):
    assert read(written).authors == authors


def test_names_of_metadata_are_split_only_where_they_are_several():
    assert clean_authors(["Lovelace, Ada", "ATLAS Collaboration", "Ada Lovelace; Emmy Noether"]) == [
        "Lovelace, Ada",
        "ATLAS Collaboration",
        "Ada Lovelace",
        "Emmy Noether",
    ]


@pytest.mark.parametrize(
    ("written", "year"),
    [
        (r"\date{February 7, 2015}", 2015),
        (r"\date{2022-02-18}", 2022),
        (r"\newcommand{\nyear}{2016} \date{Lent \nyear}", 2016),
        (r"\date{\today}", None),
        (r"\date{IMT3130}", None),
        (r"\acmDOI{10.1145/nnnnnnn.nnnnnnn} \copyrightyear{2020}", 2020),
    ],
)
def test_year_is_that_of_the_date(written, year):
    about = read(written)
    assert (about.year, about.doi) == (year, "")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Let $x$ be the limit of a sequence that we have defined in the first chapter, then it is unique.", "en"),
        ("Sei $x$ der Grenzwert einer Folge, die wir mit der Definition für den Fall und das Beispiel ist.", "de"),
        ("Soit $x$ la limite de la suite que nous avons dans le chapitre, et les termes sont pour une base.", "fr"),
        ("设 $x$ 为数列的极限，则它是唯一的，并且我们可以证明这一点，因为定义如上。", "zh"),
        ("これは数列の極限であり、一意である。定義は上に述べた。", "ja"),
        ("Пусть последовательность сходится к пределу, тогда он единственен.", "ru"),
        (r"\alpha \beta $x$ 1 2 3", ""),
    ],
)
def test_language_is_detected_by_script_and_frequent_words(text, language):
    assert detect_language(text) == language


def test_declared_language_is_a_short_code():
    assert [normalise_language(code) for code in ("en-US", "pt_BR", "und", "")] == ["en", "pt", "", ""]
    assert read(r"\usepackage[english,main=ngerman]{babel}").lang == "de"
