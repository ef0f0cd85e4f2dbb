"""Intervals cover as often as they say, the paired test is exact where it can be, and all of it is repeatable."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.evaluation.bootstrap import (
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    draw_bootstrap_weights,
    format_p,
)
from eqkin.evaluation.results import Score


def test_weights_count_draws_with_replacement():
    drawn = draw_bootstrap_weights(50, 400, seed=3)
    assert drawn.shape == (400, 50)
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.mean() == 1
    assert drawn.var() == pytest.approx(1 - 1 / 50, rel=0.05)  # of a binomial
    assert np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=3))
    assert not np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=4))


def test_weights_do_not_depend_on_how_many_are_made_at_once(monkeypatch):
    whole = draw_bootstrap_weights(7, 30)
    monkeypatch.setattr("eqkin.evaluation.bootstrap._MAX_CELLS", 20)
    assert np.array_equal(draw_bootstrap_weights(7, 30), whole)


def test_an_interval_is_that_of_drawing_again():
    values = np.random.default_rng(1).random(20)
    found = bootstrap_mean(values, resamples=500, seed=5)
    means = draw_bootstrap_weights(20, 500, seed=5).astype(float) @ values / 20
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_intervals_cover_the_true_mean_about_as_often_as_they_say():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        found = bootstrap_mean(generator.beta(2, 3, size=40), resamples=400, seed=seed)
        covered += found.low <= 0.4 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_intervals_narrow_with_more_queries_and_less_confidence():
    generator = np.random.default_rng(2)
    few, many = bootstrap_mean(generator.random(25)), bootstrap_mean(generator.random(2_500))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=0.4)
    values = generator.random(25)
    half, nearly_all = bootstrap_mean(values, confidence=0.5), bootstrap_mean(values, confidence=0.99)
    assert nearly_all.low < half.low < half.value < half.high < nearly_all.high


def test_queries_of_one_cluster_are_drawn_together():
    values, clusters = np.random.default_rng(3).random(30), np.arange(30)
    alone = bootstrap_mean(values)
    copied = bootstrap_mean(np.repeat(values, 8), np.repeat(clusters, 8))
    assert (copied.value, copied.low, copied.high) == pytest.approx((alone.value, alone.low, alone.high))
    naive = bootstrap_mean(np.repeat(values, 8))
    assert naive.high - naive.low < (alone.high - alone.low) / 2


def test_clusters_count_by_their_queries():
    assert bootstrap_mean([1.0, 1.0, 1.0, 0.0], np.array([5, 5, 5, 9])).value == 0.75


def test_one_query_or_cluster_gives_no_interval():
    assert bootstrap_mean([0.3]) == Score(0.3)
    assert bootstrap_mean([0.0, 1.0], np.array([4, 4])) == Score(0.5)


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])] * 2), min_size=1, max_size=7))
def test_the_paired_test_tries_every_sign_of_few_differences(pairs):
    one, other = np.array(pairs).T
    differences = one - other
    measured = abs(differences.sum())
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(pairs))]
    assert compute_sign_flip_p(one, other) == pytest.approx(np.mean([total >= measured - 1e-9 for total in sums]))


def test_random_signs_come_close_to_all_signs(monkeypatch):
    generator = np.random.default_rng(4)
    one, other = generator.random(12) + 0.15, generator.random(12)
    exact = compute_sign_flip_p(one, other)
    monkeypatch.setattr("eqkin.evaluation.bootstrap._MAX_EXACT_DIFFERENCES", 0)
    assert 0.01 < exact < 0.9
    assert compute_sign_flip_p(one, other) == pytest.approx(exact, abs=0.015)
    assert (
        compute_sign_flip_p(one, other)
        == compute_sign_flip_p(one, other)
        == pytest.approx(compute_sign_flip_p(other, one))
    )


def test_equal_systems_seldom_differ_and_unequal_ones_do():
    generator = np.random.default_rng(5)
    small = [compute_sign_flip_p(*generator.random((2, 30)), flips=300, seed=seed) < 0.05 for seed in range(300)]
    assert np.mean(small) < 0.09
    better = generator.random(30)
    assert compute_sign_flip_p(better + 0.2, better) == pytest.approx(1 / 10_001)
    assert compute_sign_flip_p(better, better) == 1


def test_differences_within_resamples_have_a_p_value():
    assert compute_two_sided_p(np.arange(1, 1_000)) == pytest.approx(0.002)
    assert compute_two_sided_p([-1, 1, -2, 2]) == 1
    assert compute_two_sided_p([0, 0, 0, np.nan]) == 1
    assert compute_two_sided_p([1] * 97 + [-1] * 2) == pytest.approx(0.06)


def test_p_values_are_shown_short():
    assert [format_p(p) for p in (0.0002, 0.0123, 1.0)] == ["< .001", ".012", "1.000"]


def test_resamples_without_a_score_do_not_count():
    assert compute_percentile_interval([np.nan, 2, 2]) == (2, 2)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bootstrap_mean([]), "no queries"),
        (lambda: bootstrap_mean([0.1, np.nan]), "query 1 is no number"),
        (lambda: bootstrap_mean([0.1, 0.2], np.array([1])), "as many clusters"),
        (lambda: bootstrap_mean([0.1, 0.2], confidence=95), "between 0 and 1"),
        (lambda: draw_bootstrap_weights(0, 10), "some of both"),
        (lambda: draw_bootstrap_weights(10, 0), "some of both"),
        (lambda: compute_sign_flip_p([1, 2], [1]), "same queries"),
        (lambda: compute_percentile_interval([np.nan]), "too few"),
    ],
)
def test_what_cannot_be_resampled_is_said(ask, message):
    with pytest.raises(BadInput, match=message):
        ask()
