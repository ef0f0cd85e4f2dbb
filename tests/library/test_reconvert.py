"""`Library.upgrade`: trees are made again from the stored LaTeX, for a new converter or after damage."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.errors import CorruptData, EqkinError
from eqkin.library.database import LibraryManifest
from eqkin.storage.files import format_checked_json, hash_file, parse_checked_json, write_file
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
    manifest = LibraryManifest.load(folder)
    with closing(sqlite3.connect(folder / "library.db")) as connection, connection:
        connection.execute("UPDATE papers SET digest = replace(digest, ?, '0.0.1')", (manifest.converter.version,))
    old = replace(manifest.converter, version="0.0.1", sha256="0" * 64)
    replace(manifest, converter=old, database=hash_file(folder / "library.db")).save(folder)


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
    assert LibraryManifest.load(folder).converter.version == "0.0.1"
    assert not verify(folder).problems
    with Library.open(folder) as library:
        assert library.upgrade() == 3
        assert library.upgrade() == 0
    assert verify(folder).content == before


@pytest.mark.parametrize("is_deleted", [False, True])
def test_damaged_trees_are_made_again_from_the_latex(folder: Path, papers: Path, is_deleted: bool) -> None:
    with Library.open(folder) as library:
        library.remove(str(papers / "page.html"))
        before = verify(folder).content
        hits = [hit.equation.id for hit in library.search(r"H \psi = E \psi", k=3).hits]
        (path,) = (folder / "forest").glob("*.safetensors")
    if is_deleted:
        shutil.rmtree(folder / "forest")
    else:
        path.write_bytes(path.read_bytes()[:-3])
    with Library.open(folder) as library:
        with pytest.raises(CorruptData, match="eqkin index"):
            library.search(r"H \psi = E \psi", k=3)
        assert library.upgrade() == 4
        assert [hit.equation.id for hit in library.search(r"H \psi = E \psi", k=3).hits] == hits
        write_article(papers, 9)
        assert library.add(papers).papers == 2
    assert not verify(folder).problems
    with Library.open(folder) as library:
        library.remove(str(papers / "page.html"), str(papers / "a9.tex"))
    assert verify(folder).content == before


def test_damaged_tree_of_a_formula_without_latex_is_counted_as_failed(folder: Path) -> None:
    (path,) = (folder / "forest").glob("*.safetensors")
    path.write_bytes(b"")
    with Library.open(folder) as library:
        assert library.upgrade() == 5
        row = library.connection.execute("SELECT status, reason, tree FROM equations WHERE environment = 'eqkinmathml'")
        assert tuple(row.fetchone()) == ("failed", "damaged", None)
    assert not verify(folder).problems


@pytest.mark.parametrize("name", ["manifest.json", "index/index.json"])
def test_format_of_a_newer_eqkin_is_refused_with_advice(folder: Path, name: str) -> None:
    key = "manifest" if name == "manifest.json" else "index"
    data = parse_checked_json((folder / name).read_bytes(), key)
    write_file(folder / name, format_checked_json(key, data | {"version": 99}))
    if key == "index":
        assert any("version 99" in problem for problem in verify(folder).problems)
    else:
        with pytest.raises(EqkinError, match="version 99, this eqkin reads .*; install a newer eqkin"):
            Library.open(folder)


def test_damaged_prose_is_found_by_readers_and_verify(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "library.db")) as connection, connection:
        connection.execute("UPDATE sections SET latex = x'28b52ffd'")
    replace(LibraryManifest.load(folder), database=hash_file(folder / "library.db")).save(folder)
    with Library.open(folder) as library, pytest.raises(CorruptData, match="damaged"):
        list(library.iter_equations())
    assert verify(folder).problems
