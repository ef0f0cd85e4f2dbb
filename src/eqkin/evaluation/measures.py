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

from eqkin.errors import BadInput
from eqkin.evaluation.systems import import_optional

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.int64]
# (labels, labels): label of the pair, label of the third.
Counts: TypeAlias = npt.NDArray[np.float64]
# Grade by topic and formula.
Qrels: TypeAlias = Mapping[str, Mapping[str, int]]

# ARQMath grades from 0 to 3 and calls 2 and 3 relevant.
MIN_RELEVANT_GRADE = 2
_REL = f"rel={MIN_RELEVANT_GRADE}"
Numbers = npt.NDArray[np.float64]
RESAMPLES = 2_000
# Random sign patterns per test.
SIGN_FLIPS = 10_000
CONFIDENCE = 0.95
# With so many different queries at most, all sign patterns are tried.
_MAX_EXACT_DIFFERENCES = 13
# Sums of the same numbers in another order may differ by this share of the sum of their sizes.
_ROUNDING_TOLERANCE = 1e-9
# Signs in memory at once.
_MAX_CELLS = 4_000_000


@dataclass(frozen=True)
class Measure:
    """A measure of a ranked list; larger is better."""

    # For columns and files: letters, digits and hyphens.
    key: str
    title: str
    # For `ir_measures.parse_measure`.
    name: str


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


@dataclass(frozen=True)
class Score:
    """A figure with its 95 % interval; published figures have none."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        """Format as in `.507 [.488, .525]`."""
        if self.low is None or self.high is None:
            return format_share(self.value)
        return f"{format_share(self.value)} [{format_share(self.low)}, {format_share(self.high)}]"


def format_share(value: float) -> str:
    """Format a number between -1 and 1 with three decimals and without its leading zero."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def format_p(p: float) -> str:
    """Format a p-value for tables."""
    return "< .001" if p < 0.001 else format_share(p)


def bootstrap_mean(
    values: npt.ArrayLike,
    clusters: npt.NDArray[np.integer[Any]] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Score:
    """Compute the mean of a measure over queries, with its bootstrap interval.

    Args:
        values: The measure of each query.
        clusters: The cluster of each query, if queries of one cluster depend on each other, as those from one paper
            do. Clusters are drawn then, each with all of its queries.
        resamples: Number of resamples; the same `seed` draws the same ones for the same number of queries.
        seed: Seed of the draws.

    Returns:
        The score; without an interval if there is only one query or cluster.

    Raises:
        BadInput: There are no values, one is not finite, or there are not as many clusters as values.
    """
    sums = _check_values(values)
    counts = np.ones(len(sums))
    if clusters is not None:
        if np.shape(clusters) != sums.shape:
            raise BadInput(f"{len(sums)} values need as many clusters, got {np.shape(clusters)}")
        group = np.unique(clusters, return_inverse=True)[1]
        sums = np.bincount(group, sums).astype(np.float64)
        counts = np.bincount(group).astype(np.float64)
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Score(mean)
    generator = np.random.default_rng(seed)
    means = []
    for _ in range(resamples):
        drawn = generator.integers(len(sums), size=len(sums))
        means.append(sums[drawn].sum() / counts[drawn].sum())
    low, high = compute_percentile_interval(means)
    return Score(mean, low, high)


def draw_bootstrap_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> npt.NDArray[np.float32]:
    """Draw how often each of `n` items is in each resample, (resamples, n); every row adds up to `n`."""
    generator = np.random.default_rng(seed)
    rows = [np.bincount(generator.integers(n, size=n), minlength=n) for _ in range(resamples)]
    return np.array(rows, np.float32)


def compute_percentile_interval(resampled: npt.ArrayLike) -> tuple[float, float]:
    """Compute the 95 % interval that holds the middle of a score's resampled values; NaN values are ignored."""
    values = np.asarray(resampled, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        raise BadInput("no resample has a score: there are too few items for an interval")
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return float(low), float(high)


def compute_sign_flip_p(
    system: npt.ArrayLike, baseline: npt.ArrayLike, *, flips: int = SIGN_FLIPS, seed: int = 0
) -> float:
    """Compute the two-sided p-value of a paired randomisation test of two systems on the same queries.

    If the systems were equally good, each query's difference could have had the other sign just as well. The p-value
    is the share of sign patterns whose mean difference is at least as large, in either direction, as the measured one.
    If few queries differ, all patterns are tried; otherwise `flips` random ones and the measured one, so that p is
    never 0.

    Raises:
        BadInput: The systems were not measured on the same number of queries, or a value is not finite.
    """
    one = _check_values(system)
    other = _check_values(baseline)
    if one.shape != other.shape:
        raise BadInput(f"a paired test needs the same queries for both systems, got {len(one)} and {len(other)}")
    differences = (one - other)[one != other]
    if not len(differences):
        return 1.0
    measured = abs(differences.sum()) - _ROUNDING_TOLERANCE * np.abs(differences).sum()
    if len(differences) <= _MAX_EXACT_DIFFERENCES:
        patterns = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ differences) >= measured))
    larger = 0
    generator = np.random.default_rng(seed)
    block = max(1, _MAX_CELLS // len(differences))
    for start in range(0, flips, block):
        signs = generator.integers(2, size=(min(block, flips - start), len(differences)), dtype=np.int8) * 2 - 1
        larger += int((np.abs(signs @ differences) >= measured).sum())
    return (larger + 1) / (flips + 1)


def compute_two_sided_p(differences: npt.ArrayLike) -> float:
    """Compute the p-value of a difference of two scores from its values in resamples that both scores share.

    Twice the share of resamples in which it has the rarer sign; 0 counts for both signs. One is added, so that p is
    never 0.
    """
    values = np.asarray(differences, np.float64)
    values = values[~np.isnan(values)]
    rarer = min(np.count_nonzero(values <= 0), np.count_nonzero(values >= 0))
    return float(min(1.0, 2 * (rarer + 1) / (len(values) + 1)))


def _check_values(values: npt.ArrayLike) -> Numbers:
    numbers = np.asarray(values, np.float64).ravel()
    if not len(numbers):
        raise BadInput("there are no queries to compute a mean of")
    if not np.isfinite(numbers).all():
        raise BadInput(f"the measure of query {np.flatnonzero(~np.isfinite(numbers))[0]} is not finite")
    return numbers
