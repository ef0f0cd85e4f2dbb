import subprocess

import pytest

from eqkin.errors import BadInput
from eqkin.latex.outline import parse
from eqkin.library.parsing import parse_paper
from eqkin.sources.readers import open_source

pypandoc = pytest.importorskip("pypandoc", reason="pandoc is not installed: pip install 'eqkin[documents]'")
MARKDOWN = (
    "# Heat {#heat}\n\nThe law of $u$ is\n\n$$\\frac{\\partial u}{\\partial t} = \\alpha \\nabla^2 u$$\n\nas 5% know.\n"
)
LYX = r"""#LyX 2.3 created this file
\lyxformat 544
\begin_document
\begin_header
\textclass article
\begin_preamble
\newcommand{\R}{\mathbb{R}}
\end_preamble
\end_header

\begin_body

\begin_layout Title
On heat
\end_layout

\begin_layout Section
Heat
\end_layout

\begin_layout Standard
The law of
\begin_inset Formula $u\in\R$
\end_inset

 is
\begin_inset Formula
\begin{equation}
u_{t}=\alpha u_{xx}\label{eq:heat}
\end{equation}

\end_inset

as 5% know.
\begin_inset Note Note
status open

\begin_layout Plain Layout
Not for others
\begin_inset Formula $hidden=1$
\end_inset

\end_layout

\end_inset

\end_layout

\end_body
\end_document
"""
PRETEXT = r"""<pretext><docinfo><macros>\newcommand{\R}{\mathbb{R}}</macros></docinfo><article><title>On heat</title>
<frontmatter><titlepage><author><personname>Jean Fourier</personname></author></titlepage></frontmatter>
<section><title>Heat</title><p>The law of <m>u \in \R</m> is <men xml:id="heat">u_t = \alpha u_{xx}</men> as 5% know.
<md><mrow>a \amp = b</mrow><mrow>c \amp = d</mrow></md></p><!-- hidden --></section></article></pretext>"""


def read(path):
    (item,) = open_source(str(path))
    paper = item.load()
    document = parse(paper.text, paper.styles, paper.bibliography)
    return paper, document, parse_paper(paper, "").title


@pytest.mark.parametrize(("suffix", "writer"), [("docx", "docx"), ("org", "org"), ("typ", "typst")])
def test_pandoc_reads_headings_prose_and_formulas(tmp_path, suffix, writer):
    path = tmp_path / f"notes.{suffix}"
    command = [pypandoc.get_pandoc_path(), "--from", "markdown", "--to", writer, "--output", str(path)]
    subprocess.run(command, input=MARKDOWN.encode(), check=True)
    paper, document, title = read(path)
    assert (paper.kind, title) == (writer, "Heat")
    assert [section.title for section in document.sections if section.title] == ["Heat"]
    (equation,) = document.equations
    assert "\\partial" in equation.body and "\\alpha" in equation.body
    assert "know" in document.sections[-1].latex


@pytest.mark.parametrize(("name", "text"), [("a.lyx", LYX), ("a.ptx", PRETEXT)])
def test_lyx_and_pretext_keep_titles_macros_labels_and_formulas(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    _, document, title = read(tmp_path / name)
    assert title == "On heat"
    assert [section.title for section in document.sections if section.title] == ["Heat"]
    assert document.equations[0].label in ("eq:heat", "heat") and "\\alpha" in document.equations[0].body
    assert not any("hidden" in section.latex for section in document.sections)
    assert "\\R" in document.macros[0]


@pytest.mark.parametrize("name", ["a.docx", "a.lyx", "a.ptx"])
@pytest.mark.parametrize("raw", [b"PK\x03\x04broken", b"nothing", b"<a>", b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"])
def test_damaged_documents_are_refused_with_a_reason(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(BadInput, match=name):
        read(tmp_path / name)


def test_a_typst_document_reads_no_other_file(tmp_path):
    (tmp_path / "secret.typ").write_text("TOPSECRET")
    (tmp_path / "a.typ").write_text('#include "secret.typ"\n\n$ a = b $\n')
    try:
        paper, _, _ = read(tmp_path / "a.typ")
    except BadInput:
        return
    assert "TOPSECRET" not in paper.text + paper.title
