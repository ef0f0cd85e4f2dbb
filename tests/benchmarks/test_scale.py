"""`python -m benchmarks scale` at tiny sizes, every step a real command."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.scale_table import BEGIN, END
from eqkin.sources import open_source
from tests.cli.running import run_benchmarks as eqkin

STEPS = ["grow", "add", "index", "serve", "verify", "again", "day"]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which 300 equations were measured."""
    folder = tmp_path_factory.mktemp("scale")
    ended = eqkin("scale", "-f", folder, "--size", 300, "--searches", 3, "-j", 1)
    assert ended.code == 0, ended.err
    assert "| Search, median |" in ended.out
    return folder


def test_every_step_is_measured(folder: Path) -> None:
    found = {one["step"]: one["figures"] for one in lines(folder)}
    assert list(found) == STEPS
    assert 300 <= found["grow"]["equations"] == found["add"]["equations"] <= 700
    assert found["index"]["vectors"] == found["add"]["converted"]
    assert found["index"]["steps"].keys() >= {"embedding", "structure", "words"}
    assert all(found["index"]["disk"][part] > 0 for part in ("database", "forest", "vectors", "structure", "words"))
    assert (found["serve"]["searches"], found["serve"]["errors"]) == (3, 0)
    assert 0 < found["serve"]["whole_p50_ms"] <= found["serve"]["whole_p99_ms"]
    assert found["again"]["papers"] == found["add"]["papers"]
    assert found["day"]["papers"] == 28
    if Path("/proc/self/smaps_rollup").exists():
        assert all(found[step]["own_bytes"] > 1e7 for step in ("add", "index", "verify"))
        assert found["serve"]["held"]["rss"] > found["serve"]["held"]["own"] > 1e7


def test_a_size_more_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    before = lines(folder)
    document = tmp_path / "SCALE.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    arguments = ("scale", "-f", folder, "--size", 300, "--size", 900, "--step", "grow", "--step", "add")
    ended = eqkin(*arguments, "--step", "index", "-j", 1, "--into", document, "--figures", tmp_path)
    assert ended.code == 0, ended.err
    after = lines(folder)
    assert after[: len(before)] == before
    assert [(one["size"], one["step"]) for one in after[len(before) :]] == [(900, s) for s in ("grow", "add", "index")]
    text = document.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert ended.out.strip() in text
    assert "n^" in text
    assert (tmp_path / "scale.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_a_step_that_does_not_exist_and_a_document_without_marks_are_refused(tmp_path: Path) -> None:
    ended = eqkin("scale", "-f", tmp_path, "--step", "fly")
    assert (ended.code, "there are grow, add" in ended.err) == (3, True)
    (tmp_path / "plain.md").write_text("no marks", "utf-8")
    ended = eqkin("scale", "-f", tmp_path, "--into", tmp_path / "plain.md")
    assert (ended.code, BEGIN in ended.err) == (3, True)


def test_a_corpus_is_grown(tmp_path: Path) -> None:
    told = eqkin("grow", "-n", 200, "-o", tmp_path, "--json").json
    assert told["equations"] >= 200
    assert len(list(open_source(str(tmp_path)))) == told["papers"]
