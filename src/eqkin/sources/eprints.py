"""arXiv e-prints and bulk tars of them, recognised by content and read without unpacking to disk."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from eqkin.errors import BadInput, EqkinError, LimitReached
from eqkin.limits import LIMITS, Limits
from eqkin.sources.archives import TarReader, iter_zip_members, normalize_member_path
from eqkin.sources.arxiv_ids import parse_arxiv_id, parse_file_name
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
_NON_TEXT_SUFFIXES = tuple(
    (
        ".pdf .png .jpg .jpeg .gif .eps .ps .epsf .epsi .svg .bmp .tif .tiff .webp .mp4 .avi .mov .mpg .mp3 .wav .csv "
        ".dat .npy .npz .mat .h5 .hdf5 .pkl .xls .xlsx .doc .docx .ppt .pptx .ttf .otf .pfb .tfm .vf .afm .aux .log "
        ".toc .lof .lot .out .dvi .blg .fls .synctex .exe .so .o .class .jar .py .m .c .cpp .nb .ipynb .bst"
    ).split()
)
_NESTED_SUFFIXES = (".tar", ".tgz", ".gz", ".zip", ".bz2", ".xz", ".z", ".7z", ".rar")
_BULK_SAMPLE_MEMBERS = 20  # looked at to distinguish a bulk tar from one paper's tar
_MAX_BULK_RATIO = 4  # a gzipped bulk tar may unpack to this many times its size: its members are compressed already
_MAX_GZIP_LAYERS = 3  # around one paper
_MAX_NOTES = 100


@dataclass
class UnpackedEprint:
    """Files of one paper that may be text, by their path in the archive, and notes on what was left out."""

    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def unpack_eprint(source: BinaryIO, name: str, limits: Limits = LIMITS) -> UnpackedEprint:
    """Return the text files of one e-print in any of its forms.

    Raises `BadInput` if it holds no TeX or is damaged, `LimitReached` if it unpacks to too much.
    """
    stream = ByteStream(source, name)
    for _ in range(_MAX_GZIP_LAYERS):
        kind = detect_kind(stream.peek(HEAD_BYTES))
        if kind == "tar":
            return _unpack_tar(stream, limits)
        if kind == "zip":
            return _unpack_zip(stream, limits)
        if kind == "text":
            stem = name.rpartition("/")[2].split("!")[-1].removesuffix(".gz").removesuffix(".tex")
            return UnpackedEprint({f"{stem or 'main'}.tex": stream.read_rest(limits.file_bytes)})
        if kind in ("pdf", "postscript"):
            raise BadInput(f"{name}: {'PDF' if kind == 'pdf' else 'PostScript'} only, without its LaTeX source")
        if kind == "empty":
            raise BadInput(f"{name}: is empty")
        if kind != "gzip":
            what = "unknown binary data" if kind == "binary" else f"a {kind} file"
            raise BadInput(f"{name}: is {what}; what can be read is {_READABLE}")
        stream = open_gzip(stream, limits.archive_bytes)
    raise LimitReached(f"{name}: is compressed more than {_MAX_GZIP_LAYERS - 1} times over")


class _TextFileCollector:
    """Keeps members that may be text, within the limits, and notes what was refused."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.unpacked = UnpackedEprint()
        self._name = name
        self._limits = limits
        self._n_members = 0
        self._n_bytes = 0

    def accept(self, name: str, size: int, refused: str) -> str | None:
        """Return the path to keep a member under, or None to leave it out; raise `LimitReached` at the limits."""
        self._n_members += 1
        if self._n_members > self._limits.paper_members:
            raise LimitReached(f"{self._name}: has more than {self._limits.paper_members:,} members")
        path = normalize_member_path(name)
        if refused:
            reason = f"is a {refused}"
        elif path is None:
            reason = "leads out of the archive"
        else:
            reason = "is an archive within the archive" if path.lower().endswith(_NESTED_SUFFIXES) else ""
        if reason or path is None:
            self._add_note(f"member {name!r} {reason}: not read")
            return None
        if path.lower().endswith(_NON_TEXT_SUFFIXES):
            return None
        self._n_bytes += size
        if size > self._limits.file_bytes or self._n_bytes > self._limits.paper_bytes:
            raise LimitReached(f"{self._name}: text files unpack to more than {self._limits.paper_bytes:,} bytes")
        return path

    def _add_note(self, note: str) -> None:
        if len(self.unpacked.notes) < _MAX_NOTES:
            self.unpacked.notes.append(note)

    def add(self, path: str, raw: bytes) -> None:
        """Add a member's content if its first bytes are text."""
        if detect_kind(raw[:HEAD_BYTES]) in ("text", "empty"):
            self.unpacked.files[path] = raw
        elif path.lower().endswith((".tex", ".sty", ".bbl", ".bib", ".cls")):
            self._add_note(f"member {path!r} is not text: not read")


