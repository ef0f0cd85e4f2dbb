"""Metrics files survive kills and can be rewound."""

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eqkin.errors import StorageFailed
from eqkin.learning.checkpoint import MetricsFile, MetricsRecord, read_metrics


@pytest.fixture
def metrics(tmp_path: Path) -> MetricsFile:
    return MetricsFile(tmp_path / "metrics.jsonl")


def _training(step: int, **changes: object) -> MetricsRecord:
    loss = 0.2 + 1 / (step + 1)
    parts = {"loss": 3 * loss, "similarity": loss, "masking": 2 * loss}
    speed = {"learning_rate": 1e-4, "triplets_per_second": 1_300.0, "seconds": step / 10}
    return {"step": step, "triplets": 128 * step, **parts, **speed, **changes}


def _ranking(step: int, **changes: object) -> MetricsRecord:
    return {"step": step, "ranking": 0.7, "low": 0.64, "high": 0.76, "triples": 1_000, **changes}


def test_metrics_are_read_in_order(metrics: MetricsFile) -> None:
    records = [_training(1), _ranking(1), {"step": 2, "note": "é\n☃", "nested": {"a": [None, True]}}]
    for count, record in enumerate(records, start=1):
        metrics.append(record)
        assert read_metrics(metrics.path) == records[:count]  # at once
    assert metrics.path.read_bytes().count(b"\n") == 3


def test_metrics_accept_numpy_numbers_and_nan(metrics: MetricsFile) -> None:
    metrics.append(
        {"step": 1, "a": np.float32(0.5), "b": np.int64(3), "c": np.array(2.0), "d": math.nan, "e": -math.inf}
    )
    (record,) = read_metrics(metrics.path)
    assert math.isnan(record.pop("d"))
    assert record == {"step": 1, "a": 0.5, "b": 3, "c": 2.0, "e": -math.inf}


def test_metrics_are_empty_without_a_file(metrics: MetricsFile) -> None:
    metrics.rewind(3)
    assert read_metrics(metrics.path) == []
    assert not metrics.path.exists()


def test_incomplete_lines_are_skipped(metrics: MetricsFile) -> None:
    metrics.append(_training(1))
    whole = metrics.path.read_bytes()
    metrics.append(_ranking(2))
    line = metrics.path.read_bytes()[len(whole) :]
    for length in range(len(line) - 1):
        metrics.path.write_bytes(whole + line[:length])
        assert read_metrics(metrics.path) == [_training(1)]
        metrics.append(_training(3))
        assert read_metrics(metrics.path) == [_training(1), _training(3)]
    metrics.path.write_bytes(whole + line[:-1])  # all of it but its end
    metrics.append(_training(3))
    assert read_metrics(metrics.path) == [_training(1), _ranking(2), _training(3)]


def test_rewind_drops_later_records_and_incomplete_lines(metrics: MetricsFile) -> None:
    for step in (0, 5, 10, 15, 20):
        metrics.append(_training(step))
        metrics.append(_ranking(step))
    content = metrics.path.read_bytes()
    metrics.path.write_bytes(b"\0\0\xff\n[1]\n" + content + b'{"step": 3, "lo')
    metrics.rewind(10)
    assert metrics.path.read_bytes() == b"".join(content.splitlines(keepends=True)[:6])
    before = metrics.path.stat()
    metrics.rewind(10)
    assert metrics.path.stat() == before  # nothing to do, nothing done
    metrics.append(_training(11))
    assert [record["step"] for record in read_metrics(metrics.path)] == [0, 0, 5, 5, 10, 10, 11]
    metrics.rewind(-1)
    assert read_metrics(metrics.path) == []


def test_failed_rewind_keeps_the_old_records(metrics: MetricsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(5):
        metrics.append(_training(step))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("eqkin.storage.files.os.fsync", fail)
        with pytest.raises(StorageFailed, match="No space left"):
            metrics.rewind(2)
    assert len(read_metrics(metrics.path)) == 5
    assert [path.name for path in metrics.path.parent.iterdir()] == ["metrics.jsonl"]


def test_unreadable_metrics_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"metrics\.jsonl: could not be written"):
        MetricsFile(tmp_path / "missing" / "metrics.jsonl").append({"step": 1})
    with pytest.raises(StorageFailed, match="could not be read"):
        read_metrics(tmp_path)


_ENDLESS = """
import sys
from pathlib import Path
from eqkin.learning.checkpoint import MetricsFile, read_metrics
metrics = MetricsFile(Path(sys.argv[1]))
step = max((record["step"] for record in read_metrics(metrics.path)), default=0)
metrics.rewind(step)
while True:
    step += 1
    metrics.append({"step": step, "text": "x" * 10_000})
    if step % 10 == 0:
        print(step, flush=True)
"""


def test_repeatedly_killed_run_loses_no_record(metrics: MetricsFile) -> None:
    chance = random.Random(2)
    for _ in range(3):
        command = [sys.executable, "-c", _ENDLESS, str(metrics.path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(chance.randint(1, 6)):
            said = int(process.stdout.readline())
        process.kill()
        process.communicate(timeout=60)
        steps = [record["step"] for record in read_metrics(metrics.path)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= said
