"""Intervals cover as often as they say; paired tests are exact where possible."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.evaluation.measures import (
    Score,
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    draw_bootstrap_weights,
    format_p,
)


def test_bootstrap_weights_count_draws_with_replacement():
    drawn = draw_bootstrap_weights(50, 400, seed=3)
    assert drawn.shape == (400, 50)
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.mean() == 1
    assert drawn.var() == pytest.approx(1 - 1 / 50, rel=0.05)  # of a binomial
    assert np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=3))
    assert not np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=4))


def test_bootstrap_mean_equals_explicit_resampling():
    values = np.random.default_rng(1).random(20)
    found = bootstrap_mean(values, resamples=500, seed=5)
    means = draw_bootstrap_weights(20, 500, seed=5).astype(float) @ values / 20
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_bootstrap_interval_covers_true_mean():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        found = bootstrap_mean(generator.beta(2, 3, size=40), resamples=400, seed=seed)
        covered += found.low <= 0.4 <= found.high
    assert 0.90 <= covered / 300 <= 0.98


def test_bootstrap_draws_queries_of_a_cluster_together():
    values, clusters = np.random.default_rng(3).random(30), np.arange(30)
    alone = bootstrap_mean(values)
    copied = bootstrap_mean(np.repeat(values, 8), np.repeat(clusters, 8))
    assert (copied.value, copied.low, copied.high) == pytest.approx((alone.value, alone.low, alone.high))
    naive = bootstrap_mean(np.repeat(values, 8))
    assert naive.high - naive.low < (alone.high - alone.low) / 2


def test_bootstrap_weights_clusters_by_their_queries():
    assert bootstrap_mean([1.0, 1.0, 1.0, 0.0], np.array([5, 5, 5, 9])).value == 0.75


def test_bootstrap_of_one_query_or_cluster_has_no_interval():
    assert bootstrap_mean([0.3]) == Score(0.3)
    assert bootstrap_mean([0.0, 1.0], np.array([4, 4])) == Score(0.5)


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])] * 2), min_size=1, max_size=7))
def test_sign_flip_p_tries_all_signs_of_few_differences(pairs):
    one, other = np.array(pairs).T
    differences = one - other
    measured = abs(differences.sum())
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(pairs))]
    assert compute_sign_flip_p(one, other) == pytest.approx(np.mean([total >= measured - 1e-9 for total in sums]))


def test_sign_flip_p_separates_unequal_systems_only():
    generator = np.random.default_rng(5)
    small = [compute_sign_flip_p(*generator.random((2, 30)), flips=300, seed=seed) < 0.05 for seed in range(300)]
    assert np.mean(small) < 0.09
    better = generator.random(30)
    assert compute_sign_flip_p(better + 0.2, better) == pytest.approx(1 / 10_001)
    assert compute_sign_flip_p(better, better) == 1


def test_two_sided_p_counts_rarer_sign():
    assert compute_two_sided_p(np.arange(1, 1_000)) == pytest.approx(0.002)
    assert compute_two_sided_p([-1, 1, -2, 2]) == 1
    assert compute_two_sided_p([0, 0, 0, np.nan]) == 1
    assert compute_two_sided_p([1] * 97 + [-1] * 2) == pytest.approx(0.06)


def test_format_p_is_short():
    assert [format_p(p) for p in (0.0002, 0.0123, 1.0)] == ["< .001", ".012", "1.000"]


def test_percentile_interval_ignores_nan():
    assert compute_percentile_interval([np.nan, 2, 2]) == (2, 2)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: bootstrap_mean([]), "no queries"),
        (lambda: bootstrap_mean([0.1, np.nan]), "query 1 is not finite"),
        (lambda: bootstrap_mean([0.1, 0.2], np.array([1])), "as many clusters"),
        (lambda: compute_sign_flip_p([1, 2], [1]), "same queries"),
        (lambda: compute_percentile_interval([np.nan]), "too few"),
    ],
)
def test_bootstrap_rejects_bad_input(ask, message):
    with pytest.raises(BadInput, match=message):
        ask()


def test_scores_print_with_their_intervals():
    assert str(Score(0.5073, 0.4881, 0.525)) == ".507 [.488, .525]"
    assert str(Score(-0.0114)) == "-.011" and str(Score(1.0)) == "1.000"
