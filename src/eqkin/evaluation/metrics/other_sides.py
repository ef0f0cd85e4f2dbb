"""Finding the other side: where each formula's partner stands among all formulas, by exact search."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.systems.base import Matrix, products, unit

_ROWS = 1_024  # queries at a time
_DECIMALS = 6  # of cosines: what differs by less is a tie, in whatever order a machine adds


def places(vectors: Matrix) -> npt.NDArray[np.int64]:
    """Place of each formula's other side in the list of all other formulas by cosine, the first is 0.

    The formula itself is not in the list. Ties go to the others: an answer that cannot be told from wrong ones stands
    behind them, and so does one whose cosine is no number.

    Args:
        vectors: Those of n left sides, then those of the right sides in the same order, dense or sparse.
    """
    vectors = unit(vectors)
    count = vectors.shape[0]
    found = np.empty(count, np.int64)
    for first in range(0, count, _ROWS):
        query = np.arange(first, min(first + _ROWS, count))
        row = np.arange(len(query))
        cosines = np.round(products(vectors[query[0] : query[-1] + 1], vectors), _DECIMALS)
        answer = cosines[row, (query + count // 2) % count]
        cosines[row, query] = -np.inf
        found[query] = (~(cosines < answer[:, None])).sum(axis=1) - 1  # the answer itself
    return found


def reciprocal_rank(vectors: Matrix) -> float:
    """Mean of 1 / (place + 1) over all formulas."""
    return float(np.mean(1 / (places(vectors) + 1)))
