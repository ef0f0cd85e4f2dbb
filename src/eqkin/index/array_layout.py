"""Files of named arrays in the layout of safetensors: eight bytes of header length, a JSON header, the raw arrays.

Equal arrays give equal files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]

_CODES = "u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split()
_DTYPES: dict[str, np.dtype[Any]] = {"BOOL": np.dtype(bool)} | {
    f"{code[0].upper()}{8 * int(code[1])}": np.dtype(code) for code in _CODES
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER_BYTES = 10_000_000
_ALIGNMENT = 64


def get_dtype_name(array: npt.NDArray[Any]) -> str:
    """Return the name of an array's type in the words of safetensors, such as F32."""
    return _DTYPE_NAMES[array.dtype]


def view_arrays(data: memoryview) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a file as views of its content, and its metadata.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: It has another layout.
    """
    length = int.from_bytes(data[:8], "little")
    if length > min(len(data) - 8, _MAX_HEADER_BYTES):
        raise ValueError("no header of a safetensors file")
    header = json.loads(bytes(data[8 : 8 + length]))
    if not isinstance(header, dict):
        raise ValueError("no header of a safetensors file")
    metadata, body, arrays = header.pop("__metadata__", {}), data[8 + length :], Arrays()
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= len(body):
            raise ValueError("an array is outside of the file")
        arrays[name] = np.frombuffer(body[start:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    if sum(array.nbytes for array in arrays.values()) != len(body):
        raise ValueError("it has more bytes than its arrays")
    return arrays, metadata


def iter_array_file(arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> Iterator[bytes]:
    """Iterate over the bytes of a file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    ordered = sorted(arrays.items(), key=lambda item: -item[1].itemsize)  # widest first keeps all of them aligned
    at = 0
    for name, array in ordered:
        place = [at, at + array.nbytes]
        header[name] = {"dtype": get_dtype_name(array), "shape": list(array.shape), "data_offsets": place}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    yield from (array.tobytes() for _, array in ordered)
