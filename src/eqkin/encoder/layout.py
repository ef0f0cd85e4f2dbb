"""Trees cut into chunks, and a chunk's nodes in rows, so that sums over children are sums over the rows of a block.

Siblings stand side by side and families of equal size together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_BLOCK_NODES = 65_536  # nodes whose labels are looked up together, and their trees' outputs


@dataclass(frozen=True)
class SiblingGroups:
    """Families of one size in a layout: parents with `size` children each."""

    size: int
    rows: slice  # the children, family after family
    numbers: slice  # the families, among all families of the layout


@dataclass(frozen=True)
class NodeLayout:
    """Some trees' nodes in rows: the roots first, then families of siblings, those of equal size together."""

    order: Integers  # (rows,) which node stands in a row, counted from the first node of the first tree
    row: Integers  # (nodes,) the other way round
    parents: Integers  # (families,) the row of each family's parent
    families: list[SiblingGroups]
    neighbours: Integers  # (rows,) parent and children of each row's node, and the node itself
    roots: int  # that is, trees

    @classmethod
    def from_forest(cls, forest: Forest, trees: slice, first_child: Integers) -> NodeLayout:
        """The layout of some trees of a forest, whose `first_child()` is given."""
        start, stop = int(forest.offsets[trees.start]), int(forest.offsets[trees.stop])
        children = forest.n_children[start:stop].astype(np.int64)
        roots = forest.offsets[trees] - start
        parents = np.flatnonzero(children)
        parents = parents[np.argsort(children[parents], kind="stable")]
        lengths = children[parents]
        ends = np.cumsum(lengths)
        nodes = np.repeat(first_child[start:stop][parents] - start - ends + lengths, lengths)
        order = np.concatenate((roots, nodes + np.arange(len(nodes))))
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        neighbours = children[order] + 2
        neighbours[: len(roots)] -= 1
        return cls(order, row, row[parents], _build_sibling_groups(lengths, len(roots)), neighbours, len(roots))

    def restore(self, nodes: Floats, out: Floats) -> None:
        """Put rows back into the order of the forest."""
        np.take(nodes, self.row, axis=0, out=out, mode="clip")


def _build_sibling_groups(lengths: Integers, row: int) -> list[SiblingGroups]:
    """Families with these sizes, in ascending order, whose children stand from `row` on."""
    sizes, starts = np.unique(lengths, return_index=True)
    families = []
    for size, (first, last) in zip(sizes.tolist(), pairwise([*starts.tolist(), len(lengths)]), strict=True):
        end = row + size * (last - first)
        families.append(SiblingGroups(size, slice(row, end), slice(first, last)))
        row = end
    return families


def iter_blocks(forest: Forest) -> Iterator[tuple[slice, Forest]]:
    """A forest in parts that fit into memory with the vectors of their nodes: which trees, and a forest of them.

    Raises:
        CorruptData: the arrays describe no trees.
    """
    for trees in iter_tree_slices(forest.sizes, _BLOCK_NODES):
        whole = trees == slice(0, len(forest))
        part = forest if whole else forest.select(np.arange(trees.start, trees.stop))
        part.validate()
        yield trees, part


def iter_tree_slices(sizes: Integers, nodes: int) -> Iterator[slice]:
    """Consecutive trees with at most so many nodes together, or a single tree that is larger."""
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        limit = nodes + (int(ends[start - 1]) if start else 0)
        stop = max(start + 1, int(np.searchsorted(ends, limit, "right")))
        yield slice(start, stop)
        start = stop
