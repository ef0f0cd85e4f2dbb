"""How sure are we of a mean over queries, and of the difference of two: resampling, seeded and without assumptions.

Percentile bootstrap (Efron 1979): queries are drawn again, with replacement, as many as there are, and the score is
computed on each of these resamples; the middle 95 % of the scores are the interval. To draw an item twice is to give
it weight 2, so a resample is a row of weights, and a score that is not a plain mean can be resampled by weighting too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.results import Score

Floats: TypeAlias = npt.NDArray[np.float64]

RESAMPLES = 2_000
SIGN_FLIPS = 10_000  # random sign patterns of a test
CONFIDENCE = 0.95
_MAX_CELLS = 4_000_000  # weights or signs in memory at once
_MAX_EXACT_DIFFERENCES = 13  # differences up to which all sign patterns are tried
_ROUNDING_TOLERANCE = 1e-9  # by which sums of the same numbers may differ, relative to the sum of their sizes


def draw_bootstrap_weights(n: int, resamples: int = RESAMPLES, seed: int = 0) -> npt.NDArray[np.float32]:
    """How often each of `n` items is drawn in each resample, (resamples, n); every row adds up to `n`."""
    return np.concatenate(list(_iter_bootstrap_weights(n, resamples, seed)))


def _iter_bootstrap_weights(n: int, resamples: int, seed: int) -> Iterator[npt.NDArray[np.float32]]:
    """The same, some rows at a time."""
    if n < 1 or resamples < 1:
        raise BadInput(f"{resamples} resamples of {n} items: there have to be some of both")
    generator = np.random.default_rng(seed)
    block = max(1, _MAX_CELLS // n)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = generator.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float32)


def bootstrap_mean(
    values: npt.ArrayLike,
    clusters: npt.NDArray[np.integer[Any]] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Score:
    """The mean of a measure over queries, with its interval.

    Args:
        values: The measure of each query.
        clusters: What each query belongs to, where queries of one cluster depend on each other, as those from one paper
            do: clusters are drawn then, each with all of its queries.
        resamples: How many; the same `seed` draws the same ones for as many queries.
        seed: Of the drawing.
        confidence: Probability the interval is made for.

    Returns:
        The score; without an interval if there is only one query or cluster, which says nothing of others.

    Raises:
        BadInput: there are no values, one of them is no number, or clusters are not as many.
    """
    sums, counts = _sum_clusters(_check_values(values), clusters)
    value = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Score(value)
    means = [(row @ sums) / (row @ counts) for row in _iter_bootstrap_weights(len(sums), resamples, seed)]
    low, high = compute_percentile_interval(np.concatenate(means), confidence)
    return Score(value, low, high)


def compute_percentile_interval(resampled: npt.ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval that holds the middle of a score's resampled values; those that are NaN had nothing to score."""
    if not 0 < confidence < 1:
        raise BadInput(f"a confidence of {confidence}: it lies between 0 and 1, as 0.95 does")
    values = np.asarray(resampled, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        raise BadInput("no resample has a score: there are too few items for an interval")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail]).tolist()
    return float(low), float(high)


def compute_sign_flip_p(
    system: npt.ArrayLike, baseline: npt.ArrayLike, *, flips: int = SIGN_FLIPS, seed: int = 0
) -> float:
    """Paired randomisation test of two systems on the same queries: the two-sided p-value.

    If the systems were equally good, each query's difference could as well have had the other sign. The p-value is the
    share of sign patterns whose mean difference is at least as large, to either side, as the one measured. Up to 13
    queries that differ all patterns are tried; else `flips` random ones and the measured one, so that p is never 0.

    Raises:
        BadInput: the systems were not measured on the same number of queries, or one value is no number.
    """
    one, other = _check_values(system), _check_values(baseline)
    if one.shape != other.shape:
        raise BadInput(f"a paired test needs the same queries for both systems: {len(one)} and {len(other)} given")
    differences = (one - other)[one != other]
    if not len(differences):
        return 1.0
    measured = abs(differences.sum()) - _ROUNDING_TOLERANCE * np.abs(differences).sum()
    if len(differences) <= _MAX_EXACT_DIFFERENCES:
        patterns = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ differences) >= measured))
    larger, generator = 0, np.random.default_rng(seed)
    block = max(1, _MAX_CELLS // len(differences))
    for start in range(0, flips, block):
        signs = generator.integers(2, size=(min(block, flips - start), len(differences)), dtype=np.int8) * 2 - 1
        larger += int((np.abs(signs @ differences) >= measured).sum())
    return (larger + 1) / (flips + 1)


def compute_two_sided_p(differences: npt.ArrayLike) -> float:
    """The p-value of a difference of two scores, from its values in resamples that both scores share.

    Twice the share of resamples in which it has the rarer sign; 0 counts to both. Never 0 itself: one is added.
    """
    values = np.asarray(differences, np.float64)
    values = values[~np.isnan(values)]
    rarer = min(np.count_nonzero(values <= 0), np.count_nonzero(values >= 0))
    return float(min(1.0, 2 * (rarer + 1) / (len(values) + 1)))


def format_p(p: float) -> str:
    """A p-value for tables."""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _check_values(values: npt.ArrayLike) -> Floats:
    numbers = np.asarray(values, np.float64).ravel()
    if not len(numbers):
        raise BadInput("there are no queries to take a mean of")
    if not np.isfinite(numbers).all():
        raise BadInput(f"the measure of query {np.flatnonzero(~np.isfinite(numbers))[0]} is no number")
    return numbers


def _sum_clusters(values: Floats, clusters: npt.NDArray[np.integer[Any]] | None) -> tuple[Floats, Floats]:
    """Sum and number of the values in each cluster."""
    if clusters is None:
        return values, np.ones(len(values))
    if np.shape(clusters) != values.shape:
        raise BadInput(f"{len(values)} values need as many clusters: {np.shape(clusters)} given")
    number = np.unique(clusters, return_inverse=True)[1]
    return np.bincount(number, values).astype(np.float64), np.bincount(number).astype(np.float64)
