"""Segments of the structure of equations: operator trees, and lists of their terms.

A segment has its trees in ascending order; a tree's place among them is its row.

    runs     (runs, 2)          numbers of trees that follow one another: the first, and how many
    norms    (trees, families)  sums of squared weights of its terms, by family (`trees.idf.encode_norms`)
    papers   (runs, 2)          papers of trees that follow one another: the paper's number, and how many trees
    display  (trees,)           the last bits of the number of its display (`library.references`)
    latex    (trees,)           a hash of its LaTeX

Arrays whose names begin with `postings.` are lists of terms (`index.postings`), whose occurrences are not counted.
Those that begin with `operators.` are operator trees (`formulas.stored_operators`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.idf import compute_norms, encode_norms, load_bundled_frequencies, weigh_terms
from eqkin.formulas.operators import OperatorForest, accumulate
from eqkin.formulas.stored_operators import OPERATOR_ARRAYS, StoredOperators, pack_operators
from eqkin.formulas.terms import COMPARED_FAMILIES, extract_terms
from eqkin.index.embedding import TreeTask
from eqkin.index.manifest import REBUILD_HINT, SETTINGS, IndexSettings, TermsEntry
from eqkin.index.postings import POSTING_ARRAYS, Codes, PostingLists, encode_postings
from eqkin.index.vectors import Floats, Integers
from eqkin.storage.segments import Array, open_arrays, write_arrays

TERM_SCHEME = 8  # raise it when operator trees, the terms of a tree, their codes, or the indexed families change
SEGMENT_SCHEME = 100 * TERM_SCHEME + 8  # raise the last two digits when only the arrays of a segment change

_LENGTH_PIVOT = np.float32(0.35)  # how much a formula's size counts against it
_LENGTH_OFFSET = np.float32(5)  # nodes that every formula has in addition
_ARRAYS: dict[str, tuple[str, list[int]]] = {
    "runs": ("I64", [-1, 2]),
    "norms": ("U8", [-1, COMPARED_FAMILIES]),
    "papers": ("I64", [-1, 2]),
    "display": ("U16", [-1]),
    "latex": ("U32", [-1]),
    **{f"postings.{name}": (kind, [-1]) for name, kind in POSTING_ARRAYS.items()},
    **{f"operators.{name}": kind for name, kind in OPERATOR_ARRAYS.items()},
}

Rows = npt.NDArray[np.uint32]


def normalise_length(nodes: npt.NDArray[Any]) -> Floats:
    """Return by what total weights of terms are multiplied, given numbers of nodes of operator trees."""
    factors: Floats = (nodes.astype(np.float32) + _LENGTH_OFFSET) ** -_LENGTH_PIVOT
    return factors


@dataclass(frozen=True)
class Structure:
    """What is indexed of the structure of some trees."""

    owners: Rows  # (postings,) position of a tree that has a term
    codes: Codes  # (postings,) the term
    counts: npt.NDArray[np.uint8]  # (postings,) its occurrences; 1 if they are not counted
    norms: npt.NDArray[np.uint8]  # (trees, families) as `encode_norms` makes them
    operators: OperatorForest
    columns: Integers  # (trees, 3) paper, display and hash of LaTeX (`library.references.EquationColumns`)


def extract_structure(task: TreeTask) -> tuple[Integers, Structure]:
    """Parse trees and extract the terms that are indexed; return it with the numbers of the trees.

    Papers, displays and LaTeX are not known here, and 0.
    """
    operators = parse_operators(task.forest)
    terms = extract_terms(operators)
    norms = encode_norms(compute_norms(terms, weigh_terms(terms, load_bundled_frequencies())).T)
    operators = replace(operators)  # a copy without cached properties, which need not be sent to the writer
    columns = np.zeros((len(operators), 3), np.int64)
    counts = np.ones(len(terms.code), np.uint8)
    return task.numbers, Structure(terms.tree.astype(np.uint32), terms.code, counts, norms, operators, columns)


class TermSegment:
    """An opened segment.

    Args:
        path: The file, for errors.
        arrays: Its arrays.

    Raises:
        CorruptData: The arrays contradict each other.
    """

    def __init__(self, path: Path, arrays: dict[str, Array]) -> None:
        self._path = path
        self.norms: npt.NDArray[np.uint8] = arrays["norms"]
        first, sizes = arrays["runs"].T
        starts = accumulate(sizes)
        with self.check_damage():
            self.trees: Integers = np.repeat(first - starts[:-1], sizes) + np.arange(starts[-1])
            self.lists = PostingLists({name: arrays[f"postings.{name}"] for name in POSTING_ARRAYS}, len(self.trees))
            self.operators = StoredOperators({name: arrays[f"operators.{name}"] for name in OPERATOR_ARRAYS})
            if (
                not len(self.norms) == len(self.operators) == len(self.trees)
                or (self.trees[1:] <= self.trees[:-1]).any()
                or not self.operators.is_valid()
            ):
                raise ValueError("lists do not fit trees")
            self._papers, sizes = arrays["papers"].T
            self._paper_starts, self._display, self._latex = accumulate(sizes), arrays["display"], arrays["latex"]
            if (
                not self._paper_starts[-1] == len(self._display) == len(self._latex) == len(self.trees)
                or (sizes < 1).any()
            ):
                raise ValueError("papers do not fit trees")

    def get_columns(self, rows: Integers) -> Integers:
        """Return paper, display and hash of LaTeX of some rows, (rows, 3)."""
        paper = self._papers[np.searchsorted(self._paper_starts, rows, "right") - 1]
        return np.stack((paper, self._display[rows], self._latex[rows]), axis=1).astype(np.int64)

    @contextmanager
    def check_damage(self) -> Iterator[None]:
        """Raise `CorruptData` for what damaged arrays raise."""
        try:
            yield
        except (IndexError, ValueError) as error:
            raise CorruptData(f"{self._path}: damaged ({error}); {REBUILD_HINT}") from error


def open_segment(folder: Path, entry: TermsEntry) -> TermSegment:
    """Open a segment; raises `CorruptData`."""
    arrays = open_arrays(folder, entry, _ARRAYS, REBUILD_HINT)
    segment = TermSegment(folder / entry.file, dict(zip(_ARRAYS, arrays, strict=True)))
    if len(segment.trees) != entry.count:
        raise CorruptData(f"{folder / entry.file}: damaged (wrong number of trees); {REBUILD_HINT}")
    return segment


def write_segment(folder: Path, trees: Integers, structure: Structure) -> TermsEntry:
    """Write a segment with the structure of trees, whose numbers are ascending."""
    first = np.flatnonzero(np.diff(trees, prepend=-2) != 1)
    lists = encode_postings(structure.owners, structure.codes, structure.counts, len(trees))
    arrays: dict[str, Array] = {
        "runs": np.stack((trees[first], np.diff(first, append=len(trees))), axis=1).astype(np.int64),
        "norms": structure.norms,
    }
    paper, display, latex = structure.columns.T
    first = np.flatnonzero(np.diff(paper, prepend=paper[:1] - 1))
    arrays["papers"] = np.stack((paper[first], np.diff(first, append=len(trees))), axis=1)
    arrays |= {"display": display.astype(np.uint16), "latex": latex.astype(np.uint32)}
    arrays |= {f"postings.{name}": array for name, array in lists.items()}
    arrays |= {f"operators.{name}": array for name, array in pack_operators(structure.operators).items()}
    return TermsEntry(*write_arrays(folder, "terms", arrays), len(trees), len(structure.codes), SEGMENT_SCHEME)


def read_trees(folder: Path, entries: Sequence[TermsEntry]) -> Integers:
    """Return the trees of all segments."""
    return np.concatenate([np.zeros(0, np.int64), *(open_segment(folder, entry).trees for entry in entries)])


def count_unparsed(folder: Path, entries: Sequence[TermsEntry]) -> int:
    """Count the equations of an index's segments that could not be parsed completely."""
    segments = [open_segment(folder, entry) for entry in entries if entry.scheme == SEGMENT_SCHEME]
    return sum(segment.operators.n_unparsed for segment in segments)


