"""Growth, fitted and projected."""

import pytest

from benchmarks.trends import fit_trend

SIZES = (10_000, 100_000, 1_000_000)


def test_a_constant_and_a_slope_are_found():
    trend = fit_trend(SIZES, [5 + 1e-3 * n for n in SIZES])
    assert trend is not None
    assert (trend.constant, trend.slope) == (pytest.approx(5), pytest.approx(1e-3))
    assert trend.predict(30_000_000) == pytest.approx(30_005)


def test_what_grows_faster_than_the_size_is_projected_by_its_exponent():
    trend = fit_trend(SIZES, [1e-6 * n**1.5 for n in SIZES])
    assert trend is not None
    assert trend.exponent == pytest.approx(1.5)
    assert trend.predict(4_000_000) == pytest.approx(8_000)


def test_what_does_not_grow_is_the_same_at_any_size():
    trend = fit_trend(SIZES, [200.0, 190.0, 180.0])
    assert trend is not None
    assert trend.slope == 0
    assert 180 < trend.predict(30_000_000) < 200


def test_one_value_is_taken_to_be_in_proportion_and_none_says_nothing():
    trend = fit_trend(SIZES, [0, None, 60.0])
    assert trend is not None
    assert trend.exponent is None
    assert trend.predict(30_000_000) == pytest.approx(1_800)
    assert fit_trend(SIZES, [None, 0, None]) is None
