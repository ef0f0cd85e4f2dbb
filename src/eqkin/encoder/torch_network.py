"""The networks in torch, for learning. Formulas and names of the weights stand in `architecture`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.architecture import FEATURES, MIX, Architecture
from eqkin.encoder.mix_network import MixNetwork
from eqkin.encoder.torch_layers import (
    BatchStatistics,
    Moments,
    NodeNorm,
    PositionalLinear,
    TreeNetwork,
    make_linear,
    update_average,
)
from eqkin.encoder.tree_sum import average_trees, sum_neighbours, sum_neighbours_with_moments
from eqkin.encoder.trees import TreeBatch

_SOFT_NORM_MOMENTUM = 0.01  # of the soft norm's running averages
_EPSILON = 1e-12


def build_network(architecture: Architecture, weights: dict[str, Any] | None = None) -> TreeNetwork:
    """A network of the architecture's kind: with fresh weights, to learn; or with given ones, see `of_weights`."""
    kind = MixNetwork if architecture.kind == MIX else GraphNetwork
    return kind(architecture) if weights is None else kind.from_weights(architecture, weights)


class GraphNetwork(TreeNetwork):
    """The paper's network, "sum"."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture)
        normalised = [i in architecture.normalised for i in range(architecture.layers)] + [False]
        self.first = PositionalConvolution(FEATURES, architecture.width, then_normalised=normalised[0])
        self.layers = nn.ModuleList(
            TreeConvolution(architecture.width, normalised=before, then_normalised=after)
            for before, after in pairwise(normalised)
        )
        self.output = nn.Linear(architecture.width, architecture.dimensions)
        self.soft_norm = SoftNorm()

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """The last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        x: Tensor
        x, moments = self.first(features, trees)
        for layer in self.layers:
            x, moments = layer(x, moments, trees)
        return x

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Embeddings of trees from the vectors of their nodes: (trees, dimensions), soft-normalised."""
        embedding: Tensor = self.soft_norm(self.output(average_trees(nodes, trees)))
        return embedding


class PositionalConvolution(PositionalLinear):
    """x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b ): the first layer."""

    def __init__(self, features: int, width: int, *, then_normalised: bool) -> None:
        super().__init__(features, width)
        self.then_normalised = then_normalised

    def forward(self, features: Tensor, trees: TreeBatch) -> tuple[Tensor, Moments]:
        """(nodes, features) -> (nodes, width)."""
        return _sum_and_rectify(self.project(features, trees), trees, moments=self.training and self.then_normalised)


class TreeConvolution(nn.Module):
    """x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b ), where norm may be nothing."""

    def __init__(self, width: int, *, normalised: bool, then_normalised: bool) -> None:
        super().__init__()
        self.then_normalised = then_normalised
        self.weight, self.bias = make_linear(width, width)
        self.norm = NodeNorm(width) if normalised else None

    def forward(self, x: Tensor, moments: Moments, trees: TreeBatch) -> tuple[Tensor, Moments]:
        """(nodes, width) -> (nodes, width)."""
        weight, bias = self.weight, self.bias
        if self.norm is not None:  # W (scale x + shift) + b = (W scale) x + (W shift + b)
            scale, shift = self.norm(moments, trees.node_count)
            weight, bias = weight * scale, bias + weight @ shift
        moved = functional.linear(x, weight.to(x.dtype), bias.to(x.dtype))
        return _sum_and_rectify(moved, trees, moments=self.training and self.then_normalised)


def _sum_and_rectify(x: Tensor, trees: TreeBatch, *, moments: bool) -> tuple[Tensor, Moments]:
    """The rectified tree sum, with its moments if asked for."""
    if moments:
        y, total, squares = sum_neighbours_with_moments(x, trees)
        return y, (total, squares)
    return sum_neighbours(x, trees, rectify=True), None


class SoftNorm(BatchStatistics):
    """Division by the mean plus the standard deviation of the batch's norms: most embeddings get norms below 1.

    Running averages take their place when nothing is learned.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(()))
        self.register_buffer("deviation", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """(trees, dimensions) -> the same, scaled by one number."""
        mean, deviation = self.mean, self.deviation
        if self.training:
            norms = torch.linalg.vector_norm(x, dim=1)
            mean = self._compute_mean(norms)
            deviation = (
                self._compute_mean((norms - mean).square()) + _EPSILON
            ).sqrt()  # differentiable where all norms are equal
            update_average(self.mean, mean, _SOFT_NORM_MOMENTUM)
            update_average(self.deviation, deviation, _SOFT_NORM_MOMENTUM)
        return x / (mean + deviation + _EPSILON)

    def _compute_mean(self, values: Tensor) -> Tensor:
        if self.total is None:
            return values.mean()
        sums = self.total(torch.stack([values.sum(), torch.full_like(values[0], len(values))]))
        return sums[0] / sums[1]
