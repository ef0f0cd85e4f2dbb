"""The paper's transformer (section 6.5; Devlin et al. 2019): attention among all nodes of a tree.

    input    x_i = norm( W f_i + b + P(r_i) )          f_i a node's 256 features, r_i its depth-first rank, P learned
    layers   x_i = x_i + attention( norm(x) )_i;  x_i = x_i + W gelu( V norm(x_i) + c ) + b
    output   mean over the nodes of norm(x_i), then W x + b

BERT normalises after each sum; here the norm stands before attention and the inner layer, which learns more steadily
without a long warm-up. No dropout: nodes are hidden anyway, and a step has to be the same when it is taken again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from eqkin.encoder.architecture import FEATURES
from eqkin.encoder.tree_ops import average_trees
from eqkin.evaluation.systems.transformer_batches import SortedBatch, pad, unpad

_INITIAL_DEVIATION = 0.02  # of the first weights, BERT's
_KERNELS = [  # those that take any length as it comes, and need no plan made for it
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


@dataclass(frozen=True)
class TransformerShape:
    """What has to be known to build the network."""

    layers: int = 8
    width: int = 256
    inner: int = 768
    heads: int = 4  # of 64, as BERT's
    longest: int = 256  # nodes of a tree
    dimensions: int = 64  # of the embedding


class TransformerNetwork(nn.Module):
    """Trees to embeddings; on GPUs products are taken in bfloat16, weights stay in float32."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.input = nn.Linear(FEATURES, shape.width)
        self.position = nn.Embedding(shape.longest, shape.width)
        self.input_norm = nn.LayerNorm(shape.width)
        self.layers = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.dimensions)
        self.apply(_initialize)

    @property
    def precision(self) -> torch.dtype:
        """Of the features it takes."""
        return torch.bfloat16 if self.output.weight.is_cuda else torch.float32

    def encode_nodes(self, features: Tensor, trees: SortedBatch) -> Tensor:
        """The last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        with torch.autocast(features.device.type, torch.bfloat16, enabled=features.is_cuda), sdpa_kernel(_KERNELS):
            x = self.input_norm(self.input(features) + self.position(trees.rank))
            for layer in self.layers:
                x = layer(x, trees)
            normed: Tensor = self.norm(x)
        return normed.float()

    def pool(self, nodes: Tensor, trees: SortedBatch) -> Tensor:
        """Embeddings of the trees that were asked for from the vectors of all nodes: (trees, dimensions)."""
        embedding: Tensor = self.output(average_trees(nodes, trees.batch.trees))
        return embedding[trees.asked]

    def forward(self, features: Tensor, trees: SortedBatch) -> Tensor:
        """Embeddings of the trees that were asked for: (trees, dimensions)."""
        return self.pool(self.encode_nodes(features, trees), trees)


class TransformerLayer(nn.Module):
    """Attention, then an inner layer."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attend = nn.Linear(shape.width, 3 * shape.width)
        self.attended = nn.Linear(shape.width, shape.width)
        self.inner_norm = nn.LayerNorm(shape.width)
        self.inner = nn.Linear(shape.width, shape.inner)
        self.outer = nn.Linear(shape.inner, shape.width)

    def forward(self, x: Tensor, trees: SortedBatch) -> Tensor:
        """(nodes, width) -> (nodes, width)."""
        x = x + self.attended(self._attend(self.attend(self.attention_norm(x)), trees))
        inner: Tensor = self.outer(functional.gelu(self.inner(self.inner_norm(x))))
        return x + inner

    def _attend(self, asking: Tensor, trees: SortedBatch) -> Tensor:
        """(nodes, 3 x width) -> (nodes, width), each tree by itself."""
        parts = []
        for group in trees.groups:
            split = pad(asking[group.nodes], group).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            query, key, value = split.unbind(0)  # (trees, heads, length, width / heads)
            answer = functional.scaled_dot_product_attention(query, key, value, attn_mask=group.keys)
            parts.append(unpad(answer.transpose(1, 2).flatten(2), group))
        return torch.cat(parts)


def _initialize(module: nn.Module) -> None:
    """First weights, drawn as BERT's are."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_INITIAL_DEVIATION)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
