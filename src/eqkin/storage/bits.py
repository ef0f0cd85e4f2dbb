"""Numbers of a few bits, the lowest bit first, and prefix codes.

The compiled functions do not check indices: who reads a number sees to it that `WINDOW` bytes follow where it begins.
"""
# ruff: noqa: ANN001, ANN201, ANN202 (numba infers the types)

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from eqkin.compiler import njit

WINDOW = 8  # bytes that are read, or written, for a number
PREFIX_BITS = 10  # of the longest prefix code
_MAX_ZEROS = 28  # before the first bit 1 of a number
_ONE = np.uint64(1)


@njit(types.uint64(types.uint64), nogil=True, cache=True)
def count_bits(word):
    """Return the number of ones; compilers know this way to count them and use the machine's."""
    word -= word >> np.uint64(1) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (word >> np.uint64(2) & np.uint64(0x3333333333333333))
    word = word + (word >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return word * np.uint64(0x0101010101010101) >> np.uint64(56)


@njit()
def load_bits(data, at):
    """Return 57 bits or more from a bit on."""
    byte, word = np.uint64(at >> 3), np.uint64(0)
    for step in range(np.uint64(WINDOW)):
        word |= np.uint64(data[byte + step]) << (np.uint64(8) * step)
    return word >> np.uint64(at & 7)


@njit()
def count_zeros(word):
    """Return how many bits before the first that is 1 are 0."""
    return np.int64(count_bits((word & (~word + _ONE)) - _ONE))


@njit()
def measure_bits(number):
    """Return the number of bits of a number that is not negative."""
    word = np.uint64(number)
    for shift in (1, 2, 4, 8, 16, 32):
        word |= word >> np.uint64(shift)
    return np.int64(count_bits(word))


@njit()
def write_bits(data, at, value, width):
    """Write a number of so many bits, at most 57; return where it ends."""
    byte, word = np.uint64(at >> 3), np.uint64(value) << np.uint64(at & 7)
    for step in range(np.uint64(WINDOW)):
        data[byte + step] |= np.uint8(word >> (np.uint64(8) * step))
    return at + width


@njit()
def write_number(data, at, value, bits):
    """Write a number in an exponential Golomb code; return where it ends."""
    zeros = measure_bits((value >> bits) + 1) - 1
    rest = value - (((1 << zeros) - 1) << bits)
    return write_bits(data, at, (rest << 1 | 1) << zeros, 2 * zeros + 1 + bits)


@njit()
def read_number(data, at, bits):
    """Return a number that `write_number` wrote, and where it ends."""
    word = load_bits(data, at)
    zeros = min(count_zeros(word), _MAX_ZEROS)
    rest = np.int64(word >> np.uint64(zeros + 1)) & (1 << zeros + bits) - 1
    return rest + (((1 << zeros) - 1) << bits), at + 2 * zeros + 1 + bits


def compute_prefix_lengths(counts: npt.NDArray[np.int64]) -> list[int]:
    """Return the number of bits of each symbol in a prefix code for symbols that occur so often."""
    least = 1 + (int(counts.sum()) >> PREFIX_BITS + 2)
    while True:
        heap = [(max(count, least), [symbol]) for symbol, count in enumerate(counts.tolist())]
        heapq.heapify(heap)
        lengths = [0] * len(heap)
        while len(heap) > 1:
            (first, some), (second, others) = heapq.heappop(heap), heapq.heappop(heap)
            heapq.heappush(heap, (first + second, some + others))
            for symbol in some + others:
                lengths[symbol] += 1
        if max(lengths) <= PREFIX_BITS:
            return lengths
        least *= 2  # no code may be too long


def assign_prefixes(lengths: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return which symbol begins with which bits, (classes, 2^PREFIX_BITS), given the lengths of prefix codes.

    Raises:
        ValueError: They are not those of a prefix code that uses all bits.
    """
    if lengths.min() < 1 or lengths.max() > PREFIX_BITS:
        raise ValueError("a prefix code is too long")
    shares = 1 << PREFIX_BITS - lengths.astype(np.int64)
    if (shares.sum(axis=1) != 1 << PREFIX_BITS).any():
        raise ValueError("a prefix code is not complete")
    order = np.argsort(lengths, axis=1, kind="stable")
    symbols = np.repeat(order, np.take_along_axis(shares, order, axis=1).ravel()).reshape(len(lengths), -1)
    reversed_bits = sum((np.arange(1 << PREFIX_BITS) >> bit & 1) << PREFIX_BITS - 1 - bit for bit in range(PREFIX_BITS))
    return symbols[:, reversed_bits].astype(np.uint16)
