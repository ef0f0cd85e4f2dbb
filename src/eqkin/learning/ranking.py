"""The held-out ranking score of a training run, with an interval (paper, section 5).

The score is the share of held-out triples whose positive pair is more similar than the negative one. Triples that
share a paper depend on each other: Hoeffding's bound does not hold, but Janson's (2004) for sums of partly dependent
variables does. It costs a factor: the number of colours needed to colour the triples so that no two of one colour share
a paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput

Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]

# An interval holds the true score with probability 1 - delta.
DELTA = 0.05


@dataclass(frozen=True, kw_only=True)
class RankingScore:
    """The ranking score on a set of triples, with what its interval depends on."""

    # Share of the triples ranked correctly; NaN if there are none.
    score: float
    # Ends of the interval, within [0, 1].
    low: float
    high: float
    triples: int
    # Of the triples, so that no two triples of one colour share a paper.
    colours: int
    # That occur in the triples.
    papers: int

    def __str__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{100 * self.score:.1f} %"
        interval = f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{score} {interval} on {self.triples:,} triples from {self.papers:,} papers"


def score_ranking(positive: Floats, negative: Floats, papers: Integers) -> RankingScore:
    """Compute the share of triples whose positive pair is more similar than the negative pair, with its interval.

    The interval of an incomplete U-statistic, the mean over triples D drawn with replacement, is

        |s - score| <= sqrt( chi ln(2 / delta) / (2 |D|) )   with probability at least 1 - delta

    with chi colours: the paper's one-sided bound at delta / 2, applied to both sides and clipped to [0, 1].

    Args:
        positive: (n,) similarities of anchor and positive.
        negative: (n,) similarities of anchor and negative.
        papers: (n, 3) the papers that contain anchor, positive and negative.

    Returns:
        The score; ties and NaN count as wrong. Without triples the score is NaN and its interval [0, 1].
    """
    triples = np.asarray(papers, np.int64).reshape(-1, 3)
    count = len(triples)
    if np.shape(positive) != (count,) or np.shape(negative) != (count,):
        raise BadInput(f"{count} triples need as many similarities, got {np.shape(positive)} and {np.shape(negative)}")
    if not count:
        return RankingScore(score=math.nan, low=0.0, high=1.0, triples=0, colours=0, papers=0)
    score = float(np.mean(np.asarray(positive) > np.asarray(negative)))
    colours = int(color_triples(triples).max()) + 1
    width = math.sqrt(colours * math.log(2 / DELTA) / (2 * count))
    return RankingScore(
        score=score,
        low=max(0.0, score - width),
        high=min(1.0, score + width),
        triples=count,
        colours=colours,
        papers=len(np.unique(triples)),
    )


def color_triples(papers: Integers) -> npt.NDArray[np.int64]:
    """Give each triple a colour, counted from 0, so that triples that share a paper differ.

    Every triple gets the lowest colour that is free at all of its papers, in the order in which they were drawn. For
    triples in random order this needs hardly more colours than the busiest paper has triples, and no colouring can do
    with fewer; sorting them by degree first makes it worse.

    Args:
        papers: (n, 3) the papers of each triple, any integers; those of one triple may be equal.

    Returns:
        (n,) colours, at most 3 (d - 1) + 1 of them if no paper is in more than d triples.
    """
    names, numbers = np.unique(papers, return_inverse=True)
    # The colours used at a paper are the bits of one integer: time grows with the triples, not with pairs of them.
    used = [0] * len(names)
    colours = np.empty(len(papers), np.int64)
    for index, triple in enumerate(numbers.reshape(-1, 3).tolist()):
        taken = used[triple[0]] | used[triple[1]] | used[triple[2]]
        # The lowest bit that is not set.
        colour = ~taken & (taken + 1)
        colours[index] = colour.bit_length() - 1
        for paper in triple:
            used[paper] |= colour
    return colours
