r"""Ranking of labelled equations: how often two of one label are more similar than either is to a third of another.

$$ \mathrm{ranking} = \frac{\sum w_i w_j w_k\, [\, s_{ij} \ge \max(s_{ik}, s_{jk}) \,]}{\sum w_i w_j w_k}
   \quad \text{over } i < j \text{ of one label, } k \text{ of another} $$

(paper, section 6, with weights 1). With the counts of a bootstrap as weights it is the score of each resample: all
triples are compared once, and each resample only adds them up. A tie counts as right; a similarity that is the same for
all pairs would then be perfect, so there is also the strict score, in which a tie is wrong.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Booleans: TypeAlias = npt.NDArray[np.bool_]

_CELLS = 8_000_000  # of the tables worked on at once


def triples(groups: npt.NDArray[np.int64], weights: Floats) -> npt.NDArray[np.float64]:
    """The weight of all triples, for each row of weights: the sum of w_i w_j w_k.

    Args:
        groups: (n,) the number of each equation's label, from 0 on.
        weights: (m, n) the weight of each equation, in m ways.
    """
    member = np.eye(groups.max(initial=-1) + 1, dtype=np.float64)[groups]
    weights = weights.astype(np.float64)
    sums, squares = weights @ member, weights**2 @ member
    pairs, others = (sums**2 - squares) / 2, sums.sum(axis=1, keepdims=True) - sums
    return np.asarray((pairs * others).sum(axis=1), np.float64)


def right_triples(
    similarity: Floats, groups: npt.NDArray[np.int64], weights: Floats
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The weight of the triples ranked right, for each row of weights; first with ties as right, then as wrong.

    Args:
        similarity: (n, n) symmetric; the diagonal is not looked at.
        groups: (n,) the number of each equation's label, from 0 on.
        weights: (m, n) the weight of each equation, in m ways.
    """
    loose, strict = np.zeros(len(weights)), np.zeros(len(weights))
    for group in np.flatnonzero(np.bincount(groups) > 1).tolist():
        members, others = np.flatnonzero(groups == group), np.flatnonzero(groups != group)
        within, across = similarity[np.ix_(members, members)], similarity[np.ix_(members, others)]
        own, rest = weights[:, members].astype(np.float64).T, np.ascontiguousarray(weights[:, others].T, np.float32)
        block = max(1, _CELLS // max(1, len(others), len(weights)))
        for first in range(len(members) - 1):
            for start in range(first + 1, len(members), block):
                seconds = slice(start, start + block)
                nearness, highest = within[first, seconds, None], np.maximum(across[first], across[seconds])
                found = _sums(nearness >= highest, own[first], own[seconds], rest)
                loose += found
                if (nearness == highest).any():
                    strict += _sums(nearness > highest, own[first], own[seconds], rest)
                else:
                    strict += found
    return loose, strict


def _sums(right: Booleans, first: Floats, seconds: Floats, rest: Floats) -> npt.NDArray[np.float64]:
    """The weight of right triples of one equation, several partners (rows) and all others (columns)."""
    found = right.astype(np.float32) @ rest  # counts far below 2^24: exact
    return np.asarray(first * np.einsum("ij,ij->j", seconds, found), np.float64)
