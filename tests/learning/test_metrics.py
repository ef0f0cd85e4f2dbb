"""Metrics files survive kills and can be rewound."""

import math
from pathlib import Path

from eqkin.learning.checkpoint import METRICS_FILE, append_metrics, read_metrics, rewind_metrics

FIRST, SECOND = {"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "note": "é\n☃", "nested": {"a": [None, True]}}


def test_metrics_are_read_in_order(tmp_path: Path) -> None:
    for count, record in enumerate((FIRST, SECOND), start=1):
        append_metrics(tmp_path, record)
        assert read_metrics(tmp_path) == [FIRST, SECOND][:count]
    append_metrics(tmp_path, {"step": 3, "loss": math.nan})
    assert math.isnan(read_metrics(tmp_path)[-1]["loss"])


def test_metrics_are_empty_without_a_file(tmp_path: Path) -> None:
    rewind_metrics(tmp_path, 3)
    assert read_metrics(tmp_path) == []
    assert not (tmp_path / METRICS_FILE).exists()


def test_incomplete_lines_are_skipped_and_dropped(tmp_path: Path) -> None:
    append_metrics(tmp_path, FIRST)
    whole = (tmp_path / METRICS_FILE).read_bytes()
    append_metrics(tmp_path, SECOND)
    line = (tmp_path / METRICS_FILE).read_bytes()[len(whole) :]
    for length in range(len(line) - 1):
        (tmp_path / METRICS_FILE).write_bytes(whole + line[:length])
        assert read_metrics(tmp_path) == [FIRST]
        rewind_metrics(tmp_path, 2)
        append_metrics(tmp_path, SECOND)
        assert read_metrics(tmp_path) == [FIRST, SECOND]


def test_rewind_drops_later_records(tmp_path: Path) -> None:
    for record in (FIRST, SECOND):
        append_metrics(tmp_path, record)
    rewind_metrics(tmp_path, 1)
    assert read_metrics(tmp_path) == [FIRST]
    rewind_metrics(tmp_path, -1)
    assert read_metrics(tmp_path) == []
