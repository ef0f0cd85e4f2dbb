r"""AP: the mean of the precision at each relevant formula; its mean over topics is MAP. And the paper's uAP.

$$ \mathrm{AP} = \frac{1}{R} \sum_{k} \mathrm{P}(k)\, \mathrm{rel}(k), \qquad
   \mathrm{uAP} = \sum_{k \le 1000} \mathrm{P}(k)\, \mathrm{rel}(k) $$

with R the number of formulas relevant to the topic. The paper's search study counts by keywords, so R is unknown and
it does not divide: uMAP, the mean of uAP over queries, goes up to 1,000 (paper, section 6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.metrics.grades import MIN_RELEVANT_GRADE, Grades, as_grades, count_relevant

PAPER_DEPTH = 1_000  # of the paper's lists


def compute_ap(ranked: npt.ArrayLike, judged: npt.ArrayLike, level: int = MIN_RELEVANT_GRADE) -> float:
    """AP of one list; relevant formulas that are not in it count as never found.

    Args:
        ranked: The grades of the list, best first; `UNJUDGED` is not relevant.
        judged: All grades the topic was given, in any order.
        level: The lowest grade that is relevant.

    Returns:
        0 to 1; 0 for a topic without a relevant formula, as trec_eval has it.
    """
    return _sum_precisions(as_grades(ranked), level) / max(1, count_relevant(as_grades(judged), level))


def compute_unnormalised_ap(ranked: npt.ArrayLike, depth: int = PAPER_DEPTH, level: int = MIN_RELEVANT_GRADE) -> float:
    """UAP of one list: the sum of the precisions at its relevant places, up to `depth`; 0 to `depth`."""
    return _sum_precisions(as_grades(ranked)[:depth], level)


def _sum_precisions(ranked: Grades, level: int) -> float:
    places = np.flatnonzero(ranked >= level)
    return float((np.arange(1, len(places) + 1) / (places + 1)).sum())
