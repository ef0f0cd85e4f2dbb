"""A library as one file: it comes back, and damage, bombs and foreign members leave nothing behind."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

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
    for position in range(4, len(raw), max(len(raw) // 20, 1)):
        flipped.append(raw[:position] + bytes([raw[position] ^ 0x55]) + raw[position + 1 :])
    for damaged in (raw[: len(raw) // 2], raw[:-1], raw[:100], b"", b"nothing", *flipped):
        packed.write_bytes(damaged)
        with pytest.raises((BadInput, CorruptData)):
            unpack_library(packed, tmp_path / "out")
        assert {path.name for path in tmp_path.iterdir()} == names


def write_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return write_packed(path, zstandard.compress(buffer.getvalue()))


def write_packed(path: Path, content: bytes) -> Path:
    path.write_bytes(content + hashlib.sha256(content).digest())
    return path


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "notes.txt", "index/../../escaped", "index/..", "link"])
def test_members_that_lead_outside_or_are_foreign_are_refused(tmp_path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    if name == "link":
        member = tarfile.TarInfo("library.db")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path = write_tar(tmp_path / "x.eqkin", member)
    with pytest.raises((BadInput, CorruptData)):
        unpack_library(path, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


def test_a_file_without_a_database_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.eqkin", tarfile.TarInfo("index/index.json"))
    with pytest.raises(CorruptData, match="pack it again"):
        unpack_library(path, tmp_path / "out")


MEASURED = """
import resource, sys
from pathlib import Path
from eqkin.errors import EqkinError
from eqkin.library.pack import unpack_library
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpack_library(Path(sys.argv[1]), Path(sys.argv[1] + "-out"))
except EqkinError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_memory_stays_bounded_for_a_bomb(tmp_path: Path, kind: bytes) -> None:
    bomb = tarfile.TarInfo("bomb")
    bomb.type, bomb.size = kind, 1_000_000_000
    write_packed(tmp_path / "x.eqkin", zstandard.compress(bomb.tobuf() + bytes(200_000_000)))
    measured = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "x.eqkin"], capture_output=True, text=True, check=True
    ).stdout
    kilobytes = int(measured.split()[0])
    assert kilobytes < 100_000
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


def test_library_larger_than_the_disk_is_refused_before_it_is_written(tmp_path: Path) -> None:
    member = tarfile.TarInfo("library.db")
    member.size = 1 << 60
    write_packed(tmp_path / "x.eqkin", zstandard.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(20_000)))
    with pytest.raises(StorageFailed, match="make room"):
        unpack_library(tmp_path / "x.eqkin", tmp_path / "out")
