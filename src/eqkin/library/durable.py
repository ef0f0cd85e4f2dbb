"""Files that are there whole or not at all: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from eqkin.errors import StorageFailed


def write_file(path: Path, content: bytes) -> None:
    """Put `content` at `path`, replacing what is there in one step; raises `StorageFailed`, the old file intact."""
    write_stream(path, [content])


def write_stream(path: Path, pieces: Iterable[bytes]) -> None:
    """The same with content that comes in pieces."""
    if path.exists() and not path.is_file():
        raise StorageFailed(f"{path}: is no ordinary file; choose another name")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageFailed(f"{path}: could not be written ({error.strerror or error})") from error
        raise


def replace_file(temporary: Path, path: Path) -> None:
    """Put a file that was written under another name in its place, for good; raises `OSError`."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames within a folder last (where the system can do that)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except (OSError, AttributeError):  # Windows cannot open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_file(path: Path) -> str:
    """Hex digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
