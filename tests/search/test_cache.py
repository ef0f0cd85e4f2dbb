"""The cache of answers: one computation for all threads, until the collection changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from eqkin.errors import BadInput
from eqkin.search import cache as cache_module
from eqkin.search.cache import VersionedCache


def test_threads_that_ask_for_the_same_wait_for_the_first():
    cache, started, go, made = VersionedCache(4), threading.Event(), threading.Event(), []

    def make():
        started.set()
        assert go.wait(10)
        made.append(len(made))
        if not made[-1]:
            raise BadInput("the first attempt fails")
        return "value"

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(cache.get, 1, "a", make)
        assert started.wait(10)
        others = [pool.submit(cache.get, 1, "b", lambda: "other"), pool.submit(cache.get, 1, "a", make)]
        assert others[0].result(10) == "other" and not others[1].done()
        go.set()
        with pytest.raises(BadInput):
            first.result(10)
        assert others[1].result(10) == "value"
        go.clear()
        started.clear()
        again = [pool.submit(cache.get, 2, "a", make) for _ in range(3)]
        assert started.wait(10)
        go.set()
        assert [each.result(10) for each in again] == ["value"] * 3
    assert len(made) == 3


@pytest.fixture
def get():
    """A function that asks a cache of four results, and returns how many were made before or by this call."""
    cache, made = VersionedCache(4), []
    return lambda version, key, **options: cache.get(version, key, lambda: made.append(key) or len(made), **options)


def test_results_of_another_version_are_made_again(get):
    assert [get("a", 1), get("a", 1), get("b", 1), get("b", 1), get("a", 1)] == [1, 1, 2, 2, 3]


def test_oldest_results_are_dropped(get):
    assert [get("a", key) for key in range(5)] == [1, 2, 3, 4, 5]
    assert [get("a", 4), get("a", 1), get("a", 0)] == [5, 2, 6]


def test_slow_results_outlive_a_change_if_that_is_asked_for(get, monkeypatch):
    monkeypatch.setattr(cache_module, "_SLOW_SECONDS", -1.0)
    monkeypatch.setattr(cache_module, "_SLOW_LIFETIME_FACTOR", 1e9)
    assert [get("a", 1, keep_slow=True), get("b", 1, keep_slow=True)] == [1, 1]
    assert [get("a", 2), get("b", 2)] == [2, 3]
