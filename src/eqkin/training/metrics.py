"""What a run measured on its way, as JSON lines (`metrics.jsonl`): one record a line, each with its step.

A kill or a power cut may leave a torn line; such lines are no records and are passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eqkin.errors import BadInput, StorageFailed
from eqkin.storage import write_file

MetricsRecord = dict[str, Any]


class MetricsFile:
    """The metrics of one run, written by that run alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record as one line, which other processes can read at once; raises `StorageFailed`.

        A record needs a `step`, a whole number; the rest may be what JSON can hold, or numbers of numpy and torch.
        NaN and the infinities are written as Python's `json` does.
        """
        if not _is_step(record.get("step")):
            raise BadInput(f"a record of metrics needs a step, a whole number, not {record.get('step')!r}")
        try:
            line = json.dumps(dict(record), default=_to_python_number).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"a record of metrics has to be JSON ({error})") from error
        try:
            with self.path.open("a+b", buffering=0) as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line  # after a torn line
                while line:
                    line = line[file.write(line) :]
        except OSError as error:
            raise StorageFailed(f"{self.path}: could not be written ({error.strerror or error})") from error

    def rewind(self, step: int) -> None:
        """Drop the records after `step`, and torn lines, in one step: the run goes on from there.

        Raises `StorageFailed`; the old records are intact then.
        """
        content = _read_content(self.path)
        kept = b"".join(line + b"\n" for line, record in _iter_records(content) if record["step"] <= step)
        if kept != content:
            write_file(self.path, kept)


def read_metrics(path: Path) -> list[MetricsRecord]:
    """All records in the order in which they were written; none when there is no file. Raises `StorageFailed`."""
    return [record for _, record in _iter_records(_read_content(path))]


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageFailed(f"{path}: could not be read ({error.strerror or error})") from error


def _iter_records(content: bytes) -> Iterator[tuple[bytes, MetricsRecord]]:
    """Each line that holds a record, without its end, and the record."""
    for line in content.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and _is_step(record.get("step")):
            yield line, record


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _to_python_number(value: Any) -> Any:
    """A number of numpy or torch as one of Python."""
    if getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{value!r} is no number")
