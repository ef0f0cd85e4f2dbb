"""How a figure grows with the size of a collection, fitted to a few measurements, and what that makes of more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

_MAX_LINEAR_EXPONENT = 1.05  # exponents up to this one count as "no faster than the size": a + b n


@dataclass(frozen=True)
class GrowthTrend:
    """Measured values y at sizes n, and y = a + b n and y = c n^e fitted to them."""

    sizes: tuple[float, ...]  # ascending
    values: tuple[float, ...]
    constant: float  # a
    slope: float  # b
    exponent: float | None  # e, by least squares of the logarithms; None: of one value
    last: float | None  # the exponent between the two largest sizes alone

    def predict(self, size: float) -> float:
        """The value at a size: by a + b n, or, where it grows faster, by the exponent of the two largest sizes."""
        if self.last is not None and self.last > _MAX_LINEAR_EXPONENT and size > self.sizes[-1]:
            return float(self.values[-1] * (size / self.sizes[-1]) ** self.last)
        return self.constant + self.slope * size


def fit_trend(sizes: Sequence[float], values: Sequence[float | None]) -> GrowthTrend | None:
    """The trend of what was measured; zeros, and what is missing, are left out, None if nothing is left.

    Relative errors are what is kept small, so that small sizes count as much as large ones; a and b are not negative.
    One value is taken to be in proportion to the size.
    """
    pairs = sorted((float(n), float(y)) for n, y in zip(sizes, values, strict=True) if y is not None and y > 0)
    if not pairs:
        return None
    n, y = np.array(pairs).T
    if len(pairs) == 1:
        return GrowthTrend(tuple(n), tuple(y), 0.0, float(y[0] / n[0]), None, None)
    design = np.stack((1 / y, n / y), axis=1)
    constant, slope = np.linalg.lstsq(design, np.ones(len(y)), rcond=None)[0]
    if slope < 0:
        constant, slope = (1 / y).sum() / (1 / y**2).sum(), 0.0
    elif constant < 0:
        constant, slope = 0.0, (n / y).sum() / (n**2 / y**2).sum()
    exponent = float(np.polyfit(np.log(n), np.log(y), 1)[0])
    last = log(y[-1] / y[-2]) / log(n[-1] / n[-2])
    return GrowthTrend(tuple(n), tuple(y), float(constant), float(slope), exponent, last)
