"""The folder of a run: its state in `checkpoint.safetensors`, and the metrics in `metrics.jsonl`.

A save replaces the whole file. A run that is killed at any time leaves either the old or the new state, and at worst a
temporary file that the next save deletes.

Each line of the metrics is a record with a step. A kill or a power failure may leave an incomplete line, which readers
skip.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData, StorageFailed
from eqkin.storage.arrays import Arrays, iter_checked_file, parse_checked_file
from eqkin.storage.files import WriterLock, delete_unused_files, make_folder, read_file, write_file, write_stream

CHECKPOINT_FILE, METRICS_FILE = "checkpoint.safetensors", "metrics.jsonl"

MetricsRecord = dict[str, Any]

_FORMAT, _VERSION = "eqkin-checkpoint", "2"
_FIRST_VERSION_FILE = "checkpoint.json"
_FACTS = "facts"  # name of the array with the facts as JSON; those of weights and moments contain a dot
_REMEDY = f"restore the run's folder from a copy, or delete its {CHECKPOINT_FILE} to start again"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue exactly as if it had not stopped."""

    arrays: Arrays  # weights and the state of the optimizer; writable
    facts: dict[str, Any]  # everything else, as JSON: step, recipe, metrics


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock a run's folder while the context lasts; the folder is created if necessary.

    Raises `LibraryBusy`, which names the process that holds the lock, or `StorageFailed`. The operating system releases
    the lock when the process ends, even if it is killed. Reading a checkpoint needs no lock.
    """
    with WriterLock(make_folder(folder)):
        yield


def save_checkpoint(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Replace the run's state atomically; the caller holds `lock_run`. Raises `StorageFailed`; the old state is intact.

    Args:
        folder: The run's folder.
        arrays: Arrays of bools, integers or floats, of any shape.
        facts: JSON values.
    """
    with suppress(OSError):  # temporary files of killed runs take space but do no harm
        delete_unused_files(folder, {CHECKPOINT_FILE}, re.compile(re.escape(CHECKPOINT_FILE)))
    whole = {**arrays, _FACTS: np.frombuffer(json.dumps(dict(facts)).encode(), np.uint8)}
    write_stream(folder / CHECKPOINT_FILE, iter_checked_file(whole, _FORMAT, _VERSION))


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the run's last saved state; None if nothing was saved.

    Raises `CorruptData` if the file is damaged or of another version, and `StorageFailed` if it cannot be read.
    """
    path = folder / CHECKPOINT_FILE
    content = read_file(path)
    if content is not None:
        loaded = parse_checked_file(content, str(path), _FORMAT, [_VERSION], _REMEDY)
        arrays = {name: array.copy() for name, array in loaded.items()}
        return Checkpoint(arrays, json.loads(arrays.pop(_FACTS).tobytes()))
    if (folder / _FIRST_VERSION_FILE).exists():
        raise CorruptData(
            f"{folder / _FIRST_VERSION_FILE}: written by an older eqkin; finish the run with that one, or choose "
            "another folder"
        )
    return None


class MetricsFile:
    """The metrics of one run; only that run writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record as one line, which other processes can read at once; raises `StorageFailed`.

        A record has an integer `step`; other values may be JSON values or numbers of numpy and torch. NaN and
        infinity are written as Python's `json` does.
        """
        line = _format_record(record)
        try:
            with self.path.open("a+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line  # after an incomplete line
                while line:
                    line = line[file.write(line) :]
        except OSError as error:
            raise StorageFailed(f"{self.path}: could not be written ({error.strerror or error})") from error

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, and incomplete lines, atomically; raises `StorageFailed`."""
        kept = b"".join(_format_record(record) for record in read_metrics(self.path) if record["step"] <= step)
        if kept != (read_file(self.path) or b""):
            write_file(self.path, kept)


def read_metrics(path: Path) -> list[MetricsRecord]:
    """Return all records in the order in which they were written; none without a file. Raises `StorageFailed`."""
    records = []
    for line in (read_file(path) or b"").split(b"\n"):
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
    return records


def _format_record(record: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(record), default=lambda value: value.item()).encode() + b"\n"
