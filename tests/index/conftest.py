"""Libraries with an index, and encoders, for the tests of the index."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.encode import make_random_model
from eqkin.api import Library
from eqkin.encoder.encoder import Encoder
from eqkin.formulas import Forest


def write_note(folder: Path, number: int, equations: int = 5, words: str = "") -> Path:
    """A note of some equations that no other note has."""
    folder.mkdir(exist_ok=True)
    path = folder / f"n{number}.md"
    lines = [
        rf"$$ x_{{{n}}}^{{{number}}} + {number} = \sum_{{k<{n}}} y_k^{{{number + n}}} $$" for n in range(equations)
    ]
    path.write_text(f"# Note {number}\n\nThis is note{number} {words}.\n\n" + "\n\n".join(lines) + "\n")
    return path


def replace_content(path: Path, content: bytes) -> None:
    """Give a file other content, under another inode: a process dies if what it has mapped is cut off."""
    path.unlink()
    path.write_bytes(content)


@pytest.fixture(scope="session")
def other_encoder() -> Encoder:
    """A network that learned nothing."""
    return Encoder(make_random_model(Forest.concatenate([])))


@pytest.fixture
def atlas(tmp_path: Path, atlas_library: Path) -> Library:
    """The atlas with its index, to be changed at will."""
    return Library.open(shutil.copytree(atlas_library, tmp_path / "atlas"))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of three notes with five equations each."""
    for number in (1, 2, 3):
        write_note(tmp_path / "notes", number)
    return tmp_path / "notes"


@pytest.fixture
def library(tmp_path: Path, notes: Path) -> Library:
    """A library of those notes, without an index."""
    opened = Library.open(tmp_path / "library", create=True)
    opened.add(notes)
    return opened


def expected(library: Library, encoder: Encoder) -> dict[int, np.ndarray]:
    """Compute the unit vectors of all trees without the index."""
    vectors = {}
    for numbers, forest, _ in library.iter_trees(library.list_tree_keys()):
        for number, vector in zip(numbers.tolist(), encoder.embed(forest), strict=True):
            vectors[number] = vector / np.linalg.norm(vector)
    return vectors
