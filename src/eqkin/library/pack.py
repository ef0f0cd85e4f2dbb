"""A library as one file that another machine can check and unpack: a zip with its database and the files of its index.

A zip carries a checksum of each of its files, and has its list at the end: a damaged or incomplete one is noticed.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.files import sync_file, sync_folder, write_atomically
from eqkin.library.database import DATABASE_NAME, INDEX_FOLDER
from eqkin.library.files import LibraryFiles

Progress = Callable[[int], None]

_CHUNK_BYTES = 1 << 20
_MEMBER_NAMES = re.compile(rf"{re.escape(DATABASE_NAME)}|{INDEX_FOLDER}(?:/(?!\.\.?(?:/|$))[\w.-]+){{1,3}}")


def pack_library(
    library: LibraryFiles, index_names: Sequence[str], target: Path, progress: Progress | None = None
) -> None:
    """Write a library to one file, which `unpack_library` checks and unpacks.

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
            done = 0
            with ZipFile(path, "w") as packed:
                for name, file in paths.items():
                    # Without times, the same library gives the same file.
                    member = ZipInfo(name)
                    member.compress_type = ZIP_DEFLATED
                    with file.open("rb") as source, packed.open(member, "w", force_zip64=True) as sink:
                        shutil.copyfileobj(source, sink, _CHUNK_BYTES)
                    done += member.file_size
                    if progress:
                        progress(done)
        finally:
            copy.unlink(missing_ok=True)


def _copy_database(library: LibraryFiles, path: Path) -> None:
    """Copy a state of the database, also while judgements are added to it."""
    library.check_rows("papers")
    with library.translate_errors(), closing(sqlite3.connect(path)) as copy:
        library.connection.backup(copy)


def unpack_library(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Unpack what `pack_library` wrote to a folder that does not exist yet; nothing is left of a damaged one.

    Raises:
        BadInput: The target exists, or the source is not a packed library.
        CorruptData: The source is damaged or incomplete.
        StorageFailed: The folder cannot be written.
    """
    if target.exists():
        raise BadInput(f"{target}: exists already; choose another folder")
    if not source.is_file():
        raise BadInput(f"{source}: no such file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Python's TemporaryDirectory recurses for ever where deleting is refused.
        temporary = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            folder = temporary / "unpacked"
            folder.mkdir()
            _unpack_members(source, folder, progress or (lambda done: None))
            # The files must be durable before the folder gets its name.
            for path in (*folder.rglob("*"), folder):
                if path.is_dir():
                    sync_folder(path)
            folder.rename(target)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise StorageFailed(f"{target}: {error.strerror or error}") from error


def _unpack_members(source: Path, folder: Path, progress: Progress) -> None:
    done = 0
    try:
        with ZipFile(source) as packed:
            members = packed.infolist()
            _require_library(source, members)
            # No more is unpacked of a file than the list says.
            if sum(member.file_size for member in members) > shutil.disk_usage(folder).free:
                raise StorageFailed(f"{folder.parent.parent}: its disk has too little room for {source}; make room")
            for member in members:
                path = folder / member.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(member) as data, path.open("xb") as file:
                    shutil.copyfileobj(data, file, _CHUNK_BYTES)
                    file.flush()
                    sync_file(file.fileno())
                done += member.file_size
                progress(done)
    except (BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise CorruptData(f"{source}: is damaged, or no packed library ({error}); copy it again") from error


def _require_library(source: Path, members: Sequence[ZipInfo]) -> None:
    """Raise `CorruptData` unless a zip has the files of a library only."""
    for member in members:
        if not _MEMBER_NAMES.fullmatch(member.filename) or member.compress_type != ZIP_DEFLATED:
            raise CorruptData(f"{source}: {member.filename!r} does not belong to a library; copy it again")
    if DATABASE_NAME not in (member.filename for member in members):
        raise CorruptData(f"{source}: has no {DATABASE_NAME}; pack it again")
