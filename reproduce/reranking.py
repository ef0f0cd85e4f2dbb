"""Equalities by vectors and structure, in two steps like a search of eqkin.

    similarity = cosine + w overlap

finds candidates, with w chosen on the validation pairs. The similarity of a candidate is reduced by half of its mean
similarity to its own nearest formulas: what is close to everything is not a good answer. The best candidates are
reranked by boosted trees trained on the validation pairs. Their features are the engine's similarities, and how near
the query is to the candidate among the candidate's own neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.formulas import Float32s, compute_products, import_optional, normalize_rows
from eqkin.evaluation.measures import compute_mrr
from eqkin.search.features import (
    WEIGHTS,
    FormulaFeatures,
    compute_similarities,
    extract_features,
    normalise_by_length,
)
from eqkin.trees import Forest, idf

Integers = npt.NDArray[np.int64]
SimilarityRows = Callable[[slice], Float32s]  # similarities of some formulas to all, -inf to themselves

RERANK_DEPTH = 60
BOOSTING_SETTINGS = {
    "max_iter": 150, "learning_rate": 0.06, "max_leaf_nodes": 12, "min_samples_leaf": 60, "l2_regularization": 10.0,
    "max_features": 0.3, "early_stopping": False, "random_state": 0,
}  # fmt: skip
_NEIGHBOUR_COUNTS = (1, 5, 30)  # nearest neighbours of a candidate that the query is compared with
_MAX_NEIGHBOURS = 64  # kept for each formula
_HUBNESS_NEIGHBOURS = 5  # whose mean similarity measures how close a formula is to everything
_HUBNESS_WEIGHT = np.float32(0.5)
_QUERY_BATCH = 1_024


@dataclass(frozen=True, eq=False)
class SideCandidates:
    """The best candidates of each of n left and n right sides."""

    formula: Integers  # (sides, candidates) best first
    similarity: Float32s  # (sides, candidates)
    adjusted: Float32s  # (sides, candidates) similarity less the candidate's hubness
    nearest: Float32s  # (sides, many) similarities of each side to its own nearest, best first
    rank: Integers  # (sides,) rank of the partner in the whole list; behind formulas it ties with

    @classmethod
    def find(cls, similarity: SimilarityRows, count: int) -> SideCandidates:
        """Find the candidates of `count` formulas."""
        parts = [slice(start, min(start + _QUERY_BATCH, count)) for start in range(0, count, _QUERY_BATCH)]
        many = min(_MAX_NEIGHBOURS, count - 1)
        nearest = np.concatenate(
            [-np.sort(np.partition(-similarity(part), many - 1, axis=1)[:, :many]) for part in parts]
        )
        hubness = _HUBNESS_WEIGHT * nearest[:, :_HUBNESS_NEIGHBOURS].mean(axis=1)
        formulas, raw, adjusted, ranks = [], [], [], []
        for part in parts:
            rows = similarity(part)
            scores = np.round(rows - hubness, 6)
            query = np.arange(part.start, part.stop)
            partner = scores[np.arange(len(rows)), (query + count // 2) % count]
            ranks.append((~(scores < partner[:, None])).sum(axis=1) - 1)  # without the partner itself
            formulas.append(np.argsort(-scores, axis=1, kind="stable")[:, : min(RERANK_DEPTH, count - 1)])
            raw.append(np.take_along_axis(rows, formulas[-1], 1))
            adjusted.append(np.take_along_axis(scores, formulas[-1], 1))
        return cls(
            np.concatenate(formulas), np.concatenate(raw), np.concatenate(adjusted), nearest, np.concatenate(ranks)
        )

    @property
    def is_partner(self) -> npt.NDArray[np.bool_]:
        """Which candidate is the partner, (sides, candidates)."""
        count = len(self.formula)
        return np.equal(self.formula, (np.arange(count)[:, None] + count // 2) % count)

    def compute_features(self, features: FormulaFeatures, vectors: Float32s) -> Float32s:
        """Compute features, (sides, candidates, features); the sizes come last."""
        engine = [
            compute_similarities(
                features.select(np.array([query])), features.select(others), vectors[others] @ vectors[query]
            )
            for query, others in enumerate(self.formula)
        ]
        near = self.nearest[self.formula]
        own = [self.similarity - near[..., :most].mean(axis=2) for most in _NEIGHBOUR_COUNTS]
        closer = np.log1p((near > self.similarity[..., None] + 1e-6).sum(axis=2))
        size = np.log1p(np.diff(features.terms.offsets))
        theirs, ours = size[self.formula], np.broadcast_to(size[:, None], self.formula.shape)
        margin = self.similarity - self.nearest[:, :1]
        more = (self.adjusted, self.similarity, *own, closer, margin, theirs, ours, theirs - ours)
        return np.concatenate((np.stack(engine), np.stack(more, axis=2)), axis=2, dtype=np.float32)

    def compute_ranks(self, learned: Float32s) -> Integers:
        """Compute the rank of each partner after reranking the candidates by the classifier's scores.

        Candidates of equal score keep their order; a partner that ties in both is ranked behind.
        """
        rank = self.rank.copy()
        query, column = np.nonzero(self.is_partner)
        scores, before = learned[query], self.adjusted[query]
        partner, partner_before = learned[query, column][:, None], self.adjusted[query, column][:, None]
        is_ahead = (scores > partner) | ((scores == partner) & (before >= partner_before))
        rank[query] = is_ahead.sum(axis=1) - 1
        return rank


class PartnerClassifier:
    """Boosted trees that separate partners from other candidates."""

    def __init__(self, columns: Float32s, is_partner: npt.NDArray[np.bool_]) -> None:
        """Train on features (sides, candidates, features), given which candidates are partners (sides, candidates)."""
        usable = is_partner.any(axis=1)
        self._trees: Any = None
        if usable.any() and not is_partner[usable].all():
            trees = import_optional("sklearn.ensemble").HistGradientBoostingClassifier(**BOOSTING_SETTINGS)
            self._trees = trees.fit(_add_relative_features(columns[usable]), is_partner[usable].ravel())

    def __call__(self, columns: Float32s) -> Float32s:
        """Score candidates, (sides, candidates); all zero if there was nothing to learn from."""
        if self._trees is None:
            return np.zeros(columns.shape[:2], np.float32)
        parts = [columns[start : start + _QUERY_BATCH] for start in range(0, len(columns), _QUERY_BATCH)]
        scores = [self._trees.decision_function(_add_relative_features(part)).reshape(part.shape[:2]) for part in parts]
        return np.concatenate(scores)


def _add_relative_features(columns: Float32s) -> Float32s:
    """Make a row per candidate: its features, and all but the sizes relative to the query's other candidates."""
    similarities = columns[..., :-3]
    deviation = similarities.std(axis=1, keepdims=True) + np.float32(0.01)
    relative = (similarities - similarities.mean(axis=1, keepdims=True)) / deviation
    rows = np.concatenate((columns, similarities - similarities.max(axis=1, keepdims=True), relative), axis=2)
    return rows.reshape(-1, rows.shape[2])


