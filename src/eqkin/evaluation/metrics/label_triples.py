r"""Ranking of labelled equations: how often two of one label are more similar than either is to a third of another.

$$ \mathrm{ranking} = \frac{\sum [\, s_{ij} \ge \max(s_{ik}, s_{jk}) \,]}{\sum 1}
   \quad \text{over } i < j \text{ of one label, } k \text{ of another} $$

(paper, section 6). Triples are counted for each label of the pair and each label of the third. With C those that are
right and T all of them, a bootstrap that draws label a w_a times has the score $w^T C w / w^T T w$: all triples are
compared once. A tie counts as right; a similarity that is the same for all pairs would then be perfect, so there is
also a strict count, in which a tie is wrong.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Counts: TypeAlias = npt.NDArray[np.float64]  # (labels, labels): pairs of the first, thirds of the second

_MAX_CELLS = 8_000_000  # of the tables worked on at once


def count_triples(groups: npt.NDArray[np.int64]) -> Counts:
    """How many triples there are; `groups` (n,) are the numbers of the equations' labels, from 0 on."""
    sizes = np.bincount(groups).astype(np.float64)
    return np.outer(sizes * (sizes - 1) / 2, sizes) * (1 - np.eye(len(sizes)))


def count_correct_triples(similarity: Floats, groups: npt.NDArray[np.int64]) -> tuple[Counts, Counts]:
    """How many triples are ranked right; first with ties as right, then as wrong.

    Args:
        similarity: (n, n) symmetric; the diagonal is not looked at.
        groups: (n,) the number of each equation's label, from 0 on.
    """
    labels = int(groups.max(initial=-1)) + 1
    loose, strict = np.zeros((labels, labels)), np.zeros((labels, labels))
    for group in np.flatnonzero(np.bincount(groups) > 1).tolist():
        members, others = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        within, across = similarity[np.ix_(members, members)], similarity[np.ix_(members, others)]
        right, ties = np.zeros(len(others)), np.zeros(len(others))
        block = max(1, _MAX_CELLS // max(1, len(others)))
        for first in range(len(members) - 1):
            for start in range(first + 1, len(members), block):
                seconds = slice(start, start + block)
                nearness, highest = within[first, seconds, None], np.maximum(across[first], across[seconds])
                right += (nearness >= highest).sum(axis=0)
                ties += (nearness == highest).sum(axis=0)
        loose[group] = np.bincount(groups[others], right, labels)
        strict[group] = np.bincount(groups[others], right - ties, labels)
    return loose, strict


def compute_ranking_scores(right: Counts, total: Counts, weights: Floats) -> npt.NDArray[np.float64]:
    """The score for each row of weights, (m, labels): how often each label was drawn; NaN where there is no triple."""
    drawn = weights.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = ((drawn @ right) * drawn).sum(axis=1) / ((drawn @ total) * drawn).sum(axis=1)
    return np.asarray(found, np.float64)
