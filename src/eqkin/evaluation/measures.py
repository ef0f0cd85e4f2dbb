r"""Measures of rankings: judged lists by ir-measures, agreement with labels, and ranks of partners.

Judged lists. nDCG', MAP' and P'@10 are the measures that ARQMath reports. The prime means that unjudged formulas are
dropped from the list first (Sakai and Kando 2008), so that a system is not punished for formulas that were never
judged. Grades of `MIN_RELEVANT_GRADE` and above count as relevant; the gain of nDCG is the grade itself. Where every
relevant formula is known, as with named laws, all others count as not relevant: MRR, MAP and hit@k have no prime.

Labels. Ranking of labelled equations (paper, section 6): how often two equations of one label are more similar than
either is to a third of another label,

$$ \mathrm{ranking} = \frac{\sum [\, s_{ij} \ge \max(s_{ik}, s_{jk}) \,]}{\sum 1}
   \quad \text{over } i < j \text{ of one label, } k \text{ of another.} $$

Triples are counted per label of the pair and label of the third. With C the correct and T all triples, a bootstrap
that draws label a w_a times has the score $w^T C w / w^T T w$, so every triple is compared only once. A tie counts as
correct; a constant similarity would then be perfect, so there is also a strict count, in which a tie is wrong.

Leave-one-out 1-NN accuracy: how often the most similar other equation has the same label,

$$ \mathrm{accuracy} = \frac{1}{|Q|} \sum_{i \in Q} [\, \text{label}(\arg\max_{j \ne i} s_{ij}) = \text{label}(i) \,] $$

Queries Q are the equations whose label has another member; the others are only distractors. If several equations are
equally near, the share of them with the right label counts, so the order of the file does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, compute_products, import_optional, normalize_rows

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = npt.NDArray[np.float64]  # (labels, labels): label of the pair, label of the third
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]  # grade by topic and formula

MIN_RELEVANT_GRADE = 2  # ARQMath: 2 and 3 of 0 to 3
_MAX_CELLS = 8_000_000  # of tables in memory at once
_QUERY_BATCH = 1_024
_TIE_DECIMALS = 6  # of similarities; smaller differences are ties, whatever the order of a machine's additions


@dataclass(frozen=True)
class Measure:
    """A measure of a ranked list, by its name in ir-measures; larger is better."""

    key: str  # for columns and files: letters, digits and hyphens
    title: str
    name: str  # for `ir_measures.parse_measure`


_REL = f"rel={MIN_RELEVANT_GRADE}"
NDCG = Measure("ndcg", "nDCG'", "nDCG(judged_only=True)")
MAP = Measure("map", "MAP'", f"AP({_REL},judged_only=True)")
P10 = Measure("p10", "P'@10", f"P({_REL},judged_only=True)@10")
BPREF = Measure("bpref", "bpref", f"Bpref({_REL})")
JUDGED_MEASURES = (NDCG, MAP, P10, BPREF)
COMPLETE_MEASURES = (
    Measure("mrr", "MRR", f"RR({_REL})"),
    Measure("map", "MAP", f"AP({_REL})"),
    Measure("hit1", "hit@1", f"Success({_REL})@1"),
    Measure("hit10", "hit@10", f"Success({_REL})@10"),
)


def measure_lists(
    topics: Sequence[str], lists: Sequence[Sequence[str]], qrels: Qrels, measures: Sequence[Measure] = JUDGED_MEASURES
) -> dict[str, list[float]]:
    """Compute measures of each topic's list, by the key of the measure.

    Args:
        topics: Names of the topics, all of them judged.
        lists: A list of formulas for each topic, best first; formulas that are missing were not found.
        qrels: The judgements.
        measures: What to compute.

    Returns:
        A number in [0, 1] for each topic; 0 for an empty list and for a topic without a relevant formula.
    """
    ir_measures = import_optional("ir_measures")
    parsed = {ir_measures.parse_measure(measure.name): measure.key for measure in measures}
    # -place as the score: the order given is the order measured, whatever the names of the formulas are
    run = {
        topic: {name: -float(place) for place, name in enumerate(names)}
        for topic, names in zip(topics, lists, strict=True)
    }
    judged = {topic: dict(qrels[topic]) for topic in topics}
    values = {measure.key: dict.fromkeys(topics, 0.0) for measure in measures}
    for metric in ir_measures.iter_calc(list(parsed), judged, run):
        values[parsed[metric.measure]][metric.query_id] = float(metric.value)
    return {key: list(by_topic.values()) for key, by_topic in values.items()}


def count_triples(groups: Integers) -> Counts:
    """Count all triples; `groups` (n,) are the numbers of the equations' labels, from 0 on."""
    sizes = np.bincount(groups).astype(np.float64)
    return np.outer(sizes * (sizes - 1) / 2, sizes) * (1 - np.eye(len(sizes)))


