"""`python -m benchmarks ingest` on some papers of the atlas."""

from tests.cli.running import run_benchmarks


def test_ingest_compares_with_bare_converter() -> None:
    figures = run_benchmarks("ingest", "atlas:", "--limit", "3", "--json").json
    assert figures["converted_percent"] == 100.0
    assert figures["bare_per_second"] > 0
    assert figures["one_to_bare"] > 0
    assert figures["many_to_one"] > 0
