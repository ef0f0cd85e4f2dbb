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

from eqkin.evaluation.metrics.average_precision import unnormalised_average_precision
from eqkin.evaluation.metrics.precision import precision
from eqkin.evaluation.sets.queries import Query
from eqkin.evaluation.sets.relevance import Flags

Values: TypeAlias = dict[str, npt.NDArray[np.float64]]  # a number for each query, by the key of the measure

CUTS = (10, 100, 1_000)
_RELEVANT = 1  # the grade of a result that counts


@dataclass(frozen=True, eq=False)
class Judgements:
    """Which equations of a library are relevant to which query."""

    queries: list[Query]
    sections: Flags  # (queries, sections)
    section: npt.NDArray[np.int32]  # (equations,) the section of each

    def of(self, query: int) -> Flags:
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
class Lists:
    """What one system found."""

    name: str
    title: str
    hits: Flags  # (queries, depth) whether each result is relevant, best first

    def at(self, k: int) -> npt.NDArray[np.float64]:
        """P@k of each query."""
        return np.array([precision(row, k, _RELEVANT) for row in self.hits])

    def values(self, judgements: Judgements) -> Values:
        """Every measure of each query."""
        depth = self.hits.shape[1]
        sums = np.array([unnormalised_average_precision(row, depth, _RELEVANT) for row in self.hits])
        return {f"p{k}": self.at(k) for k in cuts(depth)} | _averages(sums, judgements, depth)


def cuts(depth: int) -> list[int]:
    """Lengths of lists that precision is reported at."""
    return [k for k in CUTS if k <= depth] or [depth]


def random_values(judgements: Judgements, depth: int) -> Values:
    """What a random order of all equations is expected to reach for each query.

    With R of n equations relevant, P(k) rel(k) is expected to be (R/n) (1 + (k - 1) (R - 1) / (n - 1)) / k.
    """
    relevant, total = judgements.equations[:, None].astype(np.float64), len(judgements.section)
    places = np.arange(1, min(depth, total) + 1)
    others = (relevant - 1) / max(total - 1, 1)
    sums = (relevant / total * (1 + (places - 1) * others) / places).sum(axis=1)
    filled = {k: min(k, total) / k for k in cuts(depth)}  # a list cannot be longer than the library
    return {f"p{k}": judgements.shares * filled[k] for k in filled} | _averages(sums, judgements, depth)


def _averages(sums: npt.NDArray[np.float64], judgements: Judgements, depth: int) -> Values:
    possible = np.minimum(judgements.equations, depth)
    return {"umap": sums, "map": sums / np.maximum(possible, 1)}
