"""`python -m benchmarks size` on a small library."""

from pathlib import Path

from eqkin import Library
from tests.benchmarks.running import run, run_benchmark


def test_size_counts_every_byte_once(atlas_library: Path) -> None:
    report = run_benchmark("size", "--library", atlas_library)
    parts = {row["name"]: row["bytes"] for row in report["tables"]["parts"]}
    assert {"library", "vectors", "terms", "operator trees", "words"} <= parts.keys()
    arrays = {row["name"]: row["bytes"] for row in report["tables"]["arrays"]}
    trees = sum(size for name, size in arrays.items() if name.startswith("terms: operators."))
    assert parts["operator trees"] == trees
    tables = {row["name"]: row["bytes"] for row in report["tables"].get("tables", ())}  # empty where SQLite cannot tell
    assert not tables or 0 < tables["library: sections"] < parts["library"]
    files = sum(path.stat().st_size for path in atlas_library.rglob("*") if path.is_file())
    assert 0 <= files - sum(parts.values()) < 20_000  # headers of files of arrays


def test_size_rejects_empty_library(tmp_path: Path) -> None:
    Library.open(tmp_path / "empty", create=True).close()
    assert "has no equations" in run("size", "--library", tmp_path / "empty").err
