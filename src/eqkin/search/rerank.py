r"""Reranking: score formulas with all features.

$$ \text{relevance} = \frac{\lambda\,\text{linear} + \text{learned}}{1 + \lambda} $$

`linear` is the weighted mean of structural overlap, cosine of the vectors, heaviest common subsequence and longest
common substring up to renaming; `learned` is a sum of boosted trees over the features of `eqkin.search.features`, none
of which decreases when a similarity grows. A formula identical to the query has relevance 1. A large collection is
ranked in two stages: all of it by structural overlap and vectors, the best `RERANK_DEPTH` by all features.

With a formula and text, a candidate's score is

$$ \tfrac34 \text{relevance} + \tfrac14 \text{text}, $$

with one of them it is that part alone: text reorders equations whose mathematics fits, it does not replace it. The
weight of the text is a choice, not learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.search.candidates import Candidate, CandidateSet, QueryFeatures
from eqkin.search.features import (
    FEATURES,
    SIMILARITIES,
    FormulaFeatures,
    build_feature_matrix,
    compute_linear_score,
    compute_structural_overlap,
    extract_features,
)
from eqkin.search.wildcards import rank_matches_first
from eqkin.storage import write_file
from eqkin.trees import Forest

BUNDLED_RANKER = Path(__file__).parent / "ranking.safetensors"
RERANK_DEPTH = 1_000  # formulas of a collection that are compared by all features
FIRST_STAGE_VECTOR_WEIGHT = 0.7  # of the cosine compared with structural overlap
LINEAR_SCORE_WEIGHT = 1.7  # lambda
TEXT_WEIGHT = 0.25
_BLOCK_FORMULAS = 20_000  # formulas of a collection whose features are in memory together
_SUBSTRING_COLUMN = SIMILARITIES.index("run")
_SAME_FORMULA_COSINE = 0.99  # tokens of long formulas are cut off: those with the same tokens may still differ
_ARRAY_NAMES = ("feature", "threshold", "left", "right", "value", "first")

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class BoostedTrees:
    """A sum of regression trees as arrays, evaluated with numpy alone; node 0 is a root, a leaf is its own child."""

    features: tuple[str, ...]  # names of the columns
    feature: npt.NDArray[np.int16]  # (trees, nodes) column that a node tests
    threshold: Floats  # (trees, nodes) values up to it go left
    left: npt.NDArray[np.int16]  # (trees, nodes)
    right: npt.NDArray[np.int16]
    value: Floats  # (trees, nodes) of leaves
    first: Floats  # (1,) constant term

    def __call__(self, columns: Floats) -> Floats:
        """Return the sum for each row of `columns`, (rows, features)."""
        feature, threshold, children, value = self._flat
        root = np.arange(len(self.feature), dtype=np.int32) * self.feature.shape[1]
        node = np.tile(root, (len(columns), 1))
        row = (np.arange(len(columns), dtype=np.int32) * columns.shape[1])[:, None]
        values = np.ascontiguousarray(columns, np.float32).ravel()
        while True:
            goes_right = values.take(row + feature.take(node)) > threshold.take(node)
            child = children.take(2 * node + goes_right)
            if np.array_equal(child, node):
                total: Floats = (self.first[0] + value.take(node).sum(axis=1)).astype(np.float32)
                return total
            node = child

    @cached_property
    def _flat(self) -> tuple[npt.NDArray[np.int32], Floats, npt.NDArray[np.int32], Floats]:
        """Features, thresholds, children (left, right) and values of all nodes, tree by tree."""
        start = np.arange(len(self.feature), dtype=np.int32)[:, None] * self.feature.shape[1]
        children = np.stack((self.left + start, self.right + start), axis=2).astype(np.int32)
        return self.feature.astype(np.int32).ravel(), self.threshold.ravel(), children.ravel(), self.value.ravel()

    def save(self, path: Path) -> None:
        """Write to a file; raises `StorageFailed`."""
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAY_NAMES}
        write_file(
            path, safetensors.save(arrays | {"features": np.frombuffer("\n".join(self.features).encode(), np.uint8)})
        )

    @classmethod
    def load(cls, path: Path) -> BoostedTrees:
        """Read what `save` wrote; raises `CorruptData`."""
        try:
            arrays = safetensors.load(path.read_bytes())
            features = tuple(arrays["features"].tobytes().decode().split("\n"))
            loaded = cls(features, *(arrays[name] for name in _ARRAY_NAMES))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise CorruptData(f"{path}: the ranking's weights cannot be read ({error}); install eqkin again") from error
        if not loaded._is_sound():
            raise CorruptData(f"{path}: the ranking's weights are damaged; install eqkin again")
        return loaded

    def _is_sound(self) -> bool:
        """Return whether shapes agree and every path ends in a leaf: children come after their parents."""
        nodes, numbers = (self.feature, self.threshold, self.left, self.right, self.value), (self.threshold, self.value)
        if self.feature.ndim != 2 or not self.feature.size or len({array.shape for array in nodes}) > 1:
            return False
        if self.first.shape != (1,) or not all(np.isfinite(array).all() for array in (*numbers, self.first)):
            return False
        own = np.arange(self.feature.shape[1])
        leaf = (self.left == own) & (self.right == own)
        inner = (self.left > own) & (self.right > own) & (np.maximum(self.left, self.right) < len(own))
        known = (self.feature >= 0) & (self.feature < len(self.features))
        return bool(((leaf | inner) & known).all())


class Ranker:
    """Scores formulas for a query. May be shared between threads."""

    def __init__(self, learned: BoostedTrees) -> None:
        if learned.features != FEATURES:
            raise CorruptData("the ranking's weights are for other features than this eqkin computes; install it again")
        self._learned = learned

    @classmethod
    def load(cls, path: Path = BUNDLED_RANKER) -> Ranker:
        """Read a ranker from a file, by default the bundled one; raises `CorruptData`."""
        return cls(BoostedTrees.load(path))

    def score(self, query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Floats:
        """Compute the relevance of each formula to the first one of `query`, in [0, 1].

        Args:
            query: Features of the query.
            formulas: Features of the formulas.
            cosines: Cosines of the query's vector with theirs.
        """
        if not len(formulas):
            return np.zeros(0, np.float32)
        columns = build_feature_matrix(query, formulas, cosines)
        total = (LINEAR_SCORE_WEIGHT * compute_linear_score(columns) + self._learned(columns)) / (
            1 + LINEAR_SCORE_WEIGHT
        )
        equal = (columns[:, _SUBSTRING_COLUMN] == 1) & (formulas.tokens.length == query.tokens.length[0])
        equal &= cosines > _SAME_FORMULA_COSINE
        return np.where(equal, 1, np.clip(total, 0, 1)).astype(np.float32)

    def score_collection(
        self, query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats, without: int = -1
    ) -> Floats:
        """Score a collection of any size: beyond the best `RERANK_DEPTH`, formulas keep the order of the first stage.

        Args:
            query: Features of the query.
            formulas: Features of the collection.
            cosines: Cosines of the query's vector with theirs.
            without: A formula of the collection that is not a candidate: its score is 0.
        """
        overlap = compute_structural_overlap(query, formulas)
        return self._score_in_two_stages(query, overlap, cosines, formulas.select, without)

    def score_forest(self, query: FormulaFeatures, overlap: Floats, cosines: Floats, formulas: Forest) -> Floats:
        """Score a collection that is too large to have all its features in memory.

        Args:
            query: Features of the query.
            overlap: Structural overlap of each formula with the query.
            cosines: Cosines of the query's vector with theirs.
            formulas: The collection's trees.
        """
        return self._score_in_two_stages(
            query, overlap, cosines, lambda chosen: extract_features(formulas.select(chosen))
        )

    def _score_in_two_stages(
        self,
        query: FormulaFeatures,
        overlap: Floats,
        cosines: Floats,
        select: Callable[[npt.NDArray[np.int64]], FormulaFeatures],
        without: int = -1,
    ) -> Floats:
        first = overlap + FIRST_STAGE_VECTOR_WEIGHT * cosines
        if without >= 0:
            first[without] = -np.inf
        order = np.argsort(-first, kind="stable")[: len(first) - (without >= 0)]
        best, rest = order[:RERANK_DEPTH], order[RERANK_DEPTH:]
        scores = np.zeros(len(first), np.float32)
        scores[best] = self.score(query, select(best), cosines[best])
        if len(rest):  # below all others, in their own order
            least = float(scores[best].min())
            scores[rest] = least * np.linspace(1, 0, len(rest) + 2, dtype=np.float32)[1:-1]
        return scores


@cache
def load_bundled_ranker() -> Ranker:
    """Read the bundled ranker, once."""
    return Ranker.load()


def combine_scores(relevance: float, text_score: float, *, formula: bool, text: bool) -> float:
    """Compute the score a list is sorted by, in [0, 1], for a query with a formula, text, or both."""
    if formula and text:
        return (1 - TEXT_WEIGHT) * relevance + TEXT_WEIGHT * text_score
    return relevance if formula else text_score


def rerank(query: QueryFeatures | None, candidates: CandidateSet, ranker: Ranker, *, text: bool) -> list[Candidate]:
    """Score candidates and sort them, best first.

    Args:
        query: The formula; None for text alone.
        candidates: Those that are ranked by all features.
        ranker: Computes the relevance of formulas.
        text: Whether text is searched for.
    """
    cosines = relevance = np.zeros(len(candidates), np.float32)
    if query is not None and len(candidates):
        cosines = np.clip(candidates.vectors @ query.vector, -1, 1)  # float16 vectors are not exactly of length 1
        relevance = ranker.score(query.formula, extract_features(candidates.forest), cosines)
        if query.pattern is not None:
            relevance = rank_matches_first(relevance, query.pattern, candidates.operators, range(len(candidates)))
    ranked = []
    for row, (ref, cosine, relevant) in enumerate(
        zip(candidates.refs, cosines.tolist(), relevance.tolist(), strict=True)
    ):
        text_score = candidates.text_scores.get(ref.key, 0.0)
        score = combine_scores(relevant, text_score, formula=query is not None, text=text)
        ranked.append(Candidate(ref, row, cosine, text_score, score))
    ranked.sort(key=lambda candidate: (-candidate.score, -candidate.similarity, candidate.ref.key))
    return ranked


def compute_relevance(
    queries: Forest, query_vectors: Floats, formulas: Forest, vectors: Floats, ranker: Ranker | None = None
) -> Floats:
    """Compute the relevance of each formula to each query, (queries, formulas); vectors have length 1."""
    ranker, features = ranker or load_bundled_ranker(), extract_features(queries)
    asked = [features.select(np.array([at])) for at in range(len(features))]
    scores = np.zeros((len(asked), len(formulas)), np.float32)
    if len(formulas) <= _BLOCK_FORMULAS:
        collection = extract_features(formulas)
        for at, query in enumerate(asked):
            scores[at] = ranker.score_collection(query, collection, vectors @ query_vectors[at])
        return scores
    for start in range(0, len(formulas), _BLOCK_FORMULAS):  # structural overlap first, in the place of the scores
        block = slice(start, min(start + _BLOCK_FORMULAS, len(formulas)))
        collection = extract_features(formulas.select(np.arange(block.start, block.stop)), tokens=False)
        for at, query in enumerate(asked):
            scores[at, block] = compute_structural_overlap(query, collection)
    for at, query in enumerate(asked):
        scores[at] = ranker.score_forest(query, scores[at], vectors @ query_vectors[at], formulas)
    return scores


def compute_relevance_within(formulas: Forest, vectors: Floats, ranker: Ranker | None = None) -> Floats:
    """Compute the relevance of the formulas of a collection to each other; none is a candidate for itself."""
    ranker, collection = ranker or load_bundled_ranker(), extract_features(formulas)
    rows = [
        ranker.score_collection(collection.select(np.array([at])), collection, vectors @ vectors[at], without=at)
        for at in range(len(collection))
    ]
    return np.stack(rows) if rows else np.zeros((0, 0), np.float32)