STRUCTURE_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


class StructureOverlap:
    """Structural overlap of all pairs of some formulas, a few rows at a time."""

    def __init__(self, forest: Forest) -> None:
        features = extract_features(forest)
        codes, column = np.unique(features.terms.code, return_inverse=True)
        cells = (features.weight, column.astype(np.int32), features.terms.offsets)
        self._weights = import_optional("scipy.sparse").csr_matrix(cells, (len(features), max(len(codes), 1)))
        self._norms = features.norms.sum(axis=0)

    def __call__(self, rows: slice) -> Float32s:
        """Compute the overlap of some formulas with all."""
        common = compute_products(self._weights[rows], self._weights)
        return np.asarray(normalise_by_length(common, self._norms[rows, None], self._norms[None, :]), np.float32)

    def scale(self, weight: float) -> Callable[[slice], Float32s] | None:
        """Return a function that computes the weighted overlap; None for weight 0."""
        return (lambda rows: np.float32(weight) * self(rows)) if weight else None


@dataclass(frozen=True, eq=False)
class EmbeddedSides:
    """Sides of pairs with their vectors, left sides first."""

    forest: Forest
    vectors: Float32s


def describe_structure_settings() -> dict[str, Any]:
    """Describe what the overlap and the reranking depend on besides the formulas, for cache keys."""
    closely = BOOSTING_SETTINGS | {"candidates": RERANK_DEPTH, "similarities": list(WEIGHTS)}
    terms = sha256(idf.BUNDLED_FREQUENCIES.read_bytes()).hexdigest()
    return {"weights": list(STRUCTURE_WEIGHTS), "frequencies": terms, "closely": closely}


def rank_with_structure(check: EmbeddedSides, test: EmbeddedSides) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """Rank the partner of each test side; return the ranks and what was chosen on the validation sides."""
    counted = StructureOverlap(check.forest)
    reached = {weight: compute_mrr(check.vectors, counted.scale(weight)) for weight in STRUCTURE_WEIGHTS}
    best = max(STRUCTURE_WEIGHTS, key=lambda weight: reached[weight])
    candidates, columns = _find_candidates(check, best)
    learned = PartnerClassifier(columns, candidates.is_partner)
    candidates, columns = _find_candidates(test, best)
    return candidates.compute_ranks(learned(columns)), {"counted": best, "score_with_counted": reached[best]}


def _find_candidates(sides: EmbeddedSides, weight: float) -> tuple[SideCandidates, Float32s]:
    """Find the best candidates and their features."""
    vectors = np.asarray(normalize_rows(sides.vectors), np.float32)
    more = StructureOverlap(sides.forest).scale(weight)

    def compute_rows(rows: slice) -> Float32s:
        found = compute_products(vectors[rows], vectors)
        if more:
            found += more(rows)
        found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = -np.inf
        return found

    candidates = SideCandidates.find(compute_rows, len(vectors))
    return candidates, candidates.compute_features(extract_features(sides.forest), vectors)
