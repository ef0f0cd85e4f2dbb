r"""bpref: how seldom a formula judged not relevant stands above a relevant one; unjudged formulas do not matter.

$$ \mathrm{bpref} = \frac{1}{R} \sum_{r} \Bigl( 1 - \frac{\min(n_r, R)}{\min(N, R)} \Bigr) $$

over the relevant formulas r in the list, with n_r the formulas judged not relevant above r, and R and N the topic's
relevant and not relevant ones: the definition of trec_eval, which corrects that of Buckley and Voorhees (2004).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.metrics.grades import MIN_RELEVANT_GRADE, UNJUDGED, Grades, as_grades, count_relevant


def compute_bpref(ranked: npt.ArrayLike, judged: npt.ArrayLike, level: int = MIN_RELEVANT_GRADE) -> float:
    """Bpref of one list.

    Args:
        ranked: The grades of the list, best first, `UNJUDGED` among them.
        judged: All grades the topic was given, in any order.
        level: The lowest grade that is relevant.

    Returns:
        0 to 1; 0 for a topic without a relevant formula.
    """
    grades = as_grades(judged)
    wanted = count_relevant(grades, level)
    return _bpref(as_grades(ranked), wanted, len(grades) - wanted, level) if wanted else 0.0


def _bpref(ranked: Grades, wanted: int, unwanted: int, level: int) -> float:
    ranked = ranked[ranked != UNJUDGED]
    right = ranked >= level
    above = np.minimum(np.cumsum(~right)[right], wanted)
    return float((1 - above / max(1, min(unwanted, wanted))).sum() / wanted)  # without unwanted ones, above is 0
