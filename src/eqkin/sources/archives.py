"""Members of tar and zip archives, read in memory with bounds; nothing is extracted to disk.

Tar headers are decoded by `tarfile.TarInfo`, but walked here: `tarfile` ends silently at a damaged header, keeps a list
of all members, and reads extended headers of any size.
"""

from __future__ import annotations

import io
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS
from eqkin.sources.files import ByteStream

_BLOCK_BYTES = 512
_REFUSED_TYPES = {
    tarfile.SYMTYPE: "symbolic link",
    tarfile.LNKTYPE: "hard link",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "named pipe",
    tarfile.GNUTYPE_SPARSE: "sparse file",
}
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SOLARIS_PAX = b"L", b"K", b"x", b"g", b"X"
_PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=\n]+)=")

_ZIP_ENTRY = b"PK\x01\x02"  # starts one entry of the central directory
_MAX_ZIP_ENTRIES_RATIO = 10
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError, KeyError),
)

# Name, size, why it is refused, and a function that reads it.
ZipMember = tuple[str, int, str, Callable[[], bytes]]


@dataclass(frozen=True)
class TarEntry:
    """Header of one member. `refused` says why it must not be read; empty for a regular file or a directory."""

    name: str
    size: int
    is_dir: bool = False
    refused: str = ""


class TarReader:
    """Iterates over the members of a forward-only stream; `read` gives the data of the current one.

    Raises `BadInput` where a header is damaged or the data ends within a member, `LimitReached` where a header is
    larger than `LIMITS.member_header_bytes`. After the iteration `complete` says whether there was an end mark.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.complete = False
        self._stream = stream
        self._left = 0

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of the current member; raise `BadInput` if the archive ends within it."""
        wanted = min(size, self._left)
        data = self._stream.read(wanted)
        if len(data) < wanted:
            raise BadInput(f"{self._stream.name}: is truncated within a member")
        self._left -= wanted
        return data

    def __iter__(self) -> Iterator[TarEntry]:
        while (entry := self._read_entry()) is not None:
            self._left = entry.size
            yield entry
            padding = -entry.size % _BLOCK_BYTES
            if not self._stream.skip(self._left):
                raise BadInput(f"{self._stream.name}: is truncated within member {entry.name!r}")
            self._stream.skip(padding)

    def _read_entry(self) -> TarEntry | None:
        """Return the next member with what its extended headers say; None at the end."""
        long_name = ""
        pax: dict[str, str] = {}
        # All extended headers of a member share one budget: a chain of them may have no end.
        budget = LIMITS.member_header_bytes
        while True:
            info = self._read_header()
            if info is None:
                return None
            if info.type not in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _SOLARIS_PAX):
                return _build_entry(info, long_name, pax)
            budget -= _BLOCK_BYTES + info.size
            if budget < 0:
                raise LimitReached(f"{self._stream.name}: a member's header is larger than allowed")
            body = self._read_body(info.size)
            if info.type == _LONG_NAME:
                long_name = body.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
            elif info.type != _LONG_LINK and info.type != _PAX_GLOBAL:
                pax.update(_parse_pax_records(body))

    def _read_header(self) -> tarfile.TarInfo | None:
        block = self._stream.read(_BLOCK_BYTES)
        if not block:
            return None
        if not block.strip(b"\0"):
            self.complete = len(block) == _BLOCK_BYTES
            return None
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise BadInput(f"{self._stream.name}: damaged or truncated tar header ({error})") from error
        if info.size < 0:
            raise BadInput(f"{self._stream.name}: damaged tar header (negative size)")
        if info.type == tarfile.GNUTYPE_SPARSE and block[482]:
            # An old sparse file has more header blocks; byte 504 says whether another one follows.
            while self._read_body(_BLOCK_BYTES)[504]:
                pass
        return info

    def _read_body(self, size: int) -> bytes:
        padded = size + -size % _BLOCK_BYTES
        body = self._stream.read(padded)
        if len(body) < padded:
            raise BadInput(f"{self._stream.name}: is truncated within a header")
        return body[:size]


def _build_entry(info: tarfile.TarInfo, long_name: str, pax: dict[str, str]) -> TarEntry:
    name = pax.get("path") or long_name or info.name
    size = info.size
    if (declared := pax.get("size", "")).isascii() and declared.isdigit() and len(declared) < 20:
        size = int(declared)
    refused = "" if info.isreg() or info.isdir() else _REFUSED_TYPES.get(info.type, "special file")
    if info.issparse() or any(key.startswith("GNU.sparse.") for key in pax):
        refused = "sparse file"
    if info.type in tarfile.SUPPORTED_TYPES and not info.isreg():
        # Links, folders and devices have no data after their header.
        size = 0
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "")
    return TarEntry(name, size, is_dir=info.isdir(), refused=refused)


def _parse_pax_records(body: bytes) -> dict[str, str]:
    """Return the key-value pairs of a pax header, up to the first that does not parse."""
    records: dict[str, str] = {}
    position = 0
    while match := _PAX_RECORD.match(body, position):
        end = position + int(match.group(1))
        if end <= match.end() - 1 or end > len(body):
            break
        key = match.group(2).decode("utf-8", "replace")
        records[key] = body[match.end() : end - 1].decode("utf-8", "surrogateescape")
        position = end
    return records


def normalize_member_path(name: str) -> str | None:
    """Return the path of a member or an include in normal form; None if it leads out of the source or is not a path."""
    name = name.replace("\\", "/").strip()
    if not name or name.startswith(("/", "~", "|")) or "\0" in name or re.match(r"[A-Za-z]:", name):
        return None
    normal = posixpath.normpath(name)
    if normal == ".." or normal.startswith(("../", "/")):
        return None
    return normal


def iter_zip_members(raw: bytes, name: str) -> Iterator[ZipMember]:
    """Yield the files of a zip with a function that reads each, never more than the size it declares.

    Raises `BadInput` for a damaged zip, `LimitReached` if its directory alone is too large.
    """
    # The number of members that a zip declares cannot be trusted, and `zipfile` lists them all. The marks of zips
    # within this one count, too: so only far more than the limit is refused here, the rest where members are read.
    if raw.count(_ZIP_ENTRY) > _MAX_ZIP_ENTRIES_RATIO * LIMITS.paper_members:
        raise LimitReached(f"{name}: has more than {LIMITS.paper_members:,} members")
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except _ZIP_ERRORS as error:
        raise BadInput(f"{name}: is a damaged zip file ({error})") from error
    with archive:
        for info in archive.infolist():
            # Links and encrypted files are not skipped here: they are noted.
            if not info.is_dir():
                read = partial(_read_zip_member, archive, info, name)
                yield info.filename, info.file_size, _explain_zip_refusal(info), read


def _explain_zip_refusal(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if mode and stat.S_ISLNK(mode):
        return "symbolic link"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "file in a compression that cannot be unpacked in bounded memory"
    return "encrypted file" if info.flag_bits & 1 else ""


def _read_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> bytes:
    try:
        with archive.open(info) as file:
            return file.read(info.file_size)
    except _ZIP_ERRORS as error:
        raise BadInput(f"{name}: member {info.filename!r} is damaged ({error})") from error
