"""Augmentation of a batch: renaming of symbols and masking of nodes (paper, sections 4.2 and 4.3)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eqkin.formulas.vocabulary import CHARACTER_SLOTS
from eqkin.learning.randomness import RandomStream


@dataclass(frozen=True)
class Renaming:
    """A permutation of the characters per equation, and its inverse: (equations, 192), uint8."""

    new: Tensor  # new[e, c] is the new character for c
    old: Tensor  # old[e, new[e, c]] = c


class Augmentation:
    """Draws renamings of symbols: what an equation says rarely depends on its letters.

    Each equation has its own permutation of the 192 characters, a product of Poisson(32) random transpositions, which
    applies only to the characters of identifiers (`<mi>`).

    Args:
        transpositions: Mean number per equation.
        share: Fraction of the equations that are renamed.
    """

    def __init__(self, transpositions: float, *, seed: int, device: torch.device, share: float = 1.0) -> None:
        self._share, self._renamed = share, RandomStream(seed, "renamed")
        self._cdf = torch.tensor(_compute_poisson_cdf(transpositions), dtype=torch.float64, device=device)
        self._number = RandomStream(seed, "flips")
        self._first = RandomStream(seed, "flip-one")
        self._second = RandomStream(seed, "flip-two")

    def draw(self, step: Tensor, equations: int) -> Renaming:
        """Draw the renamings of a step, one per equation of its batch."""
        device = self._cdf.device
        index = torch.arange(equations, device=device)
        flips = torch.searchsorted(self._cdf, self._number.draw_uniform(step, index), right=True)
        if self._share < 1:
            flips = torch.where(self._renamed.draw_uniform(step, index) < self._share, flips, 0)
        max_flips = len(self._cdf)
        pair = (index[:, None] * max_flips + torch.arange(max_flips, device=device)).flatten()
        one = self._first.draw_below(CHARACTER_SLOTS, step, pair)
        other = (one + 1 + self._second.draw_below(CHARACTER_SLOTS - 1, step, pair)) % CHARACTER_SLOTS
        return Renaming(*_compose(flips, one.view(equations, max_flips), other.view(equations, max_flips)))


def _compute_poisson_cdf(mean: float) -> list[float]:
    """Return P(number <= k) for k = 0, 1, ..., until less than 1e-12 remains."""
    probabilities: list[float] = []
    k, probability = 0, math.exp(-mean)
    while 1 - math.fsum(probabilities) > 1e-12 and len(probabilities) < 4 * mean + 50:
        probabilities.append(probability)
        k += 1
        probability *= mean / k
    return torch.tensor(probabilities, dtype=torch.float64).cumsum(0).tolist()


@torch.library.custom_op("eqkin::compose_transpositions", mutates_args=())
def _compose(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Compose the first `flips` transpositions of each row; returns the permutation and its inverse."""
    if flips.device.type == "cuda":
        from eqkin.learning.kernels import launch_compose_transpositions

        return launch_compose_transpositions(flips, one, other)
    new = torch.arange(CHARACTER_SLOTS, device=flips.device).repeat(len(flips), 1)
    for k in range(int(flips.max()) if len(flips) else 0):
        active = (k < flips)[:, None]
        a, b = one[:, k, None], other[:, k, None]
        new = torch.where(active & (new == a), b, torch.where(active & (new == b), a, new))
    return new.byte(), torch.argsort(new, dim=1).byte()


@_compose.register_fake
def _(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    shape = (flips.shape[0], CHARACTER_SLOTS)
    return flips.new_empty(shape, dtype=torch.uint8), flips.new_empty(shape, dtype=torch.uint8)


@dataclass(frozen=True)
class NodeMask:
    """The hidden nodes of a batch, with some spare room, so that shapes depend only on the number of nodes."""

    hidden: Tensor  # (nodes,) bool
    nodes: Tensor  # (room,) int64, the hidden nodes, then padding
    room: Tensor  # (nodes,) int64, index of each hidden node in `nodes`; -1 for the others
    count: Tensor  # () hidden nodes in `nodes`


class Masking:
    """Draws the nodes to hide, each with probability `share`: features become zero, the position stays."""

    def __init__(self, share: float, *, seed: int) -> None:
        self._share = share
        self._room_per_mille = math.ceil(1_200 * share)
        self._stream = RandomStream(seed, "mask")

    def draw(self, step: Tensor, nodes: Tensor, count: Tensor) -> NodeMask:
        """Draw the mask of a step.

        Args:
            step: Number of the step.
            nodes: 0, 1, ...; those from `count` on are padding.
            count: Number of nodes without padding.
        """
        # 20 % more than expected, plus 32: exceeded once in 10^7 batches, and then the rest does not count.
        room = nodes.shape[0] * self._room_per_mille // 1_000 + 32
        hidden = (self._stream.draw_uniform(step, nodes) < self._share) & (nodes < count)
        index = hidden.cumsum(0) - 1
        index = torch.where(hidden & (index < room), index, -1)
        chosen = nodes.new_zeros(room + 1)
        chosen.scatter_(0, torch.where(index >= 0, index, room), nodes)
        return NodeMask(hidden, chosen[:room], index, hidden.sum().clamp(max=room))
