r"""Reranking: sort candidates by the relevance of their formulas and by how well their text matches.

With a formula and text, a candidate's score is

$$ \tfrac34 \text{relevance} + \tfrac14 \text{text}, $$

with one of them it is that part alone: text reorders equations whose mathematics fits, it does not replace it. The
weight of the text is a choice, not learned.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.search.candidates import CandidateSet, QueryFeatures, Rows
from eqkin.search.features import (
    FormulaFeatures,
    combine_similarities,
    compute_relevance,
    extract_features,
    favour_same_statements,
    weight_similarities,
)
from eqkin.search.wildcards import rank_matches_first

TEXT_WEIGHT = 0.25
_NAMED_SCORE = 0.9  # least score of an equation with the name that was asked for
_BLOCK_FORMULAS = 20_000  # formulas of a collection whose features are in memory together

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating[Any]]


def combine_scores(relevance: Scores, text_scores: Scores, *, formula: bool, text: bool) -> Scores:
    """Compute the scores a list is sorted by, in [0, 1], for a query with a formula, text, or both."""
    if formula and text:
        return (1 - TEXT_WEIGHT) * relevance + TEXT_WEIGHT * text_scores
    return relevance if formula else text_scores


def rerank(query: QueryFeatures | None, candidates: CandidateSet, *, text: bool, named: Collection[int] = ()) -> Rows:
    """Compute the scores of candidates; return their rows, best first.

    Args:
        query: The formula; None for text alone.
        candidates: Those that are ranked by all features.
        text: Whether text is searched for.
        named: Keys of equations with the name that was asked for, which come first.
    """
    cosines = relevance = np.zeros(len(candidates), np.float32)
    if query is not None and len(candidates):
        cosines = np.clip(candidates.vectors @ query.vector, -1, 1)  # stored vectors are not exactly of length 1
        formula = query.formula.features
        similarities = combine_similarities(formula, *candidates.compare_terms(query.formula), cosines)
        relevance = weight_similarities(similarities, formula.known)
        relevance = favour_same_statements(relevance, formula, candidates.operators.formula_forms)
        if query.pattern is not None:
            candidates.matches = query.pattern.match(candidates.operators)
            relevance = rank_matches_first(relevance, candidates.matches)
    scores = combine_scores(relevance.astype(np.float64), candidates.text_score, formula=query is not None, text=text)
    if named:
        is_named = np.isin(candidates.keys, list(named))
        scores = np.where(is_named, _NAMED_SCORE + (1 - _NAMED_SCORE) * scores, _NAMED_SCORE * scores)
    candidates.similarity, candidates.score = cosines.astype(np.float64), scores.astype(np.float64)
    return np.lexsort((candidates.keys, -cosines, -scores))


def compare_collections(queries: Forest, query_vectors: Floats, formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of each formula to each query, (queries, formulas); vectors have length 1."""
    asked = _split(extract_features(queries))
    scores = np.zeros((len(asked), len(formulas)), np.float32)
    for start in range(0, len(formulas), _BLOCK_FORMULAS):
        block = slice(start, min(start + _BLOCK_FORMULAS, len(formulas)))
        collection = extract_features(formulas.select(np.arange(block.start, block.stop)))
        for at, query in enumerate(asked):
            scores[at, block] = compute_relevance(query, collection, vectors[block] @ query_vectors[at])
    return scores


def compare_within(formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of the formulas of a collection to each other; none is a candidate for itself."""
    collection = extract_features(formulas)
    scores = np.zeros((len(collection), len(collection)), np.float32)
    for at, query in enumerate(_split(collection)):
        scores[at] = compute_relevance(query, collection, vectors @ vectors[at])
        scores[at, at] = 0
    return scores


def _split(features: FormulaFeatures) -> list[FormulaFeatures]:
    return [features.select(np.array([at])) for at in range(len(features))]
