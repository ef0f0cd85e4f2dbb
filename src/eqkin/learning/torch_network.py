"""The networks in torch, for training. `eqkin.encoder.model` defines the formulas and the names of the weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.model import (
    FEATURES,
    MIX,
    MIX_TERMS,
    NORM_EPSILON,
    SQUARE_EPSILON,
    Architecture,
    compute_sinusoids,
)
from eqkin.errors import CorruptData
from eqkin.learning.tree_ops import (
    TreeBatch,
    average_trees,
    compute_tree_moments,
    mix_neighbours,
    sum_neighbours,
    sum_neighbours_with_moments,
)
from eqkin.limits import LIMITS

# Of the running statistics of batch normalisation, and of the running averages of the soft norm.
_NORM_MOMENTUM, _SOFT_NORM_MOMENTUM = 0.1, 0.01
_EPSILON = 1e-12
# A new mix network: weight of the positions, then coefficients of the node, of its neighbours, and of noise.
_INITIAL_ALPHA, _INITIAL_OWN, _INITIAL_OTHERS, _INITIAL_NOISE = 0.3, 1.0, 0.5, 0.1

# Sum and sum of squares over all nodes; None: use the running statistics.
Moments = tuple[Tensor, Tensor] | None


def build_network(architecture: Architecture, weights: dict[str, Any] | None = None) -> TreeNetwork:
    """Build a network: with new random weights, or with given ones (see `TreeNetwork.from_weights`)."""
    kind = MixNetwork if architecture.kind == MIX else SumNetwork
    return kind(architecture) if weights is None else kind.from_weights(architecture, weights)


class TreeNetwork(nn.Module):
    """Maps trees to embeddings. Computes in the precision of its input features; weights are float32."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """Return the last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        raise NotImplementedError

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the embeddings of trees, given the vectors of their nodes: (trees, dimensions)."""
        raise NotImplementedError

    def forward(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """Return the embeddings of trees: (trees, dimensions)."""
        return self.pool(self.encode_nodes(features, trees), trees)

    @classmethod
    def from_weights(cls, architecture: Architecture, weights: dict[str, Any]) -> Self:
        """Build a network from numpy arrays by name; unknown names are ignored. Raises `CorruptData`."""
        network = cls(architecture)
        own = network.state_dict()
        missing = sorted(own.keys() - weights.keys())
        if missing:
            raise CorruptData(f"the weights lack {', '.join(missing)}")
        for name, tensor in own.items():
            if np.shape(weights[name]) != tuple(tensor.shape):
                raise CorruptData(f"{name} has shape {np.shape(weights[name])}, expected {tuple(tensor.shape)}")
        network.load_state_dict({name: torch.from_numpy(np.array(weights[name], np.float32)) for name in own})
        return network.eval()


class SumNetwork(TreeNetwork):
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
        """Return the last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        x: Tensor
        x, moments = self.first(features, trees)
        for layer in self.layers:
            x, moments = layer(x, moments, trees)
        return x

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the embeddings of trees, given the vectors of their nodes: (trees, dimensions), soft-normalised."""
        embedding: Tensor = self.soft_norm(self.output(average_trees(nodes, trees)))
        return embedding


class MixNetwork(TreeNetwork):
    """The network "mix": residual layers over mixes of a node and its neighbours; embeddings have length 1."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture)
        width = architecture.width
        self.first = PositionalLinear(FEATURES, width, _INITIAL_ALPHA)
        self.layers = nn.ModuleList(MixLayer(width) for _ in range(architecture.layers))
        self.output = nn.Linear(architecture.pooled_width, architecture.dimensions)

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """Return the last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        x = self.first.project(features, trees).relu()
        for layer in self.layers:
            x = layer(x, trees)
        return x

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the embeddings of trees, given the vectors of their nodes: (trees, dimensions), of length 1."""
        mean, square = compute_tree_moments(nodes, trees)
        pooled = torch.cat([mean, (square + SQUARE_EPSILON).sqrt()], dim=1)
        return functional.normalize(self.output(pooled), dim=1)


