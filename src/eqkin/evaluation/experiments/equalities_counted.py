"""Equalities by vectors and structure, in two steps as eqkin searches.

    similarity = cosine + w counted

gives candidates, with w chosen on the pairs that are kept apart for choosing; the best of them are compared closely
(`equalities_closely.py`), by what is learned from these pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.experiments.equalities_closely import (
    BOOSTING_SETTINGS,
    RERANK_DEPTH,
    PartnerClassifier,
    SideCandidates,
)
from eqkin.evaluation.metrics.other_sides import compute_mrr
from eqkin.evaluation.systems.base import Floats, compute_products, normalize_rows
from eqkin.evaluation.systems.terms import import_optional
from eqkin.search.features import SIMILARITIES, extract_features, normalise_by_length
from eqkin.trees import Forest, idf

STRUCTURE_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


class StructureOverlap:
    """`kinship.counted` of all pairs of some formulas, a few rows at a time."""

    def __init__(self, forest: Forest) -> None:
        counted = extract_features(forest, tokens=False)
        codes, column = np.unique(counted.terms.code, return_inverse=True)
        shape = len(counted), max(len(codes), 1)
        self._weights = import_optional("scipy.sparse").csr_matrix(
            (counted.weight, column.astype(np.int32), counted.terms.offsets), shape
        )
        self._norms = counted.norms.sum(axis=0)

    def __call__(self, rows: slice) -> Floats:
        """How much structure some formulas share with each of all."""
        common = compute_products(self._weights[rows], self._weights)
        return np.asarray(normalise_by_length(common, self._norms[rows, None], self._norms[None, :]), np.float32)

    def scale(self, weight: float) -> Callable[[slice], Floats] | None:
        """The same with a weight; None where it is 0."""
        return (lambda rows: np.float32(weight) * self(rows)) if weight else None


@dataclass(frozen=True, eq=False)
class EmbeddedSides:
    """Sides of pairs, left ones first."""

    forest: Forest
    vectors: Floats


def describe_structure_settings() -> dict[str, Any]:
    """What the counted part depends on beside the formulas."""
    closely = BOOSTING_SETTINGS | {"candidates": RERANK_DEPTH, "similarities": list(SIMILARITIES)}
    terms = sha256(idf.BUNDLED_FREQUENCIES.read_bytes()).hexdigest()
    return {"weights": list(STRUCTURE_WEIGHTS), "frequencies": terms, "closely": closely}


def rank_with_structure(check: EmbeddedSides, test: EmbeddedSides) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """Where each side to test on finds its other side, and what was chosen and learned for it."""
    counted = StructureOverlap(check.forest)
    reached = {weight: compute_mrr(check.vectors, counted.scale(weight)) for weight in STRUCTURE_WEIGHTS}
    best = max(STRUCTURE_WEIGHTS, key=lambda weight: reached[weight])
    candidates, columns = _find_candidates(check, best)
    learned = PartnerClassifier(columns, candidates.is_partner)
    candidates, columns = _find_candidates(test, best)
    return candidates.compute_ranks(learned(columns)), {"counted": best, "score_with_counted": reached[best]}


def _find_candidates(sides: EmbeddedSides, weight: float) -> tuple[SideCandidates, Floats]:
    """The best candidates, and what is compared of them."""
    vectors = np.asarray(normalize_rows(sides.vectors), np.float32)
    more = StructureOverlap(sides.forest).scale(weight)

    def alike(rows: slice) -> Floats:
        found = compute_products(vectors[rows], vectors)
        if more:
            found += more(rows)
        found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = -np.inf
        return found

    candidates = SideCandidates.find(alike, len(vectors))
    return candidates, candidates.compute_features(extract_features(sides.forest), vectors)
