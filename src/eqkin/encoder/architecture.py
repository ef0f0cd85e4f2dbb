"""The shapes of networks, shared by their implementations in torch and numpy. There are two kinds.

"sum", the paper's (section 4.1):

    first    x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b )
    layers   x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b )
    output   mean over the nodes of a tree, then W x + b, divided by the soft norm

Neighbours are parent and children; f_j are a node's 256 features, p_j its position among its siblings, E fixed
sinusoids, alpha learned. `norm` is batch normalisation before the layers of `normalised` and nothing before the others.

"mix", which tells a node's neighbours apart:

    first    x_i = relu( W f_i + alpha E(p_i) + b )
    layers   m_i = a_0 x_i + a_1 x_parent + a_2 (mean of x_children) + a_3 x_left + a_4 x_right
             x_i = x_i + relu( norm(W m_i) )
    output   mean over the nodes of a tree beside the root of the mean square, then W x + b, divided by its length

The a_k are vectors, multiplied number by number; left and right are the siblings next to a node, and what is not there
counts as 0. `norm` is batch normalisation in every layer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS

FEATURES = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
NORM_EPSILON = 1e-5  # added to the variance in batch normalisation
SQUARE_EPSILON = 1e-6  # added to the mean square before its root is taken
SUM, MIX = ARCHITECTURE_KINDS = ("sum", "mix")
MIX_TERMS = 5  # of a mix: the node, its parent, its children, the sibling to its left, the one to its right


@dataclass(frozen=True)
class Architecture:
    """What has to be known to build a network, or to read its weights.

    Weights are named, with their shapes: `first.weight` (width, 256), `first.bias` (width,), `first.alpha` ();
    `layers.I.weight` (width, width), `layers.I.bias` (width,); for I in `normalised` `layers.I.norm.weight`,
    `.bias`, `.mean` and `.variance` (width,); `output.weight` (dimensions, width), `output.bias` (dimensions,);
    `soft_norm.mean` and `soft_norm.deviation` (). A mix has `layers.I.mix` (5, width) in place of `layers.I.bias`,
    a norm in every layer, an `output.weight` of (dimensions, 2 width), and no soft norm.
    """

    width: int = 512  # of every layer
    layers: int = 3  # tree convolutions after the first
    normalised: tuple[int, ...] = (0, 2)  # layers with batch normalisation before them
    dimensions: int = 64  # of the embedding
    kind: str = SUM  # or MIX, where `normalised` is always empty

    def __post_init__(self) -> None:
        if self.kind == MIX:  # what it says nothing about must not tell two shapes apart
            object.__setattr__(self, "normalised", ())

    @property
    def pooled_width(self) -> int:
        """Numbers of a tree before the output's product."""
        return 2 * self.width if self.kind == MIX else self.width

    def to_dict(self) -> dict[str, Any]:
        """The shape as JSON would have it; `kind` is left out of the paper's, as it was when there was no other."""
        values = asdict(self) | {"normalised": list(self.normalised)}
        if self.kind == SUM:
            del values["kind"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """What `as_dict` gave; raises `TypeError`, `KeyError` or `ValueError` for anything else."""
        numbers = {name: int(values[name]) for name in ("width", "layers", "dimensions")}
        kind = values.get("kind", SUM)
        if (
            values.keys() - {"kind"} != {*numbers, "normalised"}
            or min(numbers.values()) < 1
            or kind not in ARCHITECTURE_KINDS
        ):
            raise ValueError("not the shape of a network")
        return cls(**numbers, normalised=tuple(int(layer) for layer in values["normalised"]), kind=kind)


def compute_sinusoids(positions: int, width: int) -> npt.NDArray[np.float32]:
    """Fixed position vectors (Vaswani et al. 2017), one row for each position from 0 on.

    E(p)_2k = sin(p / 10000^(2k / width)), E(p)_2k+1 = cos(p / 10000^(2k / width))
    """
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(positions, -1)[:, :width].astype(np.float32)
