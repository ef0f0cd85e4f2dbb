"""Measures by name, as comparisons take them: each a function of a list's grades and of all grades of its topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqkin.evaluation.metrics.average_precision import compute_ap
from eqkin.evaluation.metrics.bpref import compute_bpref
from eqkin.evaluation.metrics.grades import Grades
from eqkin.evaluation.metrics.ndcg import compute_ndcg
from eqkin.evaluation.metrics.precision import compute_precision
from eqkin.evaluation.metrics.prime import drop_unjudged


@dataclass(frozen=True)
class Measure:
    """A measure of one list; larger is better."""

    key: str  # for columns and files: letters, digits and hyphens
    title: str
    compute: Callable[[Grades, Grades], float]  # of the list's grades, best first, and of all grades of the topic


NDCG = Measure("ndcg", "nDCG'", lambda ranked, judged: compute_ndcg(drop_unjudged(ranked), judged))
MAP = Measure("map", "MAP'", lambda ranked, judged: compute_ap(drop_unjudged(ranked), judged))
P10 = Measure("p10", "P'@10", lambda ranked, judged: compute_precision(drop_unjudged(ranked), 10))
BPREF = Measure("bpref", "bpref", compute_bpref)
JUDGED_MEASURES = (NDCG, MAP, P10, BPREF)  # what judged sets are measured with
