"""A folder as one file that another machine can check and unpack.

The file is a zstd-compressed tar. Its first member lists the others with their sizes and SHA-256, so that nothing is
written that the list does not name, and a damaged or incomplete file is found before the folder gets its name.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import zstandard

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.storage.files import (
    WriterLock,
    format_checked_json,
    hash_file,
    parse_checked_json,
    sync_folder,
    write_atomically,
)

LIST_NAME = "contents.json"
_LEVEL = 6
_CHUNK_BYTES = 1 << 20
_MAX_LIST_BYTES = 50_000_000
_MAX_HEADER_BYTES = 1_000_000  # of all members beyond what the list of files accounts for
_MEMBER_BYTES = 2_048  # of a member's header, its long name and its padding, at most
Progress = Callable[[int], None]  # called with the bytes done so far


def pack_folder(folder: Path, names: list[str], target: Path, progress: Progress | None = None) -> None:
    """Write the files `names` of a folder, which must not change meanwhile, to one file; raises `StorageFailed`."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    contents = {name: {"bytes": sizes[name], "sha256": hash_file(folder / name)} for name in names}
    listed = format_checked_json("files", contents)
    done = 0
    with write_atomically(target) as path, open(path, "wb") as file:
        compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=-1)
        with compressor.stream_writer(file, closefd=False) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
            _add_member(tar, LIST_NAME, len(listed), io.BytesIO(listed))
            for name in names:
                with open(folder / name, "rb") as source:
                    _add_member(tar, name, sizes[name], source)
                done += sizes[name]
                if progress:
                    progress(done)


def _add_member(tar: tarfile.TarFile, name: str, size: int, source: BinaryIO) -> None:
    member = tarfile.TarInfo(name)  # without times and owners: the same folder gives the same file
    member.size = size
    tar.addfile(member, source)


def unpack_folder(source: Path, target: Path, progress: Progress | None = None, folders: Collection[str] = ()) -> None:
    """Unpack what `pack_folder` wrote to a folder that does not exist yet; nothing is left of one that is damaged.

    `folders` are made within it even if no file is in them. A killed process leaves `.NAME.unpacking` next to the
    target, which the next one deletes.

    Raises:
        BadInput: the target exists, or the source is not a packed folder.
        CorruptData: the source is damaged or incomplete.
        LibraryBusy: another process is unpacking to this target.
        StorageFailed: the folder cannot be written.
    """
    temporary = target.with_name(f".{target.name}.unpacking")
    if target.exists() or temporary.is_symlink():
        raise BadInput(f"{target if target.exists() else temporary}: exists already; choose another folder")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        with WriterLock(temporary):
            folder = temporary / "unpacked"
            try:
                shutil.rmtree(folder, ignore_errors=True)
                for path in (folder, *(folder / name for name in folders)):
                    path.mkdir()
                with _open_tar(source) as (tar, stream):
                    _unpack_members(tar, stream, source, folder, progress)
                for path in folder.rglob("*"):
                    if path.is_dir():
                        sync_folder(path)
                sync_folder(folder)
                os.rename(folder, target)
                sync_folder(target.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    (temporary / "lock").unlink()
                    temporary.rmdir()
    except OSError as error:
        raise StorageFailed(f"{target}: {error.strerror or error}") from error


class _BoundedStream:
    """Reads no more than it may: `tarfile` takes a header of any size into memory, and a bomb is small when packed."""

    def __init__(self, stream: BinaryIO, source: Path) -> None:
        self.budget = _MAX_LIST_BYTES + _MAX_HEADER_BYTES
        self._stream, self._source = stream, source

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.budget -= len(data)
        if self.budget < 0:
            raise CorruptData(f"{self._source}: unpacks to more than its list of files says; copy it again")
        return data


@contextmanager
def _open_tar(source: Path) -> Iterator[tuple[tarfile.TarFile, _BoundedStream]]:
    try:
        with open(source, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
            stream = _BoundedStream(unpacked, source)
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
                yield tar, stream
    except FileNotFoundError as error:
        raise BadInput(f"{source}: no such file") from error
    except tarfile.ReadError as error:
        raise BadInput(f"{source}: is not a packed library, or is damaged ({error})") from error
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise CorruptData(f"{source}: is damaged ({error}); copy it again") from error


def _unpack_members(
    tar: tarfile.TarFile, stream: _BoundedStream, source: Path, folder: Path, progress: Progress | None
) -> None:
    first = tar.next()
    if first is None or first.name != LIST_NAME or first.size > _MAX_LIST_BYTES:
        raise BadInput(f"{source}: is not a packed library")
    listing = tar.extractfile(first)
    try:
        listed = parse_checked_json(listing.read() if listing else b"", "files")
        missing = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in listed.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptData(f"{source}: its list of files is damaged ({error}); copy it again") from error
    total = sum(max(size, 0) for size, _ in missing.values())
    if total > shutil.disk_usage(folder).free:
        raise StorageFailed(f"{folder.parent.parent}: {total:,} bytes are needed, and the disk has less; make room")
    stream.budget = total + len(missing) * _MEMBER_BYTES + _MAX_HEADER_BYTES
    done = 0
    while (member := tar.next()) is not None:
        size, checksum = missing.pop(member.name, (-1, ""))
        path = PurePosixPath(member.name)
        data = tar.extractfile(member) if member.isreg() else None
        if data is None or size != member.size or path.is_absolute() or ".." in path.parts or "\0" in member.name:
            raise CorruptData(f"{source}: {member.name!r} is not in its list of files; copy it again")
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with open(folder / path, "wb") as file:
            while chunk := data.read(_CHUNK_BYTES):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != checksum:
            raise CorruptData(f"{source}: {member.name} is damaged; copy it again")
        done += member.size
        if progress:
            progress(done)
    if missing:
        raise CorruptData(f"{source}: ends before {min(missing)}; copy it again")
