"""arXiv e-prints and bulk tars of them, recognised by content and read without unpacking to disk.

Tar headers are decoded by `tarfile.TarInfo`, but walked here: `tarfile` ends silently at a damaged header, keeps a list
of all members, and reads extended headers of any size.
"""

from __future__ import annotations

import io
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from eqkin.errors import BadInput, LimitReached
from eqkin.latex.titles import parse_arxiv_id, parse_file_name
from eqkin.limits import LIMITS
from eqkin.sources.files import (
    HEAD_BYTES,
    ByteStream,
    SkipCallback,
    detect_kind,
    display_path,
    hash_source_file,
    make_file_key,
    open_gzip,
    open_regular,
)
from eqkin.sources.metadata import ArxivMetadata, add_metadata_to_digest, apply_metadata
from eqkin.sources.paper import Paper, SourceItem, hash_parts, make_failed_item
from eqkin.sources.project import normalize_member_path, read_project

MetadataLookup = Callable[[str], ArxivMetadata | None]

_READABLE = "a gzipped or plain .tex file, a tar (also gzipped) or a zip of one paper's files"
_UNREADABLE = {
    "pdf": "PDF only, without its LaTeX source",
    "postscript": "PostScript only, without its LaTeX source",
    "empty": "is empty",
    "binary": "is unknown binary data",
}
_NON_TEXT_SUFFIXES = frozenset(
    (
        ".pdf .png .jpg .jpeg .gif .eps .ps .epsf .epsi .svg .bmp .tif .tiff .webp .mp4 .avi .mov .mpg .mp3 .wav .csv "
        ".dat .npy .npz .mat .h5 .hdf5 .pkl .xls .xlsx .doc .docx .ppt .pptx .ttf .otf .pfb .tfm .vf .afm .aux .log "
        ".toc .lof .lot .out .dvi .blg .fls .synctex .exe .so .o .class .jar .py .m .c .cpp .nb .ipynb .bst"
    ).split()
)
_NESTED_SUFFIXES = frozenset((".tar", ".tgz", ".gz", ".zip", ".bz2", ".xz", ".z", ".7z", ".rar"))
# The first members tell a bulk tar from one paper's tar.
_BULK_SAMPLE_MEMBERS = 20
# A gzipped bulk tar may unpack to this many times its size: its members are compressed already.
_MAX_BULK_RATIO = 4
# One paper may be compressed so many times over.
_MAX_GZIP_LAYERS = 3
_MAX_NOTES = 100


class Member(NamedTuple):
    """A member of an archive. `refused` says why it must not be read; empty for a regular file."""

    name: str
    size: int
    refused: str
    read: Callable[[], bytes]


class _TextFiles:
    """Files of one paper that may be text, by their path in its archive, and notes on what was left out."""

    def __init__(self, name: str) -> None:
        self.files: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._name = name
        self._n_members = 0
        self._n_bytes = 0

    def add(self, member: Member) -> None:
        """Read a member and keep it if it may be text; raise `LimitReached` at the limits."""
        self._n_members += 1
        if self._n_members > LIMITS.paper_members:
            raise LimitReached(f"{self._name}: has more than {LIMITS.paper_members:,} members")
        path = normalize_member_path(member.name)
        if member.refused or path is None:
            why = f"is a {member.refused}" if member.refused else "leads out of the archive"
            self._add_note(f"member {member.name!r} {why}: not read")
            return
        suffix = posixpath.splitext(path)[1].lower()
        if suffix in _NESTED_SUFFIXES:
            self._add_note(f"member {member.name!r} is an archive within the archive: not read")
        if suffix in _NESTED_SUFFIXES | _NON_TEXT_SUFFIXES:
            return
        # The declared size counts before anything is unpacked.
        self._n_bytes += member.size
        if member.size > LIMITS.file_bytes or self._n_bytes > LIMITS.paper_bytes:
            raise LimitReached(f"{self._name}: text files unpack to more than {LIMITS.paper_bytes:,} bytes")
        raw = member.read()
        if detect_kind(raw[:HEAD_BYTES]) in ("text", "empty"):
            self.files[path] = raw
        elif suffix in (".tex", ".sty", ".bbl", ".bib", ".cls"):
            self._add_note(f"member {path!r} is not text: not read")

    def _add_note(self, note: str) -> None:
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(note)


