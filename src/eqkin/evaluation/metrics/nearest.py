r"""Leave-one-out 1-NN accuracy: how often the most similar other equation has the same label.

$$ \mathrm{accuracy} = \frac{1}{|Q|} \sum_{i \in Q} [\, \text{label}(\arg\max_{j \ne i} s_{ij}) = \text{label}(i) \,] $$

Queries Q are the equations whose label has another member; one that is alone has no right answer and only stands in
the others' way. Where several are equally near, the share of them with the right label counts: the order of the file
decides nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def score_nearest_labels(
    similarity: npt.NDArray[np.floating[Any]], groups: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """How right the nearest neighbour of each equation is, 0 to 1; NaN for an equation that is alone in its group.

    Args:
        similarity: (n, n) how related each equation is to each other one; the diagonal is not looked at.
        groups: (n,) the number of each equation's label, from 0 on.
    """
    right = np.full(len(groups), np.nan)
    for at in np.flatnonzero(np.bincount(groups)[groups] > 1).tolist():
        row = similarity[at].astype(np.float64)
        row[at] = -np.inf
        right[at] = np.mean(groups[row == row.max()] == groups[at])
    return right
