"""What measures are given: the grades of a result list, best first, and all grades a topic was given."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Grades: TypeAlias = npt.NDArray[np.integer[Any]]

UNJUDGED = -1  # the grade of a formula in a list that nobody judged for the topic
MIN_RELEVANT_GRADE = (
    2  # grades from here on count as relevant where a measure knows only yes and no (ARQMath: 2 and 3 of 0 to 3)
)


def as_grades(values: npt.ArrayLike) -> Grades:
    """Grades as an array of integers."""
    return np.asarray(values, np.int64).ravel()


def count_relevant(judged: Grades, level: int = MIN_RELEVANT_GRADE) -> int:
    """R: how many formulas are relevant to the topic, whether they were found or not."""
    return int(np.count_nonzero(judged >= level))
