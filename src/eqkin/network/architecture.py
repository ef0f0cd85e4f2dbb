"""The shape of the network, shared by its two implementations (paper, section 4.1).

    first    x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b )
    layers   x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b )
    output   mean over the nodes of a tree, then W x + b, divided by the soft norm

Neighbours are parent and children; f_j are a node's 256 features, p_j its position among its siblings, E fixed
sinusoids, alpha learned. `norm` is batch normalisation before the layers of `normalised` and nothing before the others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.forest.vocabulary import ATTRIBUTES, CHARACTERS, TAGS

FEATURES = TAGS + ATTRIBUTES + CHARACTERS
NORM_EPSILON = 1e-5  # added to the variance in batch normalisation


@dataclass(frozen=True)
class Architecture:
    """What has to be known to build a network, or to read its weights.

    Weights are named, with their shapes: `first.weight` (width, 256), `first.bias` (width,), `first.alpha` ();
    `layers.I.weight` (width, width), `layers.I.bias` (width,); for I in `normalised` `layers.I.norm.weight`,
    `.bias`, `.mean` and `.variance` (width,); `output.weight` (dimensions, width), `output.bias` (dimensions,);
    `soft_norm.mean` and `soft_norm.deviation` ().
    """

    width: int = 512  # of every layer
    layers: int = 3  # tree convolutions after the first
    normalised: tuple[int, ...] = (0, 2)  # layers with batch normalisation before them
    dimensions: int = 64  # of the embedding

    def as_dict(self) -> dict[str, Any]:
        """The shape as JSON would have it."""
        return asdict(self) | {"normalised": list(self.normalised)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """What `as_dict` gave; raises `TypeError`, `KeyError` or `ValueError` for anything else."""
        numbers = {name: int(values[name]) for name in ("width", "layers", "dimensions")}
        if values.keys() != {*numbers, "normalised"} or min(numbers.values()) < 1:
            raise ValueError("not the shape of a network")
        return cls(**numbers, normalised=tuple(int(layer) for layer in values["normalised"]))


def sinusoids(positions: int, width: int) -> npt.NDArray[np.float32]:
    """Fixed position vectors (Vaswani et al. 2017), one row for each position from 0 on.

    E(p)_2k = sin(p / 10000^(2k / width)), E(p)_2k+1 = cos(p / 10000^(2k / width))
    """
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(positions, -1)[:, :width].astype(np.float32)
