"""A library of the atlas and some dated papers, with its index, shared by all tests of search."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from eqkin import Encoder, Library
from eqkin.formulas import Forest
from eqkin.index.update import update_index
from eqkin.search import SearchEngine
from eqkin.search.query import FormulaReader

WAVE = r"\Box \Phi_{\mu} = \kappa \Phi_{\mu}"


def dated_papers(folder: Path) -> Path:
    """Write papers with known authors and years; all share one equation, the first has many similar ones."""
    records = []
    for number, year in enumerate((1985, 1995, 2005)):
        spaced = WAVE.replace(" ", r"\, ") + (":" if number else "")
        many = (
            " ".join(rf"\[ \Box \Phi_{{\mu}} = \kappa_{{{i}}} \Phi_{{\mu}} \]" for i in range(6)) if not number else ""
        )
        records.append(
            {
                "doc_id": f"wave-{year}",
                "title": f"Waves of {year}",
                "year": year,
                "authors": ["Erwin Schrödinger", f"Author{number} Writer"],
                "fields": ["waves", f"decade-{year // 10}"],
                "latex": rf"\section{{Membranes}} A quokka plays a drum. \[ {spaced} \] That is all. {many}",
            }
        )
    path = folder / "papers.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, atlas_library: Path, encoder: Encoder) -> Path:
    """A library of the atlas and the dated papers, indexed."""
    place = tmp_path_factory.mktemp("search")
    with Library.open(shutil.copytree(atlas_library, place / "library")) as library:
        library.add(dated_papers(place))
        update_index(library, encoder)
        return library.folder


@pytest.fixture(scope="session")
def engine(folder: Path, encoder: Encoder) -> Iterator[SearchEngine]:
    """An engine that searches it."""
    with SearchEngine(folder, encoder) as opened:
        yield opened


@pytest.fixture(scope="session")
def reader() -> FormulaReader:
    """A reader of LaTeX, as in a search."""
    return FormulaReader()


@pytest.fixture(scope="session")
def forest(reader: FormulaReader) -> Callable[..., Forest]:
    """A function that reads formulas into a forest."""

    def read(*formulas: str) -> Forest:
        forests = []
        for latex in formulas:
            forests.append(reader.read(latex).forest)
        return Forest.concatenate(forests)

    return read


@pytest.fixture(scope="session")
def units(encoder: Encoder) -> Callable[[Forest], np.ndarray]:
    """A function that embeds trees as unit vectors."""

    def embedded(trees: Forest) -> np.ndarray:
        vectors = encoder.embed(trees)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return embedded
