"""A corpus on disk: named arrays and their hash in one safetensors file, compressed if its name ends in `.zst`."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import BadInput, CorruptData, LimitReached, StorageFailed
from eqkin.sources.files import ByteStream, open_zstd
from eqkin.storage import write_stream
from eqkin.trees.forest import Array

FORMAT = "eqkin-corpus"
VERSION_PLAIN, VERSION_WITH_WORDS = "1", "2"  # versions: the second has the words around equations
UNPACKED_BYTES = 60_000_000_000  # no packed file unpacks to more; 30 million equations take about 12 GB
_COMPRESSION_LEVEL = 12  # 19 takes 17 times as long for files 17 % smaller
_MAX_HEADER_BYTES = 100_000
_PIECE_BYTES = 1 << 24
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def compute_digest(arrays: dict[str, Array]) -> str:
    """Hex SHA-256 of some arrays: their names, types, shapes and content."""
    state = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def write_corpus(path: Path, arrays: dict[str, Array], digest: str, version: str = VERSION_WITH_WORDS) -> None:
    """Write arrays and their digest to `path`, whole or not at all; raises `StorageFailed`."""
    pieces = _iter_content(arrays, digest, version)
    write_stream(path, _iter_compressed(pieces) if path.suffix == ".zst" else pieces)


def _iter_content(arrays: dict[str, Array], digest: str, version: str) -> Iterator[bytes]:
    metadata = {"digest": digest, "format": FORMAT, "version": version}
    raw = safetensors.save(arrays, metadata)
    body = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:body])
    header["__metadata__"] = metadata  # safetensors writes it in an order that differs from run to run
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    yield from (raw[start : start + _PIECE_BYTES] for start in range(body, len(raw), _PIECE_BYTES))


def _iter_compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, threads=-1, write_checksum=True).compressobj()
    yield from (compressor.compress(piece) for piece in pieces)
    yield compressor.flush()


def read_corpus(path: Path) -> dict[str, Array]:
    """The arrays of a file that `write` made, whatever its name.

    Raises:
        BadInput: there is no such file.
        CorruptData: it is damaged, foreign, or of an unknown version.
        StorageFailed: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError) as error:
        raise BadInput(f"{path}: no such file; write one with `eqkin export --forest {path}`") from error
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error
    if data.startswith(_ZSTD_MAGIC):
        data = _decompress(data, path)
    metadata = _read_metadata(data, path)
    try:
        arrays: dict[str, Array] = safetensors.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{path}: damaged ({error}); export it again") from error
    if compute_digest(arrays) != metadata.get("digest"):
        raise CorruptData(f"{path}: its content does not match its hash; export it again")
    return arrays


def _decompress(data: bytes, path: Path) -> bytes:
    try:
        return open_zstd(ByteStream(io.BytesIO(data), str(path)), UNPACKED_BYTES).read_rest()
    except (BadInput, LimitReached) as error:
        raise CorruptData(f"{error}; export it again") from error


def _read_metadata(data: bytes, path: Path) -> dict[str, Any]:
    length = int.from_bytes(data[:8], "little")
    try:
        if length > min(len(data) - 8, _MAX_HEADER_BYTES):
            raise ValueError("no header of a safetensors file")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        described = f"{metadata['format']} {metadata['version']}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"{path}: not a corpus, or damaged ({error}); write one with `eqkin export`") from error
    if described not in (f"{FORMAT} {VERSION_PLAIN}", f"{FORMAT} {VERSION_WITH_WORDS}"):
        known = f"{FORMAT} {VERSION_PLAIN} and {VERSION_WITH_WORDS}"
        raise CorruptData(f"{path}: format {described[:60]}, this eqkin reads {known}; export it again")
    return dict(metadata)


def pack_strings(strings: list[str]) -> npt.NDArray[np.uint8]:
    """Strings as UTF-8, a zero byte after each; raises `BadInput` if one holds a zero character."""
    joined = "".join(f"{string}\0" for string in strings)
    if joined.count("\0") != len(strings):
        raise BadInput("a corpus cannot be stored: one of its strings holds a zero character")
    return np.frombuffer(joined.encode("utf-8", "surrogatepass"), np.uint8)


def unpack_strings(array: Array) -> list[str]:
    """What `pack_strings` packed; raises `ValueError`."""
    *strings, rest = array.tobytes().decode("utf-8", "surrogatepass").split("\0")
    if rest:
        raise ValueError("a list of strings has no end")
    return strings
