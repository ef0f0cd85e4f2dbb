"""`python -m benchmarks search` on a small library."""

from pathlib import Path

import pytest

from eqkin.api import Library
from tests.cli.running import run_benchmarks


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with Library.open(tmp_path_factory.mktemp("atlas") / "library") as opened:
        opened.add("atlas:")
        opened.open_engine()
        return opened.folder


@pytest.mark.parametrize("options", [("--in-process", "--clients", 2), ("--clients", 1, "--clients", 3)])
def test_search_times_every_stage(library: Path, options: tuple[object, ...]) -> None:
    for figures in run_benchmarks("search", "-l", library, "--searches", 5, *options, "--json").json:
        assert figures["searches"] == 5 and figures["errors"] == 0
        assert figures["whole_p99_ms"] >= figures["whole_p50_ms"] > 0 < figures["records_p50_ms"]
