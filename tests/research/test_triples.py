"""Held-out triples: the same score as in training, ties wrong, bootstrap over works, bits as text."""

# ruff: noqa: E402

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="learning needs torch: pip install 'eqkin[train]'")

from eqkin.evaluation.systems.networks import embed_forest
from eqkin.statistics import compute_percentile_interval, draw_bootstrap_weights

from eqkin.errors import BadInput
from eqkin.formulas import Vocabulary
from eqkin.learning.config import (
    CONTEXT_KINDS,
    Recipe,
)
from eqkin.learning.run import HeldOutEvaluator
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.torch_network import SumNetwork
from research.triples import (
    TRIPLE_SEED,
    FieldSampler,
    FixedSampler,
    HeldOutTriples,
    find_shared_identifiers,
    pack_bits,
    unpack_bits,
)
from tests.encoder.models import SMALL, random_model
from tests.learning.corpora import corpus_of

CPU = torch.device("cpu")
CORPUS = corpus_of([[3, 2], [4], [1, 1], [6], [5, 2], [1]], ((0, 1), (3, 5)))
COUNT = 400


@pytest.fixture(scope="module")
def triples() -> HeldOutTriples:
    return HeldOutTriples(CORPUS, COUNT)


def spread(triples: HeldOutTriples, seed: int = 0):
    """Random vectors for all trees."""
    return np.random.default_rng(seed).normal(size=(len(CORPUS), 8)).astype(np.float32)


def test_triple_score_equals_that_of_training(triples):
    model = random_model(vocabulary=Vocabulary.learn([CORPUS.forest]))
    network = SumNetwork.from_weights(SMALL, model.weights)
    reported = HeldOutEvaluator(CORPUS, model.vocabulary, Recipe(architecture=SMALL, seed=TRIPLE_SEED), CPU).score(
        network, COUNT
    )
    right = triples.find_correct(embed_forest(model, CORPUS.forest, "cpu"))
    score, colours = triples.compute_bound(float(right.mean()), by_work=False)
    assert score.value == pytest.approx(reported.score, abs=2 / COUNT)  # sums are taken in another order
    assert score.low == pytest.approx(reported.interval.low, abs=2 / COUNT)
    assert score.high == pytest.approx(reported.interval.high, abs=2 / COUNT)
    assert (colours, triples.paper_count, len(triples)) == (reported.colours, reported.papers, COUNT)


def test_find_correct_equals_explicit_loop_over_drawn_triples(triples):
    vectors = spread(triples)
    sampler = TripletSampler(CORPUS, kinds=CONTEXT_KINDS, seed=TRIPLE_SEED, device=CPU)
    drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), COUNT).concatenate().view(3, COUNT).T.tolist()
    wanted = [vectors[anchor] @ vectors[partner] > vectors[anchor] @ vectors[other] for anchor, partner, other in drawn]
    assert np.array_equal(triples.find_correct(spread(triples)), wanted)
    assert np.array_equal(triples.papers, CORPUS.paper[np.array(drawn)])
    assert 0.2 < np.mean(wanted) < 0.8


def test_find_correct_counts_ties_and_nan_as_wrong(triples):
    shape = (len(CORPUS), 8)
    for value in (0, 1, np.nan):
        assert not triples.find_correct(np.full(shape, value, np.float32)).any()


def test_triples_depend_on_the_corpus_only(triples):
    again, other = HeldOutTriples(CORPUS, COUNT), HeldOutTriples(corpus_of([[3, 2], [4], [2]]), COUNT)
    assert np.array_equal(again.papers, triples.papers) and again.key == triples.key
    assert other.key != triples.key
    assert HeldOutTriples(CORPUS, COUNT + 1).key != triples.key


def test_triples_reject_empty_draws():
    for corpus, count in ((CORPUS, 0), (CORPUS.select([]), 10), (corpus_of([[1], [1]]), 10)):
        with pytest.raises(BadInput, match="papers"):
            HeldOutTriples(corpus, count)


# Works drawn again


def test_resample_with_unit_weights_gives_the_mean(triples):
    values = np.random.default_rng(0).normal(size=COUNT)
    drawn = np.ones((2, triples.work_count))
    assert triples.resample(values, drawn) == pytest.approx([values.mean()] * 2)


def test_resample_counts_a_triple_as_often_as_its_works():
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


