"""Keys: whole numbers made of names, so that what is pushed twice is there once."""

from __future__ import annotations

from hashlib import blake2b

SUMMARY_KEY, LEASE_KEY, PENDING_KEY = 0, 1, 2  # rows among the papers that are none
_RESERVED_KEYS = 16  # numbers below are not given to names
KEY_END = 1 << 63  # all keys are below


def hash_name(name: str) -> int:
    """63 bits of the hash of a name; two of 30 million names share a key once in twenty thousand collections."""
    number = int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1
    return number if number >= _RESERVED_KEYS else number + _RESERVED_KEYS


def hash_equation(paper: str, number: int) -> int:
    """Of the equation with a number in the paper with a key."""
    return hash_name(f"{paper}#{number}")


def hash_part(paper: int, part: int) -> int:
    """Of a further part of what is kept of a paper that does not fit into one row."""
    return hash_name(f"{paper}/{part}")
