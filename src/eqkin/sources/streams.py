"""A forward-only byte stream with caps: what every archive is read through, so that none is unpacked unbounded."""

from __future__ import annotations

import gzip
import zlib
from typing import BinaryIO

import zstandard

from eqkin.errors import BadInput, LimitReached

_PIECE = 1 << 16
_FAULTS = (EOFError, OSError, zlib.error, zstandard.ZstdError)


class ByteStream:
    """Reads forward, looks ahead, counts, and stops.

    More than `limit` bytes in all raise `LimitReached`; damage of the compressed data raises `BadInput`. `name` is
    what the messages call the source. `limit` None means unbounded (the outer tar of a bulk archive).
    """

    def __init__(self, source: BinaryIO, name: str, limit: int | None = None) -> None:
        self.name = name
        self.position = 0
        self._source = source
        self._ahead = b""
        self._limit = limit

    def peek(self, size: int) -> bytes:
        """The next up to `size` bytes, which stay unread."""
        while len(self._ahead) < size:
            piece = self._pull(size - len(self._ahead))
            if not piece:
                break
            self._ahead += piece
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        if size < 0:
            return self.read_rest()
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(parts[0])
        while missing:
            piece = self._pull(min(missing, _PIECE))
            if not piece:
                break
            parts.append(piece)
            missing -= len(piece)
        data = b"".join(parts)
        self.position += len(data)
        return data

    def read_rest(self, limit: int | None = None) -> bytes:
        """All that is left; `LimitReached` above `limit` bytes."""
        parts: list[bytes] = []
        total = 0
        while piece := self.read(_PIECE):
            parts.append(piece)
            total += len(piece)
            if limit is not None and total > limit:
                raise LimitReached(f"{self.name}: unpacks to more than {limit:,} bytes")
        return b"".join(parts)

    def skip(self, size: int) -> bool:
        """Pass over `size` bytes; False if the stream ended before."""
        while size > 0:
            piece = self.read(min(size, _PIECE))
            if not piece:
                return False
            size -= len(piece)
        return True

    def drain(self) -> None:
        """Read to the end, which checks the check sum of compressed data."""
        while self.read(_PIECE):
            pass

    def _pull(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except _FAULTS as error:
            what = "is truncated" if isinstance(error, EOFError) else "is damaged"
            raise BadInput(f"{self.name}: {what} ({error})") from error
        if self._limit is not None and self.position + len(self._ahead) + len(piece) > self._limit:
            raise LimitReached(f"{self.name}: unpacks to more than {self._limit:,} bytes")
        return piece


class _Readable:
    """The `read` gzip needs, over a `ByteStream`."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(size)


def gunzipped(stream: ByteStream, limit: int | None) -> ByteStream:
    """The unpacked content of a gzip stream, unpacked piece by piece as it is read."""
    source = gzip.GzipFile(fileobj=_Readable(stream), mode="rb")  # type: ignore[call-overload]
    return ByteStream(source, stream.name, limit)


def unzstd(stream: ByteStream, limit: int | None) -> ByteStream:
    """The unpacked content of a zstd stream of one or several frames."""
    reader = zstandard.ZstdDecompressor().stream_reader(
        _Readable(stream),  # type: ignore[arg-type]
        read_across_frames=True,
    )
    return ByteStream(reader, stream.name, limit)
