"""The folder of a run: its state in `checkpoint.safetensors.zst`, and its losses and scores in `metrics.jsonl`.

A save replaces the whole file. A run that is killed at any time leaves either the old or the new state, and at worst a
temporary file that the next save deletes.

Each line of the metrics is a record with a step. A kill or a power failure may leave an incomplete line, which readers
skip.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from eqkin.errors import StorageFailed
from eqkin.files import delete_unused_files, read_file, write_file
from eqkin.learning.array_files import Arrays, read_arrays, write_arrays

CHECKPOINT_FILE, METRICS_FILE = "checkpoint.safetensors.zst", "metrics.jsonl"

MetricsRecord = dict[str, Any]

_FORMAT = "eqkin-checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue exactly as if it had not stopped."""

    arrays: Arrays  # weights and the state of the optimizer
    facts: dict[str, Any]  # everything else, as JSON: step, recipe, metrics


def save_checkpoint(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Replace the run's state atomically; raises `StorageFailed`, and then the old state is intact."""
    # Temporary files of killed runs take space, but do no harm if they cannot be deleted.
    with suppress(OSError):
        delete_unused_files(folder, {CHECKPOINT_FILE}, re.compile(re.escape(CHECKPOINT_FILE)))
    write_arrays(folder / CHECKPOINT_FILE, _FORMAT, arrays, facts)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the run's last saved state; None if nothing was saved. Raises `CorruptData` or `StorageFailed`."""
    found = read_arrays(folder / CHECKPOINT_FILE, _FORMAT)
    return None if found is None else Checkpoint(*found)


def append_metrics(folder: Path, record: Mapping[str, Any]) -> None:
    """Append a record as one line, which other processes can read at once; raises `StorageFailed`."""
    path = folder / METRICS_FILE
    try:
        with path.open("ab", buffering=0) as file:
            file.write(_format_record(record))
    except OSError as error:
        raise StorageFailed(f"{path}: could not be written ({error.strerror or error})") from error


def rewind_metrics(folder: Path, step: int) -> None:
    """Drop the records after a step, and incomplete lines, atomically; raises `StorageFailed`."""
    kept = b"".join(_format_record(record) for record in read_metrics(folder) if record["step"] <= step)
    if kept != (read_file(folder / METRICS_FILE) or b""):
        write_file(folder / METRICS_FILE, kept)


def read_metrics(folder: Path) -> list[MetricsRecord]:
    """Return all records in the order in which they were written; none without a file. Raises `StorageFailed`."""
    records = []
    for line in (read_file(folder / METRICS_FILE) or b"").split(b"\n"):
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
    return records


def _format_record(record: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(record)).encode() + b"\n"
