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


def _signed(word: int) -> int:
    """A 64-bit word as the integer torch stores for it."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Right shift that fills with zeros."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)


class Stream:
    """The random numbers of one purpose (`name`, told apart by its first 8 letters) in runs with one `seed`."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = _signed(int.from_bytes(name.encode()[:8], "little") ^ (seed * _GOLDEN))

    def uniform(self, step: Tensor, index: Tensor) -> Tensor:
        """Numbers in [0, 1), float64, one for each pair of `step` and `index` (int64, broadcast)."""
        return (self._bits(step, index) >> 10).double() * 2.0**-53

    def below(self, bound: int | Tensor, step: Tensor, index: Tensor) -> Tensor:
        """Whole numbers in [0, bound), int64; `bound` must be positive and far below 2^63."""
        return self._bits(step, index) % bound

    def _bits(self, step: Tensor, index: Tensor) -> Tensor:
        """63 random bits each."""
        start = _mixed(step * _signed(_FIRST) + self._key)
        return _shifted(_mixed(_mixed(start ^ index)), 1)


def steps_from(first: int, count: int, device: torch.device) -> Tensor:
    """Step numbers as a column, to be broadcast against a row of indices."""
    return torch.arange(first, first + count, device=device)[:, None]
