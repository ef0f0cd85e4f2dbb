"""Alignment of the token sequences of a query and of other formulas.

Common substrings. For tokens q_1 ... q_m of the query and t_1 ... t_l of a formula, the length of the common substring
that ends at both i and j is

    r(i, j) = r(i - 1, j - 1) + 1   if q_i and t_j agree, else 0

Up to renaming, two letters agree if their previous occurrences are equally far back, or if both are new within the
substring, so that it keeps one consistent renaming (Baker 1993).

Common subsequences. The weight of the heaviest common subsequence, with gaps, is

    s(i, j) = max(s(i - 1, j), s(i, j - 1), s(i - 1, j - 1) + w(i, j))

where w is the idf of the query's token if the labels are equal, at most `RENAMED_TOKEN_WEIGHT` if both are letters or
both are numbers, else 0. Both recurrences run over all formulas at once, one token of the query at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.tokens import Tokens

MIN_SUBSTRING = 3  # tokens of a common substring that counts as covered
RENAMED_TOKEN_WEIGHT = 0.5  # of a different letter for a letter, or a different number for a number
IDF_STEPS = 16  # steps per unit of idf: weights are whole numbers, which are faster

Lengths = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class CommonSubstrings:
    """Common substrings of one query and some formulas."""

    query: Lengths  # (formulas, tokens of the query) length of the longest that ends at each token of the query
    formula: Lengths  # (formulas, tokens) length of the longest that ends at each token of the formula

    @property
    def longest(self) -> npt.NDArray[np.int64]:
        """Length of the longest common substring with each formula."""
        longest: npt.NDArray[np.int64] = self.query.max(axis=1, initial=0).astype(np.int64)
        return longest

    def mark_query(self) -> Flags:
        """Return for each formula which tokens of the query a substring of at least `MIN_SUBSTRING` covers."""
        return mark_covered(self.query)

    def mark_formula(self) -> Flags:
        """Return which tokens of each formula a substring of at least `MIN_SUBSTRING` covers."""
        return mark_covered(self.formula)


def find_common_substrings(query: Tokens, formulas: Tokens, *, renamed: bool) -> CommonSubstrings:
    """Find the common substrings of the first formula of `query` and each of `formulas`.

    Args:
        query: Tokens of one formula.
        formulas: Tokens of the others.
        renamed: Compare up to renaming instead of exactly.
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


def mark_covered(ends: Lengths, least: int = MIN_SUBSTRING) -> Flags:
    """Return which tokens a substring of at least `least` covers, given the length of the one that ends at each."""
    place = np.arange(ends.shape[1])
    first = np.where(ends >= least, place - ends + 1, ends.shape[1])  # token of the substring that ends there
    earliest = np.minimum.accumulate(first[:, ::-1], axis=1)[:, ::-1]  # of all that end there or later
    inside: Flags = earliest <= place
    return inside


def score_common_subsequences(query: Tokens, weights: Floats, formulas: Tokens) -> Floats:
    """Return the weight of the heaviest common subsequence of the first formula of `query` and each of `formulas`.

    Args:
        query: Tokens of one formula.
        weights: Of its tokens, in multiples of 1 / `IDF_STEPS`.
        formulas: Tokens of the others.
    """
    length = int(query.length[0])
    label, kind = np.ascontiguousarray(formulas.label.T), np.ascontiguousarray(formulas.kind.T)
    best = np.zeros((len(label) + 1, len(formulas)), np.uint16)
    equal = np.round(weights[:length] * IDF_STEPS).astype(np.uint16)
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
