"""Rows, inline formulas, numbers and addresses as a library stores and shows them."""

import tracemalloc
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.errors import BadInput
from eqkin.library.queries import compute_statistics
from eqkin.library.records import get_equation, get_paper_page, get_refs

ARTICLE = r"""\documentclass{article}
\newcommand{\R}{\mathbb{R}}
\begin{document}
\section{The field $\R$}
Let $x \in \R$ and $m = \tanh(\beta J m + h)$ hold.
\begin{align} a &= b, \label{one} \\ c &= d. \label{two} \end{align}
End of $\R$.
\end{document}
"""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "notes" / "main.tex"
    path.parent.mkdir()
    path.write_text(ARTICLE)
    return path


def count(library: Library) -> tuple[int, int, int]:
    equations = compute_statistics(library)["equations"]
    return equations["found"], equations["rows"], equations["inline"]


def test_setting_for_formulas_is_kept_and_changes_what_is_read(tmp_path: Path, paper: Path) -> None:
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(paper, formulas="inline")
        assert count(library) == (1, 2, 1)
        assert library.add(paper).unchanged == 1
        assert library.add(paper, formulas="displays").papers == 1
        assert count(library) == (1, 0, 0)
        with pytest.raises(BadInput, match="displays, rows, inline"):
            library.add(paper, formulas="all")
    assert not verify(tmp_path / "library").problems


def test_rows_and_inline_formulas_are_shown_with_number_whole_and_context(tmp_path: Path, paper: Path) -> None:
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(paper, formulas="inline")
        key = library.list_papers()[0]["key"]
        whole, first, second, inline = (get_equation(library, f"{key}#{number}") for number in range(4))
        assert (whole.whole, whole.printed, whole.inline) == (None, "1", False)
        assert (first.whole, second.whole) == (whole.id, whole.id)
        assert (first.latex, first.label, first.printed) == ("a = b", "one", "1")
        assert (second.latex, second.label, second.printed) == ("c = d", "two", "2")
        assert get_equation(library, f"{key}#two").id == second.id
        assert inline.inline and inline.latex == r"m = \tanh(\beta J m + h)"
        assert (inline.before.split()[-1], inline.after) == ("and", "hold.")
        assert second.section == r"The field \(\mathbb{R}\)" and second.after == r"End of \(\mathbb{R}\)."
        assert [ref.family for ref in get_refs(library, library.list_tree_keys()).values()] == [0, 0, 0, 3]
        page = get_paper_page(library, key)
        assert page.paper.title == r"The field \(\mathbb{R}\)" and page.paper.lang == ""
        assert [e.id for _, equations in page.sections for e in equations] == [whole.id]


def test_document_without_title_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "main.tex").write_text(r"\section{A} $$x=1$$ \section{B} $$y=2$$")
    (tmp_path / "lecture 3.md").write_text("$$x=1$$")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "thesis", tmp_path / "lecture 3.md")
        assert [paper["title"] for paper in library.list_papers()] == ["thesis/main", "lecture 3"]


def test_page_of_a_paper_reads_the_prose_of_a_section_once(tmp_path: Path) -> None:
    words = "words " * 400
    (tmp_path / "long.md").write_text("\n\n".join(f"{words}\n\n$$ x = {i} $$" for i in range(200)))
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "long.md")
        (key,) = (paper["key"] for paper in library.list_papers())
        tracemalloc.start()
        (section,) = get_paper_page(library, key).sections
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(section[1]) == 200 and all(equation.before.endswith("words") for equation in section[1])
    assert peak < 200 * len(words) * 20, f"{peak:,} bytes for a section of {200 * len(words):,} characters"
