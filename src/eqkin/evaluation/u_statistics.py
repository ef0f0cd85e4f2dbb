"""Intervals for scores on held-out triples, which are not independent (paper, section 5).

A score is the mean of a kernel with values in [0, 1] over triples of equations. Equations of one paper depend on each
other, so triples that share a paper do: Hoeffding's bound does not hold, but Janson's (2004) for sums of partly
dependent variables does. It costs a factor: the number of colours with which the triples can be coloured so that no
two of one colour share a paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Interval:
    """A measured score, and where the true one is with probability 1 - delta; all in [0, 1], the score may be NaN."""

    score: float
    low: float
    high: float
    delta: float = 0.05

    def __str__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{100 * self.score:.1f} %"
        return f"{score} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class RankingScore:
    """The ranking score on a set of triples, with what its interval rests on."""

    interval: Interval
    triples: int
    colours: int  # of the triples, so that no two of one colour share a paper
    papers: int  # that occur in the triples

    @property
    def score(self) -> float:
        """Share of the triples ranked right; NaN when there are none."""
        return self.interval.score

    def __str__(self) -> str:
        return f"{self.interval} on {self.triples:,} triples from {self.papers:,} papers"


def compute_complete_interval(score: float, papers: int, delta: float = 0.05) -> Interval:
    """Interval of a complete U-statistic: the mean over all triples that a set of papers has.

        |s - score| <= 3 sqrt( ln(2 / delta) / (2 N) )   with probability at least 1 - delta, N = `papers`

    This is the paper's one-sided bound at delta / 2, to both sides, cut to [0, 1]. Without papers it is [0, 1].
    """
    return _compute_interval(score, 9, papers, delta)


def compute_incomplete_interval(score: float, colours: int, triples: int, delta: float = 0.05) -> Interval:
    """Interval of an incomplete U-statistic: the mean over triples D that were drawn with replacement.

        |s - score| <= sqrt( chi ln(2 / delta) / (2 |D|) )   with probability at least 1 - delta

    with chi = `colours`, |D| = `triples`; the paper's one-sided bound at delta / 2, to both sides, cut to [0, 1].
    Without triples it is [0, 1].
    """
    return _compute_interval(score, colours, triples, delta)


def _compute_interval(score: float, factor: int, count: int, delta: float) -> Interval:
    """Interval with half width sqrt( factor ln(2 / delta) / (2 count) )."""
    if not 0 < delta < 1:
        raise BadInput(f"delta is {delta}: it has to lie between 0 and 1, as 0.05 does")
    if factor < 0 or count < 0:
        raise BadInput(f"there cannot be {min(factor, count)} colours, triples or papers")
    if score < 0 or score > 1:
        raise BadInput(f"the score is {score}: intervals hold for scores from 0 to 1")
    if count == 0 or math.isnan(score):
        return Interval(score, 0.0, 1.0, delta)
    width = math.sqrt(factor * math.log(2 / delta) / (2 * count))
    return Interval(score, max(0.0, score - width), min(1.0, score + width), delta)


def score_ranking(positive: Floats, negative: Floats, papers: Integers, delta: float = 0.05) -> RankingScore:
    """Share of the triples whose positive pair is more similar than its negative pair, with its interval.

    Args:
        positive: (n,) similarities of anchor and positive.
        negative: (n,) similarities of anchor and negative.
        papers: (n, 3) the papers that anchor, positive and negative stand in.
        delta: Probability that the true score is outside the interval.

    Returns:
        The score; ties and NaN count as wrong. Without triples the score is NaN and its interval [0, 1].
    """
    positive, negative, triples = np.asarray(positive), np.asarray(negative), _check_triples(papers)
    if positive.shape != (len(triples),) or negative.shape != (len(triples),):
        raise BadInput(f"{len(triples)} triples need as many similarities: {positive.shape} and {negative.shape} given")
    score = float(np.mean(positive > negative)) if len(triples) else math.nan
    colours = count_colours(triples)
    interval = compute_incomplete_interval(score, colours, len(triples), delta)
    return RankingScore(interval, len(triples), colours, len(np.unique(triples)))


def count_colours(papers: Integers) -> int:
    """Number of colours that `colouring` gives to the triples `papers` (n, 3); 0 for none."""
    return int(color_triples(papers).max(initial=-1)) + 1


def color_triples(papers: Integers) -> npt.NDArray[np.int64]:
    """A colour for each triple, from 0 on, so that triples which share a paper differ.

    Every triple gets the lowest colour that is free at all of its papers, in the order in which they were drawn. For
    triples in random order that needs hardly more colours than the busiest paper has triples, and no colouring can do
    with fewer; sorting them by degree first makes it worse. The colours used at a paper are the bits of one integer,
    so time grows with the triples and not with the pairs of them.

    Args:
        papers: (n, 3) the papers of each triple, any integers; those of one triple may be the same.

    Returns:
        (n,) colours, at most 3 (d - 1) + 1 of them when no paper is in more than d triples.
    """
    triples = _check_triples(papers)
    names, numbers = np.unique(triples, return_inverse=True)
    used = [0] * len(names)
    colours = np.empty(len(triples), np.int64)
    for at, (anchor, positive, negative) in enumerate(numbers.reshape(-1, 3).tolist()):
        taken = used[anchor] | used[positive] | used[negative]
        colour = ~taken & (taken + 1)  # the lowest bit that is not set
        colours[at] = colour.bit_length() - 1
        used[anchor] |= colour
        used[positive] |= colour
        used[negative] |= colour
    return colours


def _check_triples(papers: Integers) -> Integers:
    papers = np.asarray(papers)
    if papers.size == 0:
        return np.empty((0, 3), np.int64)
    if papers.ndim != 2 or papers.shape[1] != 3 or not np.issubdtype(papers.dtype, np.integer):
        raise BadInput(f"triples are integers of shape (n, 3), not {papers.dtype} of shape {papers.shape}")
    return papers
