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

from eqkin.evaluation.experiments.equalities_closely import CANDIDATES, SETTINGS, Candidates, Learned
from eqkin.evaluation.metrics.other_sides import reciprocal_rank
from eqkin.evaluation.systems.base import Floats, products, unit
from eqkin.evaluation.systems.terms import installed
from eqkin.forest import Forest
from eqkin.search.kinship import SIMILARITIES, pivoted, profile
from eqkin.structure import frequencies

WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


class Counted:
    """`kinship.counted` of all pairs of some formulas, a few rows at a time."""

    def __init__(self, forest: Forest) -> None:
        counted = profile(forest, tokens=False)
        codes, column = np.unique(counted.terms.code, return_inverse=True)
        shape = len(counted), max(len(codes), 1)
        self._weights = installed("scipy.sparse").csr_matrix(
            (counted.weight, column.astype(np.int32), counted.terms.offsets), shape
        )
        self._norms = counted.norms.sum(axis=0)

    def __call__(self, rows: slice) -> Floats:
        """How much structure some formulas share with each of all."""
        common = products(self._weights[rows], self._weights)
        return np.asarray(pivoted(common, self._norms[rows, None], self._norms[None, :]), np.float32)

    def times(self, weight: float) -> Callable[[slice], Floats] | None:
        """The same with a weight; None where it is 0."""
        return (lambda rows: np.float32(weight) * self(rows)) if weight else None


@dataclass(frozen=True, eq=False)
class Sides:
    """Sides of pairs, left ones first."""

    forest: Forest
    vectors: Floats


def how_counted() -> dict[str, Any]:
    """What the counted part depends on beside the formulas."""
    closely = SETTINGS | {"candidates": CANDIDATES, "similarities": list(SIMILARITIES)}
    terms = sha256(frequencies.BUNDLED.read_bytes()).hexdigest()
    return {"weights": list(WEIGHTS), "frequencies": terms, "closely": closely}


def found_by_both(check: Sides, test: Sides) -> tuple[npt.NDArray[np.int64], dict[str, Any]]:
    """Where each side to test on finds its other side, and what was chosen and learned for it."""
    counted = Counted(check.forest)
    reached = {weight: reciprocal_rank(check.vectors, counted.times(weight)) for weight in WEIGHTS}
    best = max(WEIGHTS, key=lambda weight: reached[weight])
    candidates, columns = _closely(check, best)
    learned = Learned(columns, candidates.right)
    candidates, columns = _closely(test, best)
    return candidates.places(learned(columns)), {"counted": best, "score_with_counted": reached[best]}


def _closely(sides: Sides, weight: float) -> tuple[Candidates, Floats]:
    """The best candidates, and what is compared of them."""
    vectors = np.asarray(unit(sides.vectors), np.float32)
    more = Counted(sides.forest).times(weight)

    def alike(rows: slice) -> Floats:
        found = products(vectors[rows], vectors)
        if more:
            found += more(rows)
        found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = -np.inf
        return found

    candidates = Candidates.of(alike, len(vectors))
    return candidates, candidates.columns(profile(sides.forest), vectors)
