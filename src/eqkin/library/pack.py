"""A library as one file that another machine can check and unpack.

The file is a zstd-compressed tar with a copy of the database and the files of the index, followed by its SHA-256. The
hash is compared first, so that nothing is unpacked from a damaged or incomplete file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import BinaryIO

import zstandard

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.files import sync_folder, write_atomically
from eqkin.library.database import DATABASE_NAME, INDEX_FOLDER
from eqkin.library.files import LibraryFiles

Progress = Callable[[int], None]

_LEVEL = 6
_CHUNK_BYTES = 1 << 20
# What a tar says of one member; without a limit, `tarfile` would take a header of any size into memory.
_MAX_HEADER_BYTES = 1_000_000
_MEMBER_NAMES = re.compile(rf"{re.escape(DATABASE_NAME)}|{INDEX_FOLDER}(?:/(?!\.\.?(?:/|$))[\w.-]+){{1,3}}")


def pack_library(
    library: LibraryFiles, index_names: Sequence[str], target: Path, progress: Progress | None = None
) -> None:
    """Write a library to one file, which `unpack_library` checks and unpacks; `progress` is called with bytes.

    Args:
        library: The library; nobody may change its index meanwhile.
        index_names: The files of its index, relative to the folder of the index.
        target: The file to write.
        progress: Called with the bytes written so far.

    Raises:
        CorruptData: The database is damaged.
        StorageFailed: The file cannot be written.
    """
    with write_atomically(target) as path:
        copy = path.with_name(f"{path.name}-db")
        try:
            _copy_database(library, copy)
            paths = {DATABASE_NAME: copy}
            paths |= {f"{INDEX_FOLDER}/{name}": library.folder / INDEX_FOLDER / name for name in sorted(index_names)}
            with path.open("wb") as file:
                _write_tar(file, paths, progress or (lambda done: None))
            digest = _hash_content(path, path.stat().st_size)
            with path.open("ab") as file:
                file.write(digest)
        finally:
            copy.unlink(missing_ok=True)


def _copy_database(library: LibraryFiles, path: Path) -> None:
    """Copy a state of the database, also while judgements are added to it."""
    library.check_rows("papers")
    with library.translate_errors(), closing(sqlite3.connect(path)) as copy:
        library.connection.backup(copy)


def _write_tar(file: BinaryIO, paths: dict[str, Path], progress: Progress) -> None:
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=-1)
    done = 0
    with compressor.stream_writer(file, closefd=False) as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        for name, path in paths.items():
            # Without times and owners, the same library gives the same file.
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with path.open("rb") as source:
                tar.addfile(member, source)
            done += member.size
            progress(done)


def unpack_library(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Unpack what `pack_library` wrote to a folder that does not exist yet; nothing is left of a damaged one.

    Raises:
        BadInput: The target exists, or the source is not a packed library.
        CorruptData: The source is damaged or incomplete.
        StorageFailed: The folder cannot be written.
    """
    if target.exists():
        raise BadInput(f"{target}: exists already; choose another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            folder = temporary / "unpacked"
            folder.mkdir()
            _unpack_members(source, folder, progress or (lambda done: None))
            if not (folder / DATABASE_NAME).exists():
                raise CorruptData(f"{source}: has no {DATABASE_NAME}; pack it again")
            # The files must be durable before the folder gets its name.
            for path in (*folder.rglob("*"), folder):
                if path.is_dir():
                    sync_folder(path)
            os.rename(folder, target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise StorageFailed(f"{target}: {error.strerror or error}") from error


def _unpack_members(source: Path, folder: Path, progress: Progress) -> None:
    _require_intact(source)
    room = shutil.disk_usage(folder).free
    done = 0
    with _open_tar(source) as (tar, stream):
        while (member := tar.next()) is not None:
            data = tar.extractfile(member) if member.isreg() else None
            path = folder / member.name
            if data is None or not _MEMBER_NAMES.fullmatch(member.name) or path.exists():
                raise CorruptData(f"{source}: {member.name!r} does not belong to a library; copy it again")
            if done + member.size > room:
                raise StorageFailed(f"{folder.parent.parent}: its disk has only {room:,} bytes left; make room")
            stream.budget += member.size
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(data, file, _CHUNK_BYTES)
                file.flush()
                os.fsync(file.fileno())
            done += member.size
            progress(done)
            stream.budget = _MAX_HEADER_BYTES


def _require_intact(source: Path) -> None:
    """Raise `CorruptData` unless a file ends with the hash of what is before."""
    try:
        size = source.stat().st_size - hashlib.sha256().digest_size
        with source.open("rb") as file:
            is_packed = size > 0 and file.read(len(zstandard.FRAME_HEADER)) == zstandard.FRAME_HEADER
            file.seek(max(size, 0))
            digest = file.read()
    except FileNotFoundError as error:
        raise BadInput(f"{source}: no such file") from error
    if not is_packed:
        raise BadInput(f"{source}: is not a packed library")
    if _hash_content(source, size) != digest:
        raise CorruptData(f"{source}: is damaged or incomplete; copy it again")


def _hash_content(path: Path, size: int) -> bytes:
    """Return the SHA-256 of the first bytes of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK_BYTES))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.digest()


class _BoundedStream:
    """Reads no more than its budget: a header of any size could follow, and a bomb is small when packed."""

    def __init__(self, stream: BinaryIO, source: Path) -> None:
        self.budget = _MAX_HEADER_BYTES
        self._stream, self._source = stream, source

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.budget -= len(data)
        if self.budget < 0:
            raise CorruptData(f"{self._source}: is damaged, a header is too long; copy it again")
        return data


@contextmanager
def _open_tar(source: Path) -> Iterator[tuple[tarfile.TarFile, _BoundedStream]]:
    try:
        with open(source, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as unpacked:
            stream = _BoundedStream(unpacked, source)
            with tarfile.open(fileobj=stream, mode="r|") as tar:  # type: ignore[call-overload]
                yield tar, stream
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise BadInput(f"{source}: is not a packed library ({error})") from error
