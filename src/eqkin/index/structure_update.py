"""Taking in the structure of new equations, and keeping its files few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from eqkin.index.checked import is_intact, require_intact
from eqkin.index.state import TermsEntry
from eqkin.index.structure_files import (
    TERM_SCHEME,
    Codes,
    Rows,
    is_indexed,
    merge_segments,
    open_segment,
    write_segment,
)
from eqkin.index.vectors import Integers
from eqkin.library import LibraryFiles
from eqkin.trees import Forest
from eqkin.trees.terms import extract_terms

_STEP_TREES = 8_192  # trees between two looks at the clock
_MAX_FILE_TREES = 500_000  # most in one file
_MAX_FILE_POSTINGS = 16_000_000  # sorting them takes some 400 MB
_MAX_FILE_SECONDS = 60.0  # of counting that a kill may cost
_MAX_FILES = 16
_MAX_DEAD_FRACTION = 0.5  # of trees that belong to no equation any more, above which all are rewritten

Entries = tuple[TermsEntry, ...]


def select_usable(folder: Path, entries: Entries | None) -> Entries | None:
    """The files that are intact, and counted as this eqkin counts."""
    if entries is None:
        return None
    return tuple(entry for entry in entries if entry.scheme == TERM_SCHEME and is_intact(folder, entry))


def read_trees(folder: Path, entries: Sequence[TermsEntry]) -> Integers:
    """The trees of all files."""
    return np.concatenate([np.zeros(0, np.int64), *(open_segment(folder, entry).trees for entry in entries)])


def add_trees(
    library: LibraryFiles,
    folder: Path,
    entries: Entries,
    live: Integers,
    commit: Callable[[TermsEntry], None],
    tell: Callable[[int, int], None],
) -> int:
    """Write files of the trees that are in none yet; `commit` is called with each. How many there were."""
    have = read_trees(folder, entries)
    total = int(np.isin(live, have, assume_unique=True, invert=True).sum())
    done, gathered, written = 0, _PostingsBuffer(), time.monotonic()
    try:
        for numbers, forest in _iter_new_trees(library, have):
            gathered.add(numbers, forest)
            done += len(numbers)
            tell(done, max(total, done))
            if gathered.full or time.monotonic() - written > _MAX_FILE_SECONDS:
                commit(gathered.write(folder))
                gathered, written = _PostingsBuffer(), time.monotonic()
    finally:  # an interruption costs nothing that was counted
        if gathered.count:
            commit(gathered.write(folder))
    return done


def _iter_new_trees(library: LibraryFiles, have: Integers) -> Iterator[tuple[Integers, Forest]]:
    """Trees whose structure was not taken in yet, some at a time, in ascending order."""
    for numbers, forest in library.iter_forests():
        new = np.flatnonzero(np.isin(numbers, have, assume_unique=True, invert=True))
        for start in range(0, len(new), _STEP_TREES):
            part = new[start : start + _STEP_TREES]
            yield numbers[part], forest.select(part)


class _PostingsBuffer:
    """What the next file will hold."""

    def __init__(self) -> None:
        self.count = self.postings = 0
        self._trees: list[Integers] = []
        self._owners: list[Rows] = []
        self._codes: list[Codes] = []

    def add(self, numbers: Integers, forest: Forest) -> None:
        terms = extract_terms(forest)
        wanted = is_indexed(terms)
        rows = np.arange(self.count, self.count + len(numbers), dtype=np.uint32)
        owners = np.repeat(rows, np.diff(terms.offsets))
        self._trees.append(numbers)
        self._owners.append(owners[wanted])
        self._codes.append(terms.code[wanted])
        self.count += len(numbers)
        self.postings += len(self._codes[-1])

    @property
    def full(self) -> bool:
        return self.count >= _MAX_FILE_TREES or self.postings >= _MAX_FILE_POSTINGS

    def write(self, folder: Path) -> TermsEntry:
        owners, codes = np.concatenate(self._owners), np.concatenate(self._codes)
        return write_segment(folder, np.concatenate(self._trees), owners, codes)


def compact_files(folder: Path, entries: Entries, live: Integers) -> Entries:
    """The files to use from now on: without dead trees when these are most, fewer when there are many."""
    trees = read_trees(folder, entries)
    dead = int(np.isin(trees, live, invert=True).sum()) > _MAX_DEAD_FRACTION * len(trees)
    if not dead and len(entries) <= _MAX_FILES:
        return entries
    runs: list[list[TermsEntry]] = [[]]
    for entry in entries:
        here = [*runs[-1], entry]
        fits = sum(e.count for e in here) <= _MAX_FILE_TREES and sum(e.postings for e in here) <= _MAX_FILE_POSTINGS
        if runs[-1] and not fits:
            runs.append([])
        runs[-1].append(entry)
    require_intact(folder, [entry for run in runs if dead or len(run) > 1 for entry in run])
    merged = [merge_segments(folder, run, live) if dead or len(run) > 1 else run[0] for run in runs if run]
    return tuple(entry for entry in merged if entry.count)
