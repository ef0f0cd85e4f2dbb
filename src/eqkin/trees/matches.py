"""The longest runs that two formulas have in common, exactly and up to a consistent renaming of letters.

For a query's tokens q_1 ... q_m and a formula's t_1 ... t_l the length of the common run that ends at both i and j is

    r(i, j) = r(i - 1, j - 1) + 1   if q_i and t_j agree, else 0

One formula takes m x l steps; all candidates of a query are worked on together, one token of the query at a time. Up to
renaming, two letters agree if they stood last equally far back, or if both are new within the run: then the run so far
and the letter keep one renaming, one name for each name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.tokens import Tokens

MIN_SUBSTRING = 3  # tokens of a run that says something

Lengths = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class CommonSubstrings:
    """Common runs of one query and some formulas."""

    query: Lengths  # (formulas, tokens of the query) longest run that ends at each token of the query
    formula: Lengths  # (formulas, tokens) longest run that ends at each token of the formula

    @property
    def longest(self) -> npt.NDArray[np.int64]:
        """The longest run with each formula."""
        longest: npt.NDArray[np.int64] = self.query.max(axis=1, initial=0).astype(np.int64)
        return longest

    def mark_query(self) -> npt.NDArray[np.bool_]:
        """Which tokens of the query are in a run of at least `LEAST`, for each formula."""
        return mark_covered(self.query)

    def mark_formula(self) -> npt.NDArray[np.bool_]:
        """Which tokens of each formula are."""
        return mark_covered(self.formula)


def find_common_substrings(query: Tokens, formulas: Tokens, *, renamed: bool) -> CommonSubstrings:
    """The runs of the first formula of `query` and each of `formulas`.

    Args:
        query: Tokens of one formula.
        formulas: Tokens of the others.
        renamed: Up to renaming, rather than exactly.
    """
    length, rows = int(query.length[0]), len(formulas)
    given = formulas.shape if renamed else formulas.exact
    width = given.shape[1]
    wanted = (query.shape if renamed else query.exact)[0, :length].tolist()
    distances = query.distance[0, :length].tolist()
    best, ending = np.zeros((rows, length), np.uint8), np.zeros((rows, width), np.uint8)
    before, now = np.zeros((rows, width + 1), np.uint8), np.zeros((rows, width + 1), np.uint8)
    for at, (token, distance) in enumerate(zip(wanted, distances, strict=True)):
        agree = given == token
        if renamed and distance:
            run = before[:, :-1]
            agree &= (formulas.distance == distance) | ((formulas.distance > run) & (run < distance))
        np.add(before[:, :-1], np.uint8(1), out=now[:, 1:])
        now[:, 1:] *= agree
        best[:, at] = now[:, 1:].max(axis=1, initial=0)
        np.maximum(ending, now[:, 1:], out=ending)
        before, now = now, before
    return CommonSubstrings(best, ending)


def mark_covered(ends: Lengths, least: int = MIN_SUBSTRING) -> npt.NDArray[np.bool_]:
    """Which tokens are inside a run of at least `least`, given how long a run ends at each."""
    place = np.arange(ends.shape[1])
    first = np.where(ends >= least, place - ends + 1, ends.shape[1])  # of the run that ends there
    earliest = np.minimum.accumulate(first[:, ::-1], axis=1)[:, ::-1]  # of all runs that end there or later
    inside: npt.NDArray[np.bool_] = earliest <= place
    return inside
