"""Finding the other side: where each formula's partner stands among all formulas, by exact search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.systems.base import Floats, Matrix, compute_products, normalize_rows

_QUERY_BATCH = 1_024  # queries at a time
_TIE_DECIMALS = 6  # of similarities: what differs by less is a tie, in whatever order a machine adds


def compute_partner_ranks(vectors: Matrix, more: Callable[[slice], Floats] | None = None) -> npt.NDArray[np.int64]:
    """Place of each formula's other side in the list of all other formulas by cosine, the first is 0.

    The formula itself is not in the list. Ties go to the others: an answer that cannot be told from wrong ones stands
    behind them, and so does one whose cosine is no number.

    Args:
        vectors: Those of n left sides, then those of the right sides in the same order, dense or sparse.
        more: What is added to the cosines of some consecutive formulas with all others.
    """
    vectors = normalize_rows(vectors)
    count = vectors.shape[0]
    found = np.empty(count, np.int64)
    for first in range(0, count, _QUERY_BATCH):
        query = np.arange(first, min(first + _QUERY_BATCH, count))
        row, part = np.arange(len(query)), slice(first, first + len(query))
        alike = compute_products(vectors[part], vectors)
        alike = np.round(alike + more(part) if more else alike, _TIE_DECIMALS)
        answer = alike[row, (query + count // 2) % count]
        alike[row, query] = -np.inf
        found[query] = (~(alike < answer[:, None])).sum(axis=1) - 1  # the answer itself
    return found


def compute_mrr(vectors: Matrix, more: Callable[[slice], Floats] | None = None) -> float:
    """Mean of 1 / (place + 1) over all formulas."""
    return float(np.mean(1 / (compute_partner_ranks(vectors, more) + 1)))
