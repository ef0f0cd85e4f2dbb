"""Append-only segment files: written once, checked against their hashes, mapped into memory, merged when they are many.

A list of entries, kept by the caller in a manifest or a database, says which files count; a file that is in no list is
left over and may be deleted. So a process killed at any moment leaves the old list or the new one.

Hashes of files are cached in `checked.json`, so that not every process reads every file again: for each file that was
intact, its size, inode and times. Any write to a file changes these. Damage by the disk itself does not; therefore
`eqkin verify` ignores the cache, as does everything that copies a file's content under a new hash. The cache may be
deleted at any time.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy.typing as npt

from eqkin.errors import CorruptData, StorageFailed
from eqkin.storage.arrays import get_dtype_name, iter_array_file, view_arrays
from eqkin.storage.files import format_checked_json, hash_file, parse_checked_json, write_file

MAX_SEGMENTS = 16  # of one set; more are merged
MAX_DEAD_FRACTION = 0.5  # of a set's content that nothing refers to any more, above which it is rewritten
HASH_CACHE_NAME = "checked.json"
_SETTLE_NANOSECONDS = 50_000_000  # after this, a write gives a file another time than it has
_COARSE_SETTLE_NANOSECONDS = 3_000_000_000  # where times are kept in seconds

Array = npt.NDArray[Any]
Stamp = list[int]  # size, inode, time of the last change of content, time of the last change of anything
HashCache = dict[str, tuple[str, Stamp]]  # file -> hash, stamp


@dataclass(frozen=True)
class SegmentEntry:
    """Name, hash and size of a segment file."""

    file: str
    sha256: str
    bytes: int
    count: int  # items in it


Entry = TypeVar("Entry", bound=SegmentEntry)


class SegmentCodec(Protocol[Entry]):
    """What a `SegmentSet` must know about its content."""

    def fits(self, run: Sequence[Entry]) -> bool:
        """Return whether neighbouring segments may become one."""

    def merge(self, run: Sequence[Entry], drop_dead: bool) -> Entry | None:
        """Write one segment with the content of `run`; None if nothing of it is left."""


class SegmentSet(Generic[Entry]):
    """The segment files of one kind in a folder, in order."""

    def __init__(self, folder: Path, entries: Iterable[Entry], remedy: str) -> None:
        self.folder: Path = folder
        self.entries: tuple[Entry, ...] = tuple(entries)
        self.remedy: str = remedy

    def select_intact(self) -> tuple[Entry, ...]:
        """Return the entries whose files are there and match their hashes."""
        return tuple(entry for entry in self.entries if is_intact(self.folder, entry))

    def find_problems(self) -> list[str]:
        """Compare every file with its hash, ignoring the cache; return a message for each that is damaged."""
        damaged = [entry.file for entry in self.entries if not is_intact(self.folder, entry, force=True)]
        return [f"{self.folder / name}: missing, or does not match its hash; {self.remedy}" for name in damaged]

    def require_intact(self, entries: Iterable[Entry]) -> None:
        """Compare files with their hashes, ignoring the cache; raises `CorruptData`."""
        for entry in entries:
            if not is_intact(self.folder, entry, force=True):
                raise CorruptData(f"{self.folder / entry.file}: does not match its hash; {self.remedy}")

    def compact(
        self, codec: SegmentCodec[Entry], *, drop_dead: bool, max_segments: int = MAX_SEGMENTS
    ) -> tuple[Entry, ...]:
        """Return the entries to use from now on: merged if there are too many, without dead content if asked to.

        Only files whose hashes match are copied: damage is never hidden under a new hash.
        """
        if not drop_dead and len(self.entries) <= max_segments:
            return self.entries
        runs: list[list[Entry]] = []
        for entry in self.entries:
            if runs and codec.fits([*runs[-1], entry]):
                runs[-1].append(entry)
            else:
                runs.append([entry])
        compacted: list[Entry] = []
        for run in runs:
            if drop_dead or len(run) > 1:
                self.require_intact(run)
                merged = codec.merge(run, drop_dead)
                compacted += [merged] if merged is not None else []
            else:
                compacted += run
        return tuple(compacted)


def write_segment(folder: Path, kind: str, content: bytes) -> tuple[str, str, int]:
    """Write a segment file that is named by its content; return its name, hash and size."""
    digest = sha256(content).hexdigest()
    name = f"{kind}-{digest[:16]}.safetensors"
    write_file(folder / name, content)
    return name, digest, len(content)


def write_arrays(folder: Path, kind: str, arrays: Mapping[str, Array]) -> tuple[str, str, int]:
    """Write arrays as a segment file (`storage.arrays`); return its name, hash and size."""
    return write_segment(folder, kind, b"".join(iter_array_file(arrays, {})))


def open_arrays(
    folder: Path, entry: SegmentEntry, wanted: Mapping[str, tuple[str, list[int]]], remedy: str
) -> list[Array]:
    """Return arrays of a segment file as views of the mapped file.

    Args:
        folder: the folder of the file.
        entry: what is known of the file.
        wanted: the arrays by name, each with its dtype in the words of safetensors and its shape; -1: any length.
        remedy: what to do about a damaged file, for the error.

    Raises:
        CorruptData: the file is missing or has another content.
    """
    path = folder / entry.file
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if len(data) != entry.bytes:
            raise ValueError("wrong size")
        found, arrays = view_arrays(data)[0], []
        for name, (dtype, shape) in wanted.items():
            array = found[name]
            fits = array.ndim == len(shape) and all(b in (-1, a) for a, b in zip(array.shape, shape, strict=True))
            if get_dtype_name(array) != dtype or not fits:
                raise ValueError(f"{name} has another dtype or shape")
            arrays.append(array)
        return arrays
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {remedy}") from error


def is_intact(folder: Path, entry: SegmentEntry, *, force: bool = False) -> bool:
    """Return whether a file is there and matches its hash; `force`: ignore the cache of hashes."""
    path = folder / entry.file
    try:
        return path.stat().st_size == entry.bytes and has_hash(path, entry.sha256, force=force)
    except OSError:
        return False


def has_hash(path: Path, digest: str, *, force: bool = False) -> bool:
    """Return whether a file has this hash; `force`: read it even if the answer is cached. Raises `OSError`."""
    found = _read_stamp(path)
    cached = _load_cache(path.parent)
    if not force and cached.get(path.name) == (digest, found):
        return True
    started = time.time_ns()
    right = hash_file(path) == digest
    if right and not force and _is_settled(found, started) and found == _read_stamp(path):
        _update_cache(path.parent, {path.name: (digest, found)})
    elif not right and path.name in cached:
        _update_cache(path.parent, {path.name: None})
    return right


def cache_hashes(folder: Path, written: Mapping[str, str], *, wait: bool = True) -> None:
    """Cache the hashes, by file name, of files that the caller has just written, those that are old enough.

    With `wait`, they are old enough after a moment.
    """
    with suppress(OSError):
        stamps = {name: _read_stamp(folder / name) for name in written}
        if wait:
            youngest = max((max(stamp[2:]) for stamp in stamps.values()), default=0)
            time.sleep(min(max(0, youngest + _SETTLE_NANOSECONDS - time.time_ns()), _SETTLE_NANOSECONDS) / 1e9)
        now = time.time_ns()
        _update_cache(folder, {n: (written[n], stamp) for n, stamp in stamps.items() if _is_settled(stamp, now)})


def is_cache_damaged(folder: Path) -> bool:
    """Return whether there is a cache of hashes that cannot be read."""
    try:
        _parse_cache((folder / HASH_CACHE_NAME).read_bytes())
    except OSError:
        return False
    except ValueError:
        return True
    return False


def _read_stamp(path: Path) -> Stamp:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _is_settled(stamp: Stamp, now: int) -> bool:
    """Return whether a write after `now` would change the file's times."""
    coarse = all(moment % 1_000_000 == 0 for moment in stamp[2:])
    return max(stamp[2:]) + (_COARSE_SETTLE_NANOSECONDS if coarse else _SETTLE_NANOSECONDS) <= now


def _load_cache(folder: Path) -> HashCache:
    try:
        return _parse_cache((folder / HASH_CACHE_NAME).read_bytes())
    except (OSError, ValueError):
        return {}


def _parse_cache(raw: bytes) -> HashCache:
    try:
        files = parse_checked_json(raw, "files", indent=None)
        return {str(name): (str(digest), list(map(int, stamp))) for name, (digest, stamp) in files.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def _update_cache(folder: Path, changes: Mapping[str, tuple[str, Stamp] | None]) -> None:
    """Change the cache, if the folder can be written to; of two simultaneous changes one may be lost."""
    cached: dict[str, tuple[str, Stamp] | None] = {**_load_cache(folder), **changes}
    kept = {name: entry for name, entry in cached.items() if entry and (folder / name).exists()}
    content = format_checked_json("files", kept, indent=None)
    with suppress(OSError, StorageFailed):
        path = folder / HASH_CACHE_NAME
        if not path.exists() or path.read_bytes() != content:
            write_file(path, content)
