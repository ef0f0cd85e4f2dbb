"""Shapes of the networks, shared by the torch and numpy implementations. There are two kinds.

"sum", the paper's (section 4.1):

    first    x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b )
    layers   x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b )
    output   mean over the nodes of a tree, then W x + b, divided by the soft norm

The neighbours of a node are its parent and children. f_j are the node's 256 features, p_j is its position among its
siblings, E are fixed sinusoids, and alpha is learned. `norm` is batch normalisation for the layers in `normalised` and
the identity for the others.

"mix", which distinguishes between the neighbours of a node:

    first    x_i = relu( W f_i + alpha E(p_i) + b )
    layers   m_i = a_0 x_i + a_1 x_parent + a_2 (mean of x_children) + a_3 x_left + a_4 x_right
             x_i = x_i + relu( norm(W m_i) )
    output   mean over the nodes of a tree and root mean square, concatenated, then W x + b, scaled to length 1

The a_k are vectors, multiplied element by element. Left and right are the adjacent siblings; a missing neighbour
counts as 0. Every layer has batch normalisation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.formulas.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS

FEATURES = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
# Added to the variance in batch normalisation, and to the mean square before taking its root.
NORM_EPSILON, SQUARE_EPSILON = 1e-5, 1e-6
SUM, MIX = ARCHITECTURE_KINDS = ("sum", "mix")
# The node, its parent, its children, its left sibling, its right sibling.
MIX_TERMS = 5


@dataclass(frozen=True)
class Architecture:
    """Everything needed to build a network or to read its weights."""

    width: int = 512  # width of every layer
    layers: int = 3  # tree convolutions after the first
    normalised: tuple[int, ...] = (0, 2)  # layers with batch normalisation before them (`sum` only)
    dimensions: int = 64  # numbers in a vector
    kind: str = SUM  # `sum` of the neighbours as in the paper, or `mix`: separate weights for each kind of neighbour

    def __post_init__(self) -> None:
        # In "mix" this has no meaning, so it must not make two equal shapes differ.
        if self.kind == MIX:
            object.__setattr__(self, "normalised", ())

    @property
    def pooled_width(self) -> int:
        """Length of the vector of a tree before the output layer."""
        return 2 * self.width if self.kind == MIX else self.width

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as JSON values; `kind` is omitted for "sum", as in files written before "mix" existed."""
        values = asdict(self) | {"normalised": list(self.normalised)}
        if self.kind == SUM:
            del values["kind"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """Read what `to_dict` returned; raises `TypeError`, `KeyError` or `ValueError` for anything else."""
        shape = cls(**values | {"normalised": tuple(values["normalised"])})
        numbers, layers = (shape.width, shape.layers, shape.dimensions), shape.normalised
        is_valid = all(type(number) is int and number > 0 for number in numbers) and shape.kind in ARCHITECTURE_KINDS
        if not is_valid or not all(type(layer) is int and 0 <= layer < shape.layers for layer in layers):
            raise ValueError(f"not the shape of a network: {values}")
        return shape


def compute_weight_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights of a network."""
    width, dimensions, mixed = architecture.width, architecture.dimensions, architecture.kind == MIX
    shapes: dict[str, tuple[int, ...]] = {
        "first.weight": (width, FEATURES),
        "first.bias": (width,),
        "first.alpha": (),
    }
    for layer in range(architecture.layers):
        shapes[f"layers.{layer}.weight"] = (width, width)
        shapes |= {f"layers.{layer}.mix": (MIX_TERMS, width)} if mixed else {f"layers.{layer}.bias": (width,)}
        if mixed or layer in architecture.normalised:
            shapes |= {f"layers.{layer}.norm.{name}": (width,) for name in ("weight", "bias", "mean", "variance")}
    shapes |= {"output.weight": (dimensions, architecture.pooled_width), "output.bias": (dimensions,)}
    return shapes if mixed else shapes | {"soft_norm.mean": (), "soft_norm.deviation": ()}


def compute_sinusoids(positions: int, width: int) -> npt.NDArray[np.float32]:
    """Return fixed position vectors (Vaswani et al. 2017), one row per position, starting at 0.

    E(p)_2k = sin(p / 10000^(2k / width)), E(p)_2k+1 = cos(p / 10000^(2k / width))
    """
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(positions, -1)[:, :width].astype(np.float32)
