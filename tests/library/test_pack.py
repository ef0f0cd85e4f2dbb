"""A library as one file: it comes back, and damage, bombs and foreign members leave nothing behind."""

from pathlib import Path
from types import SimpleNamespace
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from eqkin.api import Library, pack, unpack, verify
from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.library.judgements import Judgement, LocalJudgements
from eqkin.library.pack import unpack_library


@pytest.fixture
def packed(library: Library, tmp_path: Path) -> Path:
    LocalJudgements(library.folder).add(Judgement(equation="a", relevant=True, latex="x"))
    library.open_engine()
    library.close()
    pack(library.folder, tmp_path / "x.eqkin")
    return tmp_path / "x.eqkin"


def test_a_library_comes_back_and_packing_is_reproducible(packed: Path, tmp_path: Path) -> None:
    unpack(packed, tmp_path / "copy")
    assert verify(tmp_path / "copy") == verify(tmp_path / "library")
    assert not verify(tmp_path / "copy").problems + verify(tmp_path / "copy").notes
    assert len(LocalJudgements(tmp_path / "copy").list_all()) == 1
    with Library.open(tmp_path / "copy") as copy:
        assert copy.search("E", k=1).hits
    pack(tmp_path / "library", tmp_path / "y.eqkin")
    assert (tmp_path / "y.eqkin").read_bytes() == packed.read_bytes()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    with pytest.raises(BadInput, match="exists"):
        unpack(packed, tmp_path / "copy")


def test_a_damaged_or_truncated_file_leaves_nothing_behind(packed: Path, tmp_path: Path) -> None:
    raw, names = packed.read_bytes(), {path.name for path in tmp_path.iterdir()}
    flipped = []
    # Headers and the list at the end also have what no reader needs: flips are in the content.
    for position in range(1_000, len(raw) - 2_000, max(len(raw) // 20, 1)):
        flipped.append(raw[:position] + bytes([raw[position] ^ 0x55]) + raw[position + 1 :])
    for damaged in (raw[: len(raw) // 2], raw[:-1], raw[:100], b"", b"nothing", *flipped):
        packed.write_bytes(damaged)
        with pytest.raises((BadInput, CorruptData)):
            unpack_library(packed, tmp_path / "out")
        assert {path.name for path in tmp_path.iterdir()} == names


def write_zip(path: Path, *names: str, size: int = 0) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, bytes(size))
    return path


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "notes.txt", "index/../../escaped", "index/.."])
def test_members_that_lead_outside_or_are_foreign_are_refused(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "x.eqkin", "library.db", name)
    with pytest.raises(CorruptData):
        unpack_library(path, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


def test_a_file_without_a_database_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.eqkin", "index/index.json")
    with pytest.raises(CorruptData, match="pack it again"):
        unpack_library(path, tmp_path / "out")


def test_a_library_larger_than_the_disk_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=999_999))
    path = write_zip(tmp_path / "x.eqkin", "library.db", size=1_000_000)
    with pytest.raises(StorageFailed, match="make room"):
        unpack_library(path, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


def test_no_more_is_unpacked_than_the_list_says(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.eqkin", "library.db", size=50_000_000)
    raw = path.read_bytes()
    place = raw.rindex((50_000_000).to_bytes(4, "little"))
    path.write_bytes(raw[:place] + (1_000).to_bytes(4, "little") + raw[place + 4 :])
    with pytest.raises(CorruptData):
        unpack_library(path, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}
