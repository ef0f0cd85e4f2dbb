"""Where experiments keep what they learned and measured, so that none of it is done twice.

In the folder lie

    fitted/NAME-KEY/            what a system learned; KEY is of its settings and of the corpus
    vectors/NAME-KEY.safetensors    vectors of many formulas
    rows/EXPERIMENT/KEY.json    one measurement; KEY is of everything it depends on
    results/EXPERIMENT.json     what the experiment found, for the report
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
from eqkin.evaluation.results import Result
from eqkin.library.durable import write_file


class Store:
    """A folder of fitted systems, measurements and results; several experiments may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def results(self) -> Path:
        """Where results lie."""
        return self.folder / "results"

    def fitted(self, name: str, key: Any, fit: Callable[[Path], None]) -> Path:
        """The folder of what was learned under `key` (JSON); `fit` fills a new one if there is none.

        A fit that was interrupted finds what it left, in the same folder, when it is run again.
        """
        folder = self.folder / "fitted" / f"{name}-{digest(key)}"
        if not folder.exists():
            unfinished = folder.with_name(folder.name + ".part")
            try:
                unfinished.mkdir(parents=True, exist_ok=True)
                fit(unfinished)
                os.replace(unfinished, folder)
            except OSError as error:
                raise StorageFailed(f"{unfinished}: could not be written ({error.strerror or error})") from error
        return folder

    def measured(self, experiment: str, key: Any, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The measurement kept under `key` (JSON), or else what `measure` gives, which is kept.

        Damaged files are measured again.
        """
        path = self.folder / "rows" / experiment / f"{digest(key)}.json"
        try:
            kept: dict[str, Any] = orjson.loads(path.read_bytes())["measured"]
            return kept
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            found = measure()
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"key": key, "measured": found}
        write_file(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        return found

    def vectors(self, name: str, key: Any, encode: Callable[[], npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Vectors kept under `key` (JSON), or else what `encode` gives, kept in half precision where that is enough."""
        path = self.folder / "vectors" / f"{name}-{digest(key)}.safetensors"
        try:
            return load(path.read_bytes())["vectors"].astype(np.float32)
        except (FileNotFoundError, SafetensorError, KeyError):
            vectors = encode()
        if np.abs(vectors).max(initial=0) < np.finfo(np.float16).max:
            vectors = vectors.astype(np.float16)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, save({"vectors": vectors}))
        return vectors.astype(np.float32)

    def forget(self, experiment: str) -> None:
        """Drop the measurements of an experiment, not what was learned for it."""
        shutil.rmtree(self.folder / "rows" / experiment, ignore_errors=True)

    def keep(self, result: Result) -> Path:
        """Save what an experiment found."""
        return result.save(self.results)


def digest(key: Any) -> str:
    """16 hexadecimal digits for a JSON value."""
    return hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
