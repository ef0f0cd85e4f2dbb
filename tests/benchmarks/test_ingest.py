"""`python -m benchmarks ingest` on some papers of the atlas."""

from tests.benchmarks.running import run_benchmark


def test_ingest_compares_with_bare_converter() -> None:
    report = run_benchmark("ingest", "atlas:", "--limit", 3)
    assert report["facts"]["papers"] == 3
    rows = report["tables"]["Ingest"]
    assert [row["name"] for row in rows] == [
        "KaTeX alone",
        "eqkin, one process",
        "eqkin, 2 processes",
        "operator trees",
    ]
    assert all(row["converted_percent"] == 100 and row["equations_per_second"] > 0 for row in rows)
    assert rows[1]["processor_ms"] > 0
