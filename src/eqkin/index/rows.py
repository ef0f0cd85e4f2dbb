"""`TreeRows`: which tree stands in which row of several files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class TreeRows:
    """Which tree stands in which row of several files put one after the other; takes no memory but that of the files.

    Trees mostly are in ascending order throughout: a file written later has higher numbers. Where they are not, since a
    damaged file was made again, a table of them all is needed.
    """

    def __init__(self, parts: Sequence[Integers]) -> None:
        self.parts = list(parts)
        self.starts: Integers = np.cumsum([0, *map(len, self.parts)])
        filled = [number for number, part in enumerate(self.parts) if len(part)]
        self._filled = np.array(filled, np.int64)
        self._first = np.array([self.parts[number][0] for number in filled], np.int64)
        last = np.array([self.parts[number][-1] for number in filled], np.int64)
        rising = all(bool((part[1:] > part[:-1]).all()) for part in self.parts)
        self.ascending = rising and bool((self._first[1:] > last[:-1]).all())
        self._table: tuple[Integers, Integers] | None = None
        if not self.ascending:
            order = np.argsort(self.concatenate(), kind="stable")
            self._table = self.concatenate()[order], order

    def __len__(self) -> int:
        return int(self.starts[-1])

    def concatenate(self) -> Integers:
        """The trees of all rows."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate([np.zeros(0, np.int64), *self.parts])

    def get_trees(self, rows: Integers) -> Integers:
        """The trees of some rows."""
        part = np.searchsorted(self.starts, rows, "right") - 1
        found = np.empty(len(rows), np.int64)
        for number in np.unique(part):
            here = part == number
            found[here] = self.parts[number][rows[here] - self.starts[number]]
        return found

    def find_rows(self, trees: Integers) -> Integers:
        """The rows of trees, all of which are there."""
        if self._table is not None:
            known, order = self._table
            return order[np.searchsorted(known, trees)]
        within = np.searchsorted(self._first, trees, "right") - 1
        found = np.empty(len(trees), np.int64)
        for number in np.unique(within):
            here, part = within == number, self._filled[number]
            found[here] = np.searchsorted(self.parts[part], trees[here]) + self.starts[part]
        return found

    def find_known(self, trees: Integers) -> npt.NDArray[np.bool_]:
        """Which trees are there."""
        if self._table is not None:
            return find_members(trees, self._table[0])
        place = np.searchsorted(self._first, trees, "right") - 1
        found = np.zeros(len(trees), bool)
        for number in np.unique(place[place >= 0]):
            here = place == number
            found[here] = find_members(trees[here], self.parts[self._filled[number]])
        return found

    def select_live(self, live: Integers) -> tuple[Integers, Integers]:
        """Those of the trees that are among `live`, in ascending order, and the rows of the others.

        The first are `live` itself where that says it: one array for all that are opened at the same moment.
        """
        trees = self.concatenate()
        if np.array_equal(trees, live):
            return live, np.zeros(0, np.int64)
        used = np.isin(trees, live)
        dead = np.flatnonzero(~used)
        found = trees[used] if self.ascending else np.unique(trees[used])
        return live if len(found) == len(live) else found, dead


def find_members(trees: Integers, known: Integers) -> npt.NDArray[np.bool_]:
    """Which trees are among those known, which are in ascending order."""
    if not len(known):
        return np.zeros(len(trees), bool)
    places = np.minimum(np.searchsorted(known, trees), len(known) - 1)
    return np.asarray(known[places] == trees)
