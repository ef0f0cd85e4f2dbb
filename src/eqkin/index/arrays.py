"""Files of arrays: in the safetensors layout, named by their content, written once, mapped into memory."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.index.checked import HashedFile
from eqkin.index.state import REBUILD_HINT
from eqkin.storage import write_file

Array = npt.NDArray[Any]

_DTYPES: dict[str, npt.DTypeLike] = {"I64": np.int64, "U32": np.uint32, "U16": np.uint16, "F16": np.float16}


def write_arrays(folder: Path, kind: str, arrays: Mapping[str, Array]) -> tuple[str, str, int]:
    """Write one file; its name, hash and size."""
    content = safetensors.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = sha256(content).hexdigest()
    name = f"{kind}-{digest[:16]}.safetensors"
    write_file(folder / name, content)
    return name, digest, len(content)


def open_arrays(folder: Path, entry: HashedFile, wanted: Mapping[str, tuple[str, list[int]]]) -> list[Array]:
    """The arrays of a file as views of the mapped file, in the order asked for.

    Args:
        folder: the index's folder.
        entry: what is known of the file.
        wanted: each array's kind of number, in the words of safetensors, and its shape; -1: any length.

    Raises:
        CorruptData: the file is missing, or is not what it should be.
    """
    path = folder / entry.file
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        length = int.from_bytes(data[:8], "little")
        if len(data) != entry.bytes or length > len(data) - 8:
            raise ValueError("wrong size")
        header = json.loads(bytes(data[8 : 8 + length]))
        body = data[8 + length :]
        return [_view_array(body, name, header[name], *kind) for name, kind in wanted.items()]
    except OSError as error:
        raise CorruptData(f"{path}: cannot be read ({error.strerror}); {REBUILD_HINT}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {REBUILD_HINT}") from error


def _view_array(body: memoryview, name: str, described: dict[str, Any], dtype: str, shape: list[int]) -> Array:
    actual = described["shape"]
    fits = len(actual) == len(shape) and all(b in (-1, a) for a, b in zip(actual, shape, strict=True))
    if described["dtype"] != dtype or not fits:
        raise ValueError(f"{name} of another kind")
    start, end = described["data_offsets"]
    return np.frombuffer(body[start:end], _DTYPES[dtype]).reshape(actual)