def _unpack_eprint(source: BinaryIO, name: str) -> _TextFiles:
    """Return the text files of one e-print in any of its forms.

    Raises `BadInput` if it holds no TeX or is damaged, `LimitReached` if it unpacks to too much.
    """
    stream = ByteStream(source, name)
    for _ in range(_MAX_GZIP_LAYERS):
        kind = detect_kind(stream.peek(HEAD_BYTES))
        if kind != "gzip":
            return _unpack_layer(stream, kind)
        stream = open_gzip(stream, LIMITS.archive_bytes)
    raise LimitReached(f"{name}: is compressed more than {_MAX_GZIP_LAYERS - 1} times over")


def _unpack_layer(stream: ByteStream, kind: str) -> _TextFiles:
    name = stream.name
    unpacked = _TextFiles(name)
    if kind == "tar":
        bounded = ByteStream(stream, name, LIMITS.archive_bytes)
        reader = TarReader(bounded)
        for member in reader:
            unpacked.add(member)
        # Reading to the end compares the checksum of compressed data.
        bounded.skip(LIMITS.archive_bytes)
        if not reader.complete:
            unpacked.notes.append("the tar has no end mark: it may be truncated")
    elif kind == "zip":
        for member in iter_zip_members(stream.read_rest(LIMITS.packed_bytes), name):
            unpacked.add(member)
    elif kind == "text":
        stem = name.rpartition("/")[2].split("!")[-1].removesuffix(".gz").removesuffix(".tex")
        unpacked.files[f"{stem or 'main'}.tex"] = stream.read_rest(LIMITS.file_bytes)
    else:
        raise BadInput(f"{name}: {_UNREADABLE.get(kind, f'is a {kind} file')}; what can be read is {_READABLE}")
    return unpacked


def read_eprint(source: BinaryIO | bytes | str, key: str, origin: str, metadata: ArxivMetadata | None = None) -> Paper:
    """Return the paper in one e-print, given as an open file, its content or its path.

    Raises `BadInput` or `LimitReached` if it cannot be read.
    """
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    elif isinstance(source, str):
        source = open_regular(source)
    with source:
        unpacked = _unpack_eprint(source, origin)
    paper = read_project(unpacked.files, key=key, origin=origin)
    # Notes on the archive come before those on its files.
    paper.notes[:0] = unpacked.notes
    if key.startswith("arxiv:") and (arxiv_id := parse_arxiv_id(key)):
        paper.year = paper.year or arxiv_id.year
    return apply_metadata(paper, metadata) if metadata else paper


def make_eprint_item(path: Path, look_up: MetadataLookup | None = None) -> SourceItem:
    """Return an item for one e-print file; a file named after an arXiv identifier gets that identifier's key."""
    origin = display_path(path)
    key = make_file_key(path)
    digest = hash_source_file(path)
    return _make_item(str(path), path.name, origin=origin, key=key, digest=digest, look_up=look_up)


def _make_item(
    source: bytes | str, name: str, *, origin: str, key: str, digest: str, look_up: MetadataLookup | None
) -> SourceItem:
    arxiv_id = parse_file_name(name)
    key = arxiv_id.key if arxiv_id else key
    metadata = look_up(arxiv_id.base) if look_up and arxiv_id else None
    load = partial(read_eprint, source, key, origin, metadata)
    size = len(source) if isinstance(source, bytes) else 0
    return SourceItem(key, origin, load=load, digest=add_metadata_to_digest(digest, metadata), size=size)


def is_bulk_tar(path: Path) -> bool:
    """Return whether a file is a tar (plain or gzipped) of many e-prints rather than of one paper's files.

    Its first members decide: e-prints are compressed, or PDF files or archives named after arXiv identifiers.
    """
    with open_regular(path) as file:
        stream = _open_outer_tar(file, path, LIMITS.archive_bytes)
        if stream is None:
            return False
        n_seen = n_eprints = 0
        reader = TarReader(stream)
        # Where it is damaged, the members before that decide.
        with suppress(BadInput, LimitReached):
            for entry in reader:
                if entry.refused:
                    continue
                is_named = entry.name.endswith((".gz", ".pdf")) and parse_file_name(entry.name) is not None
                n_seen += 1
                n_eprints += detect_kind(reader.read(HEAD_BYTES)) == "gzip" or is_named
                if n_seen == _BULK_SAMPLE_MEMBERS:
                    break
    return n_seen > 0 and n_eprints * 2 > n_seen


