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

_ENTRY = b"PK\x01\x02"  # starts one entry of the central directory
_END_RECORD = b"PK\x05\x06"
_END_BYTES = 22
_ZIP64_LOCATOR = b"PK\x06\x07"
_ZIP64_LOCATOR_BYTES = 20
_COMMENT_BYTES = 1 << 16
_ENTRY_BYTES = 1_000  # generous for one entry of the central directory
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    KeyError,
)

ZipMember = tuple[str, int, str, Callable[[], bytes]]  # name, size, why it is refused, read


def iter_zip_members(raw: bytes, name: str, limits: Limits = LIMITS) -> Iterator[ZipMember]:
    """Files of a zip with a function that reads each, never more than the size it declares.

    Raises `BadInput` for a damaged zip, `LimitReached` if its directory alone is beyond the caps.
    """
    end = _find_end_record(raw)
    if end < 0 or len(raw) < end + _END_BYTES:
        raise BadInput(f"{name}: is a truncated zip file")
    if _has_more_members(raw, end, limits.paper_members):
        raise LimitReached(f"{name}: has more than {limits.paper_members:,} members")
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except _ZIP_ERRORS as error:
        raise BadInput(f"{name}: is a damaged zip file ({error})") from error
    with archive:
        for info in archive.infolist():
            if not info.is_dir():
                read = partial(_read_member, archive, info, name)
                yield info.filename, info.file_size, _explain_refusal(info), read


def _find_end_record(raw: bytes) -> int:
    """Where the end record stands, found exactly as `zipfile` finds it; -1 if there is none."""
    last = len(raw) - _END_BYTES
    if last >= 0 and raw.startswith(_END_RECORD, last) and raw.endswith(b"\0\0"):
        return last
    return raw.rfind(_END_RECORD, max(last - _COMMENT_BYTES, 0))


def _has_more_members(raw: bytes, end: int, cap: int) -> bool:
    """Whether the central directory has more than `cap` entries, whatever number it declares.

    Entries are counted where the end record says the directory is. With a zip64 record they are counted in the whole
    file, which is never too few.
    """
    if raw.count(_ENTRY) <= cap:
        return False
    if raw.startswith(_ZIP64_LOCATOR, max(end - _ZIP64_LOCATOR_BYTES, 0)):
        return True
    directory_bytes = int.from_bytes(raw[end + 12 : end + 16], "little")
    start = max(end - directory_bytes, 0)
    return directory_bytes > cap * _ENTRY_BYTES or raw.count(_ENTRY, start, end) > cap


def _explain_refusal(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if mode and stat.S_ISLNK(mode):
        return "symbolic link"
    return "encrypted file" if info.flag_bits & 1 else ""


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> bytes:
    try:
        with archive.open(info) as file:
            return file.read(info.file_size)
    except _ZIP_ERRORS as error:
        raise BadInput(f"{name}: member {info.filename!r} is damaged ({error})") from error