def count_correct_triples(similarity: Floats, groups: Integers, max_cells: int = _MAX_CELLS) -> tuple[Counts, Counts]:
    """Count the triples that are ranked correctly: first with ties as correct, then with ties as wrong.

    Args:
        similarity: (n, n) symmetric; the diagonal is ignored.
        groups: (n,) the number of each equation's label, from 0 on.
        max_cells: Size of the tables in memory at once.
    """
    labels = int(groups.max(initial=-1)) + 1
    loose, strict = np.zeros((labels, labels)), np.zeros((labels, labels))
    for group in np.flatnonzero(np.bincount(groups) > 1).tolist():
        members, others = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        within, across = similarity[np.ix_(members, members)], similarity[np.ix_(members, others)]
        correct, ties = np.zeros(len(others)), np.zeros(len(others))
        block = max(1, max_cells // max(1, len(others)))
        for first in range(len(members) - 1):
            for start in range(first + 1, len(members), block):
                seconds = slice(start, start + block)
                pair, highest = within[first, seconds, None], np.maximum(across[first], across[seconds])
                correct += (pair >= highest).sum(axis=0)
                ties += (pair == highest).sum(axis=0)
        loose[group] = np.bincount(groups[others], correct, labels)
        strict[group] = np.bincount(groups[others], correct - ties, labels)
    return loose, strict


def compute_ranking_scores(correct: Counts, total: Counts, weights: Floats) -> npt.NDArray[np.float64]:
    """Compute the ranking for each row of weights, (m, labels): how often each label was drawn; NaN without triples."""
    drawn = weights.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = ((drawn @ correct) * drawn).sum(axis=1) / ((drawn @ total) * drawn).sum(axis=1)
    return np.asarray(scores, np.float64)


def score_nearest_labels(similarity: Floats, groups: Integers) -> npt.NDArray[np.float64]:
    """Score the nearest neighbour of each equation, 0 to 1; NaN for an equation that is alone in its group.

    Args:
        similarity: (n, n) how related each equation (row) is to each other one; the diagonal is ignored.
        groups: (n,) the number of each equation's label, from 0 on.
    """
    scores = np.full(len(groups), np.nan)
    for query in np.flatnonzero(np.bincount(groups)[groups] > 1).tolist():
        row = similarity[query].astype(np.float64)
        row[query] = -np.inf
        scores[query] = np.mean(groups[row == row.max()] == groups[query])
    return scores


def compute_partner_ranks(vectors: Float32s) -> Integers:
    """Rank each formula's partner among all other formulas by cosine; the first rank is 0.

    A partner that ties with other formulas is ranked behind them, and so is one whose cosine is NaN.

    Args:
        vectors: Vectors of n left sides, then of the right sides in the same order.
    """
    unit = normalize_rows(vectors)
    count = len(vectors)
    ranks = np.empty(count, np.int64)
    for first in range(0, count, _QUERY_BATCH):
        query = np.arange(first, min(first + _QUERY_BATCH, count))
        row = np.arange(len(query))
        similarity = np.round(compute_products(unit[first : first + len(query)], unit), _TIE_DECIMALS)
        partner = similarity[row, (query + count // 2) % count]
        similarity[row, query] = -np.inf
        ranks[query] = (~(similarity < partner[:, None])).sum(axis=1) - 1  # without the partner itself
    return ranks


def compute_mrr(vectors: Float32s) -> float:
    """Compute the mean reciprocal rank of all partners."""
    return float(np.mean(1 / (compute_partner_ranks(vectors) + 1)))


def find_hits(ranks: npt.NDArray[np.integer[Any]], k: int) -> npt.NDArray[np.float64]:
    """Compute R@k of queries with one right answer: 1 if it is among the first `k`, else 0.

    Args:
        ranks: The rank of each query's answer, from 0 on; negative if it is not in the list.
        k: Depth of the list, at least 1.
    """
    if k < 1:
        raise BadInput(f"k must be at least 1, got {k}")
    return ((ranks >= 0) & (ranks < k)).astype(np.float64)