class PositionalLinear(nn.Module):
    """W f_i + alpha E(p_i) + b: the part of the first layer that depends on a node alone."""

    positions: Tensor

    def __init__(self, features: int, width: int, alpha: float = 1.0) -> None:
        super().__init__()
        self.weight, self.bias = _make_linear(features, width)
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.register_buffer(
            "positions", torch.from_numpy(compute_sinusoids(LIMITS.tree_nodes, width)), persistent=False
        )

    def project(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """(nodes, features) -> (nodes, width)."""
        dtype = features.dtype
        projected = functional.linear(features, self.weight.to(dtype), self.bias.to(dtype))
        positions = self.positions.to(dtype)
        result: Tensor = _AddRows.apply(projected, self.alpha, positions, trees.position)  # type: ignore[no-untyped-call]
        return result


class PositionalConvolution(PositionalLinear):
    """x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b ): the first layer of "sum"."""

    def __init__(self, features: int, width: int, *, then_normalised: bool) -> None:
        super().__init__(features, width)
        self.then_normalised = then_normalised

    def forward(self, features: Tensor, trees: TreeBatch) -> tuple[Tensor, Moments]:
        """(nodes, features) -> (nodes, width)."""
        moments = self.training and self.then_normalised
        return _sum_and_rectify(self.project(features, trees), trees, moments=moments)


class TreeConvolution(nn.Module):
    """x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b ), where norm may be the identity."""

    def __init__(self, width: int, *, normalised: bool, then_normalised: bool) -> None:
        super().__init__()
        self.then_normalised = then_normalised
        self.weight, self.bias = _make_linear(width, width)
        self.norm = NodeNorm(width) if normalised else None

    def forward(self, x: Tensor, moments: Moments, trees: TreeBatch) -> tuple[Tensor, Moments]:
        """(nodes, width) -> (nodes, width)."""
        weight, bias = self.weight, self.bias
        # The norm is folded into the product: W (scale x + shift) + b = (W scale) x + (W shift + b).
        if self.norm is not None:
            scale, shift = self.norm(moments, trees.node_count)
            weight, bias = weight * scale, bias + weight @ shift
        projected = functional.linear(x, weight.to(x.dtype), bias.to(x.dtype))
        return _sum_and_rectify(projected, trees, moments=self.training and self.then_normalised)


class MixLayer(nn.Module):
    """x_i + relu( norm(W m_i) ), where m_i mixes x_i and its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        share = torch.tensor([_INITIAL_OWN] + [_INITIAL_OTHERS] * (MIX_TERMS - 1))[:, None]
        signs, noise = torch.randn(MIX_TERMS, width).sign(), torch.randn(MIX_TERMS, width)
        self.mix = nn.Parameter(signs * share + _INITIAL_NOISE * noise)
        self.weight, _ = _make_linear(width, width)
        self.norm = NodeNorm(width)

    def forward(self, x: Tensor, trees: TreeBatch) -> Tensor:
        """(nodes, width) -> (nodes, width)."""
        projected = functional.linear(mix_neighbours(x, self.mix, trees), self.weight.to(x.dtype))
        wide = projected.to(self.weight.dtype)
        # Padding is 0 and adds nothing.
        moments = (wide.sum(0), wide.square().sum(0)) if self.training else None
        scale, shift = self.norm(moments, trees.node_count)
        update: Tensor = (wide * scale + shift).relu()
        return x + update.to(x.dtype)


class NodeNorm(nn.Module):
    """Batch normalisation over the nodes of all trees, returned as the equivalent scale and shift.

    scale = weight / sqrt(variance + epsilon), shift = bias - mean scale

    So it can be folded into the linear map that follows.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, moments: Moments, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return scale and shift for the moments of `count` nodes, or in evaluation for the running statistics."""
        mean, variance = self.mean, self.variance
        if moments is not None:
            total, squares = moments
            mean = total / count
            variance = (squares / count - mean.square()).clamp(min=0.0)
            _update_average(self.mean, mean, _NORM_MOMENTUM)
            _update_average(self.variance, variance, _NORM_MOMENTUM)
        scale = self.weight * torch.rsqrt(variance + NORM_EPSILON)
        return scale, self.bias - mean * scale


class SoftNorm(nn.Module):
    """Division by the mean plus the standard deviation of the norms in the batch: most results have norms below 1.

    Outside of training, running averages are used instead.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(()))
        self.register_buffer("deviation", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Scale all embeddings, (trees, dimensions), by the same number."""
        mean, deviation = self.mean, self.deviation
        if self.training:
            norms = torch.linalg.vector_norm(x, dim=1)
            mean = norms.mean()
            # The epsilon keeps the root differentiable even if all norms are equal.
            deviation = ((norms - mean).square().mean() + _EPSILON).sqrt()
            _update_average(self.mean, mean, _SOFT_NORM_MOMENTUM)
            _update_average(self.deviation, deviation, _SOFT_NORM_MOMENTUM)
        return x / (mean + deviation + _EPSILON)


class _AddRows(torch.autograd.Function):
    """x_i + alpha table_(index_i); the gradient of alpha is summed column by column, which is fast on GPUs."""

    @staticmethod
    def forward(x: Tensor, alpha: Tensor, table: Tensor, index: Tensor) -> Tensor:
        return x + (alpha * table[index]).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2], inputs[3])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        table, index = ctx.saved_tensors
        wide = torch.promote_types(gradient.dtype, torch.float32)
        return gradient, (gradient * table[index]).sum(0, dtype=wide).sum(), None, None


def _sum_and_rectify(x: Tensor, trees: TreeBatch, *, moments: bool) -> tuple[Tensor, Moments]:
    if moments:
        y, total, squares = sum_neighbours_with_moments(x, trees)
        return y, (total, squares)
    return sum_neighbours(x, trees, rectify=True), None


def _make_linear(inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of a new linear layer."""
    layer = nn.Linear(inputs, outputs)
    return layer.weight, layer.bias


def _update_average(average: Tensor, value: Tensor, momentum: float) -> None:
    average.copy_(torch.lerp(average, value.detach().to(average.dtype), momentum))
