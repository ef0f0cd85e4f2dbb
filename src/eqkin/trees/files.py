"""Forests on disk: one file, memory-mapped, in the safetensors layout.

Eight bytes of header length, a JSON header, then the raw arrays: any safetensors reader can open it. String lists are
stored as UTF-8 joined by a zero byte. The format version is in the header; an unknown one is refused by name.
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from eqkin.errors import BadInput, CorruptData
from eqkin.trees.forest import Array, Forest

FOREST_FORMAT = "eqkin-forest"
FOREST_VERSION = 1
_STRING_LISTS = ("tags", "attributes", "texts")
_ARRAYS = ("tag", "attribute", "text", "n_children", "offsets")
_DTYPES: dict[str, type[np.integer[Any]]] = {
    "U8": np.uint8,
    "U16": np.uint16,
    "U32": np.uint32,
    "U64": np.uint64,
    "I64": np.int64,
}
_DTYPE_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def to_bytes(forest: Forest) -> bytes:
    """The file content of a forest."""
    arrays: dict[str, Array] = {name: np.ascontiguousarray(getattr(forest, name)) for name in _ARRAYS}
    for name in _STRING_LISTS:
        strings = getattr(forest, name)
        joined = "\0".join(strings).encode("utf-8", "surrogatepass")
        if strings and joined.count(b"\0") != len(strings) - 1:
            raise BadInput(f"a forest cannot be stored: one of its {name} holds a zero character")
        arrays[name] = np.frombuffer(joined, np.uint8)
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))  # widest first keeps all of them aligned
    header: dict[str, object] = {
        "__metadata__": {"format": FOREST_FORMAT, "version": str(FOREST_VERSION)}
        | {f"n_{n}": str(len(getattr(forest, n))) for n in _STRING_LISTS}
    }
    at = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _DTYPE_NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values())


def open_forest(path: Path) -> Forest:
    """Open a forest file without reading it: arrays are views of the mapped file. Raises `CorruptData`."""
    try:
        with path.open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise CorruptData(f"{path}: missing; run `eqkin verify`") from error
    except ValueError as error:
        raise CorruptData(f"{path}: empty file, not a forest") from error
    return _parse_forest(memoryview(buffer), str(path))


def from_bytes(data: bytes) -> Forest:
    """The forest whose file content is `data`. Raises `CorruptData`."""
    return _parse_forest(memoryview(data), "forest")


def _parse_forest(data: memoryview, name: str) -> Forest:
    try:
        length = int.from_bytes(data[:8], "little")
        if length > min(len(data), 1_000_000):
            raise ValueError("header length")
        header = json.loads(bytes(data[8 : 8 + length]))
        metadata = header["__metadata__"]
        if metadata["format"] != FOREST_FORMAT or metadata["version"] != str(FOREST_VERSION):
            raise CorruptData(
                f"{name}: format {metadata['format']} {metadata['version']}, this eqkin reads {FOREST_FORMAT} {FOREST_VERSION}"
            )
        body = data[8 + length :]
        arrays = {key: _read_array(header[key], body) for key in (*_ARRAYS, *_STRING_LISTS)}
        strings = {key: _split_strings(arrays[key], int(metadata[f"n_{key}"])) for key in _STRING_LISTS}
        if arrays["offsets"].dtype != np.int64 or not len(arrays["offsets"]):
            raise ValueError("offsets")
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise CorruptData(f"{name}: not a readable forest file ({error}); run `eqkin verify`") from error
    return Forest(**strings, **{key: arrays[key] for key in _ARRAYS})  # type: ignore[arg-type]


def _read_array(entry: dict[str, Any], body: memoryview) -> Array:
    start, end = (int(offset) for offset in entry["data_offsets"])
    dtype: np.dtype[np.integer[Any]] = np.dtype(_DTYPES[str(entry["dtype"])])
    (n,) = (int(length) for length in entry["shape"])
    if not 0 <= start <= end <= len(body) or n * dtype.itemsize != end - start:
        raise ValueError("array outside the file")
    return np.frombuffer(body[start:end], dtype)


def _split_strings(array: Array, count: int) -> list[str]:
    strings = array.tobytes().decode("utf-8", "surrogatepass").split("\0") if count else []
    if len(strings) != count:
        raise ValueError("string list length")
    return strings
