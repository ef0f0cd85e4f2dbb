"""A real library of the atlas and some dated papers, with its index, one for all tests of searching."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eqkin import Encoder, Library
from eqkin.index import update
from eqkin.search import Engine

WAVE = r"\Box \Phi_{\mu} = \kappa \Phi_{\mu}"


def dated_papers(folder: Path) -> Path:
    """Papers by known people in known years; all have one equation in common, the first one many like it."""
    records = []
    for number, year in enumerate((1985, 1995, 2005)):
        spaced = WAVE.replace(" ", r"\, ") + ("," if number else "")
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
def encoder() -> Encoder:
    """The network that comes with eqkin."""
    return Encoder.load()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> Path:
    """A library of the atlas and the dated papers, indexed."""
    place = tmp_path_factory.mktemp("search")
    with Library.open(place / "library") as library:
        library.add("atlas:", dated_papers(place))
        update(library, encoder)
        return library.folder


@pytest.fixture(scope="session")
def engine(folder: Path, encoder: Encoder) -> Iterator[Engine]:
    """An engine over it."""
    with Engine(folder, encoder) as opened:
        yield opened
