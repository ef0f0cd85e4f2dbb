r"""The ranking: how related formulas are to a query, by all that is known of them.

$$ \text{kinship} = \frac{\lambda\,\text{plain} + \text{learned}}{1 + \lambda} $$

`plain` is the weighted mean of counted structure, the cosine of the vectors, the heaviest common sequence and the
longest common run up to renaming; `learned` a sum of boosted trees over the features of `kinship`, none of which lets a
formula fall for being more similar; the same formula has 1. A large collection is ranked in two steps: all of it by
counted structure and vectors, the best `CLOSELY` by the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.search import kinship
from eqkin.search.boosted import BoostedTrees
from eqkin.search.kinship import FEATURES, SIMILARITIES, FormulaFeatures, extract_features
from eqkin.trees import Forest

BUNDLED_RANKER = Path(__file__).parent / "ranking.safetensors"
RERANK_DEPTH = 1_000  # formulas of a collection that are compared by everything
_BLOCK_FORMULAS = 20_000  # formulas of a collection that are profiled at a time
FIRST_STAGE_VECTOR_WEIGHT = 0.7  # of the first step
LINEAR_SCORE_WEIGHT = 1.7  # lambda
_SUBSTRING_COLUMN = SIMILARITIES.index("run")
_SAME_FORMULA_COSINE = 0.99  # cosine of formulas that are the same; those cut to so many tokens may differ further on

Floats = npt.NDArray[np.float32]


class Ranker:
    """Ranks formulas for a query. May be shared between threads."""

    def __init__(self, learned: BoostedTrees) -> None:
        if learned.features != FEATURES:
            raise CorruptData("the ranking's weights are for other features than this eqkin computes; install it again")
        self._learned = learned

    @classmethod
    def load(cls, path: Path = BUNDLED_RANKER) -> Ranker:
        """The ranking in a file, by default the one that comes with eqkin; raises `CorruptData`."""
        return cls(BoostedTrees.load(path))

    def score(self, query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Floats:
        """How related each formula is to the first one of `query`, in [0, 1].

        Args:
            query: Profile of the query.
            formulas: Profiles of the others.
            cosines: Of the query's vector and each of theirs.
        """
        if not len(formulas):
            return np.zeros(0, np.float32)
        columns = kinship.build_feature_matrix(query, formulas, cosines)
        total = (LINEAR_SCORE_WEIGHT * kinship.compute_linear_score(columns) + self._learned(columns)) / (
            1 + LINEAR_SCORE_WEIGHT
        )
        equal = (
            (columns[:, _SUBSTRING_COLUMN] == 1)
            & (formulas.tokens.length == query.tokens.length[0])
            & (cosines > _SAME_FORMULA_COSINE)
        )
        return np.where(equal, 1, np.clip(total, 0, 1)).astype(np.float32)

    def score_collection(
        self, query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats, without: int = -1
    ) -> Floats:
        """The same for a collection of any size: beyond the best `CLOSELY`, formulas keep the order of the first step.

        Args:
            query: Profile of the query.
            formulas: Profiles of the collection.
            cosines: Of the query's vector and each of theirs.
            without: A formula of the collection that is no candidate: its score is 0.
        """
        return self._score_in_two_stages(
            query, kinship.compute_structural_overlap(query, formulas), cosines, formulas.select, without
        )

    def score_forest(self, query: FormulaFeatures, counted: Floats, cosines: Floats, formulas: Forest) -> Floats:
        """The same for a collection that is too large to have all its tokens in memory.

        Args:
            query: Profile of the query.
            counted: How much counted structure each formula shares with it.
            cosines: Of the query's vector and each of theirs.
            formulas: The collection's trees.
        """
        return self._score_in_two_stages(
            query, counted, cosines, lambda places: extract_features(formulas.select(places))
        )

    def _score_in_two_stages(
        self,
        query: FormulaFeatures,
        counted: Floats,
        cosines: Floats,
        profiles: Callable[[npt.NDArray[np.int64]], FormulaFeatures],
        without: int = -1,
    ) -> Floats:
        plain = counted + FIRST_STAGE_VECTOR_WEIGHT * cosines
        if without >= 0:
            plain[without] = -np.inf
        order = np.argsort(-plain, kind="stable")[: len(plain) - (without >= 0)]
        best, rest = order[:RERANK_DEPTH], order[RERANK_DEPTH:]
        scores = np.zeros(len(plain), np.float32)
        scores[best] = self.score(query, profiles(best), cosines[best])
        if len(rest):  # below all others, in their own order
            least = float(scores[best].min())
            scores[rest] = least * np.linspace(1, 0, len(rest) + 2, dtype=np.float32)[1:-1]
        return scores


@cache
def load_bundled_ranker() -> Ranker:
    """The ranking that comes with eqkin, read once."""
    return Ranker.load()


def compute_relevance(
    queries: Forest, query_vectors: Floats, formulas: Forest, vectors: Floats, ranker: Ranker | None = None
) -> Floats:
    """How related the engine finds each formula to each query, (queries, formulas); vectors have length 1."""
    ranker, ours = ranker or load_bundled_ranker(), extract_features(queries)
    asked = [ours.select(np.array([at])) for at in range(len(ours))]
    scores = np.zeros((len(asked), len(formulas)), np.float32)
    if len(formulas) <= _BLOCK_FORMULAS:
        theirs = extract_features(formulas)
        for at, query in enumerate(asked):
            scores[at] = ranker.score_collection(query, theirs, vectors @ query_vectors[at])
        return scores
    for start in range(0, len(formulas), _BLOCK_FORMULAS):  # counted structure first, in the place of the scores
        part = slice(start, min(start + _BLOCK_FORMULAS, len(formulas)))
        theirs = extract_features(formulas.select(np.arange(part.start, part.stop)), tokens=False)
        for at, query in enumerate(asked):
            scores[at, part] = kinship.compute_structural_overlap(query, theirs)
    for at, query in enumerate(asked):
        scores[at] = ranker.score_forest(query, scores[at], vectors @ query_vectors[at], formulas)
    return scores


def compute_relevance_within(formulas: Forest, vectors: Floats, ranker: Ranker | None = None) -> Floats:
    """How related the engine finds the formulas of a collection to each other; none is a candidate for itself."""
    ranker, all_of_them = ranker or load_bundled_ranker(), extract_features(formulas)
    rows = [
        ranker.score_collection(all_of_them.select(np.array([at])), all_of_them, vectors @ vectors[at], without=at)
        for at in range(len(all_of_them))
    ]
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)
