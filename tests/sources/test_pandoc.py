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


@pytest.mark.parametrize("raw", [b"PK\x03\x04broken", b"nothing"])
def test_damaged_documents_are_refused_with_a_reason(tmp_path, raw):
    (tmp_path / "a.docx").write_bytes(raw)
    with pytest.raises(BadInput, match="a.docx"):
        read(tmp_path / "a.docx")


def test_a_typst_document_reads_no_other_file(tmp_path):
    (tmp_path / "secret.typ").write_text("TOPSECRET")
    (tmp_path / "a.typ").write_text('#include "secret.typ"\n\n$ a = b $\n')
    try:
        paper, _, _ = read(tmp_path / "a.typ")
    except BadInput:
        return
    assert "TOPSECRET" not in paper.text + paper.title
