"""Depth-first order of trees: the order in which a formula is written, where every subtree is one contiguous run.

All of it works on whole forests, level by level, never node by node.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.forest import Array

Numbers = npt.NDArray[np.int32]

NODES_PER_BLOCK = 1_000_000  # nodes worked on at a time


def compute_preorder(forest: Forest, block: int = NODES_PER_BLOCK) -> Numbers:
    """Each node's rank in depth-first order within its tree, from 0; (nodes,) in the forest's order."""
    rank = np.empty(len(forest.n_children), np.int32)
    for trees, nodes in iter_blocks(forest.offsets, block):
        offsets = forest.offsets[trees.start : trees.stop + 1] - nodes.start
        rank[nodes], _ = compute_ranks_and_sizes(forest.n_children[nodes], offsets)
    return rank


def order_depth_first(forest: Forest) -> npt.NDArray[np.int64]:
    """The nodes, tree after tree, each tree's in depth-first order: what is indexed by it comes in that order."""
    places = compute_preorder(forest).astype(np.int64)
    places += np.repeat(forest.offsets[:-1], forest.sizes)
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return order


def iter_blocks(offsets: npt.NDArray[np.int64], size: int = NODES_PER_BLOCK) -> Iterator[tuple[slice, slice]]:
    """Consecutive trees, or sequences, of at most so many nodes together: which they are, and which nodes they have.

    A tree with more nodes is a block of its own.
    """
    first = 0
    while first < len(offsets) - 1:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + size, "right")) - 1)
        yield slice(first, last), slice(int(offsets[first]), int(offsets[last]))
        first = last


def compute_ranks_and_sizes(n_children: Array, offsets: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """Rank in depth-first order and nodes of the subtree, for each node of some trees.

    Sizes are added up from the leaves, then ranks go from the roots down:
    rank(child) = rank(parent) + 1 + the sizes of the subtrees of its elder siblings
    """
    counts = n_children.astype(np.int64)
    first_child = np.cumsum(counts) - counts + np.repeat(np.arange(1, len(offsets)), np.diff(offsets))
    levels = [offsets[:-1]]
    owners = []  # of each node of the next level, its parent's place in this one
    while True:
        level = levels[-1]
        owner = np.repeat(np.arange(len(level)), counts[level])
        if not len(owner):
            break
        start = np.cumsum(counts[level]) - counts[level]
        levels.append(first_child[level][owner] + np.arange(len(owner)) - start[owner])
        owners.append(owner)
    sizes = [np.ones(len(levels[-1]), np.int64)]
    for level, owner in zip(levels[-2::-1], owners[::-1], strict=True):
        sizes.append(1 + np.bincount(owner, sizes[-1], len(level)).astype(np.int64))
    sizes.reverse()
    rank, total = np.zeros(len(counts), np.int32), np.empty(len(counts), np.int32)
    total[levels[0]] = sizes[0]
    for above, below, owner, size in zip(levels[:-1], levels[1:], owners, sizes[1:], strict=True):
        before = np.cumsum(size) - size
        eldest = np.concatenate(([True], owner[1:] != owner[:-1]))
        before -= before[eldest][np.cumsum(eldest) - 1]
        rank[below] = rank[above][owner] + 1 + before
        total[below] = size
    return rank, total
