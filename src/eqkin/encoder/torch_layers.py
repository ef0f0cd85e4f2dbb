"""What the networks in torch have in common: where their weights come from, positions, batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.architecture import NORM_EPSILON, Architecture, compute_sinusoids
from eqkin.encoder.trees import TreeBatch
from eqkin.errors import CorruptData
from eqkin.limits import LIMITS

_NORM_MOMENTUM = 0.1  # of batch normalisation's running statistics

Moments = tuple[Tensor, Tensor] | None  # sum and sum of squares over all nodes, where the running statistics won't do
AllReduce = Callable[[Tensor], Tensor]  # the sum over all processes that learn together, differentiable


class TreeNetwork(nn.Module):
    """Trees to embeddings; computes in the precision of the features it is given, keeps its weights in float32."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """The last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        raise NotImplementedError

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Embeddings of trees from the vectors of their nodes: (trees, dimensions)."""
        raise NotImplementedError

    def forward(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """Embeddings of trees: (trees, dimensions)."""
        return self.pool(self.encode_nodes(features, trees), trees)

    def share_statistics(self, total: AllReduce) -> None:
        """Normalise by the nodes and trees of all processes that learn together."""
        for module in self.modules():
            if isinstance(module, BatchStatistics):
                module.total = total

    @classmethod
    def from_weights(cls, architecture: Architecture, weights: dict[str, Any]) -> Self:
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


class PositionalLinear(nn.Module):
    """W f_i + alpha E(p_i) + b: what the first layer knows of a node by itself."""

    positions: Tensor

    def __init__(self, features: int, width: int, alpha: float = 1.0) -> None:
        super().__init__()
        self.weight, self.bias = make_linear(features, width)
        self.alpha = nn.Parameter(torch.tensor(alpha))
        self.register_buffer(
            "positions", torch.from_numpy(compute_sinusoids(LIMITS.tree_nodes, width)), persistent=False
        )

    def project(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """(nodes, features) -> (nodes, width)."""
        dtype = features.dtype
        moved = functional.linear(features, self.weight.to(dtype), self.bias.to(dtype))
        placed: Tensor = _AddRows.apply(moved, self.alpha, self.positions.to(dtype), trees.position)  # type: ignore[no-untyped-call]
        return placed


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


class BatchStatistics(nn.Module):
    """What normalises by the batch, which may be dealt out to several processes."""

    total: AllReduce | None = None  # None: this process has all of it


class NodeNorm(BatchStatistics):
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
            if self.total is not None:
                every = self.total(torch.cat([total, squares, count.to(total.dtype).view(1)]))
                total, squares, count = every.split([len(total), len(squares), 1])
            mean = total / count
            variance = (squares / count - mean.square()).clamp(min=0.0)
            update_average(self.mean, mean, _NORM_MOMENTUM)
            update_average(self.variance, variance, _NORM_MOMENTUM)
        scale = self.weight * torch.rsqrt(variance + NORM_EPSILON)
        return scale, self.bias - mean * scale


def make_linear(inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear map, drawn as torch draws them."""
    layer = nn.Linear(inputs, outputs)
    return layer.weight, layer.bias


def update_average(average: Tensor, value: Tensor, momentum: float) -> None:
    """Move a running average towards a value."""
    average.copy_(torch.lerp(average, value.detach().to(average.dtype), momentum))