def _unpack_tar(stream: ByteStream, limits: Limits) -> UnpackedEprint:
    collector = _TextFileCollector(stream.name, limits)
    bounded = ByteStream(stream, stream.name, limits.archive_bytes)
    reader = TarReader(bounded, limits)
    for entry in reader:
        if entry.is_dir and not entry.refused:
            continue
        path = collector.accept(entry.name, entry.size, entry.refused)
        if path is not None:
            collector.add(path, reader.read(entry.size))
    bounded.drain()
    if not reader.complete:
        collector.unpacked.notes.append("the tar has no end mark: it may be truncated")
    return collector.unpacked


def _unpack_zip(stream: ByteStream, limits: Limits) -> UnpackedEprint:
    collector = _TextFileCollector(stream.name, limits)
    raw = stream.read_rest(limits.packed_bytes)
    for name, size, refused, read in iter_zip_members(raw, stream.name, limits):
        path = collector.accept(name, size, refused)
        if path is not None:
            collector.add(path, read())
    return collector.unpacked


def read_eprint(
    source: BinaryIO, key: str, origin: str, limits: Limits = LIMITS, metadata: ArxivMetadata | None = None
) -> Paper:
    """Return the paper in one e-print; raise `BadInput` or `LimitReached` as `unpack_eprint` and `read_project` do."""
    unpacked = unpack_eprint(source, origin, limits)
    paper = read_project(unpacked.files, key=key, origin=origin, limits=limits)
    paper.notes[:0] = unpacked.notes
    if key.startswith("arxiv:") and (arxiv_id := parse_arxiv_id(key)):
        paper.year = paper.year or arxiv_id.year
    return apply_metadata(paper, metadata) if metadata else paper


def make_eprint_item(path: Path, limits: Limits = LIMITS, look_up: MetadataLookup | None = None) -> SourceItem:
    """Return an item for one e-print file; a file named after an arXiv identifier gets that identifier's key."""
    arxiv_id = parse_file_name(path.name)
    key = arxiv_id.key if arxiv_id else make_file_key(path)
    metadata = look_up(arxiv_id.base) if look_up and arxiv_id else None
    load = partial(_load_eprint_file, str(path), key, limits, metadata)
    return SourceItem(key, display_path(path), load, add_metadata_to_digest(hash_source_file(path), metadata))


def _load_eprint_file(path: str, key: str, limits: Limits, metadata: ArxivMetadata | None) -> Paper:
    with open_regular(path) as file:
        return read_eprint(file, key, display_path(path), limits, metadata)


def _load_member(raw: bytes, key: str, origin: str, limits: Limits, metadata: ArxivMetadata | None) -> Paper:
    return read_eprint(io.BytesIO(raw), key, origin, limits, metadata)


