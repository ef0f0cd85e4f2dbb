"""A forward-only byte stream with caps: what every archive is read through, so that none is unpacked unbounded."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Protocol

import zstandard

from eqkin.errors import BadInput, LimitReached

_CHUNK_BYTES = 1 << 16
_DECOMPRESSION_ERRORS = (EOFError, OSError, zlib.error, zstandard.ZstdError)


class ReadableStream(Protocol):
    """What a stream reads from: gives up to `size` bytes, none at the end."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""
        ...


class ByteStream:
    """Reads forward, looks ahead, counts, and stops.

    More than `limit` bytes in all raise `LimitReached`; damage of the compressed data raises `BadInput`. `name` is
    what the messages call the source. `limit` None means unbounded (the outer tar of a bulk archive).
    """

    def __init__(self, source: ReadableStream, name: str, limit: int | None = None) -> None:
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
        self.position += len(parts[0])
        missing = size - len(parts[0])
        while missing:
            piece = self._pull(min(missing, _CHUNK_BYTES))
            if not piece:
                break
            parts.append(piece)
            missing -= len(piece)
            self.position += len(piece)
        return b"".join(parts)

    def read_rest(self, limit: int | None = None) -> bytes:
        """All that is left; `LimitReached` above `limit` bytes."""
        parts: list[bytes] = []
        total = 0
        while piece := self.read(_CHUNK_BYTES):
            parts.append(piece)
            total += len(piece)
            if limit is not None and total > limit:
                raise LimitReached(f"{self.name}: unpacks to more than {limit:,} bytes")
        return b"".join(parts)

    def skip(self, size: int) -> bool:
        """Pass over `size` bytes; False if the stream ended before."""
        while size > 0:
            piece = self.read(min(size, _CHUNK_BYTES))
            if not piece:
                return False
            size -= len(piece)
        return True

    def drain(self) -> None:
        """Read to the end, which checks the check sum of compressed data."""
        while self.read(_CHUNK_BYTES):
            pass

    def _pull(self, size: int) -> bytes:
        try:
            piece = self._source.read(size)
        except _DECOMPRESSION_ERRORS as error:
            what = "is truncated" if isinstance(error, EOFError) else "is damaged"
            raise BadInput(f"{self.name}: {what} ({error})") from error
        if self._limit is not None and self.position + len(self._ahead) + len(piece) > self._limit:
            raise LimitReached(f"{self.name}: unpacks to more than {self._limit:,} bytes")
        return piece


def open_gzip(stream: ByteStream, limit: int | None) -> ByteStream:
    """The unpacked content of a gzip stream, unpacked piece by piece as it is read."""
    source = gzip.GzipFile(fileobj=stream, mode="rb")  # type: ignore[call-overload]
    return ByteStream(source, stream.name, limit)


class _ZstdReader:
    """Unpacks zstd frames one after the other.

    The library's own reader takes a truncated frame for the end. A small piece of input unpacks to at most some 30 MB.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._ready = io.BytesIO()

    def read(self, size: int = -1) -> bytes:
        while not (data := self._ready.read(size)):
            packed = (self._frame.unused_data if self._frame and self._frame.eof else b"") or self._stream.read(1024)
            if not packed:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("the data ends within a frame")
                return b""
            if self._frame is None or self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = io.BytesIO(self._frame.decompress(packed))
        return data


def open_zstd(stream: ByteStream, limit: int | None) -> ByteStream:
    """The unpacked content of a zstd stream of one or several frames."""
    return ByteStream(_ZstdReader(stream), stream.name, limit)
