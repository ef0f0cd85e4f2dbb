"""The result cache: nothing is fitted or measured twice, interrupted fits continue, damaged files are replaced."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import LibraryBusy, StorageFailed
from eqkin.evaluation.context import ResultCache, compute_digest

KEY = {"system": "x", "settings": {"rate": 0.1, "sizes": [1, 2]}, "corpus": "abc"}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    return ResultCache(tmp_path / "cache")


class Once:
    """Counts how often it is asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def __call__(self, *given):
        self.asked += 1
        return self.answer


# What is learned


def test_cache_fits_once_per_key(cache):
    fits = []

    def fit(folder: Path) -> None:
        fits.append(folder)
        (folder / "weights").write_text("learned")

    folder = cache.get_or_fit("x", KEY, fit)
    assert cache.get_or_fit("x", KEY, fit) == folder
    assert (folder / "weights").read_text() == "learned"
    assert cache.get_or_fit("x", KEY | {"corpus": "def"}, fit) != folder
    assert cache.get_or_fit("y", KEY, fit) != folder
    assert len(fits) == 3
    assert sorted(path.name for path in (cache.folder / "fitted").iterdir()) == sorted(
        [f"x-{compute_digest(KEY)}", f"x-{compute_digest(KEY | {'corpus': 'def'})}", f"y-{compute_digest(KEY)}"]
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_cache_continues_interrupted_fit(cache, error):
    def stopped(folder: Path) -> None:
        (folder / "checkpoint").write_text("half")
        raise error

    def resumed(folder: Path) -> None:
        (folder / "weights").write_text((folder / "checkpoint").read_text() + " and half")
        (folder / "checkpoint").unlink()

    with pytest.raises(error):
        cache.get_or_fit("x", KEY, stopped)
    assert [path.name for path in (cache.folder / "fitted").iterdir()] == [f"x-{compute_digest(KEY)}.part"]
    folder = cache.get_or_fit("x", KEY, resumed)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"weights": "half and half"}
    assert list((cache.folder / "fitted").iterdir()) == [folder]


def _fit_slowly(folder: str, begun, go_on) -> None:
    def fit(part: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        (part / "weights").write_text(str(os.getpid()))

    ResultCache(Path(folder)).get_or_fit("x", KEY, fit)


def test_cache_rejects_two_processes_fitting_the_same(cache):
    context = multiprocessing.get_context("spawn")
    begun, go_on = context.Event(), context.Event()
    other = context.Process(target=_fit_slowly, args=(str(cache.folder), begun, go_on))
    other.start()
    try:
        assert begun.wait(60)
        never = Once(None)
        with pytest.raises(LibraryBusy, match=f"process {other.pid}"):
            cache.get_or_fit("x", KEY, never)
        cache.get_or_fit("x", "another key", lambda folder: None)
    finally:
        go_on.set()
        other.join(60)
    assert (cache.get_or_fit("x", KEY, never) / "weights").read_text() == str(other.pid)
    assert never.asked == 0


# What is measured


def test_cache_measures_once_per_key_and_experiment(cache):
    measure = Once({"score": 0.5})
    for _ in range(2):
        assert cache.get_or_measure("study", KEY, measure) == {"score": 0.5}
    assert measure.asked == 1
    cache.get_or_measure("study", KEY | {"corpus": "def"}, measure)
    cache.get_or_measure("judged", KEY, measure)
    assert measure.asked == 3


def test_cache_key_does_not_depend_on_order_of_fields(cache):
    measure = Once({"score": 1})
    cache.get_or_measure("study", KEY, measure)
    cache.get_or_measure("study", dict(reversed(KEY.items())), measure)
    assert measure.asked == 1


def test_measured_value_equals_cached_value(cache):
    odd = Once({"nan": np.nan, "pair": (1, 2), "array": np.array([0.1, np.inf], np.float32), "text": "é"})
    first = cache.get_or_measure("study", KEY, odd)
    assert (
        first
        == cache.get_or_measure("study", KEY, odd)
        == {"nan": None, "pair": [1, 2], "array": [0.1, None], "text": "é"}
    )
    assert odd.asked == 1


@given(key=JSON, found=st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_cache_keeps_any_json(tmp_path_factory, key, found):
    cache, measure = ResultCache(tmp_path_factory.mktemp("any")), Once(found)
    assert cache.get_or_measure("study", key, measure) == cache.get_or_measure("study", key, measure) == found
    assert measure.asked == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"[]",
        lambda text: b"null",
        lambda text: b'{"measured": {"score": 2}}',
        lambda text: b'{"key": {}, "measured": {"score": 2}}',
        lambda text: text.replace(b'{\n    "score": 0.5\n  }', b"[0.5]"),
        lambda text: text.replace(b'"abc"', b'"def"'),
        lambda text: b"\xff" + text,
    ],
)
def test_cache_replaces_damaged_measurement(cache, damage):
    measure = Once({"score": 0.5})
    cache.get_or_measure("study", KEY, measure)
    (path,) = (cache.folder / "rows" / "study").iterdir()
    whole = path.read_bytes()
    assert damage(whole) != whole
    path.write_bytes(damage(whole))
    assert cache.get_or_measure("study", KEY, measure) == {"score": 0.5}
    assert measure.asked == 2
    assert path.read_bytes() == whole


def test_failed_measurement_leaves_no_file(cache):
    def fail():
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        cache.get_or_measure("study", KEY, fail)
    assert not cache.folder.exists()


# The disk


def test_cache_reports_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    cache = ResultCache(tmp_path / "file")
    with pytest.raises(StorageFailed, match="cannot be created"):
        cache.get_or_fit("x", KEY, lambda folder: None)
    with pytest.raises(StorageFailed):
        cache.get_or_measure("study", KEY, dict)


@given(first=JSON, second=JSON)
def test_digest_differs_for_different_keys(first, second):
    assert len(compute_digest(first)) == 16
    if compute_digest(first) == compute_digest(second):
        assert first == second
