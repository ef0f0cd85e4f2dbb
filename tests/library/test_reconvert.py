"""`Library.upgrade`: trees are made again from the stored LaTeX, for a new converter or after damage."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.errors import CorruptData
from eqkin.formulas.scripts import get_converter_identity
from eqkin.library.database import INTACT_PAPER
from eqkin.library.writer import LibraryWriter
from tests.cli.running import eqkin
from tests.library.conftest import write_article

REDEFINED = r"""\documentclass{article}\newcommand{\state}{\psi}\begin{document}
\[ H \state = E \state \] \renewcommand{\state}[1]{\phi_{#1}} \[ H \state{n} = E_n \state{n} \]
\begin{align} a &= b \\ c &= \state{k} \end{align}
\end{document}"""
PAGE = (
    """<html><body><h1>Page</h1><p>It is</p><math display="block"><mi>E</mi><mo>=</mo><mi>m</mi></math></body></html>"""
)


@pytest.fixture
def folder(tmp_path: Path, papers: Path) -> Path:
    """A library with macros that change, a page with MathML, rows, and formulas that fail; with its index."""
    (papers / "redefined.tex").write_text(REDEFINED)
    (papers / "page.html").write_text(PAGE)
    with Library.open(tmp_path / "library", create=True) as library:
        assert library.add(papers, formulas="inline").papers == 5
        library.open_engine()
        return library.folder


def _pretend_old_converter(folder: Path) -> None:
    """Make all papers of a library look as if an older converter had read them."""
    with LibraryWriter(folder) as writer:
        current = get_converter_identity()
        writer.connection.execute("UPDATE papers SET digest = replace(digest, ?, '0.0.1')", (current.version,))
        text = INTACT_PAPER.removeprefix("require_checksum(").removesuffix(", p.checksum)")
        writer.connection.execute(f"UPDATE papers AS p SET checksum = compute_checksum({text})")
        writer.set_converter(replace(current, version="0.0.1", sha256="0" * 64))


def test_new_converter_reads_the_stored_latex_without_the_sources(
    folder: Path, papers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = verify(folder)
    _pretend_old_converter(folder)
    with Library.open(folder) as library:
        with pytest.raises(CorruptData, match="eqkin index"):
            library.add(papers)
        assert library.search("E = m", k=1).hits
    assert "were read by katex 0.0.1" in caplog.text and "run `eqkin index`" in caplog.text
    away = papers.rename(papers.with_name("away"))
    ended = eqkin("index", "--library", folder, "--jobs", 1)
    assert (ended.code, ended.out.startswith("5 papers read again")) == (0, True), ended.err
    after = verify(folder)
    assert not after.problems + after.notes
    assert (after.content, after.trees) == (before.content, before.trees)
    away.rename(papers)
    caplog.clear()
    with Library.open(folder) as library:
        assert library.search("E = m", k=1).hits[0].equation.paper.title == "Page"
        assert library.add(papers).unchanged == 5
    assert not caplog.text


def test_interrupted_upgrade_is_continued(folder: Path) -> None:
    before = verify(folder).content
    _pretend_old_converter(folder)

    def stop(done: int, total: int) -> None:
        assert total == 5
        if done == 2:
            raise KeyboardInterrupt

    with Library.open(folder) as library, pytest.raises(KeyboardInterrupt):
        library.upgrade(progress=stop)
    with Library.open(folder) as library:
        assert library.converter.version == "0.0.1"
    assert not verify(folder).problems
    with Library.open(folder) as library:
        assert library.upgrade() == 3
        assert library.upgrade() == 0
    assert verify(folder).content == before


def _damage_trees(folder: Path, where: str = "1") -> None:
    with closing(sqlite3.connect(folder / "library.db")) as connection, connection:
        connection.execute(f"UPDATE trees SET presentation = x'00', operators = x'00' WHERE {where}")


def test_damaged_trees_are_made_again_from_the_latex(folder: Path, papers: Path) -> None:
    with Library.open(folder) as library:
        library.remove(str(papers / "page.html"))
        before = verify(folder).content
        hits = [hit.equation.id for hit in library.search(r"H \psi = E \psi", k=3).hits]
    _damage_trees(folder)
    assert len(verify(folder).problems) == 4
    with Library.open(folder) as library:
        with pytest.raises(CorruptData, match="eqkin verify"):
            library.search(r"H \psi = E \psi", k=3)
        assert library.upgrade() == 0
        assert library.upgrade(check_trees=True) == 4
        assert library.search(r"H \psi = E \psi", k=3).hits[0].equation.id == hits[0]
        write_article(papers, 9)
        assert library.add(papers).papers == 2
    assert not verify(folder).problems
    with Library.open(folder) as library:
        library.remove(str(papers / "page.html"), str(papers / "a9.tex"))
    assert verify(folder).content == before


def test_damaged_tree_of_a_formula_without_latex_is_counted_as_failed(folder: Path) -> None:
    _damage_trees(folder)
    with Library.open(folder) as library:
        assert library.upgrade(check_trees=True) == 5
        row = library.connection.execute("SELECT status, reason FROM equations WHERE environment = 'eqkinmathml'")
        assert tuple(row.fetchone()) == ("failed", "MathML: unreadable")
    assert not verify(folder).problems
