"""The heaviest sequence of tokens that two formulas have in common, in the same order, with anything between them.

For a query's tokens q_1 ... q_m and a formula's t_1 ... t_l

    s(i, j) = max(s(i - 1, j), s(i, j - 1), s(i - 1, j - 1) + w(i, j))

where w is what the query's token is worth if the labels are equal, `OTHER_NAME` at most if both are letters or both are
numbers, else 0. All candidates of a query are worked on together, one token of the query at a time: as w >= 0, a row
is the running maximum of what the first and the last of the three give.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqkin.trees.tokens import Tokens

RENAMED_TOKEN_WEIGHT = 0.5  # what another letter or another number in the place of one is worth
IDF_STEPS = 16  # an idf of 1 has so many: whole numbers are faster

Floats = npt.NDArray[np.float32]


def score_common_subsequences(query: Tokens, worth: Floats, formulas: Tokens) -> Floats:
    """What the heaviest common sequence of the first formula of `query` and each of `formulas` is worth.

    Args:
        query: Tokens of one formula.
        worth: Of its tokens, in whole `STEPS`.
        formulas: Tokens of the others.
    """
    length = int(query.length[0])
    label, kind = np.ascontiguousarray(formulas.label.T), np.ascontiguousarray(formulas.kind.T)
    best = np.zeros((len(label) + 1, len(formulas)), np.uint16)
    equal = np.round(worth[:length] * IDF_STEPS).astype(np.uint16)
    other = np.minimum(equal, np.uint16(RENAMED_TOKEN_WEIGHT * IDF_STEPS))
    for at in range(length):
        wanted, named = query.kind[0, at], query.label[0, at]
        agree = kind == wanted
        if not agree.any():
            continue
        gain = agree * (equal[at] if wanted == named else other[at])
        if wanted != named:
            gain[label == named] = equal[at]
        np.maximum(best[1:], best[:-1] + gain, out=best[1:])
        np.maximum.accumulate(best, axis=0, out=best)
    total: Floats = best[-1].astype(np.float32) / np.float32(IDF_STEPS)
    return total
