r"""P@k: how much of the top of a list is relevant.

$$ \mathrm{P@}k = \frac{1}{k} \sum_{i=1}^{k} \mathrm{rel}(i), \qquad
   \mathrm{rel}(i) = [\, \text{grade}_i \ge \text{level} \,] $$
"""

from __future__ import annotations

import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.metrics.grades import MIN_RELEVANT_GRADE, Grades, as_grades


def compute_precision(ranked: npt.ArrayLike, k: int, level: int = MIN_RELEVANT_GRADE) -> float:
    """Share of the first `k` places that a relevant formula stands at; a list that ends earlier has nothing there.

    Args:
        ranked: The grades of the list, best first; `UNJUDGED` is not relevant.
        k: How far to look, from 1 on.
        level: The lowest grade that is relevant.
    """
    if k < 1:
        raise BadInput(f"P@{k}: precision is of the first place at least")
    return _compute_precision(as_grades(ranked), k, level)


def _compute_precision(ranked: Grades, k: int, level: int) -> float:
    return float((ranked[:k] >= level).sum() / k)
