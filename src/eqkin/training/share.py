"""What of a batch a process works on: whole triplets, as many as each other one.

Random numbers that go by a tree's or a node's place are those of its place in the whole batch, so that the same nodes
are hidden and the same letters renamed however many processes there are. Every process draws the numbers of all trees,
which costs next to nothing, and so knows where everyone's nodes stand.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from eqkin.encoder.tree_ops import TreeBatch
from eqkin.errors import BadInput
from eqkin.training.ranks import ProcessGroup
from eqkin.training.resident import DeviceForest

BATCH_GROUPS = 3  # of a batch: anchors, partners, and negatives or kin


@dataclass(frozen=True)
class LocalBatch:
    """The trees of one process: its anchors, partners and negatives, one after the other."""

    trees: Tensor  # (trees,) which ones
    rows: Tensor | None  # (trees,) where they stand in the whole batch; None: this is the whole batch
    starts: Tensor | None  # (trees,) where their nodes begin there

    @classmethod
    def from_batch(cls, trees: Tensor, resident: DeviceForest, ranks: ProcessGroup) -> LocalBatch:
        """The share of this process in a batch of trees."""
        if ranks.is_single:
            return cls(trees, None, None)
        rows = ranks.get_own_rows(len(trees), BATCH_GROUPS)
        sizes = resident.get_sizes(trees)
        return cls(trees[rows], rows, (sizes.cumsum(0) - sizes)[rows])

    @property
    def anchors(self) -> Tensor | None:
        """Where its anchors stand among those of the whole batch."""
        return None if self.rows is None else self.rows.chunk(BATCH_GROUPS)[0]

    def compute_positions(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Where nodes of the share stand in the whole batch, given their places in it; meaningless for padding."""
        if self.starts is None:
            return nodes
        return nodes + (self.starts - trees.offsets[:-1])[trees.tree]


def check_batch_size(batch: int, ranks: ProcessGroup) -> None:
    """Raise `BadInput` unless all processes can get the same number of triplets."""
    if batch % ranks.size:
        near = max(batch // ranks.size, 1) * ranks.size
        raise BadInput(f"{batch:,} triplets a step cannot be dealt out to {ranks.size} processes: try --batch {near}")


def count_nodes_per_process(sizes: Tensor, ranks: ProcessGroup) -> Tensor:
    """Nodes of each process's share, (steps, processes), given those of all trees, (steps, trees)."""
    return sizes.view(len(sizes), BATCH_GROUPS, ranks.size, -1).sum((1, 3))
