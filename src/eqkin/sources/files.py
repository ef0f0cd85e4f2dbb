"""Files as the readers see them: what they hold by their first bytes, read with a cap, named by a stable key."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO, NoReturn

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.sources.paper import Paper, SourceItem

SkipCallback = Callable[[str, str], None]  # called with what was left out and why

HEAD_BYTES = 1024  # enough to tell any kind of archive
_BLOCK = 512

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"%PDF-", "pdf"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"\x1f\x9d", "compress"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip"),
    (b"Rar!\x1a\x07", "rar"),
    (b"%!PS", "postscript"),
    (b"\x04%!PS", "postscript"),
    (b"\xd0\xcf\x11\xe0", "office"),
)


def detect_kind(head: bytes) -> str:
    """What the first `HEAD_BYTES` of a file say it is.

    One of "empty", "gzip", "tar", "zip", "zstd", "pdf", "postscript", another archive's name, "binary" or "text".
    """
    if not head:
        return "empty"
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if is_tar_header(head[:_BLOCK]):
        return "tar"
    if b"%PDF-" in head:
        return "pdf"
    return "binary" if _is_binary(head) else "text"


def is_tar_header(block: bytes) -> bool:
    """Whether a 512-byte block is a tar header, or claims to be one; a block of zeros (an empty tar) counts."""
    if len(block) < _BLOCK:
        return False
    if block[257:262] == b"ustar" or not block.strip(b"\0"):
        return True
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _is_binary(head: bytes) -> bool:
    """Whether control characters make up more than a tenth of `head` (UTF-16 with its mark is text)."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    control = sum(1 for byte in head if byte < 32 and byte not in b"\t\n\r\f\x1a\x1b")
    return control * 10 > len(head)


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file for reading, without following a link in its last part and without blocking.

    Raises `BadInput` for what is missing, unreadable, or not a regular file.
    """
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise BadInput(f"{display_path(path)}: is a symbolic link; give the file it points to") from error
        raise BadInput(f"{display_path(path)}: cannot be opened ({_describe_error(error)})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{display_path(path)}: is not a regular file")
    return os.fdopen(handle, "rb")


def read_capped(path: Path | str, limit: int) -> bytes:
    """Bytes of a regular file; `LimitReached` above `limit`, `BadInput` if it cannot be read."""
    with open_regular(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            raw = file.read(limit + 1) if size <= limit else None
        except OSError as error:
            raise BadInput(f"{display_path(path)}: cannot be read ({_describe_error(error)})") from error
    if raw is None or len(raw) > limit:
        raise LimitReached(f"{display_path(path)}: is larger than {limit:,} bytes; split it or raise the limit")
    return raw


def read_head(path: Path | str, size: int = HEAD_BYTES) -> bytes:
    """First bytes of a regular file; raises `BadInput` if it cannot be read."""
    with open_regular(path) as file:
        try:
            return file.read(size)
        except OSError as error:
            raise BadInput(f"{display_path(path)}: cannot be read ({_describe_error(error)})") from error


def hash_file(path: Path | str) -> str:
    """Hex digest of a file's content, read in pieces; empty if it cannot be read (loading it will say why)."""
    h = hashlib.blake2b(digest_size=16)
    try:
        with open_regular(path) as file:
            while piece := file.read(1 << 20):
                h.update(piece)
    except (BadInput, OSError):
        return ""
    return h.hexdigest()


def make_file_key(path: Path | str) -> str:
    """Key of a file: `file:` and its resolved absolute path, the same for every spelling of it."""
    return "file:" + display_path(os.path.realpath(path))


def display_path(path: Path | str) -> str:
    """A path as clean text, also when its name is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def make_failed_item(key: str, origin: str, error: EqkinError) -> SourceItem:
    """An item that stands for what could not be read: its `load` raises `error` again."""
    return SourceItem(key, origin, partial(_raise_on_load, type(error), str(error)))


def _raise_on_load(kind: type[EqkinError], message: str) -> Paper:
    _raise_error(kind, message)


def _raise_error(kind: type[EqkinError], message: str) -> NoReturn:
    raise kind(message)


def _describe_error(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
