"""Batches of trees for attention: every linear map sees the nodes alone, one after the other, without padding.

Attention needs trees side by side, padded to one length. A batch is sorted by size and cut into a few groups, each
padded to its own longest tree, so that a few long trees cost little. All sizes are known on the host: nothing waits
for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.training.batches import DeviceBatch, DeviceForest
from eqkin.trees import Forest, Vocabulary
from eqkin.trees.forest import compute_preorder

Integers = npt.NDArray[np.int64]

_SHARES = (0.0, 0.5, 0.8, 0.95, 1.0)  # where a sorted batch is cut
_LENGTH_MULTIPLE = 16  # padded lengths are multiples of it: fast attention on GPUs asks for that


@dataclass(frozen=True)
class PaddedGroup:
    """Trees of similar size in a batch."""

    nodes: slice  # theirs, in the batch
    trees: int
    length: int  # they are padded to
    place: Tensor  # (nodes,) int64, row of each node when trees are padded, counted over the group
    keys: Tensor  # (trees, 1, 1, length) bool, what is no padding


@dataclass(frozen=True)
class SortedBatch:
    """Some trees, sorted by size."""

    batch: DeviceBatch
    rank: Tensor  # (nodes,) int64, depth-first
    groups: list[PaddedGroup]
    asked: Tensor  # (trees,) int64, where each tree that was asked for stands


class TreeSet:
    """Trees on a device, those with more than `longest` nodes cut to the first ones in depth-first order.

    Args:
        forest: The trees.
        vocabulary: What their tags, attributes and characters mean to the network.
        longest: Nodes to keep of a tree, at most.
        device: Where to put them.
    """

    def __init__(self, forest: Forest, vocabulary: Vocabulary, longest: int, device: torch.device) -> None:
        forest, rank = truncate(forest, longest)
        self.device = device
        self.sizes: Integers = forest.sizes
        self.resident = DeviceForest(forest, vocabulary, device)
        self._rank = torch.from_numpy(rank.astype(np.int16 if longest < 1 << 15 else np.int32)).to(device)

    def __len__(self) -> int:
        return len(self.sizes)

    def make_batch(self, trees: Integers) -> SortedBatch:
        """Some trees, one may come up several times."""
        order = np.argsort(self.sizes[trees], kind="stable")
        chosen = trees[order]
        asked = np.empty_like(order)
        asked[order] = np.arange(len(order))
        ends = np.cumsum(self.sizes[chosen])
        nodes = torch.arange(int(ends[-1]), device=self.device)
        of_tree = torch.from_numpy(chosen).to(self.device, non_blocking=True)
        batch = self.resident.collate(of_tree, nodes)
        tree, offsets = batch.trees.tree, batch.trees.offsets.long()
        within = nodes - offsets[tree]
        rank = self._rank[self.resident.offsets[of_tree][tree] + within].long()
        groups = []
        for first, last in pairwise(sorted({round(share * len(trees)) for share in _SHARES})):
            length = -(-int(self.sizes[chosen[last - 1]]) // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
            slots = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
            place = (tree[slots] - first) * length + within[slots]
            keys = torch.arange(length, device=self.device) < offsets.diff()[first:last, None]
            groups.append(PaddedGroup(slots, last - first, length, place, keys[:, None, None, :]))
        return SortedBatch(batch, rank, groups, torch.from_numpy(asked).to(self.device, non_blocking=True))

    def split_batches(self, nodes: int) -> list[Integers]:
        """All trees, those of similar size together, in parts that have at most `nodes` nodes when padded."""
        order = np.argsort(self.sizes, kind="stable")
        lengths = -(-self.sizes[order] // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
        parts, first = [], 0
        while first < len(order):
            reach = np.arange(1, min(len(order) - first, nodes // int(lengths[first])) + 1)
            fits = int(np.count_nonzero(reach * lengths[first : first + len(reach)] <= nodes))
            parts.append(order[first : first + max(fits, 1)])
            first += max(fits, 1)
        return parts


def truncate(forest: Forest, longest: int) -> tuple[Forest, npt.NDArray[np.int32]]:
    """Trees cut to their first nodes in depth-first order, and the rank of each node that stays.

    A node's parent comes before it, so what stays is a tree.
    """
    rank = compute_preorder(forest)
    kept = rank < longest
    if kept.all():
        return forest, rank
    parent = forest.compute_parent()
    child = kept.copy()
    child[forest.offsets[:-1]] = False
    n_children = np.bincount(parent[child], minlength=len(kept))[kept]
    offsets = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[forest.offsets]
    return Forest(
        forest.tags, forest.attributes, forest.texts, forest.tag[kept], forest.attribute[kept], forest.text[kept],
        n_children, offsets,
    ), rank[kept]  # fmt: skip


def pad(rows: Tensor, group: PaddedGroup) -> Tensor:
    """(nodes, width) of a group -> (trees, length, width), zeros where there is no node."""
    padded: Tensor = _Pad.apply(rows, group.place, group.trees * group.length)  # type: ignore[no-untyped-call]
    return padded.view(group.trees, group.length, -1)


def unpad(padded: Tensor, group: PaddedGroup) -> Tensor:
    """What `pad` padded."""
    rows: Tensor = _Unpad.apply(padded.flatten(0, 1), group.place)  # type: ignore[no-untyped-call]
    return rows


class _Pad(torch.autograd.Function):
    """Rows to places of their own; the gradient is a look-up, where torch's own would add up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, place: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(place)
        return rows.new_zeros(count, rows.shape[1]).index_copy_(0, place, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (place,) = ctx.saved_tensors
        return gradient[place], None, None


class _Unpad(torch.autograd.Function):
    """The other way round."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, place: Tensor) -> Tensor:
        ctx.save_for_backward(place)
        ctx.count = len(padded)
        return padded[place]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (place,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.count, gradient.shape[1]).index_copy_(0, place, gradient), None
