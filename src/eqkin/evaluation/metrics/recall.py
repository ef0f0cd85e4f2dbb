r"""R@k: how much of what is relevant stands at the top of a list.

$$ \mathrm{R@}k = \frac{1}{R} \sum_{i=1}^{k} \mathrm{rel}(i) $$

Where each query has one right answer, as the equalities have, its mean over queries is the share of queries whose
answer stands among the first k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.metrics.grades import MIN_RELEVANT_GRADE, as_grades, count_relevant


def compute_recall(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int, level: int = MIN_RELEVANT_GRADE) -> float:
    """R@k of one list.

    Args:
        ranked: The grades of the list, best first; `UNJUDGED` is not relevant.
        judged: All grades the topic was given, in any order.
        k: How far to look, from 1 on.
        level: The lowest grade that is relevant.

    Returns:
        0 to 1; 0 for a topic without a relevant formula.
    """
    _check_k(k)
    return count_relevant(as_grades(ranked)[:k], level) / max(1, count_relevant(as_grades(judged), level))


def find_hits(places: npt.NDArray[np.integer[Any]], k: int) -> npt.NDArray[np.float64]:
    """R@k of many queries with one right answer each: 1 where it stands among the first `k`, 0 elsewhere.

    Args:
        places: The place of each query's answer, the first is 0; negative where it is not in the list.
        k: How far to look, from 1 on.
    """
    _check_k(k)
    return ((places >= 0) & (places < k)).astype(np.float64)


def _check_k(k: int) -> None:
    if k < 1:
        raise BadInput(f"R@{k}: recall is of the first place at least")
