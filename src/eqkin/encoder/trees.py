"""A batch of trees as the network sees it: who stands next to whom, in torch tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eqkin.trees.forest import Forest

ROOT, PADDING = -1, -2  # in place of a parent


@dataclass(frozen=True)
class TreeBatch:
    """The structure of a batch of trees in breadth-first order, tree after tree.

    Nodes may be followed by padding, so that batches of different sizes can run through the same recorded graph of
    operations. Padding belongs to no tree, has no neighbours, and comes out of every tree sum as zeros.
    """

    parent: Tensor  # (nodes,) int32, ROOT for roots, PADDING for padding
    first_child: Tensor  # (nodes,) int32, meaningless for leaves
    n_children: Tensor  # (nodes,) int32
    position: Tensor  # (nodes,) int32, among siblings, from 0
    tree: Tensor  # (nodes,) int64, the tree a node belongs to; any for padding
    offsets: Tensor  # (trees + 1,) int32, first node of each tree

    @property
    def node_count(self) -> Tensor:
        """How many nodes there are without padding, as a tensor of its own device."""
        return self.offsets[-1]

    @classmethod
    def from_forest(cls, forest: Forest, device: torch.device | str = "cpu") -> TreeBatch:
        """The structure of all trees of a forest."""
        parent = torch.from_numpy(forest.compute_parent())
        roots = torch.from_numpy(forest.offsets[:-1].copy())
        parent[roots] = ROOT
        sizes = torch.from_numpy(forest.sizes)
        return cls(
            parent=parent.int().to(device),
            first_child=torch.from_numpy(forest.compute_first_child()).int().to(device),
            n_children=torch.from_numpy(forest.n_children.astype("int32")).to(device),
            position=torch.from_numpy(forest.compute_position()).int().to(device),
            tree=torch.arange(len(forest)).repeat_interleave(sizes).to(device),
            offsets=torch.from_numpy(forest.offsets.copy()).int().to(device),
        )
