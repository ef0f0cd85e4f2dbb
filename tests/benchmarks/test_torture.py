"""`python -m benchmarks torture`, for some seconds: the long version of it is `make torture`."""

import random
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.torture.disk import MODES, Operation, SimulatedDisk
from benchmarks.torture.storage import run_storage


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler")
def test_a_short_torture_finds_no_failure() -> None:
    rows = run_storage(3.0, seed=1, actions=["add", "judge"])
    assert [row[0] for row in rows] == ["kill -9", "I/O errors", "power loss", "damage"]
    assert all(cases > 0 and failures == 0 for _, cases, failures, _ in rows), rows


def test_simulated_disk_loses_what_was_not_synchronised(tmp_path: Path) -> None:
    root = tmp_path / "before"
    root.mkdir()
    (root / "old").write_bytes(b"old")

    def write(disk: SimulatedDisk, *names: str) -> None:
        operations = {
            "create": Operation("create", 5, 0, str(root / "new.tmp"), "", b""),
            "write": Operation("write", 5, 0, "", "", b"content"),
            "fsync": Operation("fsync", 5, 0, "", "", b""),
            "rename": Operation("rename", 0, 0, str(root / "new.tmp"), str(root / "old"), b""),
            "sync": Operation("fsync", 1, 0, str(root), "", b""),
        }
        for name in names:
            disk.apply(operations[name])

    def read(disk: SimulatedDisk, mode: str) -> dict[str, bytes]:
        shutil.rmtree(tmp_path / "after", ignore_errors=True)
        disk.write_state(tmp_path / "after", mode, random.Random(0))
        return {path.name: path.read_bytes() for path in (tmp_path / "after").iterdir()}

    careless, careful = SimulatedDisk(root), SimulatedDisk(root)
    write(careless, "create", "write", "rename")
    assert read(careless, "lost") == read(careless, "content") == {"old": b"old"}
    assert read(careless, "names") == {"old": b""}
    write(careful, "create", "write", "fsync", "rename")
    assert [read(careful, mode) for mode in MODES[:3]] == [{"old": b"old"}, {"old": b"content"}, {"old": b"old"}]
    write(careful, "sync")
    assert all(read(careful, mode) == {"old": b"content"} for mode in MODES)


def test_simulated_disk_keeps_a_file_whose_inode_is_used_again(tmp_path: Path) -> None:
    root = tmp_path / "before"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk, inode = SimulatedDisk(root), (root / "old").stat().st_ino
    disk.apply(Operation("unlink", 0, 0, str(root / "old"), "", b""))
    disk.apply(Operation("create", inode, 0, str(root / "new"), "", b""))
    disk.apply(Operation("write", inode, 0, str(root / "new"), "", b"new"))
    disk.apply(Operation("fsync", inode, 0, str(root / "new"), "", b""))
    disk.write_state(tmp_path / "after", "lost", random.Random(0))
    assert {path.name: path.read_bytes() for path in (tmp_path / "after").iterdir()} == {"old": b"old"}
