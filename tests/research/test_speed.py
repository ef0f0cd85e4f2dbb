"""Speed and size: what benchmarks print, next to the paper's figures."""

from __future__ import annotations

import json

import pytest
from eqkin.evaluation.tables import PAPER

from eqkin.errors import BadInput
from research.speed import read_reports, run_speed

REPORT = {
    "benchmark": "train",
    "machine": "two cores",
    "facts": {"equations": 298_723},
    "tables": {
        "Batches of 128": [
            {"name": "eqkin", "triplets_per_second": 130_000.0, "peak_gpu_bytes": None},
            {"name": "torch-geometric, eager", "triplets_per_second": 10_168.0},
        ]
    },
}


def test_speed_shows_rows_of_reports_and_of_the_paper(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps(REPORT))
    result = run_speed(read_reports([tmp_path / "train.json"]))
    (table,) = result.tables
    assert [row.title for row in table.rows] == ["eqkin", "torch-geometric, eager", "GTX 1080, batch 128"]
    assert table.rows[0].cells["triplets_per_second"].value == 130_000
    assert "peak_gpu_bytes" not in table.rows[0].cells
    assert table.rows[-1].origin == PAPER
    assert "298723" in table.caption
    assert result.facts == {"machine of train": "two cores"}


def test_speed_rejects_files_that_are_not_reports(tmp_path):
    with pytest.raises(BadInput, match="no benchmarks to report"):
        run_speed([])
    with pytest.raises(BadInput, match="not what"):
        run_speed([{"benchmark": "train"}])
    with pytest.raises(BadInput, match="nowhere"):
        read_reports([tmp_path / "nowhere.json"])
