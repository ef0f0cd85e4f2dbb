r"""nDCG: graded gains, discounted by place, beside those of the best possible list.

$$ \mathrm{nDCG} = \frac{\mathrm{DCG}(\text{list})}{\mathrm{DCG}(\text{all judged, best first})}, \qquad
   \mathrm{DCG} = \sum_{i} \frac{\text{grade}_i}{\log_2(i + 1)} $$

The gain is the grade itself, as in trec_eval; the ideal list holds every formula judged for the topic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.metrics.grades import Grades, as_grades


def compute_ndcg(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int | None = None) -> float:
    """NDCG of one list.

    Args:
        ranked: The grades of the list, best first; `UNJUDGED` gains nothing.
        judged: All grades the topic was given, in any order.
        k: How many places count, in the list and in the ideal one; None for all.

    Returns:
        0 to 1; 0 for a topic all of whose grades are 0.
    """
    ideal = _compute_dcg(np.sort(as_grades(judged))[::-1][:k])
    return _compute_dcg(as_grades(ranked)[:k]) / ideal if ideal > 0 else 0.0


def _compute_dcg(grades: Grades) -> float:
    return float((np.maximum(grades, 0) / np.log2(np.arange(2, len(grades) + 2))).sum())
