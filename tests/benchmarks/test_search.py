"""`python -m benchmarks search` on a small library."""

from pathlib import Path

import pytest

from eqkin import Library
from tests.benchmarks.running import run_benchmark


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Library.open(tmp_path_factory.mktemp("atlas") / "library", create=True) as opened:
        opened.add("atlas:")
        opened.open_engine()
        return opened.folder


@pytest.mark.parametrize("options", [("--in-process", "--clients", 2), ("--clients", 1, "--clients", 3)])
def test_search_times_every_stage(library: Path, options: tuple[object, ...]) -> None:
    report = run_benchmark("search", "-l", library, "--searches", 5, *options)
    assert report["facts"]["errors"] == []
    for row in report["tables"].pop("Searches"):
        assert (row["searches"], row["errors"]) == (5, 0)
        assert row["p99_ms"] >= row["p50_ms"] > 0
    assert len(report["tables"]) == options.count("--clients")
    for stages in report["tables"].values():
        assert {"candidates", "records"} <= {row["name"] for row in stages}
