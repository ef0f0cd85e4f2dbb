"""Atomic files, the lock of a folder's only writer, and JSON files that carry a checksum.

A file is written under a temporary name, synchronised and renamed, and its folder is synchronised: after a crash the
old content or the new one is there.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from eqkin.errors import LibraryBusy, StorageFailed

if sys.platform == "win32":
    import msvcrt

    def lock_descriptor(descriptor: int, *, wait: bool = False) -> None:
        """Lock an open file for this process until it is closed; raises `OSError` if another one has it."""
        # Other processes cannot read a locked byte.
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            while True:
                try:
                    return msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                except OSError as error:
                    # Windows gives up after ten seconds.
                    if not wait or error.errno != errno.EDEADLK:
                        raise
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def lock_descriptor(descriptor: int, *, wait: bool = False) -> None:
        """Lock an open file for this process until it is closed; raises `OSError` if another one has it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


# On Windows, a locked byte cannot be read: this one is behind the content of any file.
_LOCKED_BYTE = 1 << 30
# Seconds between attempts to rename a file, on Windows.
_RENAME_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)


# The temporary files of `write_atomically`.
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.tmp(?:-journal)?")


def make_folder(folder: Path) -> Path:
    """Create a folder if it is missing, and return it; raises `StorageFailed`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot be created ({error.strerror or error})") from error
    return folder


def read_file(path: Path) -> bytes | None:
    """Return the content of a file; None if there is none. Raises `StorageFailed`."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error


def write_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; raises `StorageFailed` and leaves the old file intact."""
    write_stream(path, [content])


def write_stream(path: Path, pieces: Iterable[bytes]) -> None:
    """Write content that comes in pieces to `path` atomically; raises `StorageFailed`."""
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        for piece in pieces:
            file.write(piece)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path` and rename it to `path` if the block succeeds.

    Raises:
        StorageFailed: the disk refused the write, in the block or afterwards; the old file is intact.
    """
    if path.exists() and not path.is_file():
        raise StorageFailed(f"{path}: is not a regular file; choose another name")
    # process and thread: two writers of one file must not share it
    temporary = path.with_name(f".{path.name}.{os.getpid()}{threading.get_ident()}.tmp")
    try:
        yield temporary
        replace_file(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageFailed(f"{path}: could not be written ({error.strerror or error})") from error
        raise


def replace_file(temporary: Path, path: Path) -> None:
    """Rename a file that was written under another name, durably; raises `OSError`."""
    with temporary.open("rb+") as file:
        sync_file(file.fileno())
    for pause in (*_RENAME_PAUSES, None):
        try:
            temporary.replace(path)
            break
        # On Windows: another process has the file open, usually for a moment.
        except PermissionError:
            if sys.platform == "win32" and pause is not None:
                time.sleep(pause)
                continue
            raise
    sync_folder(path.parent)


def sync_file(descriptor: int) -> None:
    """Make the content of an open file or folder durable; raises `OSError`."""
    if sys.platform == "darwin":
        # Some file systems do not know it.
        with suppress(OSError):
            # There, fsync leaves the content in the cache of the drive.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    # Windows cannot open folders.
    except (OSError, AttributeError):
        return
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_unknown_files(folder: Path, known: Collection[str], own: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the names in a folder that are not in `known`: those that eqkin left over, and those of others.

    Left over are regular files whose names match `own`, and temporary files of such names.
    """
    leftover: list[str] = []
    foreign: list[str] = []
    for entry in os.scandir(folder):
        temporary = _TEMPORARY.fullmatch(entry.name)
        if temporary or entry.name not in known:
            is_own = entry.is_file(follow_symlinks=False) and own.fullmatch(temporary[1] if temporary else entry.name)
            (leftover if is_own else foreign).append(entry.name)
    return sorted(leftover), sorted(foreign)


def delete_unused_files(folder: Path, known: Collection[str], own: re.Pattern[str]) -> None:
    """Delete what eqkin left over in a folder (`find_unknown_files`); nothing else is touched."""
    for name in find_unknown_files(folder, known, own)[0]:
        # On Windows: another process has it mapped.
        with suppress(PermissionError):
            (folder / name).unlink(missing_ok=True)


class WriterLock:
    """Context manager that holds the writer lock of a folder; raises `LibraryBusy` if another process holds it.

    The operating system releases the lock when its process ends, even if that is killed. The lock file names the holder
    for the message of the error, and is emptied on release.
    """

    def __init__(self, folder: Path) -> None:
        self.path: Path = folder / "lock"
        self._descriptor = -1

    def __enter__(self) -> WriterLock:
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise StorageFailed(f"{self.path}: cannot be opened for writing ({error.strerror})") from error
        try:
            lock_descriptor(self._descriptor)
        except OSError as error:
            holder = os.read(self._descriptor, 500).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise LibraryBusy(
                f"{self.path.parent}: another process is writing ({holder or 'unknown'}); try again later"
            ) from error
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        # The lock holds without a name.
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def format_checked_json(data: dict[str, Any]) -> bytes:
    """Return data with their checksum as JSON, in the one form that `parse_checked_json` accepts."""
    checksum = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return json.dumps(data | {"checksum": checksum}, indent=1, sort_keys=True).encode() + b"\n"


def parse_checked_json(raw: bytes) -> dict[str, Any]:
    """Return the data of a checked JSON file; raises `ValueError` if a single byte differs from what was written."""
    data = json.loads(raw)
    if isinstance(data, dict):
        data.pop("checksum", None)
        if raw == format_checked_json(data):
            return data
    raise ValueError("the checksum differs")