def _open_outer_tar(file: BinaryIO, path: Path, limit: int) -> ByteStream | None:
    """Return the stream of the tar in `file`, None if there is none; at most `limit` of a gzipped one is unpacked."""
    stream = ByteStream(file, display_path(path))
    if detect_kind(stream.peek(HEAD_BYTES)) == "gzip":
        stream = open_gzip(stream, limit)
    try:
        return stream if detect_kind(stream.peek(HEAD_BYTES)) == "tar" else None
    except (BadInput, LimitReached):
        return None


def iter_bulk_items(
    path: Path, look_up: MetadataLookup | None = None, on_skip: SkipCallback | None = None
) -> Iterator[SourceItem]:
    """Yield the e-prints of a bulk tar, in order, each with its compressed bytes; PDF members go to `on_skip`.

    After all members before the damage, raises `BadInput` where the tar is damaged and `LimitReached` where a gzipped
    one unpacks to far more than a tar of compressed members can.
    """
    name = display_path(path)
    with open_regular(path) as file:
        limit = max(LIMITS.archive_bytes, _MAX_BULK_RATIO * os.fstat(file.fileno()).st_size)
        stream = _open_outer_tar(file, path, limit)
        if stream is None:
            raise BadInput(f"{name}: is not a tar of e-prints")
        reader = TarReader(stream)
        for entry in reader:
            origin = f"{name}!{entry.name}"
            key = f"{make_file_key(path)}!{entry.name}"
            # The first bytes tell a PDF, which is skipped without being read as a whole.
            head = b"" if entry.refused else reader.read(HEAD_BYTES)
            skipped = entry.refused or ("PDF only" if detect_kind(head) == "pdf" else "")
            if skipped:
                if on_skip is not None:
                    on_skip(origin, skipped)
            elif entry.size > LIMITS.packed_bytes:
                error = LimitReached(f"{origin}: is larger than {LIMITS.packed_bytes:,} bytes")
                arxiv_id = parse_file_name(entry.name)
                yield make_failed_item(arxiv_id.key if arxiv_id else key, origin, error)
            else:
                raw = head + reader.read(entry.size)
                digest = hash_parts(raw)
                yield _make_item(raw, entry.name, origin=origin, key=key, digest=digest, look_up=look_up)
        if not reader.complete:
            raise BadInput(f"{name}: is truncated (no end mark); the members before the end were read")


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

    def __iter__(self) -> Iterator[Member]:
        while (found := self._read_member()) is not None:
            info, member = found
            self._left = member.size
            # Folders are not members to be read.
            if member.refused or not info.isdir():
                yield member
            if not self._stream.skip(self._left):
                raise BadInput(f"{self._stream.name}: is truncated within member {member.name!r}")
            self._stream.skip(-member.size % _BLOCK_BYTES)

    def _read_member(self) -> tuple[tarfile.TarInfo, Member] | None:
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
                return info, self._build_member(info, long_name, pax)
            budget -= _BLOCK_BYTES + info.size
            if budget < 0:
                raise LimitReached(f"{self._stream.name}: a member's header is larger than allowed")
            body = self._read_body(info.size)
            if info.type == _LONG_NAME:
                long_name = body.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
            elif info.type != _LONG_LINK and info.type != _PAX_GLOBAL:
                pax.update(_parse_pax_records(body))

    def _build_member(self, info: tarfile.TarInfo, long_name: str, pax: dict[str, str]) -> Member:
        name = pax.get("path") or long_name or info.name
        size = info.size
        if (declared := pax.get("size", "")).isascii() and declared.isdigit() and len(declared) < 20:
            size = int(declared)
        refused = "" if info.isreg() or info.isdir() else _REFUSED_TYPES.get(info.type, "special file")
        if info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in pax):
            refused = "sparse file"
        if info.type in tarfile.SUPPORTED_TYPES and not info.isreg():
            # Links, folders and devices have no data after their header.
            size = 0
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\0", "")
        return Member(name, size, refused, partial(self.read, size))

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


def iter_zip_members(raw: bytes, name: str) -> Iterator[Member]:
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
                yield Member(info.filename, info.file_size, _explain_zip_refusal(info), read)


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