def test_resample_without_triples_is_nan(triples):
    drawn = np.zeros((2, triples.work_count))
    drawn[1] = 1
    values = np.ones(COUNT)
    found = triples.resample(values, drawn)
    assert np.isnan(found[0]) and found[1] == 1
    assert compute_percentile_interval(found) == (1, 1)


def test_difference_interval_covers_equally_good_vectors(triples):
    right = triples.find_correct(spread(triples)).astype(float)
    drawn = draw_bootstrap_weights(triples.work_count, 200, 0)
    assert compute_percentile_interval(triples.resample(right - right, drawn)) == (0, 0)
    covered = 0
    for seed in range(40):
        one, other = (triples.find_correct(spread(triples, 2 * seed + part)).astype(float) for part in (0, 1))
        low, high = compute_percentile_interval(triples.resample(one - other, drawn))
        covered += low <= 0 <= high
    assert covered >= 30
    low, high = compute_percentile_interval(triples.resample(np.where(np.arange(COUNT) % 4, 0.0, 1.0), drawn))
    assert 0 < low < 0.25 < high


def test_score_of_chosen_triples_is_their_mean(triples):
    values, chosen = np.random.default_rng(0).normal(size=COUNT), np.arange(COUNT) % 3 == 0
    score = triples.compute_score(values, 50, chosen)
    assert score.value == pytest.approx(values[chosen].mean())
    assert score.low <= score.value <= score.high


def test_colouring_works_needs_more_colours_than_papers():
    triples = HeldOutTriples(replace(CORPUS, works=["a", "a", "a", "b", "b", "b"]), COUNT)
    assert triples.compute_bound(0.5)[1] > triples.compute_bound(0.5, by_work=False)[1]


def test_histogram_kernel_equals_the_double_sum(triples):
    vectors = spread(triples) / 4
    nodes = np.linspace(-1, 1, 64)

    def masses(similarity: float) -> np.ndarray:
        return np.maximum(0, 1 - np.abs(np.clip(similarity, -1, 1) - nodes) / (nodes[1] - nodes[0]))

    found = triples.compute_histogram_kernel(vectors)
    for value, positive, negative in zip(found[:20], *triples.compute_similarities(vectors), strict=False):
        assert value == pytest.approx(masses(negative) @ np.cumsum(masses(positive)), abs=1e-4)


def test_triples_of_some_papers_stay_within_them():
    papers = np.array([True, False, True, True, False, False])
    triples = HeldOutTriples(CORPUS, COUNT, papers=papers)
    assert papers[triples.papers].all()


def test_field_sampler_draws_negatives_of_the_anchors_field():
    fields = np.array([0, 1, 0, 1, 1, 0])
    sampler = FieldSampler(CORPUS, fields, kinds=CONTEXT_KINDS, seed=0, device=CPU)
    drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), COUNT)
    anchor, negative = (fields[CORPUS.paper[trees[0].numpy()]] for trees in (drawn.anchor, drawn.negative))
    assert (anchor == negative).all()
    assert len(np.unique(CORPUS.paper[drawn.negative[0].numpy()])) == len(fields)


def test_fixed_sampler_repeats_its_triplets_in_every_epoch():
    sampler = FixedSampler(TripletSampler(CORPUS, kinds=CONTEXT_KINDS, seed=0, device=CPU), 40, 3, 0)
    drawn = [sampler.draw(torch.arange(4 * epoch, 4 * epoch + 4)[:, None], 10).concatenate() for epoch in range(3)]
    triplets = [sorted(map(tuple, one.view(4, 3, 10).transpose(1, 2).reshape(40, 3).tolist())) for one in drawn]
    assert triplets[0] == triplets[1] == triplets[2]
    assert not torch.equal(drawn[0], drawn[1])


def test_shared_identifiers_are_found():
    trees = np.arange(len(CORPUS))
    assert find_shared_identifiers(CORPUS, trees, trees).all()
    assert not find_shared_identifiers(CORPUS, trees, np.roll(trees, 1)).all()


# Bits as text


@given(st.lists(st.booleans(), max_size=70))
def test_pack_bits_round_trip(bits):
    text = pack_bits(np.array(bits, bool))
    assert isinstance(text, str)
    assert unpack_bits(text, len(bits)).tolist() == bits
