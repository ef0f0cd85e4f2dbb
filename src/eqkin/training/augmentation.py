"""Renaming of symbols (paper, section 4.3).

Each equation gets a permutation of the 192 characters of its own, made of Poisson(32) random transpositions; it is
applied to the characters of identifiers (`<mi>`) alone. What an equation says rarely depends on its letters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eqkin.training.randomness import RandomStream
from eqkin.trees.vocabulary import CHARACTER_SLOTS


@dataclass(frozen=True)
class Renaming:
    """One permutation of the characters for each equation, both ways: (equations, 192), uint8."""

    new: Tensor  # new[e, c] is what character c becomes
    old: Tensor  # old[e, new[e, c]] = c


class Augmentation:
    """Draws renamings.

    Args:
        transpositions: How many there are for an equation, on average.
        seed: Same seed, same step: same renamings.
        device: Where to draw.
        share: Of the equations that are renamed; the others stay as they are.
    """

    def __init__(self, transpositions: float, *, seed: int, device: torch.device, share: float = 1.0) -> None:
        self._share, self._whether = share, RandomStream(seed, "renamed")
        self._chance = torch.tensor(_compute_poisson_cdf(transpositions), dtype=torch.float64, device=device)
        self._number, self._first, self._second = (
            RandomStream(seed, name) for name in ("flips", "flip-one", "flip-two")
        )

    def draw(self, step: Tensor, equations: int, places: Tensor | None = None) -> Renaming:
        """Renamings for equations of a step, whose places in the batch are 0, 1, ... unless others are given."""
        device = self._chance.device
        index = torch.arange(equations, device=device) if places is None else places
        flips = torch.searchsorted(self._chance, self._number.draw_uniform(step, index), right=True)
        if self._share < 1:
            flips = torch.where(self._whether.draw_uniform(step, index) < self._share, flips, 0)
        most = len(self._chance)
        pair = (index[:, None] * most + torch.arange(most, device=device)).flatten()
        one = self._first.draw_below(CHARACTER_SLOTS, step, pair)
        other = (one + 1 + self._second.draw_below(CHARACTER_SLOTS - 1, step, pair)) % CHARACTER_SLOTS
        return Renaming(*_compose(flips, one.view(equations, most), other.view(equations, most)))


def _compute_poisson_cdf(mean: float) -> list[float]:
    """P(number <= k) for k = 0, 1, ... until next to nothing is left (the rest, under 1e-12, counts as one more)."""
    below: list[float] = []
    k, chance = 0, math.exp(-mean)
    while 1 - math.fsum(below) > 1e-12 and len(below) < 4 * mean + 50:
        below.append(chance)
        k += 1
        chance *= mean / k
    return torch.tensor(below, dtype=torch.float64).cumsum(0).tolist()


@torch.library.custom_op("eqkin::compose_transpositions", mutates_args=())
def _compose(flips: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The first `flips` transpositions of each row, one after the other, as a permutation and its inverse."""
    if flips.device.type == "cuda":
        from eqkin.encoder.kernels import launch_compose_transpositions

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
