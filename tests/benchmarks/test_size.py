"""`python -m benchmarks size` on a small library."""

from eqkin import Library
from tests.benchmarks.running import run, run_benchmark


def test_every_byte_is_counted_once(atlas_library):
    parts = {row["name"]: row["bytes"] for row in run_benchmark("size", "--library", atlas_library)["tables"]["parts"]}
    assert sum(parts.values()) == sum(path.stat().st_size for path in atlas_library.rglob("*") if path.is_file())
    assert parts["library.db"] > 0


def test_empty_library_is_refused(tmp_path):
    Library.open(tmp_path / "empty", create=True).close()
    assert "has no equations" in run("size", "--library", tmp_path / "empty").err
