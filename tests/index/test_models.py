"""A library with a model of its own: stored with the vectors, used by every search, checked, and replaced."""

from pathlib import Path

import pytest

from eqkin.api import Library, verify
from eqkin.encoder.encoder import Encoder
from eqkin.errors import CorruptData
from eqkin.index.manifest import IndexManifest, load_encoder
from eqkin.index.update import update_index
from eqkin.search import SearchEngine


def _own(library: Library) -> list[Path]:
    return sorted((library.folder / "index").glob("model-*"))


def test_library_keeps_the_model_it_was_indexed_with(library: Library) -> None:
    paper = Encoder.load("paper")
    assert load_encoder(library.folder).digest == Encoder.load().digest != paper.digest
    update_index(library, paper)
    assert [path.name for path in _own(library)] == [f"model-{paper.digest[:16]}"]
    assert load_encoder(library.folder).digest == paper.digest
    assert not verify(library.folder).problems
    with SearchEngine(library.folder) as engine:
        assert engine.encoder.digest == paper.digest
        assert engine.search("a + b", k=3).hits
    assert library.search("a + b", k=3).hits
    assert update_index(library, load_encoder(library.folder)).indexed == 0


def test_bundled_model_is_not_stored_and_replaces_another(library: Library) -> None:
    update_index(library, Encoder.load("paper"))
    update_index(library, Encoder.load())
    assert not _own(library)
    assert load_encoder(library.folder).digest == Encoder.load().digest
    assert not verify(library.folder).problems


def test_leftovers_of_a_killed_save_are_deleted_and_files_of_others_kept(library: Library) -> None:
    update_index(library, Encoder.load("paper"))
    (own,) = _own(library)
    leftover, other = own / ".weights.safetensors.71.tmp", own / "notes.txt"
    for path in (leftover, other):
        path.write_text("x")
    notes = verify(library.folder).notes
    assert any(note.startswith("1 unused files of an interrupted update") for note in notes)
    assert any(note.startswith(f"{other}: does not belong to the library") for note in notes)
    update_index(library, Encoder.load("paper"))
    assert (leftover.exists(), other.exists()) == (False, True)
    update_index(library, Encoder.load())
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("lost", [True, False])
def test_damaged_model_is_reported_and_can_be_replaced(library: Library, lost: bool) -> None:
    update_index(library, Encoder.load("paper"))
    (own,) = _own(library)
    for path in own.iterdir():
        if lost:
            path.unlink()
        elif path.suffix == ".safetensors":
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
    with pytest.raises(CorruptData, match="model-"):
        load_encoder(library.folder)
    assert any("eqkin index --model" in problem for problem in verify(library.folder).problems)
    assert update_index(library, Encoder.load("paper")).indexed == 0
    assert load_encoder(library.folder).digest == Encoder.load("paper").digest
    assert not verify(library.folder).problems


def test_index_without_own_model_uses_the_bundled_one(library: Library) -> None:
    update_index(library, Encoder.load())
    state = IndexManifest.load(library.folder / "index")
    assert state is not None and state.network == ""
