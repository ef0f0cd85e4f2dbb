"""The network in torch, for learning. Formulas and names of the weights stand in `architecture`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.errors import CorruptData
from eqkin.limits import LIMITS
from eqkin.network.architecture import FEATURES, NORM_EPSILON, Architecture, sinusoids
from eqkin.network.tree_sum import tree_mean, tree_sum, tree_sum_with_moments
from eqkin.network.trees import Trees

_NORM_MOMENTUM = 0.1  # of batch normalisation's running statistics
_SOFT_NORM_MOMENTUM = 0.01  # of the soft norm's
_TINY = 1e-12


class GraphNetwork(nn.Module):
    """Trees to embeddings; computes in the precision of the features it is given, keeps its weights in float32."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        normalised = [i in architecture.normalised for i in range(architecture.layers)] + [False]
        self.first = PositionalConvolution(FEATURES, architecture.width, then_normalised=normalised[0])
        self.layers = nn.ModuleList(
            TreeConvolution(architecture.width, normalised=before, then_normalised=after)
            for before, after in pairwise(normalised)
        )
        self.output = nn.Linear(architecture.width, architecture.dimensions)
        self.soft_norm = SoftNorm()

    def nodes(self, features: Tensor, trees: Trees) -> Tensor:
        """The last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        x: Tensor
        x, moments = self.first(features, trees)
        for layer in self.layers:
            x, moments = layer(x, moments, trees)
        return x

    def pool(self, nodes: Tensor, trees: Trees) -> Tensor:
        """Embeddings of trees from the vectors of their nodes: (trees, dimensions), soft-normalised."""
        embedding: Tensor = self.soft_norm(self.output(tree_mean(nodes, trees)))
        return embedding

    def forward(self, features: Tensor, trees: Trees) -> Tensor:
        """Embeddings of trees: (trees, dimensions)."""
        return self.pool(self.nodes(features, trees), trees)

    @classmethod
    def of_weights(cls, architecture: Architecture, weights: dict[str, Any]) -> GraphNetwork:
        """The network with given weights (numpy arrays; others than its own are ignored); raises `CorruptData`."""
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


Moments = tuple[Tensor, Tensor] | None  # sum and sum of squares of a layer's output, where the next one needs them


class PositionalConvolution(nn.Module):
    """x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b ): the first layer."""

    positions: Tensor

    def __init__(self, features: int, width: int, *, then_normalised: bool) -> None:
        super().__init__()
        self.then_normalised = then_normalised
        self.weight, self.bias = _linear(features, width)
        self.alpha = nn.Parameter(torch.ones(()))
        self.register_buffer("positions", torch.from_numpy(sinusoids(LIMITS.tree_nodes, width)), persistent=False)

    def forward(self, features: Tensor, trees: Trees) -> tuple[Tensor, Moments]:
        """(nodes, features) -> (nodes, width)."""
        dtype = features.dtype
        moved = functional.linear(features, self.weight.to(dtype), self.bias.to(dtype))
        moved = _AddRows.apply(moved, self.alpha, self.positions.to(dtype), trees.position)  # type: ignore[no-untyped-call]
        return _summed(moved, trees, moments=self.training and self.then_normalised)


class _AddRows(torch.autograd.Function):
    """x_i + alpha table_(index_i); the gradient of alpha is summed row by row, which is fast on GPUs."""

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
        return gradient, (gradient * table[index]).sum(1, dtype=wide).sum(), None, None


class TreeConvolution(nn.Module):
    """x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b ), where norm may be nothing."""

    def __init__(self, width: int, *, normalised: bool, then_normalised: bool) -> None:
        super().__init__()
        self.then_normalised = then_normalised
        self.weight, self.bias = _linear(width, width)
        self.norm = NodeNorm(width) if normalised else None

    def forward(self, x: Tensor, moments: Moments, trees: Trees) -> tuple[Tensor, Moments]:
        """(nodes, width) -> (nodes, width)."""
        weight, bias = self.weight, self.bias
        if self.norm is not None:  # W (scale x + shift) + b = (W scale) x + (W shift + b)
            scale, shift = self.norm(moments, trees.count)
            weight, bias = weight * scale, bias + weight @ shift
        moved = functional.linear(x, weight.to(x.dtype), bias.to(x.dtype))
        return _summed(moved, trees, moments=self.training and self.then_normalised)


def _summed(x: Tensor, trees: Trees, *, moments: bool) -> tuple[Tensor, Moments]:
    """The rectified tree sum, with its moments if asked for."""
    if moments:
        y, total, squares = tree_sum_with_moments(x, trees)
        return y, (total, squares)
    return tree_sum(x, trees, rectify=True), None


class NodeNorm(nn.Module):
    """Batch normalisation over the nodes of all trees, given as the scale and shift it amounts to.

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
        """Scale and shift from the moments of `count` nodes, which also move the running statistics; or from these."""
        mean, variance = self.mean, self.variance
        if moments is not None:
            total, squares = moments
            mean = total / count
            variance = (squares / count - mean.square()).clamp(min=0.0)
            _follow(self.mean, mean, _NORM_MOMENTUM)
            _follow(self.variance, variance, _NORM_MOMENTUM)
        scale = self.weight * torch.rsqrt(variance + NORM_EPSILON)
        return scale, self.bias - mean * scale


class SoftNorm(nn.Module):
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
            mean = norms.mean()
            deviation = ((norms - mean).square().mean() + _TINY).sqrt()  # differentiable where all norms are equal
            _follow(self.mean, mean, _SOFT_NORM_MOMENTUM)
            _follow(self.deviation, deviation, _SOFT_NORM_MOMENTUM)
        return x / (mean + deviation + _TINY)


def _linear(inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear map, drawn as torch draws them."""
    layer = nn.Linear(inputs, outputs)
    return layer.weight, layer.bias


def _follow(average: Tensor, value: Tensor, momentum: float) -> None:
    average.copy_(torch.lerp(average, value.detach().to(average.dtype), momentum))
