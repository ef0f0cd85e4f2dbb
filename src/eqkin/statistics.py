"""Uncertainty of measured scores: U-statistics of dependent triples, the bootstrap, and paired tests.

Held-out triples (paper, section 5). A score is the mean of a kernel with values in [0, 1] over triples of equations.
Equations of one paper depend on each other, and so do triples that share a paper: Hoeffding's bound does not hold, but
Janson's (2004) for sums of partly dependent variables does. It costs a factor: the number of colours needed to colour
the triples so that no two triples of one colour share a paper.

Queries. Percentile bootstrap (Efron 1979): queries are drawn again with replacement, as many as there are, and the
score is computed on each resample; the middle 95 % of these scores are the interval. Drawing an item twice means
weight 2, so a resample is a row of weights, and a score that is not a plain mean can be resampled by weighting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]

RESAMPLES = 2_000
SIGN_FLIPS = 10_000  # random sign patterns per test
CONFIDENCE, DELTA = 0.95, 0.05  # an interval holds the true score with probability 1 - delta
_MAX_CELLS = 4_000_000  # weights or signs in memory at once
_MAX_EXACT_DIFFERENCES = 13  # up to here all sign patterns are tried
_ROUNDING_TOLERANCE = 1e-9  # by which sums of the same numbers may differ, relative to the sum of their sizes


@dataclass(frozen=True)
class Score:
    """A figure with its 95 % interval; published figures have none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class RankingScore:
    """The ranking score on a set of triples, with what its interval depends on."""

    interval: Score  # within [0, 1]
    triples: int
    colours: int  # of the triples, so that no two triples of one colour share a paper
    papers: int  # that occur in the triples

    @property
    def score(self) -> float:
        """Share of the triples ranked correctly; NaN if there are none."""
        return self.interval.value

    def __str__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{100 * self.score:.1f} %"
        low, high = (100 * (bound or 0.0) for bound in (self.interval.low, self.interval.high))
        return f"{score} [{low:.1f}, {high:.1f}] on {self.triples:,} triples from {self.papers:,} papers"


def compute_incomplete_interval(score: float, colours: int, triples: int, delta: float = DELTA) -> Score:
    """Compute the interval of an incomplete U-statistic: the mean over triples D drawn with replacement.

        |s - score| <= sqrt( chi ln(2 / delta) / (2 |D|) )   with probability at least 1 - delta

    with chi = `colours`, |D| = `triples`; the paper's one-sided bound at delta / 2, applied to both sides and clipped
    to [0, 1]. Without triples it is [0, 1].
    """
    if not 0 < delta < 1:
        raise BadInput(f"delta must be between 0 and 1, such as 0.05, got {delta}")
    if colours < 0 or triples < 0:
        raise BadInput(f"colours and triples must not be negative, got {colours} and {triples}")
    if score < 0 or score > 1:
        raise BadInput(f"the score must be between 0 and 1, got {score}")
    if triples == 0 or math.isnan(score):
        return Score(score, 0.0, 1.0)
    width = math.sqrt(colours * math.log(2 / delta) / (2 * triples))
    return Score(score, max(0.0, score - width), min(1.0, score + width))


def score_ranking(positive: Floats, negative: Floats, papers: Integers) -> RankingScore:
    """Compute the share of triples whose positive pair is more similar than the negative pair, with its interval.

    Args:
        positive: (n,) similarities of anchor and positive.
        negative: (n,) similarities of anchor and negative.
        papers: (n, 3) the papers that contain anchor, positive and negative.

    Returns:
        The score; ties and NaN count as wrong. Without triples the score is NaN and its interval [0, 1].
    """
    positive, negative, triples = np.asarray(positive), np.asarray(negative), _check_triples(papers)
    if positive.shape != (len(triples),) or negative.shape != (len(triples),):
        raise BadInput(f"{len(triples)} triples need as many similarities, got {positive.shape} and {negative.shape}")
    score = float(np.mean(positive > negative)) if len(triples) else math.nan
    colours = count_colours(triples)
    interval = compute_incomplete_interval(score, colours, len(triples))
    return RankingScore(interval, len(triples), colours, len(np.unique(triples)))


def count_colours(papers: Integers) -> int:
    """Count the colours that `color_triples` gives to the triples `papers` (n, 3); 0 for none."""
    return int(color_triples(papers).max(initial=-1)) + 1


