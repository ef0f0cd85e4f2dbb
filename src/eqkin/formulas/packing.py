"""One zstd frame for string lists and columns of numbers: the stored form of forests.

The frame begins with the sizes of its parts and the bytes per number of each column. Then come the strings, each ended
by a zero byte, and the columns, in the narrowest type that holds them. The frame carries a checksum of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from eqkin.errors import BadInput, CorruptData

Column = npt.NDArray[np.unsignedinteger[Any]]

_LEVEL = 9
_MAX_BYTES = 1_000_000_000
_WORD = np.dtype("<u4")
_COMPRESSOR_OPTIONS: dict[str, Any] = {"level": _LEVEL, "write_checksum": True, "write_content_size": True}


def pack_columns(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> bytes:
    """Return string lists and columns of numbers below 2**32 as one compressed frame.

    Raises:
        BadInput: A string contains a zero character.
    """
    return zstandard.ZstdCompressor(**_COMPRESSOR_OPTIONS).compress(_join_parts(lists, columns))


def hash_columns(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> str:
    """Return the hexadecimal SHA-256 of string lists and columns, which no compressor influences."""
    return hashlib.sha256(_join_parts(lists, columns)).hexdigest()


def _join_parts(lists: Sequence[Sequence[str]], columns: Sequence[npt.NDArray[Any]]) -> bytes:
    texts = []
    for strings in lists:
        joined = "".join(f"{text}\0" for text in strings).encode("utf-8", "surrogatepass")
        if joined.count(b"\0") != len(strings):
            raise BadInput("a tree cannot be stored: one of its strings contains a zero character")
        texts.append(joined)
    widths = [np.min_scalar_type(int(column.max(initial=0))).itemsize for column in columns]
    numbers = [column.astype(f"<u{width}").tobytes() for column, width in zip(columns, widths, strict=True)]
    header = [*map(len, texts), *map(len, columns), *widths]
    return b"".join([np.array(header, _WORD).tobytes(), *texts, *numbers])


def unpack_columns(packed: bytes, n_lists: int, n_columns: int) -> tuple[list[list[str]], list[Column]]:
    """Return the string lists and columns of a frame; raises `CorruptData` if it is not what was written."""
    try:
        content = _decompress(packed)
        at = (n_lists + 2 * n_columns) * _WORD.itemsize
        header = np.frombuffer(content[:at], _WORD).tolist()
        lists = []
        for size in header[:n_lists]:
            strings = content[at : at + size].decode("utf-8", "surrogatepass").split("\0")
            lists.append(strings[:-1])
            at += size
        columns = []
        for size, width in zip(header[n_lists:-n_columns], header[-n_columns:], strict=True):
            columns.append(np.frombuffer(content, f"<u{width}", size, at))
            at += size * width
        if at != len(content):
            raise ValueError("its parts have other sizes")
        return lists, columns
    except (zstandard.ZstdError, ValueError, TypeError, MemoryError) as error:
        raise CorruptData(f"stored trees are damaged ({error}); run `eqkin verify`") from error


def _decompress(packed: bytes) -> bytes:
    parameters = zstandard.get_frame_parameters(packed)
    # A damaged header may say that there is no checksum, or a size that would fill the memory.
    if not parameters.has_checksum or parameters.content_size > _MAX_BYTES:
        raise ValueError("not a frame that eqkin has written")
    return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
