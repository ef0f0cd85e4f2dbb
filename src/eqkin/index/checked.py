"""Which files of an index were compared with their hashes, so that not every process has to read all of them again.

`checked.json` keeps the size, inode and times of each file that was found right: whatever writes to a file changes
these. What the disk itself does to a file does not; so `eqkin verify` hashes every file afresh, as does whoever copies
from a file into a new one, and what faiss relies on is hashed whenever it is opened. It may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from eqkin.errors import CorruptData
from eqkin.index.state import REBUILD_HINT
from eqkin.storage import hash_file

HASH_CACHE_NAME = "checked.json"
_SETTLE_NANOSECONDS = 50_000_000  # nanoseconds after which a change gives a file another time than it has
_COARSE_SETTLE_NANOSECONDS = 3_000_000_000  # where times are kept in seconds

Stamp = list[int]  # size, inode, time of the last change of content, and of anything
Known = dict[str, tuple[str, Stamp]]  # file -> hash, stamp


class HashedFile(Protocol):
    """What `index.json` says of any file."""

    @property
    def file(self) -> str:
        """Its name."""

    @property
    def sha256(self) -> str:
        """Its hash."""

    @property
    def bytes(self) -> int:
        """Its size."""


def is_intact(folder: Path, entry: HashedFile, *, afresh: bool = False) -> bool:
    """Whether a file is there and matches its hash; `afresh`: whatever was found earlier."""
    path = folder / entry.file
    try:
        return path.stat().st_size == entry.bytes and has_hash(path, entry.sha256, afresh=afresh)
    except OSError:
        return False


def require_intact(folder: Path, entries: Iterable[HashedFile]) -> None:
    """Compare files with their hashes afresh; raises `CorruptData`. Damage is never copied under a new hash."""
    for entry in entries:
        if not is_intact(folder, entry, afresh=True):
            raise CorruptData(f"{folder / entry.file}: does not match its hash; {REBUILD_HINT}")


def has_hash(path: Path, digest: str, *, afresh: bool = False) -> bool:
    """Whether a file has a hash, which is remembered if so and forgotten if not; raises `OSError`."""
    found = _read_stamp(path)
    known = _load_known(path.parent)
    if not afresh and known.get(path.name) == (digest, found):
        return True
    started = time.time_ns()
    right = hash_file(path) == digest
    if right and _is_settled(found, started) and found == _read_stamp(path):
        if known.get(path.name) != (digest, found):
            _save_known(path.parent, {path.name: (digest, found)})
    elif not right and path.name in known:
        _save_known(path.parent, {path.name: None})
    return right


def remember_hashes(folder: Path, written: Mapping[str, str]) -> None:
    """Note the hashes of files, by name, that the caller wrote a moment ago and nobody else can have changed."""
    with suppress(OSError):
        stamps = {name: _read_stamp(folder / name) for name in written}
        youngest = max((max(stamp[2:]) for stamp in stamps.values()), default=0)
        time.sleep(min(max(0, youngest + _SETTLE_NANOSECONDS - time.time_ns()), _SETTLE_NANOSECONDS) / 1e9)
        now = time.time_ns()
        _save_known(folder, {name: (written[name], stamp) for name, stamp in stamps.items() if _is_settled(stamp, now)})


def is_damaged(folder: Path) -> bool:
    """Whether what was remembered is there but cannot be read."""
    try:
        return _parse_known((folder / HASH_CACHE_NAME).read_bytes()) is None
    except OSError:
        return False


def _read_stamp(path: Path) -> Stamp:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _is_settled(stamp: Stamp, now: int) -> bool:
    """Whether a change after this moment would show in the file's times."""
    coarse = all(moment % 1_000_000 == 0 for moment in stamp[2:])
    return max(stamp[2:]) + (_COARSE_SETTLE_NANOSECONDS if coarse else _SETTLE_NANOSECONDS) <= now


def _load_known(folder: Path) -> Known:
    try:
        return _parse_known((folder / HASH_CACHE_NAME).read_bytes()) or {}
    except OSError:
        return {}


def _parse_known(raw: bytes) -> Known | None:
    try:
        files = json.loads(raw)["files"]
        if raw != _format_known(files):
            return None
        return {str(name): (str(digest), list(map(int, stamp))) for name, (digest, stamp) in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _save_known(folder: Path, changes: Mapping[str, tuple[str, Stamp] | None]) -> None:
    """Where nothing can be written, nothing is remembered; what two write at the same time, one of them loses."""
    known: dict[str, tuple[str, Stamp] | None] = {**_load_known(folder), **changes}
    kept = {name: entry for name, entry in sorted(known.items()) if entry and (folder / name).exists()}
    text = _format_known(kept)
    with suppress(OSError):
        if (folder / HASH_CACHE_NAME).read_bytes() == text:
            return
    temporary = folder / f".{HASH_CACHE_NAME}.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        temporary.write_bytes(text)
        temporary.replace(folder / HASH_CACHE_NAME)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _format_known(files: Mapping[str, object]) -> bytes:
    body = json.dumps(files, sort_keys=True)
    return json.dumps({"checksum": sha256(body.encode()).hexdigest(), "files": files}, sort_keys=True).encode() + b"\n"
