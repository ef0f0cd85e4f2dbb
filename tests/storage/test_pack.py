import io
import tarfile

import pytest
import zstandard

from eqkin.errors import BadInput, CorruptData
from eqkin.storage import format_checked_json
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
