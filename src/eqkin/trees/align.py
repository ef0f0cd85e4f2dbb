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

Greedy string tiling (Wise 1993) pairs tokens of two formulas up to renaming: the longest common run of unpaired tokens
is paired first, then the longest of the rest, all under one injective renaming of letters. A run that contradicts the
renaming is cut there, and a short run renames nothing. Among runs of equal length, the one with more known letters
comes first, then the earlier one. Finally, equal single tokens between two tiles are paired.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees.tokens import NEW_LETTER, CodeTable, Tokens

MIN_SUBSTRING = 3  # tokens of a common substring that counts as covered
RENAMED_TOKEN_WEIGHT = 0.5  # of a different letter for a letter, or a different number for a number
IDF_STEPS = 16  # steps per unit of idf: weights are whole numbers, which are faster
MIN_TILE = 2  # tokens of a tile
MIN_RENAMING_TILE = 3  # tokens of a tile that may rename a letter; a shorter one may be chance
_MAX_RUNS = 200  # common runs that are considered, the longest first
_MAX_STEPS = 4_000  # tokens visited before a tiling ends

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


@dataclass(frozen=True)
class Alignment:
    """Paired tokens of two formulas, in the query's order."""

    places: tuple[tuple[int, int], ...]  # in the query's and the formula's sequence
    pairs: tuple[tuple[int, int], ...]  # the same as breadth-first numbers of nodes
    same: tuple[bool, ...]  # for each pair: the same label, rather than a renamed letter
    letters: tuple[tuple[int, int], ...]  # one pair of nodes for each letter with a partner


def align_tokens(query: Tokens, formulas: Tokens, at: int = 0) -> Alignment:
    """Align the first formula of `query` with the formula at `at`."""
    tiler = _Tiler(query, formulas, at)
    tiler.lay_tiles()
    tiler.fill_gaps()
    partners = sorted(tiler.partner.items())
    ours, theirs = query.node[0].tolist(), formulas.node[at].tolist()
    seen: dict[int, tuple[int, int]] = {}
    for i, j in partners:
        if tiler.ours.letter[i] >= 0:
            seen.setdefault(tiler.ours.letter[i], (ours[i], theirs[j]))
    return Alignment(
        tuple(partners),
        tuple((ours[i], theirs[j]) for i, j in partners),
        tuple(tiler.is_same(i, j) for i, j in partners),
        tuple(seen.values()),
    )


class _TokenSequence:
    """The tokens of one formula as lists; letters are numbered in order of occurrence."""

    def __init__(self, tokens: Tokens, at: int) -> None:
        length = int(tokens.length[at])
        self.exact: list[int] = tokens.exact[at, :length].tolist()
        self.shape: list[int] = tokens.shape[at, :length].tolist()
        self.letter: list[int] = []  # number of each token; -1: not a letter
        letters = 0
        for place, back in enumerate(tokens.distance[at, :length].tolist()):
            if not back:
                self.letter.append(-1)
            elif back == NEW_LETTER:
                self.letter.append(letters)
                letters += 1
            else:
                self.letter.append(self.letter[place - back])


