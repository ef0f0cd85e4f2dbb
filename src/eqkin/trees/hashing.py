"""Hashes of strings, pairs and sequences, the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MULTIPLIER, _SECOND_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BASE = 0xD1342543DE82EF95  # odd, so that its powers have inverses


def hash_strings(names: Iterable[str]) -> Codes:
    """Return a hash for each string."""
    digests = (hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def combine_hashes(first: Codes, second: Codes) -> Codes:
    """Return hashes of ordered pairs (Steele et al. 2014, SplitMix)."""
    code = first * _GOLDEN + second
    code ^= code >> np.uint64(30)
    code *= _FIRST_MULTIPLIER
    code ^= code >> np.uint64(27)
    code *= _SECOND_MULTIPLIER
    code ^= code >> np.uint64(31)
    return code


def compute_powers(count: int) -> tuple[Codes, Codes]:
    """Return the powers 0, 1, ... of a fixed odd number modulo 2^64, and their inverses."""
    powers = []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        factors = np.full(count, base, np.uint64)
        factors[:1] = 1
        powers.append(np.cumprod(factors, out=factors))
    return powers[0], powers[1]


def compute_prefix_sums(values: Codes) -> Codes:
    """Return the sums modulo 2^64 of all values before each, and of all of them at the end."""
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=sums[1:])
    return sums
