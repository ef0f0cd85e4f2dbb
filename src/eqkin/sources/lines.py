"""Lines of a file that may be plain, gzipped or zstd-compressed, none of them longer than a cap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eqkin.errors import LimitReached
from eqkin.sources.files import HEAD_BYTES, detect_kind, display_path, open_regular
from eqkin.sources.streams import ByteStream, open_gzip, open_zstd

_CHUNK_BYTES = 1 << 18
_MAX_OVERLONG_FACTOR = 20  # an overlong line is passed over up to this many times the cap


@dataclass(frozen=True)
class TextLine:
    """One line: its number from 1, where it starts in the unpacked data, its bytes (None if longer than the cap)."""

    number: int
    offset: int
    raw: bytes | None


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed in a way `lines_of` unpacks."""
    with open_regular(path) as file:
        return detect_kind(file.read(HEAD_BYTES)) in ("gzip", "zstd")


def iter_lines(path: Path, limit: int) -> Iterator[TextLine]:
    """The lines of a file without their ends, blank ones left out.

    Raises `BadInput` where the file is damaged, `LimitReached` at a line that is far too long to be passed over.
    """
    with open_regular(path) as file:
        stream = ByteStream(file, display_path(path))
        kind = detect_kind(stream.peek(HEAD_BYTES))
        if kind == "gzip":
            stream = open_gzip(stream, None)
        elif kind == "zstd":
            stream = open_zstd(stream, None)
        yield from _split_lines(stream, limit)


def _split_lines(stream: ByteStream, limit: int) -> Iterator[TextLine]:
    number, offset = 1, 0  # of the line that begins with `parts`
    parts: list[bytes] = []
    length = 0
    while piece := stream.read(_CHUNK_BYTES):
        *ended, rest = piece.split(b"\n")
        for last in ended:
            length += len(last)
            raw = b"".join([*parts, last]) if length <= limit else None
            if raw is None or raw.strip():
                yield TextLine(number, offset, raw)
            number, offset = number + 1, offset + length + 1
            parts, length = [], 0
        length += len(rest)
        if length <= limit:
            parts.append(rest)
        else:
            parts = []
            if length > limit * _MAX_OVERLONG_FACTOR:
                raise LimitReached(
                    f"{stream.name}: line {number} is longer than {limit * _MAX_OVERLONG_FACTOR:,} bytes"
                )
    raw = b"".join(parts) if length <= limit else None
    if length and (raw is None or raw.strip()):
        yield TextLine(number, offset, raw)
