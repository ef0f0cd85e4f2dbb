"""Atomic files, the lock of a folder's only writer, and JSON files that carry a checksum.

A file is written under a temporary name, synchronised and renamed, and its folder is synchronised: after a crash the
old content or the new one is there.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from eqkin.errors import CorruptData, LibraryBusy, StorageFailed

if sys.platform == "win32":
    import msvcrt

    def _lock_file(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock_file(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder durable, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except (OSError, AttributeError):  # Windows cannot open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete_unused_files(folder: Path, keep: Collection[str]) -> None:
    """Delete the files of a folder whose names are not in `keep`."""
    for path in folder.iterdir():
        if path.name not in keep and path.is_file():
            with suppress(PermissionError):  # on Windows: another process has it mapped
                path.unlink(missing_ok=True)


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
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageFailed(f"{self.path}: cannot be opened for writing ({error.strerror})") from error
        try:
            _lock_file(self._descriptor)
        except OSError as error:
            holder = os.read(self._descriptor, 500).decode("utf-8", "replace").strip()
            os.close(self._descriptor)
            raise LibraryBusy(
                f"{self.path.parent}: another process is writing ({holder or 'unknown'}); try again later"
            ) from error
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError):  # the lock holds without a name
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()} since {since}\n".encode())
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def format_checked_json(name: str, data: object, indent: int | None = 1) -> bytes:
    """Return `{"checksum": ..., name: data}` as JSON, in the one form that `parse_checked_json` accepts."""
    body = json.dumps(data, indent=indent, sort_keys=True)
    checksum = hashlib.sha256(body.encode()).hexdigest()
    outer = {"checksum": checksum, name: json.loads(body)}
    return json.dumps(outer, indent=indent, sort_keys=True).encode() + b"\n"


def parse_checked_json(raw: bytes, name: str, indent: int | None = 1) -> Any:
    """Return the data of a checked JSON file; raises `ValueError` if a single byte differs from what was written."""
    try:
        data = json.loads(raw)[name]
        if raw == format_checked_json(name, data, indent):
            return data
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    raise ValueError("the checksum differs")


def load_checked_json(
    path: Path, name: str, form: str, version: int, remedy: str, *, older: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Read a checked JSON file of one format, and of a version or an older one.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptData: it cannot be read, is damaged, or has another format or version; the message ends with `remedy`.
    """
    try:
        data: dict[str, Any] = parse_checked_json(path.read_bytes(), name)
        found = data["format"], data["version"]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {remedy}") from error
    if found[0] != form or found[1] not in (version, *older):
        raise CorruptData(f"{path}: {found[0]} version {found[1]}, this eqkin reads {form} version {version}; {remedy}")
    return data
