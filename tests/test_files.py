"""Atomic files, the writer lock, and JSON with a checksum."""

import os
import re
from pathlib import Path

import pytest

from eqkin.errors import LibraryBusy, StorageFailed
from eqkin.files import (
    WriterLock,
    delete_unused_files,
    format_checked_json,
    parse_checked_json,
    write_atomically,
    write_file,
    write_stream,
)


def test_write_file_replaces_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_failed_stream_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"old")

    def pieces():
        yield b"new"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_stream(path, pieces())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_disk_error_is_reported_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="missing/file: could not be written"):
        write_file(tmp_path / "missing" / "file", b"")
    with pytest.raises(StorageFailed, match="is not a regular file"), write_atomically(tmp_path):
        pass


def test_delete_unused_files_deletes_only_own_files_that_are_not_known(tmp_path: Path) -> None:
    for name in ("kept-1", "own-1", ".own-2.71.tmp", ".own-3.71.tmp-journal", "other", ".other.71.tmp"):
        (tmp_path / name).touch()
    (tmp_path / "own-4").mkdir()
    (tmp_path / "own-5").symlink_to("other")
    delete_unused_files(tmp_path, {"kept-1"}, re.compile(r"(own|kept)-\d"))
    assert sorted(os.listdir(tmp_path)) == [".other.71.tmp", "kept-1", "other", "own-4", "own-5"]


def test_second_lock_names_the_process_that_holds_the_first(tmp_path: Path) -> None:
    with WriterLock(tmp_path), pytest.raises(LibraryBusy, match=f"process {os.getpid()} on .* since 20"):
        WriterLock(tmp_path).__enter__()
    assert (tmp_path / "lock").read_bytes() == b""
    with WriterLock(tmp_path):
        assert f"process {os.getpid()} " in (tmp_path / "lock").read_text()


def test_any_changed_byte_of_checked_json_is_found() -> None:
    data = {"name": "é", "numbers": [1, 2.5], "none": None}
    raw = format_checked_json(data)
    assert parse_checked_json(raw) == data
    for at in range(len(raw)):
        with pytest.raises(ValueError, match="."):
            parse_checked_json(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    for content in (b"", b"[]", b"{}", b"\xff", b'{"data": 3}'):
        with pytest.raises(ValueError, match="."):
            parse_checked_json(content)
