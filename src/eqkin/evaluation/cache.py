"""A folder that keeps what evaluations trained and measured, so that nothing is done twice.

fitted/NAME-KEY/                what a system learned; KEY is a digest of its settings and of the corpus
vectors/NAME-KEY.safetensors    vectors of many formulas
rows/EXPERIMENT/KEY.json        one measurement; KEY is a digest of everything it depends on
locks/                          which process is fitting what
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from eqkin.errors import CorruptData, StorageFailed
from eqkin.storage import WriterLock, read_file, write_file, write_stream
from eqkin.storage.arrays import hash_arrays, iter_array_file, parse_array_file

_FORMAT, _VERSION = "eqkin-vectors", "1"
_MAX_ROUNDING = 1e-3  # by which half precision may change a vector, relative to its largest entry


class ResultCache:
    """Fitted systems, vectors and measurements in a folder; several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_or_fit(self, name: str, key: Any, fit: Callable[[Path], None]) -> Path:
        """Return the folder of what was fitted under `key` (JSON); `fit` fills a new one if there is none.

        A fit that was interrupted finds its own files in the same folder when it runs again.

        Raises:
            LibraryBusy: Another process is fitting the same.
            StorageFailed: The disk refused.
        """
        folder = self.folder / "fitted" / f"{name}-{compute_digest(key)}"
        if folder.exists():
            return folder
        with WriterLock(make_folder(self.folder / "locks" / folder.name)):
            if not folder.exists():  # another process may have just finished
                unfinished = make_folder(folder.with_name(folder.name + ".part"))
                try:
                    fit(unfinished)
                    os.replace(unfinished, folder)
                except OSError as error:
                    raise StorageFailed(f"{unfinished}: cannot be written ({error.strerror or error})") from error
        return folder

    def get_or_measure(self, experiment: str, key: Any, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the measurement kept under `key` (JSON), or call `measure` and keep its result.

        The result has been JSON in both cases: tuples are lists, and NaN is None. Damaged files are measured again.
        Raises `StorageFailed`.
        """
        path = self.folder / "rows" / experiment / f"{compute_digest(key)}.json"
        with suppress(ValueError, KeyError, TypeError):
            return _parse_measurement(read_file(path) or b"", key)
        measured = measure()
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        content = {"key": key, "measured": orjson.loads(orjson.dumps(measured, option=option))}
        text = orjson.dumps(content | {"sha256": _hash_content(content)}, option=option) + b"\n"
        make_folder(path.parent)
        write_file(path, text)
        return _parse_measurement(text, key)

    def get_or_encode(
        self, name: str, key: Any, encode: Callable[[], npt.NDArray[np.float32]]
    ) -> npt.NDArray[np.float32]:
        """Return the vectors kept under `key` (JSON), or call `encode` and keep its result.

        Vectors are kept in half precision where that changes them little. Damaged files are replaced. Raises
        `StorageFailed`.
        """
        path = self.folder / "vectors" / f"{name}-{compute_digest(key)}.safetensors"
        with suppress(CorruptData):
            loaded = parse_array_file(read_file(path) or b"", str(path), _FORMAT, [_VERSION], "")
            return loaded["vectors"].astype(np.float32)
        arrays = {"vectors": _to_half(encode())}
        make_folder(path.parent)
        write_stream(path, iter_array_file(arrays, hash_arrays(arrays), _FORMAT, _VERSION))
        return arrays["vectors"].astype(np.float32)


def compute_digest(key: Any) -> str:
    """Return 16 hexadecimal digits that identify a JSON value."""
    return hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def make_folder(folder: Path) -> Path:
    """Create a folder if it is missing, and return it; raises `StorageFailed`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot be created ({error.strerror or error})") from error
    return folder


def _parse_measurement(text: bytes, key: Any) -> dict[str, Any]:
    """Parse a measurement; raises `ValueError`, `KeyError` or `TypeError` if it is damaged or has another key."""
    content = orjson.loads(text)
    measured: dict[str, Any] = content["measured"]
    if compute_digest(content["key"]) != compute_digest(key) or not isinstance(measured, dict):
        raise ValueError("of another key")
    if content.get("sha256", _hash_content(content)) != _hash_content(content):  # older files have none
        raise ValueError("damaged")
    return measured


def _hash_content(content: dict[str, Any]) -> str:
    pair = [content["key"], content["measured"]]
    return hashlib.sha256(orjson.dumps(pair, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _to_half(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.floating[Any]]:
    """Convert to half precision, unless that changes a vector much: half precision ends at 65,504 and 6e-8."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = vectors.astype(np.float16)
        change = np.abs(half.astype(np.float32) - vectors).max(axis=1, initial=0)
        is_close = change <= _MAX_ROUNDING * np.abs(vectors).max(axis=1, initial=0)
    return half if is_close.all() and np.isfinite(half).all() else vectors