def color_triples(papers: Integers) -> npt.NDArray[np.int64]:
    """Give each triple a colour, counted from 0, so that triples that share a paper differ.

    Every triple gets the lowest colour that is free at all of its papers, in the order in which they were drawn. For
    triples in random order this needs hardly more colours than the busiest paper has triples, and no colouring can do
    with fewer; sorting them by degree first makes it worse. The colours used at a paper are the bits of one integer,
    so time grows with the number of triples and not with the number of pairs.

    Args:
        papers: (n, 3) the papers of each triple, any integers; those of one triple may be equal.

    Returns:
        (n,) colours, at most 3 (d - 1) + 1 of them if no paper is in more than d triples.
    """
    triples = _check_triples(papers)
    names, numbers = np.unique(triples, return_inverse=True)
    used = [0] * len(names)
    colours = np.empty(len(triples), np.int64)
    for index, (anchor, positive, negative) in enumerate(numbers.reshape(-1, 3).tolist()):
        taken = used[anchor] | used[positive] | used[negative]
        colour = ~taken & (taken + 1)  # the lowest bit that is not set
        colours[index] = colour.bit_length() - 1
        used[anchor] |= colour
        used[positive] |= colour
        used[negative] |= colour
    return colours


def _check_triples(papers: Integers) -> Integers:
    papers = np.asarray(papers)
    if papers.size == 0:
        return np.empty((0, 3), np.int64)
    if papers.ndim != 2 or papers.shape[1] != 3 or not np.issubdtype(papers.dtype, np.integer):
        raise BadInput(f"triples must be integers of shape (n, 3), got {papers.dtype} of shape {papers.shape}")
    return papers


def draw_bootstrap_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> npt.NDArray[np.float32]:
    """Draw how often each of `n` items is in each resample, (resamples, n); every row adds up to `n`."""
    return np.concatenate(list(iter_bootstrap_weights(n, resamples, seed)))


def iter_bootstrap_weights(
    n: int, resamples: int = RESAMPLES, seed: int = 0, *, max_cells: int = _MAX_CELLS
) -> Iterator[npt.NDArray[np.float32]]:
    """Iterate over the same weights, some rows at a time: as many as have `max_cells` weights."""
    if n < 1 or resamples < 1:
        raise BadInput(f"`n` and `resamples` must be positive, got {n} and {resamples}")
    generator = np.random.default_rng(seed)
    block = max(1, max_cells // n)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float32)


def bootstrap_mean(
    values: npt.ArrayLike,
    clusters: Integers | None = None,
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
    numbers = _check_values(values)
    counts = np.ones(len(numbers))
    if clusters is not None:
        if np.shape(clusters) != numbers.shape:
            raise BadInput(f"{len(numbers)} values need as many clusters, got {np.shape(clusters)}")
        group = np.unique(clusters, return_inverse=True)[1]
        numbers, counts = np.bincount(group, numbers).astype(np.float64), np.bincount(group).astype(np.float64)
    mean = float(numbers.sum() / counts.sum())
    if len(numbers) < 2:
        return Score(mean)
    means = [(row @ numbers) / (row @ counts) for row in iter_bootstrap_weights(len(numbers), resamples, seed)]
    return Score(mean, *compute_percentile_interval(np.concatenate(means)))


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
    system: npt.ArrayLike,
    baseline: npt.ArrayLike,
    *,
    flips: int = SIGN_FLIPS,
    seed: int = 0,
    max_exact: int = _MAX_EXACT_DIFFERENCES,
) -> float:
    """Compute the two-sided p-value of a paired randomisation test of two systems on the same queries.

    If the systems were equally good, each query's difference could have had the other sign just as well. The p-value
    is the share of sign patterns whose mean difference is at least as large, in either direction, as the measured one.
    With up to `max_exact` queries that differ all patterns are tried; otherwise `flips` random ones and the measured
    one, so that p is never 0.

    Raises:
        BadInput: The systems were not measured on the same number of queries, or a value is not finite.
    """
    one, other = _check_values(system), _check_values(baseline)
    if one.shape != other.shape:
        raise BadInput(f"a paired test needs the same queries for both systems, got {len(one)} and {len(other)}")
    differences = (one - other)[one != other]
    if not len(differences):
        return 1.0
    measured = abs(differences.sum()) - _ROUNDING_TOLERANCE * np.abs(differences).sum()
    if len(differences) <= max_exact:
        patterns = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ differences) >= measured))
    larger, generator = 0, np.random.default_rng(seed)
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


def format_p(p: float) -> str:
    """Format a p-value for tables."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _check_values(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    numbers = np.asarray(values, np.float64).ravel()
    if not len(numbers):
        raise BadInput("there are no queries to compute a mean of")
    if not np.isfinite(numbers).all():
        raise BadInput(f"the measure of query {np.flatnonzero(~np.isfinite(numbers))[0]} is not finite")
    return numbers
