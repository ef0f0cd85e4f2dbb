"""Files of named arrays and JSON values: safetensors, compressed by zstd, whose checksum finds any damage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import zstandard
from safetensors import SafetensorError

from eqkin.errors import CorruptData
from eqkin.files import read_file, write_file

Arrays = dict[str, npt.NDArray[Any]]

VERSION = 1
# Of the unpacked content; 30 million equations take about 12 GB.
MAX_UNPACKED_BYTES = 60_000_000_000
_FACTS = "facts"


def write_arrays(path: Path, form: str, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Write a file atomically; raises `StorageFailed`, and then the old file is intact.

    Args:
        path: The file.
        form: Name of the format.
        arrays: Arrays of bools, integers or floats, of any shape.
        facts: JSON values.
    """
    text = json.dumps({"format": form, "version": VERSION} | dict(facts)).encode()
    whole = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}
    content = safetensors.numpy.save(whole | {_FACTS: np.frombuffer(text, np.uint8)})
    write_file(path, zstandard.ZstdCompressor(threads=-1, write_checksum=True).compress(content))


def read_arrays(path: Path, form: str) -> tuple[Arrays, dict[str, Any]] | None:
    """Return what `write_arrays` was given; None if there is no file.

    Raises:
        CorruptData: The file is damaged, or of another format or version.
        StorageFailed: It cannot be read.
    """
    packed = read_file(path)
    if packed is None:
        return None
    try:
        # The header says how much memory the content takes; a file that does not say it is not ours.
        size = zstandard.get_frame_parameters(packed).content_size
        if not 0 < size <= MAX_UNPACKED_BYTES:
            raise ValueError("its content is empty or too large")
        arrays = safetensors.numpy.load(zstandard.ZstdDecompressor().decompress(packed))
        facts = json.loads(arrays.pop(_FACTS).tobytes())
        found = facts.pop("format"), facts.pop("version")
    except (zstandard.ZstdError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptData(f"{path}: damaged, or not a file of the format {form} ({error})") from error
    if found != (form, VERSION):
        raise CorruptData(f"{path}: format {found[0]} {found[1]}, this eqkin reads {form} {VERSION}")
    return arrays, facts
