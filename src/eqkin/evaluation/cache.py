"""A folder that keeps what evaluations trained and measured, so that nothing is done twice.

fitted/NAME-KEY/                what a system learned; KEY is a digest of its settings and of the corpus
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

import orjson

from eqkin.errors import StorageFailed
from eqkin.storage import WriterLock, read_file, write_file
from eqkin.storage import make_folder as make_folder


class ResultCache:
    """Fitted systems and measurements in a folder; several processes may use it at once."""

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
            content = orjson.loads(read_file(path) or b"")
            if compute_digest(content["key"]) == compute_digest(key) and isinstance(content["measured"], dict):
                return dict(content["measured"])
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        text = orjson.dumps({"key": key, "measured": measure()}, option=option)
        write_file(make_folder(path.parent) / path.name, text)
        return dict(orjson.loads(text)["measured"])


def compute_digest(key: Any) -> str:
    """Return 16 hexadecimal digits that identify a JSON value."""
    return hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
