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
    # What would survive a loss of power.
    content: bytes = b""
    pending: list[Operation] = field(default_factory=list)

    def build(self, pending: list[Operation], chance: random.Random | None = None) -> bytes:
        content = bytearray(self.content)
        for operation in pending:
            data, at = operation.data, operation.at
            if operation.name == "truncate":
                content = content[:at] + bytes(at - len(content[:at]))
            else:
                # A write may be torn.
                if chance and chance.random() < 0.2:
                    data = data[: chance.randrange(len(data) + 1) // _SECTOR * _SECTOR]
                content += bytes(max(at - len(content), 0))
                content[at : at + len(data)] = data
        return bytes(content)


class SimulatedDisk:
    """A folder as the disk has it, and what was changed since the last synchronisation."""

    def __init__(self, root: Path) -> None:
        # By number; folders have the number 0, so there is no file of that number.
        self._files: list[_File | None] = [None]
        # Numbers of files by inode, since a new file may get the inode of a deleted one.
        self._numbers: dict[int, int] = {}
        # Number by path, as far as names were synchronised.
        self._names: dict[str, int] = {}
        # Changes of names since then: path, second path, number (-1: removed).
        self._pending: list[tuple[str, str, int]] = []
        self._root = str(root)
        for path in root.rglob("*"):
            self._names[str(path)] = 0 if path.is_dir() else self._add(path.stat().st_ino, path.read_bytes())

    def _add(self, inode: int, content: bytes = b"") -> int:
        self._files.append(_File(content))
        self._numbers[inode] = len(self._files) - 1
        return len(self._files) - 1

    def _get(self, inode: int) -> _File:
        file = self._files[self._numbers[inode]]
        assert file is not None
        return file

    def apply(self, operation: Operation) -> None:
        """Do what was recorded."""
        name, path = operation.name, operation.path
        if name in ("create", "mkdir"):
            self._pending.append((path, "", self._add(operation.inode) if name == "create" else 0))
        elif name == "unlink":
            self._pending.append((path, "", -1))
        elif name == "rename":
            self._pending.append((path, operation.second, self._resolve(self._pending)[path]))
        elif name == "link":
            self._pending.append((operation.second, "", self._resolve(self._pending)[path]))
        elif name == "fsync" and path != self._root and self._resolve(self._pending).get(path) != 0:
            file = self._get(operation.inode)
            file.content, file.pending = file.build(file.pending), []
        # A folder makes its names durable.
        elif name == "fsync":
            inside = [change for change in self._pending if os.path.dirname(change[0]) == path]
            self._names = self._resolve(inside)
            self._pending = [change for change in self._pending if change not in inside]
            if operation.data:
                self._list_folder(path, operation.data)
        else:
            self._get(operation.inode).pending.append(operation)

    def _list_folder(self, folder: str, listing: bytes) -> None:
        """Take over the names of a synchronised folder: libraries may rename by calls that are not recorded."""
        listed = {}
        for line in listing.decode(errors="surrogateescape").splitlines():
            inode, name = line.split("/", 1)
            listed[os.path.join(folder, name)] = self._numbers.get(int(inode), 0)
        for path in [path for path in self._names if os.path.dirname(path) == folder]:
            if self._names[path] and path not in listed:
                del self._names[path]
        self._names |= {path: number for path, number in listed.items() if number}

    def _resolve(self, changes: list[tuple[str, str, int]]) -> dict[str, int]:
        names = dict(self._names)
        for path, second, number in changes:
            if second or number < 0:
                names.pop(path, None)
            if number >= 0:
                names[second or path] = number
        return names

    def write_state(self, folder: Path, mode: str, chance: random.Random) -> None:
        """Write what may be left after a power cut to a folder."""
        kept = self._pending if mode == "names" else []
        # The first changes of each folder reached the disk.
        if mode == "some":
            folders = {os.path.dirname(path): chance.random() for path, _, _ in self._pending}
            for name, part in folders.items():
                inside = [change for change in self._pending if os.path.dirname(change[0]) == name]
                kept = kept + inside[: round(part * len(inside))]
        folder.mkdir()
        for path, number in sorted(self._resolve(kept).items()):
            target = folder / os.path.relpath(path, self._root)
            if not target.parent.is_dir():
                # The name of its folder was lost.
                continue
            file = self._files[number]
            if file is None:
                target.mkdir(exist_ok=True)
                continue
            pending = file.pending if mode == "content" else []
            if mode == "some":
                pending = [operation for operation in file.pending if chance.random() < 0.5]
                chance.shuffle(pending)
            target.write_bytes(file.build(pending, chance if mode == "some" else None))
