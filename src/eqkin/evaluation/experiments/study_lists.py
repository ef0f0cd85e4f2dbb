r"""Result lists of the search study, judged by keywords, and what is measured on them.

$$ \mathrm{P@}k = \frac{1}{k} \sum_{i \le k} \mathrm{rel}(i), \qquad
   \mathrm{uMAP} = \sum_{k \le 1000} \mathrm{P}(k)\, \mathrm{rel}(k) \quad \text{(mean over queries)} $$

Here it is known how many equations of the library are relevant to a query, as the paper wished it were. So a random
list's figures are known too, and MAP can be given: uMAP's sum divided by the relevant equations that fit into the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.metrics.average_precision import compute_unnormalised_ap
from eqkin.evaluation.metrics.precision import compute_precision
from eqkin.evaluation.sets.queries import StudyQuery
from eqkin.evaluation.sets.relevance import Flags

Values: TypeAlias = dict[str, npt.NDArray[np.float64]]  # a number for each query, by the key of the measure

CUTOFFS = (10, 100, 1_000)
_RELEVANT_GRADE = 1  # the grade of a result that counts


@dataclass(frozen=True, eq=False)
class KeywordJudgements:
    """Which equations of a library are relevant to which query."""

    queries: list[StudyQuery]
    sections: Flags  # (queries, sections)
    section: npt.NDArray[np.int32]  # (equations,) the section of each

    def is_relevant(self, query: int) -> Flags:
        """Which equations are relevant to a query."""
        relevant: Flags = self.sections[query][self.section]
        return relevant

    @cached_property
    def equations(self) -> npt.NDArray[np.int64]:
        """(queries,) how many equations are relevant."""
        sizes = np.bincount(self.section, minlength=self.sections.shape[1])
        return np.asarray(self.sections @ sizes, np.int64)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """(queries,) which share of all equations is relevant: what a random list has of them, at any length."""
        return self.equations / len(self.section)


@dataclass(frozen=True, eq=False)
class ResultLists:
    """What one system found."""

    name: str
    title: str
    hits: Flags  # (queries, depth) whether each result is relevant, best first

    def compute_precision(self, k: int) -> npt.NDArray[np.float64]:
        """P@k of each query."""
        return np.array([compute_precision(row, k, _RELEVANT_GRADE) for row in self.hits])

    def compute_measures(self, judgements: KeywordJudgements) -> Values:
        """Every measure of each query."""
        depth = self.hits.shape[1]
        sums = np.array([compute_unnormalised_ap(row, depth, _RELEVANT_GRADE) for row in self.hits])
        return {f"p{k}": self.compute_precision(k) for k in get_cutoffs(depth)} | _compute_averages(
            sums, judgements, depth
        )


def get_cutoffs(depth: int) -> list[int]:
    """Lengths of lists that precision is reported at."""
    return [k for k in CUTOFFS if k <= depth] or [depth]


def compute_random_measures(judgements: KeywordJudgements, depth: int) -> Values:
    """What a random order of all equations is expected to reach for each query.

    With R of n equations relevant, P(k) rel(k) is expected to be (R/n) (1 + (k - 1) (R - 1) / (n - 1)) / k.
    """
    relevant, total = judgements.equations[:, None].astype(np.float64), len(judgements.section)
    places = np.arange(1, min(depth, total) + 1)
    others = (relevant - 1) / max(total - 1, 1)
    sums = (relevant / total * (1 + (places - 1) * others) / places).sum(axis=1)
    filled = {k: min(k, total) / k for k in get_cutoffs(depth)}  # a list cannot be longer than the library
    return {f"p{k}": judgements.shares * filled[k] for k in filled} | _compute_averages(sums, judgements, depth)


def _compute_averages(sums: npt.NDArray[np.float64], judgements: KeywordJudgements, depth: int) -> Values:
    possible = np.minimum(judgements.equations, depth)
    return {"umap": sums, "map": sums / np.maximum(possible, 1)}
