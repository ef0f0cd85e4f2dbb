"""The folder of a run: its state, and the metrics in `metrics.jsonl`.

The state is arrays in a safetensors file, and `checkpoint.json` with its name and hash.

A save writes the arrays to a new file, replaces `checkpoint.json`, then deletes the files that it no longer names. A
run that is killed at any time leaves either the old or the new state, and at worst a file that the next save deletes.

Each line of the metrics is a record with a step. A kill or a power failure may leave an incomplete line, which readers
skip.
"""

from __future__ import annotations

import hashlib
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
from safetensors import SafetensorError
from safetensors.numpy import load, save

from eqkin.errors import BadInput, CorruptData, StorageFailed
from eqkin.storage import WriterLock, delete_unused_files, write_file

FORMAT = "eqkin-checkpoint"
VERSION = 1
CHECKPOINT_FILE, METRICS_FILE = "checkpoint.json", "metrics.jsonl"

Arrays = dict[str, npt.NDArray[Any]]
MetricsRecord = dict[str, Any]

_ARRAYS_PATTERN = re.compile(r"checkpoint-\d+(-again)?\.safetensors")
_OWN_FILES = re.compile(rf"{re.escape(CHECKPOINT_FILE)}|{_ARRAYS_PATTERN.pattern}")
_DTYPE_KINDS = "biuf"  # of arrays: bool, integers, floats
_REMEDY = f"restore the run's folder from a copy, or delete its {CHECKPOINT_FILE} to start again"


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue exactly as if it had not stopped."""

    arrays: Arrays  # weights and the state of the optimizer; writable
    facts: dict[str, Any]  # everything else, as JSON: step, recipe, metrics


@dataclass(frozen=True)
class _CheckpointManifest:
    """The content of `checkpoint.json` without its checksum, in the order in which it is written."""

    file: str
    sha256: str
    bytes: int
    facts: dict[str, Any]

    def to_text(self) -> str:
        body = {"format": FORMAT, "version": VERSION, **vars(self)}
        checksum = hashlib.sha256(json.dumps(body).encode()).hexdigest()
        return json.dumps({**body, "checksum": checksum}, indent=1) + "\n"


@contextmanager
def lock_run(folder: Path) -> Iterator[None]:
    """Lock a run's folder while the context lasts; the folder is created if necessary.

    Raises `LibraryBusy`, which names the process that holds the lock, or `StorageFailed`. The operating system releases
    the lock when the process ends, even if it is killed. Reading a checkpoint needs no lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageFailed(f"{folder}: cannot be used as the folder of a run ({error.strerror or error})") from error
    with WriterLock(folder):
        yield


