"""Random numbers without a state: each is a hash of the seed, what it is for, the step and an index.

So a run that is resumed at a step draws what it would have drawn, a batch can be drawn again to look at it, CPUs and
GPUs draw the same, and nothing has to be saved. The hash is SplitMix64's output function (Steele, Lea and Flood 2014).
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1


def _to_signed(word: int) -> int:
    """A 64-bit word as the integer torch stores for it."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Right shift that fills with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift_right(x, 30)) * _to_signed(_FIRST)
    x = (x ^ _shift_right(x, 27)) * _to_signed(_SECOND)
    return x ^ _shift_right(x, 31)


class RandomStream:
    """The random numbers of one purpose (`name`, told apart by its first 8 letters) in runs with one `seed`."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = _to_signed(int.from_bytes(name.encode()[:8], "little") ^ (seed * _GOLDEN))

    def draw_uniform(self, step: Tensor, index: Tensor) -> Tensor:
        """Numbers in [0, 1), float64, one for each pair of `step` and `index` (int64, broadcast)."""
        return (self._draw_bits(step, index) >> 10).double() * 2.0**-53

    def draw_below(self, bound: int | Tensor, step: Tensor, index: Tensor) -> Tensor:
        """Whole numbers in [0, bound), int64; `bound` must be positive and far below 2^63."""
        return self._draw_bits(step, index) % bound

    def _draw_bits(self, step: Tensor, index: Tensor) -> Tensor:
        """63 random bits each."""
        start = _mix(step * _to_signed(_FIRST) + self._key)
        return _shift_right(_mix(_mix(start ^ index)), 1)


def make_step_column(first: int, count: int, device: torch.device) -> Tensor:
    """Step numbers as a column, to be broadcast against a row of indices."""
    return torch.arange(first, first + count, device=device)[:, None]
