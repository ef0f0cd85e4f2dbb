"""Where experiments keep what they learned and measured, so that none of it is done twice.

In the folder lie

    fitted/NAME-KEY/            what a system learned; KEY is of its settings and of the corpus
    vectors/NAME-KEY.safetensors    vectors of many formulas
    rows/EXPERIMENT/KEY.json    one measurement; KEY is of everything it depends on
    results/EXPERIMENT.json     what the experiment found, for the report
    locks/                      who is learning what, now
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from safetensors import SafetensorError
from safetensors.numpy import load, save

from eqkin.errors import StorageFailed
from eqkin.evaluation.results import ExperimentResult
from eqkin.storage import WriterLock, write_file

_MAX_ROUNDING = 1e-3  # by which half precision may change a vector, relative to its largest entry


class ResultCache:
    """A folder of fitted systems, measurements and results; several experiments may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def results(self) -> Path:
        """Where results lie."""
        return self.folder / "results"

    def get_or_fit(self, name: str, key: Any, fit: Callable[[Path], None]) -> Path:
        """The folder of what was learned under `key` (JSON); `fit` fills a new one if there is none.

        A fit that was interrupted finds what it left, in the same folder, when it is run again.

        Raises:
            LibraryBusy: Another process is learning the same.
            StorageFailed: The disk refused.
        """
        folder = self.folder / "fitted" / f"{name}-{compute_digest(key)}"
        if folder.exists():
            return folder
        with WriterLock(_make_folder(self.folder / "locks" / folder.name)):
            if not folder.exists():  # another process may have just finished
                unfinished = _make_folder(folder.with_name(folder.name + ".part"))
                try:
                    fit(unfinished)
                    os.replace(unfinished, folder)
                except OSError as error:
                    raise StorageFailed(f"{unfinished}: could not be written ({error.strerror or error})") from error
        return folder

    def get_or_measure(self, experiment: str, key: Any, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The measurement kept under `key` (JSON), or else what `measure` gives, which is kept.

        What comes back has been JSON either way: tuples are lists, and what was no number is None. Damaged files are
        measured again. Raises `StorageFailed`.
        """
        path = self.folder / "rows" / experiment / f"{compute_digest(key)}.json"
        try:
            return _parse_measurement(path.read_bytes(), key)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            found = measure()
        except OSError as error:
            raise StorageFailed(f"{path}: cannot be read ({error.strerror or error})") from error
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        kept = {"key": key, "measured": orjson.loads(orjson.dumps(found, option=option))}
        text = orjson.dumps(kept | {"sha256": _hash_content(kept)}, option=option) + b"\n"
        _make_folder(path.parent)
        write_file(path, text)
        return _parse_measurement(text, key)

    def get_or_encode(
        self, name: str, key: Any, encode: Callable[[], npt.NDArray[np.float32]]
    ) -> npt.NDArray[np.float32]:
        """Vectors kept under `key` (JSON), or else what `encode` gives, kept in half precision where that is enough.

        Damaged files are made anew. Raises `StorageFailed`.
        """
        path = self.folder / "vectors" / f"{name}-{compute_digest(key)}.safetensors"
        try:
            return _check_vectors(load(path.read_bytes()))
        except (FileNotFoundError, SafetensorError, KeyError, ValueError):
            vectors = _to_half(encode())
        except OSError as error:
            raise StorageFailed(f"{path}: cannot be read ({error.strerror or error})") from error
        _make_folder(path.parent)
        write_file(path, save({"vectors": vectors, "sha256": _hash_vectors(vectors)}))
        return vectors.astype(np.float32)

    def drop_measurements(self, experiment: str) -> None:
        """Drop the measurements of an experiment, not what was learned for it."""
        shutil.rmtree(self.folder / "rows" / experiment, ignore_errors=True)

    def save(self, result: ExperimentResult) -> Path:
        """Save what an experiment found."""
        return result.save(self.results)


def compute_digest(key: Any) -> str:
    """16 hexadecimal digits for a JSON value."""
    return hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _make_folder(folder: Path) -> Path:
    """The folder, there now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: could not be made ({error.strerror or error})") from error
    return folder


def _parse_measurement(text: bytes, key: Any) -> dict[str, Any]:
    """What was measured; raises `ValueError`, `KeyError` or `TypeError` if this is no measurement of that key."""
    kept = orjson.loads(text)
    if compute_digest(kept["key"]) != compute_digest(key) or not isinstance(kept["measured"], dict):
        raise ValueError("of another key")
    if kept.get("sha256", _hash_content(kept)) != _hash_content(kept):  # those of before have none
        raise ValueError("damaged")
    found: dict[str, Any] = kept["measured"]
    return found


def _hash_content(kept: dict[str, Any]) -> str:
    """Hash of a measurement with its key."""
    return hashlib.sha256(orjson.dumps([kept["key"], kept["measured"]], option=orjson.OPT_SORT_KEYS)).hexdigest()


def _to_half(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.floating[Any]]:
    """The vectors in half precision, unless that changes one of them much: half precision ends at 65,504 and 6e-8."""
    with np.errstate(over="ignore", invalid="ignore"):
        half = vectors.astype(np.float16)
        change = np.abs(half.astype(np.float32) - vectors).max(axis=1, initial=0)
        enough = change <= _MAX_ROUNDING * np.abs(vectors).max(axis=1, initial=0)
    return half if enough.all() and np.isfinite(half).all() else vectors


def _hash_vectors(vectors: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(np.ascontiguousarray(vectors).tobytes()).digest(), np.uint8)


def _check_vectors(arrays: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """Vectors that are as they were written; raises `KeyError` or `ValueError`."""
    vectors = arrays["vectors"]
    if not np.array_equal(arrays.get("sha256", _hash_vectors(vectors)), _hash_vectors(vectors)):
        raise ValueError("damaged")
    return vectors.astype(np.float32)