def is_bulk_tar(path: Path, limits: Limits = LIMITS) -> bool:
    """Return whether a file is a tar (plain or gzipped) of many e-prints rather than of one paper's files.

    Its first members decide: e-prints are compressed, or PDF files or archives named after arXiv identifiers.
    """
    with open_regular(path) as file:
        stream = _open_outer_tar(file, path, limits.archive_bytes)
        if stream is None:
            return False
        n_seen = n_eprints = 0
        reader = TarReader(stream, limits)
        try:
            for entry in reader:
                if entry.is_dir or entry.refused:
                    continue
                is_named = entry.name.endswith((".gz", ".pdf")) and parse_file_name(entry.name) is not None
                n_seen += 1
                n_eprints += detect_kind(reader.read(HEAD_BYTES)) == "gzip" or is_named
                if n_seen == _BULK_SAMPLE_MEMBERS:
                    break
        except (BadInput, LimitReached):
            pass  # the members before the damage decide
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


@dataclass(frozen=True)
class Shard:
    """A bulk tar, not opened yet: small enough to be sent to another process, which must see the same path."""

    path: Path
    limits: Limits = LIMITS
    look_up: MetadataLookup | None = None
    in_folder: bool = False  # damage is an item that fails, as everywhere in a folder

    def iter_items(self, on_skip: SkipCallback | None = None) -> Iterator[SourceItem]:
        """Yield its e-prints; where it is damaged, yield an item that fails or raise what `iter_members` does."""
        try:
            yield from self.iter_members(on_skip)
        except EqkinError as error:
            if not self.in_folder:
                raise
            yield self.make_failed_item(error)

    def iter_members(self, on_skip: SkipCallback | None = None) -> Iterator[SourceItem]:
        """Yield its e-prints, see `iter_bulk_items`."""
        return iter_bulk_items(self.path, self.limits, self.look_up, on_skip)

    def make_failed_item(self, error: EqkinError) -> SourceItem:
        """Return an item for the part that could not be read."""
        return make_failed_item(make_file_key(self.path), display_path(self.path), error)


def expand_shards(parts: Iterator[SourceItem | Shard], on_skip: SkipCallback | None) -> Iterator[SourceItem]:
    """Yield `parts` with each shard replaced by its items."""
    for part in parts:
        if isinstance(part, Shard):
            yield from part.iter_items(on_skip)
        else:
            yield part


def iter_bulk_items(
    path: Path, limits: Limits = LIMITS, look_up: MetadataLookup | None = None, on_skip: SkipCallback | None = None
) -> Iterator[SourceItem]:
    """Yield the e-prints of a bulk tar, in order, each with its compressed bytes.

    PDF members go to `on_skip`. Raises `BadInput` where the tar is damaged and `LimitReached` where a gzipped one
    unpacks to far more than a tar of compressed members can, after all members before that.
    """
    with open_regular(path) as file:
        limit = max(limits.archive_bytes, _MAX_BULK_RATIO * os.fstat(file.fileno()).st_size)
        stream = _open_outer_tar(file, path, limit)
        if stream is None:
            raise BadInput(f"{display_path(path)}: is not a tar of e-prints")
        reader = TarReader(stream, limits)
        for entry in reader:
            if entry.is_dir:
                continue
            origin = f"{display_path(path)}!{entry.name}"
            head = b"" if entry.refused else reader.read(HEAD_BYTES)
            skipped = entry.refused or ("PDF only" if detect_kind(head) == "pdf" else "")
            if skipped:
                if on_skip is not None:
                    on_skip(origin, skipped)
                continue
            arxiv_id = parse_file_name(entry.name)
            key = arxiv_id.key if arxiv_id else f"{make_file_key(path)}!{entry.name}"
            if entry.size > limits.packed_bytes:
                error = LimitReached(f"{origin}: is larger than {limits.packed_bytes:,} bytes")
                yield make_failed_item(key, origin, error)
                continue
            raw = head + reader.read(entry.size)
            metadata = look_up(arxiv_id.base) if look_up and arxiv_id else None
            load = partial(_load_member, raw, key, origin, limits, metadata)
            yield SourceItem(key, origin, load, add_metadata_to_digest(hash_parts(raw), metadata), len(raw))
        if not reader.complete:
            raise BadInput(f"{display_path(path)}: is truncated (no end mark); the members before the end were read")
