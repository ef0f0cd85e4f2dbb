"""`python -m benchmarks search` on a small library."""

from pathlib import Path

import pytest

from tests.benchmarks.running import run_benchmark


@pytest.mark.parametrize("options", [("--in-process", "--patterns", "--clients", 2), ("--clients", 1, "--clients", 3)])
def test_search_times_every_stage(atlas_library: Path, options: tuple[object, ...]) -> None:
    report = run_benchmark("search", "-l", atlas_library, "--searches", 5, *options)
    assert report["facts"]["errors"] == []
    for row in report["tables"].pop("Searches"):
        assert (row["searches"], row["errors"]) == (5, 0)
        assert row["p99_ms"] >= row["p50_ms"] > 0
    assert len(report["tables"]) == options.count("--clients")
    for stages in report["tables"].values():
        assert {"candidates", "records"} <= {row["name"] for row in stages}
        assert ("processor time" in {row["name"] for row in stages}) == ("--in-process" in options)
