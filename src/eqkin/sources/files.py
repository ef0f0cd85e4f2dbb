"""Read files with bounds: kinds by magic bytes, capped and decompressed streams, lines, and the cache folder."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import platformdirs
import zstandard

from eqkin.errors import BadInput, LimitReached, StorageFailed
from eqkin.files import lock_descriptor

# Called with what was left out, and why.
SkipCallback = Callable[[str, str], None]

# Enough to recognise any kind of archive.
HEAD_BYTES = 1024
_TAR_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 16
_LINE_CHUNK_BYTES = 1 << 18
# A line may be so many times too long to be skipped; a longer one ends the file.
_MAX_OVERLONG_FACTOR = 20
# A compressed file may unpack to so many times its size; text compresses far less.
_MAX_RATIO = 1_000
_DECOMPRESSION_ERRORS = (EOFError, OSError, zlib.error, zstandard.ZstdError)
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"%PDF-": "pdf",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x1f\x9d": "compress",
    b"7z\xbc\xaf\x27\x1c": "7-zip",
    b"Rar!\x1a\x07": "rar",
    b"%!PS": "postscript",
    b"\x04%!PS": "postscript",
    b"\xd0\xcf\x11\xe0": "office",
}


def detect_kind(head: bytes) -> str:
    """Return what the first `HEAD_BYTES` of a file say it is.

    One of "empty", "gzip", "tar", "zip", "zstd", "pdf", "postscript", another archive's name, "binary" or "text".
    """
    if not head:
        return "empty"
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if _is_tar_header(head[:_TAR_BLOCK_BYTES]):
        return "tar"
    if b"%PDF-" in head:
        return "pdf"
    # Text in UTF-16, which has many zeros.
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text"
    control = sum(1 for byte in head if byte < 32 and byte not in b"\t\n\r\f\x1a\x1b")
    return "binary" if control * 10 > len(head) else "text"


def _is_tar_header(block: bytes) -> bool:
    """Return whether a block is, or claims to be, a tar header; a block of zeros (an empty tar) counts."""
    if len(block) < _TAR_BLOCK_BYTES:
        return False
    if block[257:262] == b"ustar" or not block.strip(b"\0"):
        return True
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file for reading, without following a link in its last part and without blocking.

    Raises `BadInput` if it is missing, unreadable, or not a regular file.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        # Windows cannot refuse links when it opens a file.
        if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        handle = os.open(path, flags)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise BadInput(f"{display_path(path)}: is a symbolic link; give the file it points to") from error
        raise BadInput(f"{display_path(path)}: cannot be opened ({_describe_error(error)})") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{display_path(path)}: is not a regular file")
    return os.fdopen(handle, "rb")


def read_capped(path: Path | str, limit: int) -> bytes:
    """Read a regular file; raise `LimitReached` above `limit` bytes, `BadInput` if it cannot be read."""
    with open_regular(path) as file:
        try:
            # A file may grow while it is read, so its size alone is no bound.
            size = os.fstat(file.fileno()).st_size
            raw = file.read(limit + 1) if size <= limit else None
        except OSError as error:
            raise BadInput(f"{display_path(path)}: cannot be read ({_describe_error(error)})") from error
    if raw is None or len(raw) > limit:
        raise LimitReached(f"{display_path(path)}: is larger than {limit:,} bytes; split it or raise the limit")
    return raw


def read_head(path: Path | str, size: int = HEAD_BYTES) -> bytes:
    """Read the first bytes of a regular file; raise `BadInput` if that fails."""
    with open_regular(path) as file:
        try:
            return file.read(size)
        except OSError as error:
            raise BadInput(f"{display_path(path)}: cannot be read ({_describe_error(error)})") from error


def hash_source_file(path: Path | str) -> str:
    """Return a hex digest of a file's content; empty if it cannot be read (loading it will say why)."""
    h = hashlib.blake2b(digest_size=16)
    try:
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                h.update(chunk)
    except (BadInput, OSError):
        return ""
    return h.hexdigest()


def make_file_key(path: Path | str) -> str:
    """Return the key of a file: `file:` and its resolved absolute path, the same for every spelling of it."""
    return "file:" + display_path(os.path.realpath(path))


def display_path(path: Path | str) -> str:
    """Return a path as clean text, also if its name is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _describe_error(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class ReadableStream(Protocol):
    """Anything that gives up to `size` bytes, none at the end."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        ...


