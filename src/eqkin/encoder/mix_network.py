"""The network that tells a node's neighbours apart, "mix", in torch. Formulas and names stand in `architecture`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.architecture import FEATURES, MIX_TERMS, SQUARE_EPSILON, Architecture
from eqkin.encoder.torch_layers import NodeNorm, PositionalLinear, TreeNetwork, make_linear
from eqkin.encoder.tree_mix import mix_neighbours
from eqkin.encoder.tree_moments import compute_tree_moments
from eqkin.encoder.trees import TreeBatch

_INITIAL_ALPHA = 0.3  # of the positions, before anything is learned
_INITIAL_OWN, _INITIAL_OTHERS, _INITIAL_NOISE = (
    1.0,
    0.5,
    0.1,
)  # a new mix: how much a node counts, and its neighbours, up to signs and noise


class MixNetwork(TreeNetwork):
    """Residual layers over mixes of a node with its parent, children and siblings; embeddings have length 1."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(architecture)
        width = architecture.width
        self.first = PositionalLinear(FEATURES, width, _INITIAL_ALPHA)
        self.layers = nn.ModuleList(MixLayer(width) for _ in range(architecture.layers))
        self.output = nn.Linear(architecture.pooled_width, architecture.dimensions)

    def encode_nodes(self, features: Tensor, trees: TreeBatch) -> Tensor:
        """The last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        x = self.first.project(features, trees).relu()
        for layer in self.layers:
            x = layer(x, trees)
        return x

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Embeddings of trees from the vectors of their nodes: (trees, dimensions), of length 1."""
        mean, square = compute_tree_moments(nodes, trees)
        pooled = torch.cat([mean, (square + SQUARE_EPSILON).sqrt()], dim=1)
        return functional.normalize(self.output(pooled), dim=1)


class MixLayer(nn.Module):
    """x_i + relu( norm(W m_i) ), where m_i mixes x_i and its neighbours."""

    def __init__(self, width: int) -> None:
        super().__init__()
        share = torch.tensor([_INITIAL_OWN] + [_INITIAL_OTHERS] * (MIX_TERMS - 1))[:, None]
        self.mix = nn.Parameter(
            torch.randn(MIX_TERMS, width).sign() * share + _INITIAL_NOISE * torch.randn(MIX_TERMS, width)
        )
        self.weight, _ = make_linear(width, width)
        self.norm = NodeNorm(width)

    def forward(self, x: Tensor, trees: TreeBatch) -> Tensor:
        """(nodes, width) -> (nodes, width)."""
        moved = functional.linear(mix_neighbours(x, self.mix, trees), self.weight.to(x.dtype))
        wide = moved.to(self.weight.dtype)
        moments = (wide.sum(0), wide.square().sum(0)) if self.training else None  # padding is mixed to 0: it adds 0
        scale, shift = self.norm(moments, trees.node_count)
        added: Tensor = (wide * scale + shift).relu()
        return x + added.to(x.dtype)
