"""`python -m benchmarks encode`: speeds of the encoder next to its matrix products."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.encode import add_throughput, count_operations
from benchmarks.report import BenchmarkReport
from eqkin import Library
from eqkin.encoder.model import Architecture
from tests.benchmarks.running import run, run_benchmark
from tests.encoder.models import SMALL_MIX, random_model

OPTIONS = ("--rounds", 2, "--formulas", 5)


def test_encode_compares_with_matrix_products() -> None:
    report = run_benchmark("encode", "--trees", 20, *OPTIONS)
    assert report["facts"]["trees"] == 20 < report["facts"]["nodes"]
    products, encoder = report["tables"]["Trees to vectors"][:2]
    assert (products["of_matrix_products"], encoder["time_to_encoder"]) == (1, 1)
    assert encoder["gflops"] > 0 < encoder["equations_per_second"]
    whole, conversion, encoding = report["tables"]["One formula at a time"]
    assert report["facts"]["formulas"] == 5
    assert whole["p50_ms"] > encoding["p50_ms"] > 0 < conversion["p50_ms"]


def test_encode_times_given_library_and_model(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("$$ a^2 + b^2 = c^2 $$\n\n$$ x = 1 $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "note.md")
    random_model(SMALL_MIX).save(tmp_path / "model")
    report = run_benchmark("encode", "-l", tmp_path / "library", "--model", tmp_path / "model", *OPTIONS)
    assert report["facts"]["trees"] == 2
    assert "network of the paper (numpy)" in {row["name"] for row in report["tables"]["Trees to vectors"]}


def test_encode_rejects_empty_library(tmp_path: Path) -> None:
    Library.open(tmp_path / "library", create=True).close()
    ended = run("encode", "-l", tmp_path / "library")
    assert (ended.code, "no trees there" in ended.err) == (3, True)


class _Forest:
    """As many trees and nodes."""

    n_children = np.zeros(1_000)

    def __len__(self) -> int:
        return 10


def test_operations_count_the_matrix_products_of_a_network() -> None:
    mix = Architecture(512, 4, dimensions=64, kind="mix")
    assert count_operations(mix, _Forest()) == 2 * (1_000 * (256 * 512 + 4 * 512 * 512) + 10 * 1_024 * 64)  # type: ignore[arg-type]
    paper = count_operations(Architecture(), _Forest())  # type: ignore[arg-type]
    assert paper == 2 * (1_000 * (256 * 512 + 3 * 512 * 512) + 10 * 512 * 64)


def test_throughput_takes_medians_and_ratios_of_rounds() -> None:
    report = BenchmarkReport("encode", {"trees": 10})
    times = {"matrix products": [1.0, 1.0, 4.0], "encoder (numpy)": [2.0, 4.0, 5.0], "other": [4.0, 4.0, 5.0]}
    add_throughput(report, times, 8e9)
    rows = {row.name: row.figures for row in report.tables["Trees to vectors"]}
    encoder = rows["encoder (numpy)"]
    assert encoder["equations_per_second"] == pytest.approx(2.5)
    assert encoder["gflops"] == pytest.approx(2.0)
    assert encoder["of_matrix_products"] == pytest.approx(0.5)
    assert rows["other"]["time_to_encoder"] == pytest.approx(1.0)