@dataclass
class TermCodec:
    """Merges segments of terms; dead trees are always dropped."""

    folder: Path
    live: Integers  # ascending
    settings: IndexSettings = SETTINGS

    def fits(self, run: Sequence[TermsEntry]) -> bool:
        """Return whether neighbouring segments may become one."""
        trees, postings = sum(entry.count for entry in run), sum(entry.postings for entry in run)
        return trees <= self.settings.max_segment_trees and postings <= self.settings.max_segment_postings

    def merge(self, run: Sequence[TermsEntry], drop_dead: bool = True) -> TermsEntry | None:
        """Write one segment with the live trees of several."""
        segments = [open_segment(self.folder, entry) for entry in run]
        trees = np.intersect1d(np.concatenate([segment.trees for segment in segments]), self.live)
        parts, order = [], []
        for segment in segments:
            positions = np.searchsorted(trees, segment.trees)
            alive = np.isin(segment.trees, trees, assume_unique=True)
            with segment.check_damage():
                rows, codes, counts = segment.lists.read_all()
                operators = segment.operators.read(np.flatnonzero(alive))
            kept = alive[rows]
            owners = positions[rows[kept]].astype(np.uint32)
            columns = segment.get_columns(np.flatnonzero(alive))
            parts.append(Structure(owners, codes[kept], counts[kept], segment.norms[alive], operators, columns))
            order.append(positions[alive])
        if not len(trees):
            return None
        merged, places = _concatenate(parts), np.argsort(np.concatenate(order))
        norms, columns, operators = merged.norms[places], merged.columns[places], merged.operators.select(places)
        merged = replace(merged, norms=norms, operators=operators, columns=columns)
        return write_segment(self.folder, trees, merged)


def _concatenate(parts: Sequence[Structure]) -> Structure:
    """Return the structure of all parts, whose owners have different positions."""
    owners, codes, counts, norms, columns = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("owners", "codes", "counts", "norms", "columns")
    )
    operators = OperatorForest.concatenate([part.operators for part in parts])
    return Structure(owners, codes, counts, norms, operators, columns)


@dataclass
class TermBuffer:
    """The content of the next segment. An interrupted `add` leaves it as it was."""

    settings: IndexSettings
    _parts: list[tuple[Integers, Structure]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of trees."""
        return sum(len(trees) for trees, _ in self._parts)

    @property
    def is_full(self) -> bool:
        """True if it is time to write a segment."""
        postings = sum(len(structure.codes) for _, structure in self._parts)
        return self.count >= self.settings.max_segment_trees or postings >= self.settings.max_segment_postings

    def add(self, trees: Integers, structure: Structure) -> None:
        """Add the structure of trees, whose numbers must be higher than those added before."""
        self._parts.append((trees, structure))

    def write(self, folder: Path) -> TermsEntry:
        """Write the segment."""
        trees, parts = zip(*self._parts, strict=True)
        before = np.cumsum([0, *map(len, trees)])
        moved = [
            replace(part, owners=part.owners + np.uint32(start)) for part, start in zip(parts, before, strict=False)
        ]
        return write_segment(folder, np.concatenate(trees), _concatenate(moved))
