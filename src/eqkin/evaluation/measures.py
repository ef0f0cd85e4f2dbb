r"""Measures of rankings: judged lists by ir-measures, and how well similarities agree with labels.

Judged lists. nDCG', MAP' and P'@10 are the measures that ARQMath reports. The prime means that unjudged formulas are
dropped from the list first (Sakai and Kando 2008), so that a system is not punished for formulas that were never
judged. Grades of `MIN_RELEVANT_GRADE` and above count as relevant; the gain of nDCG is the grade itself. Where every
relevant formula is known, as with named laws, all others count as not relevant: MRR, MAP and hit@k have no prime.

Ranking of labelled equations (paper, section 6): how often two equations of one label are more similar than either is
to a third of another label,

$$ \mathrm{ranking} = \frac{\sum [\, s_{ij} \ge \max(s_{ik}, s_{jk}) \,]}{\sum 1}
   \quad \text{over } i < j \text{ of one label, } k \text{ of another.} $$

Triples are counted by the label of the pair and the label of the third. With C the correct and T all triples, a
bootstrap that draws label a w_a times has the score $w^T C w / w^T T w$, so every triple is compared only once.

Leave-one-out 1-NN accuracy: how often the most similar other equation has the same label. Queries are the equations
whose label has another member; the others are only distractors. If several equations are equally near, the share of
them with the right label counts, so the order of the file does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.formulas import import_optional

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.int64]
# (labels, labels): label of the pair, label of the third.
Counts: TypeAlias = npt.NDArray[np.float64]
# Grade by topic and formula.
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]

# ARQMath grades from 0 to 3 and calls 2 and 3 relevant.
MIN_RELEVANT_GRADE = 2


@dataclass(frozen=True)
class Measure:
    """A measure of a ranked list; larger is better."""

    # For columns and files: letters, digits and hyphens.
    key: str
    title: str
    # For `ir_measures.parse_measure`.
    name: str


_REL = f"rel={MIN_RELEVANT_GRADE}"
JUDGED_MEASURES = (
    Measure("ndcg", "nDCG'", "nDCG(judged_only=True)"),
    Measure("map", "MAP'", f"AP({_REL},judged_only=True)"),
    Measure("p10", "P'@10", f"P({_REL},judged_only=True)@10"),
    Measure("bpref", "bpref", f"Bpref({_REL})"),
)
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
    keys = {ir_measures.parse_measure(measure.name): measure.key for measure in measures}
    # The score is the place with a minus sign: ir-measures would sort equal scores by name.
    run = {
        topic: {name: -float(place) for place, name in enumerate(names)}
        for topic, names in zip(topics, lists, strict=True)
    }
    judged = {topic: dict(qrels[topic]) for topic in topics}
    values = {measure.key: dict.fromkeys(topics, 0.0) for measure in measures}
    for metric in ir_measures.iter_calc(list(keys), judged, run):
        values[keys[metric.measure]][metric.query_id] = float(metric.value)
    return {key: list(by_topic.values()) for key, by_topic in values.items()}


def count_triples(groups: Integers) -> Counts:
    """Count all triples; `groups` (n,) are the numbers of the equations' labels, from 0 on."""
    sizes = np.bincount(groups).astype(np.float64)
    return np.outer(sizes * (sizes - 1) / 2, sizes) * (1 - np.eye(len(sizes)))


def count_correct_triples(similarity: Floats, groups: Integers) -> Counts:
    """Count the triples that are ranked correctly; a tie is correct.

    Args:
        similarity: (n, n) symmetric; the diagonal is ignored.
        groups: (n,) the number of each equation's label, from 0 on.
    """
    labels = int(groups.max(initial=-1)) + 1
    counts = np.zeros((labels, labels))
    for group in np.flatnonzero(np.bincount(groups) > 1).tolist():
        members = np.flatnonzero(groups == group)
        others = np.flatnonzero(groups != group)
        within = similarity[np.ix_(members, members)]
        across = similarity[np.ix_(members, others)]
        correct = np.zeros(len(others))
        for first in range(len(members) - 1):
            nearest = np.maximum(across[first], across[first + 1 :])
            correct += (within[first, first + 1 :, None] >= nearest).sum(axis=0)
        counts[group] = np.bincount(groups[others], correct, labels)
    return counts


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
