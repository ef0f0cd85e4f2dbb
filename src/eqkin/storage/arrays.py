"""Files of named arrays that are read as a whole: the layout of safetensors, with format, version and a hash.

Equal arrays give equal files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData

Arrays = dict[str, npt.NDArray[Any]]

_PIECE_BYTES = 1 << 24
_MAX_HEADER_BYTES = 10_000_000


def hash_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the hexadecimal SHA-256 of the names, types, shapes and contents of arrays."""
    state = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode("utf-8", "surrogatepass"))
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def iter_array_file(arrays: Mapping[str, npt.NDArray[Any]], digest: str, form: str, version: str) -> Iterator[bytes]:
    """Iterate over the bytes of a file; `digest` is what `hash_arrays` returns."""
    metadata = {"digest": digest, "format": form, "version": version}
    raw = safetensors.save({name: np.asarray(array, order="C") for name, array in arrays.items()}, metadata)
    body = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:body])
    header["__metadata__"] = metadata  # safetensors writes it in an order that differs from run to run
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    yield from (raw[start : start + _PIECE_BYTES] for start in range(body, len(raw), _PIECE_BYTES))


def parse_array_file(data: bytes, name: str, form: str, versions: Sequence[str], remedy: str) -> Arrays:
    """Return the arrays of a file; raises `CorruptData`, with its name and the remedy, if it is damaged or another."""
    length = int.from_bytes(data[:8], "little")
    try:
        if length > min(len(data) - 8, _MAX_HEADER_BYTES):
            raise ValueError("no header of a safetensors file")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        found = f"{metadata['format']} {metadata['version']}"
        if found in [f"{form} {version}" for version in versions]:
            arrays: Arrays = safetensors.load(data)
            if hash_arrays(arrays) != metadata["digest"]:
                raise ValueError("its content does not match its hash")
            return arrays
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"{name}: damaged, or another kind of file ({error}); {remedy}") from error
    known = f"{form} {', '.join(versions)}"
    raise CorruptData(f"{name}: format {found[:60]}, this eqkin reads {known}; {remedy}")
