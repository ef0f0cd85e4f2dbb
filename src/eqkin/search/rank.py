r"""Ranking: sort candidates by the relevance of their formulas and by how well their text matches.

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
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.search.backend import Snapshot
from eqkin.search.candidates import Candidates, QueryFeatures, RankedCandidates
from eqkin.search.features import QueryTerms, compute_relevance, extract_norms
from eqkin.search.wildcards import rank_matches_first

TEXT_WEIGHT = 0.25
MAX_COMPARED = 250  # candidates of a search by text whose operator trees are compared with each other
_MAX_MATCHED = 600  # most relevant candidates that are matched with a query's wildcards
_NAMED_SCORE = 0.9  # least score of an equation with the name that was asked for
_BLOCK_FORMULAS = 20_000  # formulas of a collection whose operator trees are in memory together

Floats = npt.NDArray[np.float32]
Scores = npt.NDArray[np.floating[Any]]


def combine_scores(relevance: Scores, text_scores: Scores, *, formula: bool, text: bool) -> Scores:
    """Compute the scores a list is sorted by, in [0, 1], for a query with a formula, text, or both."""
    if formula and text:
        return (1 - TEXT_WEIGHT) * relevance + TEXT_WEIGHT * text_scores
    return relevance if formula else text_scores


def rank(
    snapshot: Snapshot, query: QueryFeatures | None, candidates: Candidates, *, text: bool, named: Collection[int] = ()
) -> RankedCandidates:
    """Compute the scores of candidates and sort them, best first.

    Equations with the name that was asked for come before all others. Then come those that are the same statement with
    the same names: in another notation, one may have a lower score than a formula that only looks like the query.

    Args:
        snapshot: Where the candidates come from.
        query: The formula; None for text alone.
        candidates: Those that were retrieved.
        text: Whether text is searched for.
        named: Keys of equations with the name that was asked for.

    Raises:
        NoSuchEquation: an equation is gone.
    """
    keys = candidates.columns.keys
    cosines = relevance = np.zeros(len(keys), np.float32)
    is_same = np.zeros(len(keys), bool)
    matches = np.zeros(len(keys), np.uint8)
    operators: OperatorForest | None = None
    if query is not None and len(keys):
        operators = snapshot.get_operators(keys)
        norms = snapshot.get_norms(keys, operators)
        # Stored vectors are not exactly of length 1.
        # Not a product of matrices, whose last bits depend on the place of a row: copies of a formula must tie.
        cosines = np.clip(np.einsum("ij,j->i", candidates.vectors, query.vector), -1, 1)
        relevance = compute_relevance(query.terms, operators, norms, cosines)
        if query.pattern is not None:
            nearest = np.argsort(-relevance, kind="stable")[:_MAX_MATCHED]
            matches[nearest] = query.pattern.match(operators.select(nearest))
            relevance = rank_matches_first(relevance, matches)
        else:
            is_same = share_form(operators.formula_forms, query.operators.formula_forms[:1], kinds=["canonical"])
    scores = combine_scores(relevance.astype(np.float64), candidates.text_score, formula=query is not None, text=text)
    is_named = np.isin(keys, list(named))
    if named:
        scores = np.where(is_named, _NAMED_SCORE + (1 - _NAMED_SCORE) * scores, _NAMED_SCORE * scores)
    order = np.lexsort((keys, -cosines, -scores, ~is_same, ~is_named))
    if operators is not None:
        operators = operators.select(order)
    elif len(order):
        operators = snapshot.get_operators(keys[order[:MAX_COMPARED]])
    else:
        operators = OperatorForest.concatenate([])
    return RankedCandidates(
        columns=candidates.columns.select(order),
        vectors=candidates.vectors[order],
        operators=operators,
        similarity=cosines[order].astype(np.float64),
        text_score=candidates.text_score[order],
        score=scores[order].astype(np.float64),
        matches=matches[order],
    )


def compare_collections(queries: Forest, query_vectors: Floats, formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of each formula to each query, (queries, formulas); vectors have length 1."""
    asked = _extract_each(parse_operators(queries))
    scores = np.zeros((len(asked), len(formulas)), np.float32)
    for start in range(0, len(formulas), _BLOCK_FORMULAS):
        block = slice(start, min(start + _BLOCK_FORMULAS, len(formulas)))
        operators = parse_operators(formulas.select(np.arange(block.start, block.stop)))
        norms = extract_norms(operators)
        for at, query in enumerate(asked):
            scores[at, block] = compute_relevance(query, operators, norms, vectors[block] @ query_vectors[at])
    return scores


def compare_within(formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of the formulas of a collection to each other; none is a candidate for itself."""
    scores = compare_collections(formulas, vectors, formulas, vectors)
    np.fill_diagonal(scores, 0)
    return scores


def _extract_each(operators: OperatorForest) -> list[QueryTerms]:
    return [QueryTerms.extract(operators.select([tree])) for tree in range(len(operators))]
