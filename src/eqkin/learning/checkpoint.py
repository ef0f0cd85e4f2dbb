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

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import zstandard
from safetensors import SafetensorError

from eqkin.errors import CorruptData, StorageFailed
from eqkin.files import delete_unused_files, read_file, write_file

CHECKPOINT_FILE, METRICS_FILE = "checkpoint.safetensors.zst", "metrics.jsonl"

MetricsRecord = dict[str, Any]

_FORMAT = "eqkin-checkpoint"
Arrays = dict[str, npt.NDArray[Any]]
VERSION = 1
# Of the unpacked content; 30 million equations take about 12 GB.
MAX_UNPACKED_BYTES = 60_000_000_000
_FACTS = "facts"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue exactly as if it had not stopped."""

    # Weights and the state of the optimizer.
    arrays: Arrays
    # Everything else, as JSON: step, recipe, metrics.
    facts: dict[str, Any]


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
