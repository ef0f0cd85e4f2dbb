"""arXiv e-prints and bulk tars of them, recognised by content and read without unpacking to disk."""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.latex.arxiv_ids import parse_arxiv_id, parse_file_name
from eqkin.limits import LIMITS
from eqkin.sources.archives import TarReader, iter_zip_members, normalize_member_path
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
from eqkin.sources.project import read_project

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


class _TextFiles:
    """Files of one paper that may be text, by their path in its archive, and notes on what was left out."""

    def __init__(self, name: str) -> None:
        self.files: dict[str, bytes] = {}
        self.notes: list[str] = []
        self._name = name
        self._n_members = 0
        self._n_bytes = 0

    def add(self, name: str, size: int, refused: str, read: Callable[[], bytes]) -> None:
        """Read a member and keep it if it may be text; raise `LimitReached` at the limits."""
        self._n_members += 1
        if self._n_members > LIMITS.paper_members:
            raise LimitReached(f"{self._name}: has more than {LIMITS.paper_members:,} members")
        path = normalize_member_path(name)
        if refused or path is None:
            why = f"is a {refused}" if refused else "leads out of the archive"
            self._add_note(f"member {name!r} {why}: not read")
            return
        suffix = posixpath.splitext(path)[1].lower()
        if suffix in _NESTED_SUFFIXES:
            self._add_note(f"member {name!r} is an archive within the archive: not read")
        if suffix in _NESTED_SUFFIXES | _NON_TEXT_SUFFIXES:
            return
        # The declared size counts before anything is unpacked.
        self._n_bytes += size
        if size > LIMITS.file_bytes or self._n_bytes > LIMITS.paper_bytes:
            raise LimitReached(f"{self._name}: text files unpack to more than {LIMITS.paper_bytes:,} bytes")
        raw = read()
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
        for entry in reader:
            if entry.refused or not entry.is_dir:
                unpacked.add(entry.name, entry.size, entry.refused, read=partial(reader.read, entry.size))
        # Reading to the end compares the checksum of compressed data.
        bounded.drain()
        if not reader.complete:
            unpacked.notes.append("the tar has no end mark: it may be truncated")
    elif kind == "zip":
        for member in iter_zip_members(stream.read_rest(LIMITS.packed_bytes), name):
            unpacked.add(*member)
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
                if entry.is_dir or entry.refused:
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
    path: Path, look_up: MetadataLookup | None = None, on_skip: SkipCallback | None = None, *, in_folder: bool = False
) -> Iterator[SourceItem]:
    """Yield the e-prints of a bulk tar, in order, each with its compressed bytes; PDF members go to `on_skip`.

    After all members before the damage, raises `BadInput` where the tar is damaged and `LimitReached` where a gzipped
    one unpacks to far more than a tar of compressed members can. With `in_folder` that is an item which fails instead,
    as everywhere in a folder.
    """
    try:
        yield from _iter_bulk_members(path, look_up, on_skip)
    except EqkinError as error:
        if not in_folder:
            raise
        yield make_failed_item(make_file_key(path), display_path(path), error)


def _iter_bulk_members(
    path: Path, look_up: MetadataLookup | None, on_skip: SkipCallback | None
) -> Iterator[SourceItem]:
    name = display_path(path)
    with open_regular(path) as file:
        limit = max(LIMITS.archive_bytes, _MAX_BULK_RATIO * os.fstat(file.fileno()).st_size)
        stream = _open_outer_tar(file, path, limit)
        if stream is None:
            raise BadInput(f"{name}: is not a tar of e-prints")
        reader = TarReader(stream)
        for entry in reader:
            if entry.is_dir:
                continue
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
