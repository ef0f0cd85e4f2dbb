"""Statistics: intervals cover as often as they say, colourings are proper, paired tests are exact where possible."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.statistics import (
    Score,
    bootstrap_mean,
    color_triples,
    compute_incomplete_interval,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    count_colours,
    draw_bootstrap_weights,
    format_p,
    iter_bootstrap_weights,
    score_ranking,
)

_rows = st.integers(1, 30).flatmap(lambda n: st.lists(st.tuples(*[st.integers(-3, n)] * 3), max_size=60))


def _triples(rows: list[tuple[int, int, int]]) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, 3)


def _incidence(papers: np.ndarray) -> int:
    """Triples of the busiest paper."""
    return max((int((papers == paper).any(1).sum()) for paper in np.unique(papers)), default=0)


def _on_the_explicit_graph(papers: np.ndarray) -> list[int]:
    colours: list[int] = []
    for at, row in enumerate(papers.tolist()):
        taken = {colours[other] for other in range(at) if set(row) & set(papers[other].tolist())}
        colours.append(next(colour for colour in range(at + 1) if colour not in taken))
    return colours


@given(_rows)
def test_color_triples_equals_greedy_colouring_of_explicit_graph(rows: list[tuple[int, int, int]]) -> None:
    papers = _triples(rows)
    colours = color_triples(papers)
    assert colours.tolist() == _on_the_explicit_graph(papers)
    for a in range(len(rows)):
        for b in range(a):
            assert colours[a] != colours[b] or not set(rows[a]) & set(rows[b])


@given(_rows)
def test_count_colours_is_within_bounds(rows: list[tuple[int, int, int]]) -> None:
    papers = _triples(rows)
    busiest = _incidence(papers)
    assert count_colours(papers) == len(set(color_triples(papers).tolist()))
    assert busiest <= count_colours(papers) <= max(0, 3 * busiest - 2)


def test_count_colours_of_known_triples() -> None:
    assert count_colours(np.empty((0, 3), np.int64)) == 0
    assert count_colours(np.array([[5, 5, 5]])) == 1
    assert color_triples(np.array([[0, 1, 2], [3, 4, 5], [2, 3, 6], [7, 8, 9]])).tolist() == [0, 0, 1, 0]
    assert count_colours(np.array([[1, 2, 3]] * 7, np.uint16)) == 7
    assert count_colours(np.arange(3_000).reshape(-1, 3)) == 1
    assert count_colours(np.array([[2**62, -(2**62), 0]])) == 1


@pytest.mark.parametrize("papers", [50, 1_000, 20_000])
def test_count_colours_of_drawn_triples_is_near_degree_of_busiest_paper(papers: int) -> None:
    drawn = np.random.default_rng(papers).integers(0, papers, (100_000, 3))
    first = drawn[:, :1] == drawn
    counts = np.bincount(drawn[:, 0], minlength=papers)
    counts += np.bincount(drawn[~first[:, 1], 1], minlength=papers)
    counts += np.bincount(drawn[~first[:, 2] & (drawn[:, 1] != drawn[:, 2]), 2], minlength=papers)
    assert counts.max() <= count_colours(drawn) <= 1.1 * counts.max()


def test_u_statistic_intervals_have_closed_form() -> None:
    interval = compute_incomplete_interval(0.5, colours=10, triples=1_000, delta=2 / math.e**2)
    assert (interval.low, interval.high) == pytest.approx((0.4, 0.6))
    wide = compute_incomplete_interval(0.765, colours=194, triples=100_000)
    assert wide.high - wide.value == pytest.approx(math.sqrt(194 * math.log(40) / 200_000))
    # independent triples: Hoeffding's interval
    assert compute_incomplete_interval(0.5, 1, 800).high == pytest.approx(0.5 + math.sqrt(math.log(40) / 1_600))


def test_u_statistic_intervals_are_clipped_to_0_and_1() -> None:
    assert compute_incomplete_interval(0.99, 3, 10) == Score(
        0.99, pytest.approx(0.99 - math.sqrt(3 * math.log(40) / 20)), 1
    )
    assert compute_incomplete_interval(0.3, 0, 0) == Score(0.3, 0.0, 1.0)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_interval_rejects_delta_outside_0_and_1(delta: float) -> None:
    with pytest.raises(BadInput, match="delta"):
        compute_incomplete_interval(0.5, 1, 10, delta)


def test_score_ranking_and_intervals_reject_bad_input() -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        compute_incomplete_interval(76.5, 1, 10)
    with pytest.raises(BadInput, match="-1"):
        compute_incomplete_interval(0.5, 1, -1)
    with pytest.raises(BadInput, match=r"\(n, 3\)"):
        count_colours(np.zeros((4, 2), np.int64))
    with pytest.raises(BadInput, match="float64"):
        count_colours(np.zeros((4, 3)))
    with pytest.raises(BadInput, match="as many similarities"):
        score_ranking(np.zeros(3), np.zeros(4), np.zeros((4, 3), np.int64))


def test_score_ranking_counts_ties_and_nan_as_wrong() -> None:
    nan, inf = math.nan, math.inf
    positive = np.array([2, 1, 0, nan, 1, inf, nan, 5], np.float32)
    negative = np.array([1, 1, 1, 0, nan, 1, nan, -inf], np.float32)
    result = score_ranking(positive, negative, np.arange(24).reshape(8, 3))
    assert result.score == 3 / 8
    assert (result.triples, result.colours, result.papers) == (8, 1, 24)
    assert result.interval == compute_incomplete_interval(3 / 8, 1, 8)


def test_score_ranking_without_triples_is_nan() -> None:
    result = score_ranking(np.empty(0), np.empty(0), np.empty((0, 3), np.int64))
    assert math.isnan(result.score)
    assert (result.interval.low, result.interval.high) == (0.0, 1.0)
    assert (result.triples, result.colours, result.papers) == (0, 0, 0)
    assert str(result) == "no score [0.0, 100.0] on 0 triples from 0 papers"


def test_ranking_score_prints_triples_and_papers() -> None:
    papers = np.random.default_rng(0).integers(0, 900, (20_000, 3))
    result = score_ranking(np.arange(20_000.0), np.full(20_000, 4_699.5), papers)
    assert str(result).startswith("76.5 % [")
    assert str(result).endswith("] on 20,000 triples from 900 papers")


def test_ranking_interval_covers_true_score_of_dependent_triples() -> None:
    """Papers are easy or hard as a whole: that is where an interval for independent triples fails."""
    generator = np.random.default_rng(20)
    rounds, n_papers, n_triples, delta = 300, 60, 2_000, 0.05
    covered = naively = 0
    for _ in range(rounds):
        ease = generator.random(n_papers)  # a triple is right when its papers are easy: true score 1/2
        papers = generator.integers(0, n_papers, (n_triples, 3))
        result = score_ranking(ease[papers[:, 0]], 1 - ease[papers[:, 2]], papers)
        naive = compute_incomplete_interval(result.score, 1, n_triples, delta)
        covered += result.interval.low <= 0.5 <= result.interval.high
        naively += naive.low <= 0.5 <= naive.high
    assert covered >= (1 - delta) * rounds
    assert naively < (1 - delta) * rounds


def test_bootstrap_weights_count_draws_with_replacement():
    drawn = draw_bootstrap_weights(50, 400, seed=3)
    assert drawn.shape == (400, 50)
    assert (drawn.sum(axis=1) == 50).all()
    assert drawn.mean() == 1
    assert drawn.var() == pytest.approx(1 - 1 / 50, rel=0.05)  # of a binomial
    assert np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=3))
    assert not np.array_equal(drawn, draw_bootstrap_weights(50, 400, seed=4))


def test_bootstrap_weights_do_not_depend_on_block_size():
    blocks = list(iter_bootstrap_weights(7, 30, max_cells=20))
    assert len(blocks) == 15
    assert np.array_equal(np.concatenate(blocks), draw_bootstrap_weights(7, 30))


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


def test_bootstrap_interval_narrows_with_more_queries():
    generator = np.random.default_rng(2)
    few, many = bootstrap_mean(generator.random(25)), bootstrap_mean(generator.random(2_500))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(10, rel=0.4)


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


def test_sign_flip_p_of_random_signs_is_near_exact_p():
    generator = np.random.default_rng(4)
    one, other = generator.random(12) + 0.15, generator.random(12)
    exact = compute_sign_flip_p(one, other)
    assert 0.01 < exact < 0.9
    drawn = compute_sign_flip_p(one, other, max_exact=0)
    assert drawn == pytest.approx(exact, abs=0.015)
    assert drawn == compute_sign_flip_p(one, other, max_exact=0)
    assert drawn == pytest.approx(compute_sign_flip_p(other, one, max_exact=0))


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
        (lambda: draw_bootstrap_weights(0, 10), "must be positive"),
        (lambda: draw_bootstrap_weights(10, 0), "must be positive"),
        (lambda: compute_sign_flip_p([1, 2], [1]), "same queries"),
        (lambda: compute_percentile_interval([np.nan]), "too few"),
    ],
)
def test_bootstrap_rejects_bad_input(ask, message):
    with pytest.raises(BadInput, match=message):
        ask()
