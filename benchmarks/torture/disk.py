"""A disk that loses what was not synchronised: files and names as they may be after a power cut."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# of what was not synchronised: nothing is kept, only names, only content, or some of both with writes out of order
MODES = ("lost", "names", "content", "some")
_SECTOR = 512


class Operation(NamedTuple):
    """A call that changes the disk; `at` is the offset of a write, or the size of a truncation."""

    name: str
    inode: int
    at: int
    path: str
    second: str
    data: bytes


def read_log(path: Path) -> list[Operation]:
    """Read what `faults.c` recorded."""
    operations = []
    with path.open("rb") as file:
        while line := file.readline():
            name, inode, at, size, first, second = line[:-1].split(b"\t")
            data = file.read(int(size))
            operations.append(
                Operation(name.decode(), int(inode), int(at), os.fsdecode(first), os.fsdecode(second), data)
            )
    return operations


@dataclass
class _File:
    content: bytes = b""  # synchronised
    pending: list[Operation] = field(default_factory=list)

    def build(self, pending: list[Operation], chance: random.Random | None = None) -> bytes:
        content = bytearray(self.content)
        for operation in pending:
            data, at = operation.data, operation.at
            if operation.name == "truncate":
                content = content[:at] + bytes(at - len(content[:at]))
            else:
                if chance and chance.random() < 0.2:  # torn
                    data = data[: chance.randrange(len(data) + 1) // _SECTOR * _SECTOR]
                content += bytes(max(at - len(content), 0))
                content[at : at + len(data)] = data
        return bytes(content)


class SimulatedDisk:
    """A folder as the disk has it, and what was changed since the last synchronisation."""

    def __init__(self, root: Path) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}  # path -> inode, 0 for a folder; synchronised
        self._pending: list[tuple[str, str, int]] = []  # changes of names: path, second path, inode or -1 for a removal
        self._root = str(root)
        for path in root.rglob("*"):
            inode = 0 if path.is_dir() else path.stat().st_ino
            self._names[str(path)] = inode
            if inode:
                self._files[inode] = _File(path.read_bytes())

    def apply(self, operation: Operation) -> None:
        """Do what was recorded."""
        name, path = operation.name, operation.path
        if name in ("create", "mkdir"):
            inode = operation.inode if name == "create" else 0
            if inode:
                self._files[inode] = _File()
            self._pending.append((path, "", inode))
        elif name == "unlink":
            self._pending.append((path, "", -1))
        elif name == "rename":
            self._pending.append((path, operation.second, self._resolve(self._pending)[path]))
        elif name == "fsync" and operation.inode in self._files:
            file = self._files[operation.inode]
            file.content, file.pending = file.build(file.pending), []
        elif name == "fsync":  # of a folder
            inside = [change for change in self._pending if os.path.dirname(change[0]) == path]
            self._names = self._resolve(inside)
            self._pending = [change for change in self._pending if change not in inside]
        else:
            self._files[operation.inode].pending.append(operation)

    def _resolve(self, changes: list[tuple[str, str, int]]) -> dict[str, int]:
        names = dict(self._names)
        for path, second, inode in changes:
            if second or inode < 0:
                names.pop(path, None)
            if inode >= 0:
                names[second or path] = inode
        return names

    def write_state(self, folder: Path, mode: str, chance: random.Random) -> None:
        """Write what may be left after a power cut to a folder."""
        kept = self._pending if mode == "names" else []
        if mode == "some":  # of each folder, its first changes
            folders = {os.path.dirname(path): chance.random() for path, _, _ in self._pending}
            for name, part in folders.items():
                inside = [change for change in self._pending if os.path.dirname(change[0]) == name]
                kept = kept + inside[: round(part * len(inside))]
        folder.mkdir()
        for path, inode in sorted(self._resolve(kept).items()):
            target = folder / os.path.relpath(path, self._root)
            if not target.parent.is_dir():
                continue  # the name of its folder was lost
            if not inode:
                target.mkdir(exist_ok=True)
                continue
            file = self._files[inode]
            pending = file.pending if mode == "content" else []
            if mode == "some":
                pending = [operation for operation in file.pending if chance.random() < 0.5]
                chance.shuffle(pending)
            target.write_bytes(file.build(pending, chance if mode == "some" else None))
