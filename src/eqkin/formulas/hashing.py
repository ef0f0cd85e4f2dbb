"""Hashes of strings, pairs and sequences, the same on every machine, and the bits of labels that terms are made of."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

# Enough for the number of any family of terms.
FAMILY_BITS = 2
Codes = npt.NDArray[np.uint64]
# 2^64 divided by the golden ratio.
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class LabelKinds:
    """Bits: what the label of a node of an operator tree says about it and its outline."""

    VARIABLE, UNORDERED, APPLIED, INDEXED, DETAIL, WRAPPER, PLAIN = (1 << bit for bit in range(7))


def hash_strings(names: Iterable[str]) -> Codes:
    """Return a hash for each string."""
    return np.array([hash_string(name) for name in names], np.uint64)


@lru_cache(1 << 16)
def hash_string(name: str) -> int:
    """Return a hash of 64 bits."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def combine_hashes(first: Codes, second: Codes) -> Codes:
    """Return hashes of ordered pairs."""
    mixed: Codes = mix_bits(first * np.uint64(GOLDEN) + second)
    return mixed


def mix_bits(
    x: Any, multipliers: tuple[int, int] = MULTIPLIERS, shift_right: Callable[[Any, int], Any] = operator.rshift
) -> Any:
    """Return the output function of SplitMix64 (Steele, Lea and Flood 2014) of arrays of 64-bit integers.

    Args:
        x: Unsigned integers of numpy; other arrays need their own multipliers and shift (see `learning.sampling`).
        multipliers: The two constants, as integers of the array's type.
        shift_right: A shift that fills with zeros.
    """
    x = x ^ shift_right(x, 30)
    x *= multipliers[0]
    x ^= shift_right(x, 27)
    x *= multipliers[1]
    x ^= shift_right(x, 31)
    return x
