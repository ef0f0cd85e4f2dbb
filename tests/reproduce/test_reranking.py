"""Candidates for other sides: who they are, what is compared of them, what is learned, where the answer ends."""

import numpy as np
import pytest

from eqkin.evaluation.equalities import PairSet
from eqkin.evaluation.formulas import normalize_rows
from eqkin.evaluation.measures import compute_partner_ranks
from eqkin.search.features import WEIGHTS, compute_similarities, extract_features
from reproduce.reranking import RERANK_DEPTH, PartnerClassifier, SideCandidates
from tests.evaluation.pairs import corpus_of_equalities


def by_cosine(vectors):
    """How alike some formulas are to all, themselves left out."""

    def alike(rows):
        found = vectors[rows] @ vectors.T
        found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = -np.inf
        return found

    return alike


def some_vectors(count, seed=0):
    return normalize_rows(np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32))


def test_candidates_are_nearest_after_hubness_correction():
    vectors = some_vectors(200)
    found = SideCandidates.find(by_cosine(vectors), 200)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    first = cosines - 0.5 * -np.sort(-cosines, axis=1)[:, :5].mean(axis=1)
    assert found.formula.shape == (200, RERANK_DEPTH)
    for query in (0, 7, 199):
        np.testing.assert_array_equal(found.formula[query], np.argsort(-first[query])[:RERANK_DEPTH])
        assert query not in found.formula[query]
        other = first[query, (query + 100) % 200]
        assert found.rank[query] == (first[query] > other).sum()


def test_few_formulas_are_all_candidates():
    found = SideCandidates.find(by_cosine(some_vectors(6)), 6)
    assert [sorted(row) for row in found.formula.tolist()] == [[n for n in range(6) if n != q] for q in range(6)]
    assert found.is_partner.sum(axis=1).tolist() == [1] * 6


def test_equal_scores_keep_first_order():
    found = SideCandidates.find(by_cosine(some_vectors(200)), 200)
    assert np.array_equal(found.compute_ranks(np.zeros((200, RERANK_DEPTH))), found.rank)
    same = np.ones((8, 3), np.float32)  # all are equal: the answer comes last
    alike = SideCandidates.find(by_cosine(normalize_rows(same)), 8)
    assert np.array_equal(alike.compute_ranks(np.zeros((8, 7))), compute_partner_ranks(same))


def test_classifier_moves_partner_among_candidates_only():
    found = SideCandidates.find(by_cosine(some_vectors(200)), 200)
    within = found.is_partner.any(axis=1)
    assert 0 < within.sum() < 200
    best = found.compute_ranks(found.is_partner.astype(np.float32))
    assert (best[within] == 0).all() and np.array_equal(best[~within], found.rank[~within])
    assert (found.compute_ranks(-found.is_partner.astype(np.float32))[within] == RERANK_DEPTH - 1).all()


@pytest.fixture(scope="module")
def compared():
    """Pairs with vectors that say nothing, and what is compared of them."""
    forest = PairSet.split(corpus_of_equalities(), "equalities", 60).pairs.forest
    profiles, vectors = extract_features(forest), some_vectors(len(forest))
    found = SideCandidates.find(by_cosine(vectors), len(forest))
    return profiles, vectors, found, found.compute_features(profiles, vectors)


def test_features_are_engine_similarities_neighbours_and_sizes(compared):
    profiles, vectors, found, columns = compared
    assert columns.shape[:2] == found.formula.shape
    assert np.isfinite(columns).all()
    query = profiles.select(np.array([5]))
    others = found.formula[5]
    expected = compute_similarities(query, profiles.select(others), vectors[others] @ vectors[5])
    np.testing.assert_allclose(columns[5, :, : len(WEIGHTS)], expected)
    size = np.log1p(np.diff(profiles.terms.offsets))
    np.testing.assert_allclose(columns[5, :, -1], size[others] - size[5], rtol=1e-5, atol=1e-6)


def test_classifier_learns_the_telling_feature(compared):
    _, _, found, columns = compared
    informative, rng = columns.copy(), np.random.default_rng(0)
    informative[..., 3] = found.is_partner + 0.1 * rng.normal(size=found.is_partner.shape)
    half = np.arange(len(informative)) % 2 == 0
    scores = PartnerClassifier(informative[half], found.is_partner[half])(informative)
    within = found.is_partner.any(axis=1) & ~half
    assert within.sum() > 20
    assert (found.compute_ranks(scores)[within] == 0).mean() > 0.9


def test_classifier_without_partners_scores_zero(compared):
    _, _, found, columns = compared
    assert not PartnerClassifier(columns, np.zeros_like(found.is_partner))(columns).any()
