"""Colourings are proper and as greedy as on the explicit graph; intervals have their closed form and cover."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.evaluation.u_statistics import (
    Interval,
    color_triples,
    compute_complete_interval,
    compute_incomplete_interval,
    count_colours,
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
def test_the_colouring_is_the_greedy_one_of_the_explicit_graph(rows: list[tuple[int, int, int]]) -> None:
    papers = _triples(rows)
    colours = color_triples(papers)
    assert colours.tolist() == _on_the_explicit_graph(papers)
    for a in range(len(rows)):
        for b in range(a):
            assert colours[a] != colours[b] or not set(rows[a]) & set(rows[b])


@given(_rows)
def test_the_number_of_colours_is_within_its_bounds(rows: list[tuple[int, int, int]]) -> None:
    papers = _triples(rows)
    busiest = _incidence(papers)
    assert count_colours(papers) == len(set(color_triples(papers).tolist()))
    assert busiest <= count_colours(papers) <= max(0, 3 * busiest - 2)


def test_known_colourings() -> None:
    assert count_colours(np.empty((0, 3), np.int64)) == 0
    assert count_colours(np.array([[5, 5, 5]])) == 1
    assert color_triples(np.array([[0, 1, 2], [3, 4, 5], [2, 3, 6], [7, 8, 9]])).tolist() == [0, 0, 1, 0]
    assert count_colours(np.array([[1, 2, 3]] * 7, np.uint16)) == 7
    assert count_colours(np.arange(3_000).reshape(-1, 3)) == 1
    assert count_colours(np.array([[2**62, -(2**62), 0]])) == 1


@pytest.mark.parametrize("papers", [50, 1_000, 20_000])
def test_drawn_triples_need_hardly_more_colours_than_the_busiest_paper_has_triples(papers: int) -> None:
    drawn = np.random.default_rng(papers).integers(0, papers, (100_000, 3))
    first = drawn[:, :1] == drawn
    counts = np.bincount(drawn[:, 0], minlength=papers)
    counts += np.bincount(drawn[~first[:, 1], 1], minlength=papers)
    counts += np.bincount(drawn[~first[:, 2] & (drawn[:, 1] != drawn[:, 2]), 2], minlength=papers)
    assert counts.max() <= count_colours(drawn) <= 1.1 * counts.max()


def test_intervals_have_their_closed_form() -> None:
    interval = compute_incomplete_interval(0.5, colours=10, triples=1_000, delta=2 / math.e**2)
    assert (interval.low, interval.high) == pytest.approx((0.4, 0.6))
    interval = compute_complete_interval(0.5, papers=3_600, delta=2 / math.e**2)
    assert (interval.low, interval.high) == pytest.approx((0.45, 0.55))
    wide = compute_incomplete_interval(0.765, colours=194, triples=100_000)
    assert wide.high - wide.score == pytest.approx(math.sqrt(194 * math.log(40) / 200_000))
    # independent triples: Hoeffding's interval
    assert compute_incomplete_interval(0.5, 1, 800).high == pytest.approx(0.5 + math.sqrt(math.log(40) / 1_600))


def test_intervals_stay_within_0_and_1() -> None:
    assert compute_incomplete_interval(0.99, 3, 10) == Interval(
        0.99, pytest.approx(0.99 - math.sqrt(3 * math.log(40) / 20)), 1
    )
    assert compute_complete_interval(0.2, 1) == Interval(0.2, 0.0, 1.0)
    assert compute_incomplete_interval(0.3, 0, 0) == Interval(0.3, 0.0, 1.0)


def test_an_interval_reads_as_percentages() -> None:
    assert str(Interval(0.891, 0.84, 0.942)) == "89.1 % [84.0, 94.2]"
    assert str(Interval(math.nan, 0.0, 1.0)) == "no score [0.0, 100.0]"


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta: float) -> None:
    with pytest.raises(BadInput, match="delta"):
        compute_complete_interval(0.5, 10, delta)


def test_what_cannot_be_a_score_is_refused() -> None:
    with pytest.raises(BadInput, match="from 0 to 1"):
        compute_complete_interval(76.5, 10)
    with pytest.raises(BadInput, match="-1"):
        compute_complete_interval(0.5, -1)
    with pytest.raises(BadInput, match=r"\(n, 3\)"):
        count_colours(np.zeros((4, 2), np.int64))
    with pytest.raises(BadInput, match="float64"):
        count_colours(np.zeros((4, 3)))
    with pytest.raises(BadInput, match="as many similarities"):
        score_ranking(np.zeros(3), np.zeros(4), np.zeros((4, 3), np.int64))


def test_ties_and_nan_count_as_wrong() -> None:
    nan, inf = math.nan, math.inf
    positive = np.array([2, 1, 0, nan, 1, inf, nan, 5], np.float32)
    negative = np.array([1, 1, 1, 0, nan, 1, nan, -inf], np.float32)
    result = score_ranking(positive, negative, np.arange(24).reshape(8, 3))
    assert result.score == 3 / 8
    assert (result.triples, result.colours, result.papers) == (8, 1, 24)
    assert result.interval == compute_incomplete_interval(3 / 8, 1, 8)


def test_no_triples_give_a_defined_result() -> None:
    result = score_ranking(np.empty(0), np.empty(0), np.empty((0, 3), np.int64))
    assert math.isnan(result.score)
    assert (result.interval.low, result.interval.high) == (0.0, 1.0)
    assert (result.triples, result.colours, result.papers) == (0, 0, 0)
    assert str(result) == "no score [0.0, 100.0] on 0 triples from 0 papers"


def test_a_ranking_score_says_what_it_rests_on() -> None:
    papers = np.random.default_rng(0).integers(0, 900, (20_000, 3))
    result = score_ranking(np.arange(20_000.0), np.full(20_000, 4_699.5), papers)
    assert str(result).startswith("76.5 % [")
    assert str(result).endswith("] on 20,000 triples from 900 papers")


def test_the_interval_covers_the_true_score_although_triples_depend_on_each_other() -> None:
    """Papers are easy or hard as a whole: that is where an interval for independent triples fails."""
    generator = np.random.default_rng(20)
    rounds, n_papers, n_triples, delta = 300, 60, 2_000, 0.05
    covered = naively = 0
    for _ in range(rounds):
        ease = generator.random(n_papers)  # a triple is right when its papers are easy: true score 1/2
        papers = generator.integers(0, n_papers, (n_triples, 3))
        result = score_ranking(ease[papers[:, 0]], 1 - ease[papers[:, 2]], papers, delta)
        naive = compute_incomplete_interval(result.score, 1, n_triples, delta)
        covered += result.interval.low <= 0.5 <= result.interval.high
        naively += naive.low <= 0.5 <= naive.high
    assert covered >= (1 - delta) * rounds
    assert naively < (1 - delta) * rounds
