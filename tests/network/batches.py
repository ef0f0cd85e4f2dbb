"""Batches of random trees with padding behind them, and their edges as others want them."""

from dataclasses import replace

import torch
from hypothesis import strategies as st

from eqkin.network.trees import PADDING, Trees
from tests.forest.strategies import TREES, build

SOME_FORESTS = st.lists(TREES, min_size=1, max_size=6).map(build)


def padded(trees: Trees, rows: int) -> Trees:
    """The same trees with rows of padding behind them, in which everything that means nothing is odd."""
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


def edges(trees: Trees) -> torch.Tensor:
    """Edges between parents and children, both ways: (2, edges)."""
    child = torch.nonzero(trees.parent >= 0).squeeze(1)
    parent = trees.parent[child].long()
    return torch.stack([torch.cat([child, parent]), torch.cat([parent, child])])


def random(rows: int, width: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Normal numbers, the same for the same seed."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
