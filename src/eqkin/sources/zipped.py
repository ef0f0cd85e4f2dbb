"""Members of a zip file, as they are exported by online LaTeX editors."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS, Limits

_END_RECORD = b"PK\x05\x06"
_ENTRY_BYTES = 1_000  # generous for one entry of the central directory
_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, KeyError)

Member = tuple[str, int, str, Callable[[], bytes]]  # name, size, why it is refused, read


def zip_members(raw: bytes, name: str, limits: Limits = LIMITS) -> Iterator[Member]:
    """Files of a zip with a function that reads each, never more than the size it declares.

    Raises `BadInput` for a damaged zip, `LimitReached` if its directory alone is beyond the caps.
    """
    end = raw.rfind(_END_RECORD)
    if end < 0 or len(raw) < end + 22:
        raise BadInput(f"{name}: is a truncated zip file")
    directory_bytes = int.from_bytes(raw[end + 12 : end + 16], "little")
    if directory_bytes > limits.paper_members * _ENTRY_BYTES:
        raise LimitReached(f"{name}: has more than {limits.paper_members:,} members")
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except _FAULTS as error:
        raise BadInput(f"{name}: is a damaged zip file ({error})") from error
    with archive:
        for info in archive.infolist():
            if not info.is_dir():
                read = partial(_read, archive, info, name)
                yield info.filename, info.file_size, _refused(info), read


def _refused(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if mode and stat.S_ISLNK(mode):
        return "symbolic link"
    return "encrypted file" if info.flag_bits & 1 else ""


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> bytes:
    try:
        with archive.open(info) as file:
            return file.read(info.file_size)
    except _FAULTS as error:
        raise BadInput(f"{name}: member {info.filename!r} is damaged ({error})") from error
