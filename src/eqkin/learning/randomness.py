"""Random numbers without a state: each is a hash of the seed, its purpose, the step and an index.

So a resumed run draws the same numbers, a batch can be drawn again for inspection, CPUs and GPUs draw the same, and
nothing has to be saved. The hash is the output function of SplitMix64 (`trees.hashing.mix_bits`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from eqkin.formulas.hashing import GOLDEN, MULTIPLIERS, mix_bits


class RandomStream:
    """The random numbers for one purpose in runs with one seed; only the first 8 letters of `name` count."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = _to_signed(int.from_bytes(name.encode()[:8], "little") ^ (seed * GOLDEN))

    def draw_uniform(self, step: Tensor, index: Tensor) -> Tensor:
        """Return float64 numbers in [0, 1), one per pair of `step` and `index` (int64, broadcast)."""
        return (self._draw_bits(step, index) >> 10).double() * 2.0**-53

    def draw_below(self, bound: int | Tensor, step: Tensor, index: Tensor) -> Tensor:
        """Return int64 numbers in [0, bound); `bound` must be positive and far below 2^63."""
        return self._draw_bits(step, index) % bound

    def _draw_bits(self, step: Tensor, index: Tensor) -> Tensor:
        """Return 63 random bits each."""
        start = _mix(step * _SIGNED_MULTIPLIERS[0] + self._key)
        return _shift_right(_mix(_mix(start ^ index)), 1)


def make_step_column(first: int, count: int, device: torch.device) -> Tensor:
    """Return step numbers as a column, to be broadcast against a row of indices."""
    return torch.arange(first, first + count, device=device)[:, None]


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch's shift copies the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _to_signed(word: int) -> int:
    """Return the signed integer with the same lowest 64 bits."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


_SIGNED_MULTIPLIERS = (_to_signed(MULTIPLIERS[0]), _to_signed(MULTIPLIERS[1]))


def _mix(x: Tensor) -> Tensor:
    mixed: Tensor = mix_bits(x, _SIGNED_MULTIPLIERS, _shift_right)
    return mixed
