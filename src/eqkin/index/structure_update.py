"""Taking in the structure of new equations, and keeping its files few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from eqkin.forest import Forest
from eqkin.index.checked import intact, require
from eqkin.index.state import TermsEntry
from eqkin.index.structure_files import SCHEME, Codes, Rows, indexed, merge, open_segment, write_segment
from eqkin.index.vectors import Integers
from eqkin.library import Library
from eqkin.structure.terms import terms_of

_STEP = 8_192  # trees between two looks at the clock
_FILE_TREES = 500_000  # most in one file
_FILE_POSTINGS = 16_000_000  # sorting them takes some 400 MB
_FILE_SECONDS = 60.0  # of counting that a kill may cost
_MANY_FILES = 16
_DEAD_SHARE = 0.5  # of trees that belong to no equation any more, above which all are rewritten

Entries = tuple[TermsEntry, ...]


def usable(folder: Path, entries: Entries | None) -> Entries | None:
    """The files that are intact, and counted as this eqkin counts."""
    if entries is None:
        return None
    return tuple(entry for entry in entries if entry.scheme == SCHEME and intact(folder, entry))


def trees_in(folder: Path, entries: Sequence[TermsEntry]) -> Integers:
    """The trees of all files."""
    return np.concatenate([np.zeros(0, np.int64), *(open_segment(folder, entry).trees for entry in entries)])


def take_in(
    library: Library,
    folder: Path,
    entries: Entries,
    live: Integers,
    commit: Callable[[TermsEntry], None],
    tell: Callable[[int, int], None],
) -> int:
    """Write files of the trees that are in none yet; `commit` is called with each. How many there were."""
    have = trees_in(folder, entries)
    total = int(np.isin(live, have, assume_unique=True, invert=True).sum())
    done, gathered, written = 0, _Gathered(), time.monotonic()
    try:
        for numbers, forest in _parts(library, have):
            gathered.add(numbers, forest)
            done += len(numbers)
            tell(done, max(total, done))
            if gathered.full or time.monotonic() - written > _FILE_SECONDS:
                commit(gathered.write(folder))
                gathered, written = _Gathered(), time.monotonic()
    finally:  # an interruption costs nothing that was counted
        if gathered.count:
            commit(gathered.write(folder))
    return done


def _parts(library: Library, have: Integers) -> Iterator[tuple[Integers, Forest]]:
    """Trees whose structure was not taken in yet, some at a time, in ascending order."""
    for numbers, forest in library.forests():
        new = np.flatnonzero(np.isin(numbers, have, assume_unique=True, invert=True))
        for start in range(0, len(new), _STEP):
            part = new[start : start + _STEP]
            yield numbers[part], forest.select(part)


class _Gathered:
    """What the next file will hold."""

    def __init__(self) -> None:
        self.count = self.postings = 0
        self._trees: list[Integers] = []
        self._owners: list[Rows] = []
        self._codes: list[Codes] = []

    def add(self, numbers: Integers, forest: Forest) -> None:
        terms = terms_of(forest)
        wanted = indexed(terms)
        rows = np.arange(self.count, self.count + len(numbers), dtype=np.uint32)
        owners = np.repeat(rows, np.diff(terms.offsets))
        self._trees.append(numbers)
        self._owners.append(owners[wanted])
        self._codes.append(terms.code[wanted])
        self.count += len(numbers)
        self.postings += len(self._codes[-1])

    @property
    def full(self) -> bool:
        return self.count >= _FILE_TREES or self.postings >= _FILE_POSTINGS

    def write(self, folder: Path) -> TermsEntry:
        owners, codes = np.concatenate(self._owners), np.concatenate(self._codes)
        return write_segment(folder, np.concatenate(self._trees), owners, codes)


def tidied(folder: Path, entries: Entries, live: Integers) -> Entries:
    """The files to use from now on: without dead trees when these are most, fewer when there are many."""
    trees = trees_in(folder, entries)
    dead = int(np.isin(trees, live, invert=True).sum()) > _DEAD_SHARE * len(trees)
    if not dead and len(entries) <= _MANY_FILES:
        return entries
    runs: list[list[TermsEntry]] = [[]]
    for entry in entries:
        here = [*runs[-1], entry]
        fits = sum(e.count for e in here) <= _FILE_TREES and sum(e.postings for e in here) <= _FILE_POSTINGS
        if runs[-1] and not fits:
            runs.append([])
        runs[-1].append(entry)
    require(folder, [entry for run in runs if dead or len(run) > 1 for entry in run])
    merged = [merge(folder, run, live) if dead or len(run) > 1 else run[0] for run in runs if run]
    return tuple(entry for entry in merged if entry.count)