class ByteStream(io.RawIOBase):
    """A forward-only stream with look-ahead and a limit, so that no archive is unpacked without bound.

    More than `limit` bytes in all raise `LimitReached`; damaged compressed data raises `BadInput`. `name` is what
    messages call the source. A `limit` of None means unbounded (the outer tar of a bulk archive).
    """

    def __init__(self, source: ReadableStream, name: str, limit: int | None = None) -> None:
        super().__init__()
        self.name = name
        self._source = source
        self._limit = limit
        self.n_pulled = 0  # bytes read from the source so far
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """Return up to `size` of the next bytes without consuming them."""
        while len(self._ahead) < size:
            chunk = self._pull(size - len(self._ahead))
            if not chunk:
                break
            self._ahead += chunk
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer only at the end."""
        if size < 0:
            return self.read_rest()
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        missing = size - len(parts[0])
        while missing and (chunk := self._pull(min(missing, _CHUNK_BYTES))):
            parts.append(chunk)
            missing -= len(chunk)
        return b"".join(parts)

    def readable(self) -> bool:
        """Return True: Python's buffered readers ask for it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, as Python's buffered readers want it; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_rest(self, limit: int | None = None) -> bytes:
        """Return all that is left; raise `LimitReached` above `limit` bytes."""
        parts: list[bytes] = []
        total = 0
        while chunk := self.read(_CHUNK_BYTES):
            parts.append(chunk)
            total += len(chunk)
            if limit is not None and total > limit:
                raise LimitReached(f"{self.name}: unpacks to more than {limit:,} bytes")
        return b"".join(parts)

    def skip(self, size: int) -> bool:
        """Skip `size` bytes; return False if the stream ended before."""
        while size > 0:
            chunk = self.read(min(size, _CHUNK_BYTES))
            if not chunk:
                return False
            size -= len(chunk)
        return True

    def _pull(self, size: int) -> bytes:
        try:
            chunk = self._source.read(size)
        except _DECOMPRESSION_ERRORS as error:
            what = "is truncated" if isinstance(error, EOFError) else "is damaged"
            raise BadInput(f"{self.name}: {what} ({error})") from error
        self.n_pulled += len(chunk)
        if self._limit is not None and self.n_pulled > self._limit:
            raise LimitReached(f"{self.name}: unpacks to more than {self._limit:,} bytes")
        return chunk


def open_gzip(stream: ByteStream, limit: int | None) -> ByteStream:
    """Return the unpacked content of a gzip stream, unpacked piece by piece as it is read."""
    source = gzip.GzipFile(fileobj=stream, mode="rb")
    return ByteStream(source, stream.name, limit)


def open_zstd(stream: ByteStream, limit: int | None) -> ByteStream:
    """Return the unpacked content of a zstd stream of one or several frames."""
    return ByteStream(_ZstdReader(stream), stream.name, limit)


class _ZstdReader:
    """Unpacks zstd frames one after the other.

    The library's own reader takes a truncated frame for the end. A small piece of input unpacks to at most some 30 MB.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._unpacked = io.BytesIO()

    def read(self, size: int = -1) -> bytes:
        while not (data := self._unpacked.read(size)):
            # Input is read in small pieces, because one of them may unpack to 30 MB.
            packed = (self._frame.unused_data if self._frame and self._frame.eof else b"") or self._stream.read(1024)
            if not packed:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("the data ends within a frame")
                return b""
            if self._frame is None or self._frame.eof:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._unpacked = io.BytesIO(self._frame.decompress(packed))
        return data


def iter_lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines of a plain, gzipped or zstd-compressed file, without line ends and blank lines.

    Each comes with its number from 1; one that is longer than `limit` is None.

    Raises `BadInput` where the file is damaged, `LimitReached` at a line that is far too long to be skipped, and where
    a compressed file has unpacked to far more than text can.
    """
    with open_regular(path) as file:
        most = max(2 * limit, _MAX_RATIO * os.fstat(file.fileno()).st_size)
        stream = ByteStream(file, display_path(path))
        kind = detect_kind(stream.peek(HEAD_BYTES))
        if kind == "gzip":
            stream = open_gzip(stream, most)
        elif kind == "zstd":
            stream = open_zstd(stream, most)
        yield from _split_lines(stream, limit)


def _split_lines(stream: ByteStream, limit: int) -> Iterator[tuple[int, bytes | None]]:
    most = limit * _MAX_OVERLONG_FACTOR
    reader = io.BufferedReader(stream, _LINE_CHUNK_BYTES)
    for number in count(1):
        piece = reader.readline(limit + 1)
        if not piece:
            return
        line = piece.removesuffix(b"\n")
        length = len(piece)
        # The rest of a line that is too long is skipped, not kept.
        while not piece.endswith(b"\n") and (piece := reader.readline(_LINE_CHUNK_BYTES)):
            length += len(piece)
            if length > most:
                raise LimitReached(f"{stream.name}: line {number} is longer than {most:,} bytes")
        if length > limit + 1 or len(line) > limit:
            yield number, None
        elif line.strip():
            yield number, line


def get_cache_folder() -> Path:
    """Return `$EQKIN_CACHE`, or else `eqkin` in the user's cache folder."""
    own = os.environ.get("EQKIN_CACHE")
    return Path(own) if own else platformdirs.user_cache_path("eqkin", appauthor=False)


def make_cache_folder(path: Path) -> Path:
    """Create a folder if it is missing, and return it; raise `StorageFailed` if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{path}: cannot be made ({error.strerror or error}); set EQKIN_CACHE") from error
    return path


@contextmanager
def lock_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and writing and hold it for this process alone."""
    try:
        with path.open("a+b") as file:
            lock_descriptor(file.fileno(), wait=True)
            yield file
    except OSError as error:
        raise StorageFailed(f"{path}: cannot be written ({error.strerror or error})") from error
