import numba
import pytest
from numba import types

from eqkin.compiler import njit, progress

OPTIONS = {"cache": True, "nogil": True}
SIGNATURE = types.int64(types.int64)


def add_one(number):
    return number + 1


def test_function_that_cannot_be_cached_is_compiled():
    names = {}
    exec("def add_two(number): return number + 2", names)  # of no file, so there is no folder for its cache
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(SIGNATURE, **OPTIONS)(names["add_two"])
    assert njit(SIGNATURE, **OPTIONS)(names["add_two"])(1) == 3


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"], ids=["index", "code"])
def test_damaged_cache_is_not_used(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert njit(SIGNATURE, **OPTIONS)(add_one)(1) == 2
    (file,) = tmp_path.rglob(f"*{suffix}")
    file.write_bytes(file.read_bytes()[:100])
    assert njit(SIGNATURE, **OPTIONS)(add_one)(1) == 2


def test_errors_of_the_function_are_raised():
    with pytest.raises(numba.TypingError):
        njit(SIGNATURE, **OPTIONS)(lambda number: number.missing)


def test_compiling_for_long_is_announced_once(monkeypatch):
    messages = []
    monkeypatch.setattr(progress, "seconds", 0.0)
    monkeypatch.setattr(progress, "announce", messages.append)
    njit(SIGNATURE)(add_one)
    assert not messages
    monkeypatch.setattr(progress, "seconds", 100.0)
    for _ in range(2):
        njit(SIGNATURE)(add_one)
    assert len(messages) == 1 and "once" in messages[0]
