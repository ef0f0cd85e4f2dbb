import io
import subprocess
import sys
import tarfile

import pytest
import zstandard

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.storage.files import format_checked_json
from eqkin.storage.pack import LIST_NAME, pack_folder, unpack_folder

FILES = {"a.txt": b"one", "below/b.bin": bytes(range(256)) * 5000, "empty": b""}


@pytest.fixture
def packed(tmp_path):
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    pack_folder(tmp_path / "in", list(FILES), tmp_path / "x.eqkin")
    return tmp_path / "x.eqkin"


def test_a_folder_comes_back_and_packing_is_reproducible(packed, tmp_path):
    (tmp_path / ".out.unpacking" / "unpacked").mkdir(parents=True)  # of a killed process
    (tmp_path / ".out.unpacking" / "unpacked" / "half").touch()
    unpack_folder(packed, tmp_path / "out", folders=["none"])
    assert {name: (tmp_path / "out" / name).read_bytes() for name in FILES} == FILES
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.txt", "below", "empty", "none"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "x.eqkin"]
    pack_folder(tmp_path / "out", list(FILES), tmp_path / "y.eqkin")
    assert (tmp_path / "y.eqkin").read_bytes() == packed.read_bytes()


def test_a_damaged_or_truncated_file_leaves_nothing_behind(packed, tmp_path):
    raw = packed.read_bytes()
    for damaged in (raw[: len(raw) // 2], raw[:-1], raw[:100], b"", b"nothing", *flip_bytes(raw)):
        packed.write_bytes(damaged)
        with pytest.raises((BadInput, CorruptData)):
            unpack_folder(packed, tmp_path / "out")
        assert {path.name for path in tmp_path.iterdir()} == {"in", "x.eqkin"}


def flip_bytes(raw):
    for position in range(4, len(raw), max(len(raw) // 40, 1)):
        yield raw[:position] + bytes([raw[position] ^ 0x55]) + raw[position + 1 :]


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "not-listed"])
def test_members_that_lead_outside_or_are_not_listed_are_refused(tmp_path, name):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as tar:
        listed = {} if name == "not-listed" else {name: {"bytes": 1, "sha256": ""}}
        for member, content in ((LIST_NAME, format_checked_json("files", listed)), (name, b"x")):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    (tmp_path / "x.eqkin").write_bytes(zstandard.compress(buffer.getvalue()))
    with pytest.raises(CorruptData):
        unpack_folder(tmp_path / "x.eqkin", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


def test_an_existing_folder_is_not_overwritten(packed, tmp_path):
    with pytest.raises(BadInput, match="exists"):
        unpack_folder(packed, tmp_path / "in")


MEASURED = """
import resource, sys
from pathlib import Path
from eqkin.errors import CorruptData
from eqkin.storage.pack import unpack_folder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    unpack_folder(Path(sys.argv[1]), Path(sys.argv[1] + "-out"))
except CorruptData as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_memory_stays_bounded_for_a_bomb(tmp_path, kind):
    bomb = tarfile.TarInfo("bomb")
    bomb.type, bomb.size = kind, 1_000_000_000
    listed = tarfile.TarInfo(LIST_NAME)
    content = format_checked_json("files", {"bomb": {"bytes": 3, "sha256": ""}})
    listed.size = len(content)
    with open(tmp_path / "x.eqkin", "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as stream:
        stream.write(listed.tobuf() + content + bytes(-len(content) % 512) + bomb.tobuf())
        for _ in range(200):
            stream.write(bytes(1_000_000))
    measured = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "x.eqkin"], capture_output=True, text=True, check=True
    ).stdout
    assert "copy it again" in measured
    assert int(measured.split()[0]) < 100_000  # kilobytes
    assert {path.name for path in tmp_path.iterdir()} == {"x.eqkin"}


@pytest.mark.parametrize("listed", [[], {"a": 1}, {"a": {"bytes": 1}}, {"a": {"bytes": "x", "sha256": ""}}])
def test_list_of_files_of_another_shape_is_damage(tmp_path, listed):
    content = format_checked_json("files", listed)
    info = tarfile.TarInfo(LIST_NAME)
    info.size = len(content)
    (tmp_path / "x.eqkin").write_bytes(zstandard.compress(info.tobuf() + content + bytes(20_000)))
    with pytest.raises(CorruptData, match="its list of files is damaged"):
        unpack_folder(tmp_path / "x.eqkin", tmp_path / "out")


def test_library_larger_than_the_disk_is_refused_before_it_is_written(tmp_path):
    content = format_checked_json("files", {"a": {"bytes": 1 << 60, "sha256": ""}})
    info = tarfile.TarInfo(LIST_NAME)
    info.size = len(content)
    (tmp_path / "x.eqkin").write_bytes(zstandard.compress(info.tobuf() + content + bytes(20_000)))
    with pytest.raises(StorageFailed, match="make room"):
        unpack_folder(tmp_path / "x.eqkin", tmp_path / "out")
