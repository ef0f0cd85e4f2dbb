"""Uncertainty of measured scores: the bootstrap, and paired tests.

Percentile bootstrap (Efron 1979): queries are drawn again with replacement, as many as there are, and the score is
computed on each resample; the middle 95 % of these scores are the interval. Drawing an item twice means weight 2, so a
score that is not a plain mean can be resampled by weighting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput

Integers = npt.NDArray[np.integer[Any]]
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