class _Tiler:
    def __init__(self, query: Tokens, formulas: Tokens, at: int) -> None:
        self.ours, self.theirs = _TokenSequence(query, 0), _TokenSequence(formulas, at)
        self._runs = _find_common_runs(query.shape[0, : query.length[0]], formulas.shape[at, : formulas.length[at]])
        self.partner: dict[int, int] = {}  # by the query's token
        self._taken: set[int] = set()
        self._name: dict[int, int] = {}  # the renaming, by the query's letter
        self._named: dict[int, int] = {}  # ... and back
        self._steps = _MAX_STEPS

    def is_same(self, i: int, j: int) -> bool:
        return self.ours.exact[i] == self.theirs.exact[j]

    def lay_tiles(self) -> None:
        """Lay the longest possible tile until none is left.

        The usable part of a run only shrinks while others are laid, so a run is checked again when its turn comes.
        """
        heap = [(-length, -length, i, i, j, length) for i, j, length in self._runs]
        heapq.heapify(heap)
        while heap and self._steps > 0:
            longest, alike, _, i, j, length = heap[0]
            found = self._find_window(i, j, length)
            if found[0] > -MIN_TILE or (found[0] > -MIN_RENAMING_TILE and found[1] > found[0]):
                heapq.heappop(heap)
                continue
            start = found[2]
            if found[:2] > (longest, alike):  # shorter than when it was queued
                heapq.heapreplace(heap, (*found, i, j, length))
                continue
            heapq.heappop(heap)
            size = -found[0]
            for k in range(start, start + size):
                self._pair(k, j + k - i)
            after = start + size
            for first, left in ((i, start - i), (after, i + length - after)):
                if left >= MIN_TILE:
                    heapq.heappush(heap, (-left, -left, first, first, j + first - i, left))

    def fill_gaps(self) -> None:
        """Pair equivalent single tokens, in order, between tiles that follow each other in both formulas."""
        if not self.partner:
            if 1 in (len(self.ours.exact), len(self.theirs.exact)):  # too short for a tile
                self._fill_gap(0, len(self.ours.exact), 0, len(self.theirs.exact))
            return
        edges = [(-1, -1), *sorted(self.partner.items()), (len(self.ours.exact), len(self.theirs.exact))]
        for (i, j), (following, then) in zip(edges[:-1], edges[1:], strict=True):
            if following > i + 1 and then > j + 1:
                self._fill_gap(i + 1, following, j + 1, then)

    def _fill_gap(self, i: int, i_end: int, j: int, j_end: int) -> None:
        for place in range(i, i_end):
            for other in range(j, j_end):
                self._steps -= 1
                if self._steps < -_MAX_STEPS:
                    return
                if other not in self._taken and self._is_equivalent(place, other):
                    self._pair(place, other)
                    j = other + 1
                    break

    def _is_equivalent(self, i: int, j: int) -> bool:
        """Return whether two tokens are the same, or letters that the renaming maps to each other."""
        ours, theirs = self.ours.letter[i], self.theirs.letter[j]
        if ours < 0 or theirs < 0:
            return self.is_same(i, j)
        if ours in self._name or theirs in self._named:
            return self._name.get(ours) == theirs and self.ours.shape[i] == self.theirs.shape[j]
        return self.is_same(i, j)

    def _pair(self, i: int, j: int) -> None:
        self.partner[i] = j
        self._taken.add(j)
        if self.ours.letter[i] >= 0:
            self._name[self.ours.letter[i]] = self.theirs.letter[j]
            self._named[self.theirs.letter[j]] = self.ours.letter[i]

    def _find_window(self, i: int, j: int, length: int) -> tuple[int, int, int]:
        """Find the longest usable part of a run: its negative length, negative number of known letters, and start.

        A window slides over the run: it grows token by token and drops the first ones if they contradict the new one.
        """
        ours, theirs, shift = self.ours, self.theirs, j - i
        names: dict[int, int] = {}  # the renaming of the window: partner of each letter ...
        named: dict[int, int] = {}
        last: dict[int, int] = {}  # ... and its last place in the query
        best, start, alike = (0, 0, i), i, 0
        self._steps -= length
        for place in range(i, i + length):
            mine, other = ours.letter[place], theirs.letter[place + shift]
            if place in self.partner or place + shift in self._taken or not self._can_rename(mine, other):
                start, alike = place + 1, 0
                continue
            if mine >= 0:
                begin = start
                if names.get(mine, other) != other:
                    begin = max(begin, last[mine] + 1)
                rival = named.get(other, mine)
                if rival != mine and names.get(rival) == other:
                    begin = max(begin, last[rival] + 1)
                alike -= sum(self._is_known(k, k + shift) for k in range(start, begin))
                start = begin
                names[mine], named[other], last[mine] = other, mine, place
            alike += self._is_known(place, place + shift)
            best = min(best, (start - place - 1, -alike, start))
        return best

    def _is_known(self, i: int, j: int) -> bool:
        """Return whether two tokens of one shape are the same, or letters already mapped to each other."""
        return self.is_same(i, j) or self._name.get(self.ours.letter[i]) == self.theirs.letter[j]

    def _can_rename(self, mine: int, other: int) -> bool:
        """Return whether the renaming allows one letter for another."""
        return mine < 0 or (self._name.get(mine, other) == other and self._named.get(other, mine) == mine)


def _find_common_runs(ours: CodeTable, theirs: CodeTable) -> list[tuple[int, int, int]]:
    """Return the longest runs of equal hashes, none part of another, as starts in both sequences and length."""
    if not len(ours) or not len(theirs):
        return []
    agree = np.zeros((len(ours) + 2, len(theirs) + 2), bool)
    agree[1:-1, 1:-1] = ours[:, None] == theirs
    inner = agree[1:-1, 1:-1]
    i, j = np.nonzero(inner & ~agree[:-2, :-2])
    i_end, j_end = np.nonzero(inner & ~agree[2:, 2:])
    starts, ends = np.lexsort((i, j - i)), np.lexsort((i_end, j_end - i_end))  # diagonal by diagonal
    i, j = i[starts], j[starts]
    length = i_end[ends] - i + 1
    chosen = np.flatnonzero(length >= MIN_TILE)
    chosen = chosen[np.lexsort((j[chosen], i[chosen], -length[chosen]))][:_MAX_RUNS]
    return list(zip(i[chosen].tolist(), j[chosen].tolist(), length[chosen].tolist(), strict=True))
