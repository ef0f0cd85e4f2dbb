"""Other limits than the usual ones, for a test or a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eqkin.limits import LIMITS


@contextmanager
def changed_limits(**values: float) -> Iterator[None]:
    """Change some of the limits; also a decorator of tests."""
    before = {name: getattr(LIMITS, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(LIMITS, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(LIMITS, name, value)
