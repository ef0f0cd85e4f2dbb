"""The prime of a measure (nDCG', MAP', P'@k): unjudged formulas are dropped from the list before it is measured.

Sakai and Kando (2008) showed it to be robust where judgements are few, and ARQMath reports it: a list is not punished
for formulas that nobody looked at.
"""

from __future__ import annotations

import numpy.typing as npt

from eqkin.evaluation.metrics.grades import UNJUDGED, Grades, as_grades


def drop_unjudged(ranked: npt.ArrayLike) -> Grades:
    """The list without its unjudged formulas; the others move up."""
    grades = as_grades(ranked)
    return as_grades(grades[grades != UNJUDGED])
