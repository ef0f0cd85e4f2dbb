"""`python -m benchmarks scale` at tiny sizes (every step a real command), and trends."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.scale_report import BEGIN, END, fit_trend
from eqkin.sources.readers import open_source
from tests.benchmarks.running import run, run_benchmark

STEPS = ["grow", "add", "index", "serve", "verify", "again", "day"]
SIZES = (10_000, 100_000, 1_000_000)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which 300 equations were measured."""
    folder = tmp_path_factory.mktemp("scale")
    report = run_benchmark("scale", "-f", folder, "--size", 300, "--searches", 3, "-j", 1)
    assert "Search, median" in {row["name"] for row in report["tables"]["Searching"]}
    return folder


def test_scale_measures_every_step(folder: Path) -> None:
    found = {one["step"]: one["figures"] for one in lines(folder)}
    assert list(found) == STEPS
    assert 300 <= found["grow"]["equations"] == found["add"]["equations"] <= 700
    assert found["index"]["vectors"] == found["add"]["converted"]
    assert found["index"]["steps"].keys() >= {"embedding", "structure", "words"}
    assert all(found["index"]["disk"][part] > 0 for part in ("database", "vectors", "structure", "words"))
    assert (found["serve"]["searches"], found["serve"]["errors"]) == (3, 0)
    assert 0 < found["serve"]["p50_ms"] <= found["serve"]["p99_ms"]
    assert found["serve"]["processor_ms"] > 0
    assert found["again"]["papers"] == found["add"]["papers"]
    assert found["day"]["papers"] == 28
    assert all(found[step]["own_bytes"] > 1e7 for step in ("add", "index", "verify"))
    assert found["serve"]["held"]["rss"] > found["serve"]["held"]["own"] > 1e7


def test_scale_continues_with_another_size(folder: Path, tmp_path: Path) -> None:
    before = lines(folder)
    document = tmp_path / "SCALE.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    arguments = ("scale", "-f", folder, "--size", 300, "--size", 900, "--step", "grow", "--step", "add")
    report = run_benchmark(*arguments, "--step", "index", "-j", 1, "--into", document, "--figures", tmp_path)
    after = lines(folder)
    assert after[: len(before)] == before
    assert [(one["size"], one["step"]) for one in after[len(before) :]] == [(900, s) for s in ("grow", "add", "index")]
    text = document.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    embedding = next(row for row in report["tables"]["Time"] if row["name"] == "Embedding")
    assert f"| {' | '.join(embedding.values())} |" in text
    assert "n^" in text
    assert (tmp_path / "scale.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_scale_rejects_unknown_step_and_document_without_marks(tmp_path: Path) -> None:
    ended = run("scale", "-f", tmp_path, "--step", "fly")
    assert (ended.code, "there are grow, add" in ended.err) == (3, True)
    (tmp_path / "plain.md").write_text("no marks", "utf-8")
    ended = run("scale", "-f", tmp_path, "--into", tmp_path / "plain.md")
    assert (ended.code, BEGIN in ended.err) == (3, True)


def test_grow_writes_papers_that_can_be_read(tmp_path: Path) -> None:
    facts = run_benchmark("grow", "-n", 200, "-o", tmp_path)["facts"]
    assert facts["equations"] >= 200
    assert len(list(open_source(str(tmp_path)))) == facts["papers"]


def test_trend_finds_constant_and_slope() -> None:
    trend = fit_trend(SIZES, [5 + 1e-3 * n for n in SIZES])
    assert trend is not None
    assert (trend.constant, trend.slope) == (pytest.approx(5), pytest.approx(1e-3))
    assert trend.predict(30_000_000) == pytest.approx(30_005)


def test_trend_projects_superlinear_growth_by_its_exponent() -> None:
    trend = fit_trend(SIZES, [1e-6 * n**1.5 for n in SIZES])
    assert trend is not None
    assert trend.exponent == pytest.approx(1.5)
    assert trend.predict(4_000_000) == pytest.approx(8_000)


def test_trend_of_shrinking_values_is_constant() -> None:
    trend = fit_trend(SIZES, [200.0, 190.0, 180.0])
    assert trend is not None
    assert trend.slope == 0
    assert 180 < trend.predict(30_000_000) < 200


def test_trend_of_one_value_is_proportional_and_of_none_is_missing() -> None:
    trend = fit_trend(SIZES, [0, None, 60.0])
    assert trend is not None
    assert trend.exponent is None
    assert trend.predict(30_000_000) == pytest.approx(1_800)
    assert fit_trend(SIZES, [None, 0, None]) is None
