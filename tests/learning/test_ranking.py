"""The interval of the held-out ranking score covers as often as it says; colourings are proper."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.learning.run import color_triples, score_ranking

_rows = st.integers(1, 30).flatmap(lambda n: st.lists(st.tuples(*[st.integers(-3, n)] * 3), min_size=1, max_size=60))


@given(_rows)
def test_colouring_is_greedy_and_proper(rows):
    expected = []
    for at, row in enumerate(rows):
        taken = {expected[other] for other in range(at) if set(row) & set(rows[other])}
        expected.append(next(colour for colour in range(at + 1) if colour not in taken))
    assert color_triples(np.array(rows)).tolist() == expected


def test_ties_and_nan_count_as_wrong():
    nan, inf = math.nan, math.inf
    positive = np.array([2, 1, 0, nan, 1, inf, nan, 5], np.float32)
    negative = np.array([1, 1, 1, 0, nan, 1, nan, -inf], np.float32)
    result = score_ranking(positive, negative, np.arange(24).reshape(8, 3))
    assert result.score == 3 / 8
    assert (result.triples, result.colours, result.papers) == (8, 1, 24)
    # One colour: Hoeffding's interval of independent triples, clipped to [0, 1].
    assert (result.low, result.high) == pytest.approx((0, 3 / 8 + math.sqrt(math.log(40) / 16)))
    with pytest.raises(BadInput):
        score_ranking(np.zeros(3), np.zeros(4), np.zeros((4, 3), np.int64))


def test_without_triples_there_is_no_score():
    result = score_ranking(np.empty(0), np.empty(0), np.empty((0, 3), np.int64))
    assert math.isnan(result.score) and (result.low, result.high) == (0.0, 1.0)
    assert "no score" in str(result)


def test_interval_covers_true_score_of_dependent_triples():
    """Papers are easy or hard as a whole: that is where an interval for independent triples fails."""
    generator = np.random.default_rng(20)
    rounds, n_papers, n_triples = 300, 60, 2_000
    naive_width = math.sqrt(math.log(40) / (2 * n_triples))
    covered = naively = 0
    for _ in range(rounds):
        # A triple is right when its papers are easy: the true score is 1/2.
        ease = generator.random(n_papers)
        papers = generator.integers(0, n_papers, (n_triples, 3))
        result = score_ranking(ease[papers[:, 0]], 1 - ease[papers[:, 2]], papers)
        covered += result.low <= 0.5 <= result.high
        naively += abs(result.score - 0.5) <= naive_width
    assert covered >= 0.95 * rounds > naively
