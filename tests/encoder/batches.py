"""Batches of random trees with padding, their edges, and their mixes computed by the formula."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from eqkin.formulas import Forest
from eqkin.learning.tree_ops import PADDING, ROOT, TreeBatch
from tests.formulas.strategies import TREES, build, compute_position, rows_of

SOME_FORESTS = st.lists(TREES, min_size=1, max_size=6).map(build)


def batch_trees(forest: Forest) -> TreeBatch:
    """Return all trees of a forest as a batch."""
    parent = torch.from_numpy(forest.compute_parent())
    parent[torch.from_numpy(forest.offsets[:-1].copy())] = ROOT
    return TreeBatch(
        parent=parent.int(),
        first_child=torch.from_numpy(forest.compute_first_child()).int(),
        n_children=torch.from_numpy(forest.n_children.astype("int32")),
        position=torch.from_numpy(compute_position(forest)).int(),
        tree=torch.arange(len(forest)).repeat_interleave(torch.from_numpy(forest.sizes)),
        offsets=torch.from_numpy(forest.offsets.copy()).int(),
    )


def padded(trees: TreeBatch, rows: int) -> TreeBatch:
    """Return the same trees followed by padding, with arbitrary values in undefined fields."""
    last = len(trees.offsets) - 2

    def more(tensor, value):
        return torch.cat([tensor, tensor.new_full((rows,), value)])

    return replace(
        trees,
        parent=more(trees.parent, PADDING),
        first_child=more(trees.first_child, 1),
        n_children=more(trees.n_children, 0),
        position=more(trees.position, 3),
        tree=more(trees.tree, last),
    )


def random(rows: int, width: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return normally distributed numbers that depend only on the seed."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def slow_mix(forest, x, terms):
    """Compute the mix of neighbours node by node, as in the formula."""
    y, start = torch.zeros_like(x), forest.offsets.tolist()
    for tree, rows in enumerate(rows_of(forest)):
        own = x[start[tree] : start[tree + 1]]
        for i, (_, _, _, parent, position, first, children) in enumerate(rows):
            mixed = terms[0] * own[i]
            if children:
                mixed = mixed + terms[2] * own[first : first + children].mean(0)
            if i:
                mixed = mixed + terms[1] * own[parent]
                if position:
                    mixed = mixed + terms[3] * own[i - 1]
                if position + 1 < rows[parent][6]:
                    mixed = mixed + terms[4] * own[i + 1]
            y[start[tree] + i] = mixed
    return y
