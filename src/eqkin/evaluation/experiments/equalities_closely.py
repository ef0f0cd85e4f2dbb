"""The best candidates for the other side of an equality, compared closely, as the second step of a search does.

Candidates are those most alike, less half of how alike each is to its own nearest: what is close to everything is no
good answer. What the engine compares of them, the letters, numbers and other labels they share, and how near the query
is to the candidate among the candidate's own nearest, goes into boosted trees that learn from pairs kept for choosing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.systems.base import Floats, compute_row_products
from eqkin.evaluation.systems.terms import import_optional
from eqkin.search.features import FormulaFeatures, compute_similarities
from eqkin.trees.tokens import LETTER_KIND, NUMBER_KIND

Integers = npt.NDArray[np.int64]
SimilarityRows = Callable[[slice], Floats]  # some formulas with all: how alike they are, -inf with themselves

RERANK_DEPTH = 60
BOOSTING_SETTINGS = {
    "max_iter": 150, "learning_rate": 0.06, "max_leaf_nodes": 12, "min_samples_leaf": 60, "l2_regularization": 10.0,
    "max_features": 0.3, "early_stopping": False, "random_state": 0,
}  # fmt: skip
_NEIGHBOUR_COUNTS = (1, 5, 30)  # of each candidate's own nearest that it is compared with
_MAX_NEIGHBOURS = 64  # nearest formulas that are kept of each
_HUBNESS_NEIGHBOURS = 5  # nearest formulas that say how close a formula is to everything,
_HUBNESS_WEIGHT = np.float32(0.5)  # and how much that counts against it
_QUERY_BATCH = 1_024  # queries at a time
_EPSILON = np.float32(1e-9)


@dataclass(frozen=True, eq=False)
class SideCandidates:
    """The best candidates of each of n left and n right sides."""

    formula: Integers  # (sides, candidates) best first
    similarity: Floats  # (sides, candidates)
    adjusted: Floats  # (sides, candidates) the same, less what counts against each
    nearest: Floats  # (sides, many) how alike each side is to its own nearest, best first
    rank: Integers  # (sides,) where the other side is in the whole list; ties go to the others

    @classmethod
    def find(cls, alike: SimilarityRows, count: int) -> SideCandidates:
        """Those of so many formulas."""
        parts = [slice(start, min(start + _QUERY_BATCH, count)) for start in range(0, count, _QUERY_BATCH)]
        many = min(_MAX_NEIGHBOURS, count - 1)
        nearest = np.concatenate([-np.sort(np.partition(-alike(part), many - 1, axis=1)[:, :many]) for part in parts])
        against = _HUBNESS_WEIGHT * nearest[:, :_HUBNESS_NEIGHBOURS].mean(axis=1)
        formulas, found, places = [], [], []
        for part in parts:
            given = alike(part)
            first = np.round(given - against, 6)
            row, query = np.arange(len(given)), np.arange(part.start, part.stop)
            answer = first[row, (query + count // 2) % count]
            places.append((~(first < answer[:, None])).sum(axis=1) - 1)  # the answer itself
            best = np.argsort(-first, axis=1, kind="stable")[:, : min(RERANK_DEPTH, count - 1)]
            formulas.append(best)
            found.append([np.take_along_axis(values, best, 1) for values in (given, first)])
        return cls(
            np.concatenate(formulas), np.concatenate([one for one, _ in found]),
            np.concatenate([one for _, one in found]), nearest, np.concatenate(places),
        )  # fmt: skip

    @property
    def is_partner(self) -> npt.NDArray[np.bool_]:
        """(sides, candidates) which one is the other side."""
        count = len(self.formula)
        return np.equal(self.formula, (np.arange(count)[:, None] + count // 2) % count)

    def compute_features(self, profiles: FormulaFeatures, vectors: Floats) -> Floats:
        """(sides, candidates, features) what is compared; the sizes come last."""
        engine = [
            compute_similarities(
                profiles.select(np.array([query])), profiles.select(others), vectors[others] @ vectors[query]
            )
            for query, others in enumerate(self.formula)
        ]
        shared = [_compute_bag_overlap(bag, self.formula) for bag in _build_token_bags(profiles)]
        near = self.nearest[self.formula]
        own = [self.similarity - near[..., :most].mean(axis=2) for most in _NEIGHBOUR_COUNTS]
        closer = np.log1p((near > self.similarity[..., None] + 1e-6).sum(axis=2))
        size = np.log1p(profiles.tokens.length)
        theirs, ours = size[self.formula], np.broadcast_to(size[:, None], self.formula.shape)
        more = (
            self.adjusted,
            self.similarity,
            *own,
            closer,
            self.similarity - self.nearest[:, :1],
            theirs,
            ours,
            theirs - ours,
        )
        return np.concatenate((np.stack(engine), *shared, np.stack(more, axis=2)), axis=2, dtype=np.float32)

    def compute_ranks(self, learned: Floats) -> Integers:
        """Where each other side is once its list's candidates are put in order by what was learned.

        Equal ones stay in the order they had, and are behind where that was the same.
        """
        place = self.rank.copy()
        query, at = np.nonzero(self.is_partner)
        score, first = learned[query], self.adjusted[query]
        ours, before = learned[query, at][:, None], self.adjusted[query, at][:, None]
        place[query] = ((score > ours) | ((score == ours) & (first >= before))).sum(axis=1) - 1
        return place


class PartnerClassifier:
    """Boosted trees that tell other sides from the rest of the candidates.

    Args:
        columns: (sides, candidates, features) of pairs to learn from.
        right: (sides, candidates) which are the other sides.
    """

    def __init__(self, columns: Floats, right: npt.NDArray[np.bool_]) -> None:
        told = right.any(axis=1)
        self._trees: Any = None
        if told.any() and not right[told].all():
            trees = import_optional("sklearn.ensemble").HistGradientBoostingClassifier(**BOOSTING_SETTINGS)
            self._trees = trees.fit(_add_relative_features(columns[told]), right[told].ravel())

    def __call__(self, columns: Floats) -> Floats:
        """(sides, candidates) how much each looks like the other side; all alike where there was nothing to learn."""
        if self._trees is None:
            return np.zeros(columns.shape[:2], np.float32)
        parts = [columns[start : start + _QUERY_BATCH] for start in range(0, len(columns), _QUERY_BATCH)]
        scores = [self._trees.decision_function(_add_relative_features(part)).reshape(part.shape[:2]) for part in parts]
        return np.concatenate(scores)


def _add_relative_features(columns: Floats) -> Floats:
    """A row for each candidate: its features, and all but the sizes compared with those of its query's candidates."""
    given = columns[..., :-3]
    deviation = given.std(axis=1, keepdims=True) + np.float32(0.01)
    relative = (given - given.mean(axis=1, keepdims=True)) / deviation
    found = np.concatenate((columns, given - given.max(axis=1, keepdims=True), relative), axis=2)
    return found.reshape(-1, found.shape[2])