def save_checkpoint(folder: Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Replace the run's state atomically; the caller holds `lock_run`.

    Args:
        folder: The run's folder.
        arrays: Arrays of bools, integers or floats, of any shape.
        facts: JSON values; `facts["step"]`, an integer from 0, names the file of the arrays.

    Raises:
        BadInput: Arrays or facts have other types.
        StorageFailed: The disk is full or read-only; the old state is intact.
        CorruptData: There is a `checkpoint.json` that cannot be read; it is not overwritten.
    """
    step = facts.get("step")
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise BadInput(f"the facts of a checkpoint need a step, an integer from 0, not {step!r}")
    content = _pack_arrays(arrays)
    present = _read_manifest(folder)
    kept = present.file if present else None
    file = f"checkpoint-{step}.safetensors"
    if file == kept:  # must stay unchanged until the new manifest is written
        file = f"checkpoint-{step}-again.safetensors"
    manifest = _CheckpointManifest(file, hashlib.sha256(content).hexdigest(), len(content), dict(facts))
    try:
        text = manifest.to_text().encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"the facts of a checkpoint must be JSON ({error})") from error
    _delete_unused_files(folder, kept)  # make room for the new file
    write_file(folder / file, content)
    write_file(folder / CHECKPOINT_FILE, text)
    _delete_unused_files(folder, file)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the run's last saved state; None if nothing was saved.

    Raises `CorruptData` if a file is damaged, missing or of another format or version, and `StorageFailed` if it cannot
    be read.
    """
    manifest = _read_manifest(folder)
    while manifest:
        try:
            return Checkpoint(_read_arrays(folder / manifest.file, manifest), manifest.facts)
        except CorruptData:
            newer = _read_manifest(folder)
            if newer and newer.to_text() == manifest.to_text():
                raise
            manifest = newer  # the run saved its next state in the meantime and deleted this one
    return None


def pack_checkpoint(saved: Checkpoint) -> bytes:
    """Serialise a checkpoint, to send it to another process."""
    facts = json.dumps(saved.facts).encode()
    return len(facts).to_bytes(8, "little") + facts + _pack_arrays(saved.arrays)


def unpack_checkpoint(packed: bytes) -> Checkpoint:
    """Return what `pack_checkpoint` was given."""
    end = 8 + int.from_bytes(packed[:8], "little")
    return Checkpoint(load(packed[end:]), json.loads(packed[8:end]))


def _pack_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return the content of a safetensors file."""
    plain: Arrays = {}
    for name, array in arrays.items():
        if array.dtype.kind not in _DTYPE_KINDS or array.dtype.itemsize > 8:
            raise BadInput(f"{name} is an array of {array.dtype}: a checkpoint can contain bools, integers and floats")
        plain[name] = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return save(plain)


def _read_arrays(path: Path, manifest: _CheckpointManifest) -> Arrays:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise CorruptData(f"{path}: missing; {_REMEDY}") from error
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error
    if len(content) != manifest.bytes:
        raise CorruptData(f"{path}: has {len(content):,} bytes, not {manifest.bytes:,}; {_REMEDY}")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise CorruptData(f"{path}: does not match its hash; {_REMEDY}")
    try:
        return {name: array.copy() for name, array in load(content).items()}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{path}: not a readable safetensors file ({error}); {_REMEDY}") from error


def _read_manifest(folder: Path) -> _CheckpointManifest | None:
    path = folder / CHECKPOINT_FILE
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error
    try:
        data = json.loads(raw)
        form, version = data.pop("format"), data.pop("version")
        if form != FORMAT or version != VERSION:
            raise CorruptData(
                f"{path}: {form} version {version}, this eqkin reads {FORMAT} version {VERSION}; "
                "use the eqkin that wrote it, or another folder"
            )
        del data["checksum"]  # `to_text` computes it again
        manifest = _CheckpointManifest(**data)
        if manifest.to_text().encode() != raw:
            raise ValueError("checksum differs")
        kinds = [type(value) for value in vars(manifest).values()]
        if kinds != [str, str, int, dict] or not _ARRAYS_PATTERN.fullmatch(manifest.file):
            raise ValueError("not the description of a checkpoint")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptData(f"{path}: damaged ({error}); {_REMEDY}") from error
    return manifest


def _delete_unused_files(folder: Path, keep: str | None) -> None:
    """Delete array files other than `keep`, and temporary files of killed runs."""
    with suppress(OSError):  # they take space but do no harm
        delete_unused_files(folder, {CHECKPOINT_FILE, keep or ""}, _OWN_FILES)


class MetricsFile:
    """The metrics of one run; only that run writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a record as one line, which other processes can read at once; raises `StorageFailed`.

        A record needs an integer `step`; other values may be JSON values or numbers of numpy and torch. NaN and
        infinity are written as Python's `json` does.
        """
        if not _is_step(record.get("step")):
            raise BadInput(f"a metrics record needs a step, an integer, not {record.get('step')!r}")
        try:
            line = json.dumps(dict(record), default=lambda value: value.item()).encode() + b"\n"
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BadInput(f"a metrics record must be JSON ({error})") from error
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
        content = _read_content(self.path)
        kept = b"".join(line + b"\n" for line, record in _iter_records(content) if record["step"] <= step)
        if kept != content:
            write_file(self.path, kept)


def read_metrics(path: Path) -> list[MetricsRecord]:
    """Return all records in the order in which they were written; none without a file. Raises `StorageFailed`."""
    return [record for _, record in _iter_records(_read_content(path))]


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error


def _iter_records(content: bytes) -> Iterator[tuple[bytes, MetricsRecord]]:
    """Iterate over the lines that contain a record, and their records."""
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_step(record.get("step")):
            yield line, record


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
