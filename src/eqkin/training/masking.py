"""Masking task: guess what was hidden (paper, section 4.2).

A share of the nodes (15 %) get all-zero features, their position stays. From the last layer's vector of a hidden node
three linear maps guess its tag (32), its attribute (32, or none) and its character (192, or none); a node with several
attributes or characters counts by its first. The loss is the mean of the three cross-entropies, over hidden nodes only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.training.randomness import RandomStream
from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS

_COLUMN_ALIGNMENT = 8
MASKING_CLASSES = {"tag": TAG_SLOTS, "attribute": ATTRIBUTE_SLOTS + 1, "character": CHARACTER_SLOTS + 1}


@dataclass(frozen=True)
class Mask:
    """Which nodes of a batch are hidden.

    There is room for a few more than come up, so that shapes depend on the number of nodes alone.
    """

    hidden: Tensor  # (nodes,) bool
    nodes: Tensor  # (room,) int64, the hidden nodes, then padding
    room: Tensor  # (nodes,) int64, where each hidden node stands in `nodes`; -1 for the others
    count: Tensor  # () hidden nodes in `nodes`


class Masking:
    """Draws which nodes are hidden.

    Args:
        share: Chance of a node to be hidden.
        seed: Same seed, same step: same nodes.
    """

    def __init__(self, share: float, *, seed: int) -> None:
        self._share = share
        self._per_mille = math.ceil(1_200 * share)  # room for hidden nodes: a fifth more than expected, and 32
        self._stream = RandomStream(seed, "mask")

    def draw(self, step: Tensor, nodes: Tensor, count: Tensor, places: Tensor | None = None) -> Mask:
        """The mask of a step; `nodes` are 0, 1, ... and those from `count` on are padding.

        `places` are the nodes' numbers in the whole batch, which decide; by default `nodes`.
        """
        most = nodes.shape[0] * self._per_mille // 1_000 + 32  # more come up once in 10^7 batches: not guessed
        hidden = (self._stream.draw_uniform(step, nodes if places is None else places) < self._share) & (nodes < count)
        place = hidden.cumsum(0) - 1
        room = torch.where(hidden & (place < most), place, -1)
        chosen = nodes.new_zeros(most + 1)
        chosen.scatter_(0, torch.where(room >= 0, room, most), nodes)
        return Mask(hidden, chosen[:most], room, hidden.sum().clamp(max=most))


class MaskingHeads(nn.Module):
    """Three linear maps from a node's vector to scores of its tag, attribute and character."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name, classes in MASKING_CLASSES.items():
            setattr(self, name, nn.Linear(width, classes))

    def forward(self, nodes: Tensor, mask: Mask, targets: Tensor, count: Tensor | None = None) -> Tensor:
        """The masking loss; of several processes' shares of it, this one's.

        Args:
            nodes: Vectors of the last layer, (nodes, width).
            mask: Which of them were hidden.
            targets: Tag, attribute and character (as classes) of the nodes in `mask.nodes`, (room, 3).
            count: Hidden nodes of the whole batch; by default, those of `mask`.
        """
        vectors: Tensor = _SelectRows.apply(nodes, mask.nodes, mask.room)  # type: ignore[no-untyped-call]
        heads: list[nn.Linear] = [getattr(self, name) for name in MASKING_CLASSES]
        weight = torch.cat([head.weight for head in heads])
        bias = torch.cat([head.bias for head in heads])
        room = -len(bias) % _COLUMN_ALIGNMENT  # one product with a width that matrix units like
        scores = functional.linear(
            vectors,
            functional.pad(weight, (0, 0, 0, room)).to(vectors.dtype),
            functional.pad(bias, (0, room)).to(vectors.dtype),
        ).to(torch.promote_types(vectors.dtype, torch.float32))
        losses = sum(
            functional.cross_entropy(part, targets[:, task], reduction="none")
            for task, part in enumerate(scores[:, : len(bias)].split(list(MASKING_CLASSES.values()), dim=1))
        )
        real = torch.arange(vectors.shape[0], device=nodes.device) < mask.count
        among = mask.count if count is None else count
        return torch.where(real, losses, 0.0).sum() / (len(MASKING_CLASSES) * among.clamp(min=1))


class _SelectRows(torch.autograd.Function):
    """Some rows of a matrix; knowing where each row went, the gradient is a look-up too, not a scattered sum."""

    @staticmethod
    def forward(matrix: Tensor, rows: Tensor, place: Tensor) -> Tensor:
        return matrix[rows]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (place,) = ctx.saved_tensors
        return torch.where((place >= 0)[:, None], gradient[place.clamp(min=0)], 0.0), None, None
