"""Held-out triples: the same score as learning reports, ties wrong, works drawn again, bits as text."""

# ruff: noqa: E402
from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.torch_network import SumNetwork
from eqkin.errors import BadInput
from eqkin.evaluation.sets.triples import SEED, HeldOutTriples, pack_bits, unpack_bits
from eqkin.evaluation.systems.embedding import embed_forest
from eqkin.statistics import compute_percentile_interval, draw_bootstrap_weights
from eqkin.training.config import (
    CONTEXT_KINDS,
    Recipe,
)
from eqkin.training.metrics import HeldOutEvaluator
from eqkin.training.sampling import TripletSampler
from eqkin.trees import Vocabulary
from tests.encoder.models import SMALL, random_model
from tests.training.corpora import corpus_of

CPU = torch.device("cpu")
CORPUS = corpus_of([[3, 2], [4], [1, 1], [6], [5, 2], [1]], ((0, 1), (3, 5)))
COUNT = 400


@pytest.fixture(scope="module")
def triples() -> HeldOutTriples:
    return HeldOutTriples(CORPUS, COUNT)


def spread(triples: HeldOutTriples, seed: int = 0):
    """Random vectors for the formulas."""
    return np.random.default_rng(seed).normal(size=(len(triples.formulas), 8)).astype(np.float32)


def test_a_networks_score_is_the_one_learning_reports(triples):
    model = random_model(vocabulary=Vocabulary.learn([CORPUS.forest]))
    network = SumNetwork.from_weights(SMALL, model.weights)
    reported = HeldOutEvaluator(CORPUS, model.vocabulary, Recipe(architecture=SMALL, seed=SEED), CPU).score(
        network, COUNT
    )
    right = triples.correct(embed_forest(model, triples.formulas.forest, "cpu"))
    score = triples.score_of(float(right.mean()))
    assert score.value == pytest.approx(reported.score, abs=2 / COUNT)  # sums are taken in another order
    assert score.low == pytest.approx(reported.interval.low, abs=2 / COUNT)
    assert score.high == pytest.approx(reported.interval.high, abs=2 / COUNT)
    assert (triples.colours, triples.count_of_papers, len(triples)) == (reported.colours, reported.papers, COUNT)


def test_the_right_ones_are_those_of_a_loop_over_what_the_sampler_draws(triples):
    vectors = np.zeros((len(CORPUS), 8), np.float32)
    vectors[triples.trees] = spread(triples)
    sampler = TripletSampler(CORPUS, kinds=CONTEXT_KINDS, seed=SEED, device=CPU)
    drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), COUNT).concatenate().view(3, COUNT).T.tolist()
    wanted = [vectors[anchor] @ vectors[partner] > vectors[anchor] @ vectors[other] for anchor, partner, other in drawn]
    assert np.array_equal(triples.correct(spread(triples)), wanted)
    assert np.array_equal(triples.papers, CORPUS.paper[np.array(drawn)])
    assert 0.2 < np.mean(wanted) < 0.8


def test_sparse_vectors_count_as_dense_ones(triples):
    sparse = pytest.importorskip("scipy.sparse", reason="baselines need scikit-learn: pip install 'eqkin[eval]'")
    vectors = np.round(spread(triples))
    assert np.array_equal(triples.correct(sparse.csr_matrix(vectors)), triples.correct(vectors))


def test_ties_and_what_is_no_number_are_wrong(triples):
    shape = (len(triples.formulas), 8)
    for value in (0, 1, np.nan):
        assert not triples.correct(np.full(shape, value, np.float32)).any()


def test_the_same_corpus_gives_the_same_triples_and_another_one_others(triples):
    again, other = HeldOutTriples(CORPUS, COUNT), HeldOutTriples(corpus_of([[3, 2], [4], [2]]), COUNT)
    assert np.array_equal(again.papers, triples.papers) and again.key == triples.key
    assert other.key != triples.key
    assert HeldOutTriples(CORPUS, COUNT + 1).key != triples.key


def test_there_have_to_be_some():
    for corpus, count in ((CORPUS, 0), (CORPUS.select([]), 10), (corpus_of([[1], [1]]), 10)):
        with pytest.raises(BadInput, match="papers"):
            HeldOutTriples(corpus, count)


# Works drawn again


def test_weights_of_one_give_the_mean(triples):
    values = np.random.default_rng(0).normal(size=COUNT)
    drawn = np.ones((2, triples.count_of_works))
    assert triples.resampled(values, drawn) == pytest.approx([values.mean()] * 2)


def test_a_triple_counts_as_often_as_its_works_were_drawn():
    corpus = replace(CORPUS, works=["a", "b", "a", "c", "c", "d"])
    triples, values = HeldOutTriples(corpus, COUNT), np.random.default_rng(1).normal(size=COUNT)
    of_paper = np.array(corpus.works)[triples.papers].tolist()
    assert {len(set(works)) for works in of_paper} == {1, 2, 3}  # within a work, across, and along a citation
    drawn = draw_bootstrap_weights(triples.work_count, 20, 1)
    for row, mean in zip(drawn, triples.resample(values, drawn), strict=True):
        times = dict(zip("abcd", row.astype(int).tolist(), strict=True))
        repeated = [
            value
            for value, works in zip(values, of_paper, strict=True)
            for _ in range(math.prod(times[work] for work in set(works)))
        ]
        assert mean == pytest.approx(np.mean(repeated))


def test_where_no_triple_was_drawn_there_is_no_mean(triples):
    drawn = np.zeros((2, triples.count_of_works))
    drawn[1] = 1
    values = np.ones(COUNT)
    found = triples.resampled(values, drawn)
    assert np.isnan(found[0]) and found[1] == 1
    assert compute_percentile_interval(found) == (1, 1)


def test_the_interval_of_a_difference_is_0_for_the_same_and_covers_it_for_equally_good_ones(triples):
    right = triples.correct(spread(triples)).astype(float)
    drawn = draw_bootstrap_weights(triples.count_of_works, 200, 0)
    assert compute_percentile_interval(triples.resampled(right - right, drawn)) == (0, 0)
    covered = 0
    for seed in range(40):
        one, other = (triples.correct(spread(triples, 2 * seed + part)).astype(float) for part in (0, 1))
        low, high = compute_percentile_interval(triples.resampled(one - other, drawn))
        covered += low <= 0 <= high
    assert covered >= 30
    low, high = compute_percentile_interval(triples.resampled(np.where(np.arange(COUNT) % 4, 0.0, 1.0), drawn))
    assert 0 < low < 0.25 < high


# Bits as text


@given(st.lists(st.booleans(), max_size=70))
def test_bits_come_back(bits):
    text = pack_bits(np.array(bits, bool))
    assert isinstance(text, str)
    assert unpack_bits(text, len(bits)).tolist() == bits