def _build_token_bags(profiles: FormulaFeatures) -> list[Any]:
    """Letters, numbers and other labels of each formula, weighted by how rare they are among these formulas."""
    tokens, count = profiles.tokens, len(profiles)
    letter, number = tokens.kind == LETTER_KIND, tokens.kind == NUMBER_KIND
    bags = []
    for kind in (letter, number, (tokens.exact > 0) & ~letter & ~number):
        formula, place = np.nonzero(kind)
        names, column = np.unique(tokens.label[formula, place], return_inverse=True)
        shape = count, max(len(names), 1)
        bag = import_optional("scipy.sparse").csr_matrix((np.ones(len(column), np.float32), (formula, column)), shape)
        bag.sum_duplicates()
        rare = np.log((count + 1) / (np.bincount(bag.indices, minlength=shape[1]) + 0.5)).astype(np.float32)
        bag.data = 2 * bag.data / (bag.data + 1) * rare[bag.indices]
        bags.append(bag)
    return bags


def _compute_bag_overlap(bag: Any, formula: Integers) -> Floats:
    """(sides, candidates, 3) of a bag: the cosine, the share of the query's weight, that of the candidate's."""
    weight = np.asarray(bag.multiply(bag).sum(axis=1), np.float32).ravel()
    query, other = np.repeat(np.arange(len(formula)), formula.shape[1]), formula.ravel()
    common = np.concatenate(
        [
            compute_row_products(bag[query[start : start + 65_536]], bag[other[start : start + 65_536]])
            for start in range(0, len(query), 65_536)
        ]
    )
    ours, theirs = weight[query], weight[other]
    shares = np.stack(
        (common / np.sqrt(ours * theirs + _EPSILON), common / (ours + _EPSILON), common / (theirs + _EPSILON)), 1
    )
    shares[(ours == 0) & (theirs == 0)] = 1  # neither has any
    return shares.reshape(*formula.shape, 3)
