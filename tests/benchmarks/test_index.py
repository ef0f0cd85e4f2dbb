"""`python -m benchmarks index` on a small library."""

from pathlib import Path

from eqkin import Library
from tests.benchmarks.running import run, run_benchmark


def test_index_compares_systems_on_the_same_vectors(tmp_path: Path) -> None:
    with Library.open(tmp_path / "atlas", create=True) as library:
        library.add("atlas:")
    report = run_benchmark("index", "--library", tmp_path / "atlas", "--vectors", 3000, "--queries", 20)
    facts, rows = report["facts"], report["tables"]["Nearest neighbours"]
    assert (facts["vectors"], facts["embeddings"], facts["queries"]) == (3_000, 1_611, 20)
    exact, ours = rows[:2]
    assert exact["recall_10"] == 1
    assert ours["recall_10"] >= 0.9
    assert ours["bytes_per_vector"] < 160
    assert len(rows) == 4 or "annoy is not installed" in facts["note"]


def test_index_rejects_library_with_too_few_equations(tmp_path: Path) -> None:
    Library.open(tmp_path / "empty", create=True).close()
    ended = run("index", "--library", tmp_path / "empty")
    assert (ended.code, "too few" in ended.err) == (3, True)
