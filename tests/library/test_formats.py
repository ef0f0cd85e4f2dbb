"""Libraries of every released format, with their index: they open, verify, can be searched, added to and upgraded."""

import tarfile
from pathlib import Path

import pytest
import zstandard

from eqkin.api import Library, verify
from eqkin.errors import BadInput
from eqkin.index.manifest import IndexManifest, load_encoder
from eqkin.index.reader import VectorIndex
from eqkin.index.update import update_index
from eqkin.library.database import MANIFEST_VERSION, LibraryManifest
from eqkin.library.judgements import LocalJudgements
from tests.library.conftest import write_article

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_CONTENT = "f9a9607e42c05967afb45fd3d7258143bcd3e8d407791952798e9568cc93737d"  # as 0.1 computed it

_CONTENT_2 = "4d909416bcf0ffcbaa5ce8d8a8decb7bea59ce88e5901723bc1b2fe2e3027335"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Unpack the library: three articles of the atlas, two segments each of trees, vectors and terms, a judgement."""
    return _unpack("library-0.1", tmp_path)


def _unpack(name: str, folder: Path) -> Path:
    with (_FIXTURES / f"{name}.tar.zst").open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(folder, filter="data")
    return folder / name


def test_library_of_0_1_is_intact_and_its_index_unfinished(folder: Path) -> None:
    report = verify(folder)
    assert not report.problems and any("153 equations have no vector yet" in note for note in report.notes)
    assert (report.papers, report.equations, report.trees, report.content) == (3, 153, 153, _CONTENT)
    (judgement,) = LocalJudgements(folder).list_all()
    assert (judgement.equation, judgement.relevant, judgement.keywords) == (
        "atlas:information-theory#0",
        True,
        ("entropy",),
    )


def test_index_of_0_1_is_replaced_by_an_update_with_names(folder: Path) -> None:
    with Library.open(folder) as library:
        before, encoder = IndexManifest.load(folder / "index"), load_encoder(folder)
        assert before is not None and before.words is not None and before.words.sealed
        with pytest.raises(BadInput, match="made by an older eqkin; run `eqkin index`"):
            VectorIndex.open(library, encoder.digest)
        report = update_index(library, encoder)
        assert (report.embedded, report.structured, report.papers) == (153, 153, 3)
        index = VectorIndex.open(library, encoder.digest)
        assert (len(index), index.missing) == (153, 0)
        assert index.terms is not None and (len(index.terms), index.terms.missing) == (153, 0)
    after, report = IndexManifest.load(folder / "index"), verify(folder)
    assert after is not None and after.words != before.words
    with Library.open(folder) as library:
        assert library.search("Bayes' theorem", k=1).hits[0].relation == "named"
    assert not report.problems + report.notes


def test_library_of_0_1_is_searched_by_formula_and_text(folder: Path) -> None:
    with Library.open(folder) as library:
        hits = library.search(r"P(A|B) = \frac{P(B|A) P(A)}{P(B)}", k=3).hits
        assert hits[0].equation.id == "atlas:probability#4"
        assert library.search(text="entropy of a source", k=3).hits[0].equation.paper.key == "atlas:information-theory"


def test_library_of_0_1_is_added_to_and_removed_from(folder: Path, tmp_path: Path) -> None:
    with Library.open(folder) as library:
        assert library.add(write_article(tmp_path / "papers", 1)).papers == 1
        assert library.search(r"E = \frac12 m v^2 + V(x_1)", k=1).hits[0].equation.paper.title == "On subject1"
        assert library.remove("atlas:networks") == 1
        library.open_engine()
    report = verify(folder)
    assert not report.problems + report.notes
    assert report.papers == 3
    with Library.open(folder) as library:
        assert not VectorIndex.open(library, load_encoder(folder).digest).missing


def test_library_of_0_1_is_upgraded_without_its_sources(folder: Path) -> None:
    with Library.open(folder) as library:
        equations = list(library.iter_equations())
        assert library.upgrade() == 0  # the converter is the same
        assert list(library.iter_equations()) == equations
        compressed = "SELECT sum(typeof(latex) = 'blob') > 0.9 * sum(length(latex) > 100) FROM sections"
        assert library.connection.execute(compressed).fetchone()[0]
        library.open_engine()
    assert LibraryManifest.load(folder).version == MANIFEST_VERSION
    report = verify(folder)
    assert not report.problems + report.notes
    assert report.content == _CONTENT
    (folder / "judgements.db").unlink()
    assert any("judgements.db" in problem for problem in verify(folder).problems)


def test_library_of_format_2_is_read_searched_and_upgraded(tmp_path: Path) -> None:
    """It has changing macros, rows, inline formulas, MathML, and two segments of everything."""
    folder = _unpack("library-format-2", tmp_path)
    report = verify(folder)
    assert not report.problems
    assert (report.papers, report.trees, report.content) == (3, 10, _CONTENT_2)
    assert [judgement.keywords for judgement in LocalJudgements(folder).list_all()] == [("energy",)]
    with Library.open(folder) as library:
        assert library.search(r"H \phi_n = E_n \phi_n", k=1).hits[0].equation.paper.key.endswith("redefined.tex")
        assert library.search(text="energy", k=1).hits[0].equation.paper.title == "On subject1"
        library.upgrade()
        library.open_engine()
    report = verify(folder)
    assert not report.problems + report.notes
    assert report.trees == 10
