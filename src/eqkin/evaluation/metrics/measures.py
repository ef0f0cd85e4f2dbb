"""Measures by name, as comparisons take them: each a function of a list's grades and of all grades of its topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqkin.evaluation.metrics.average_precision import average_precision
from eqkin.evaluation.metrics.bpref import bpref
from eqkin.evaluation.metrics.grades import Grades
from eqkin.evaluation.metrics.ndcg import ndcg
from eqkin.evaluation.metrics.precision import precision
from eqkin.evaluation.metrics.prime import prime


@dataclass(frozen=True)
class Measure:
    """A measure of one list; larger is better."""

    key: str  # for columns and files: letters, digits and hyphens
    title: str
    of: Callable[[Grades, Grades], float]  # of the list's grades, best first, and of all grades of the topic


NDCG = Measure("ndcg", "nDCG'", lambda ranked, judged: ndcg(prime(ranked), judged))
MAP = Measure("map", "MAP'", lambda ranked, judged: average_precision(prime(ranked), judged))
P10 = Measure("p10", "P'@10", lambda ranked, judged: precision(prime(ranked), 10))
BPREF = Measure("bpref", "bpref", bpref)
JUDGED = (NDCG, MAP, P10, BPREF)  # what judged sets are measured with
