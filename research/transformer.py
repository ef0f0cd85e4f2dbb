"""The paper's transformer baseline (section 6.4; Devlin et al. 2019): attention among all nodes of a tree.

    input    x_i = norm( W f_i + b + P(r_i) )          f_i a node's 256 features, r_i its depth-first rank, P learned
    layers   x = x + attention(norm(x)),  x = x + W gelu(W norm(x) + b) + b, attention within each tree
    output   mean over the nodes of norm(x_i), then W x + b

BERT normalises after each sum; normalising before is steadier without a long warm-up. There is no dropout, because
nodes are masked anyway and a repeated step must be the same.

Only attention needs to know which nodes form a tree; everything else takes all nodes of a batch as they are. On a GPU
(torch 2.10 or later) a kernel for sequences of different length computes it, and layers are compiled for training.

Training: the masking and histogram loss of the graph network, with the same features, on embeddings of length 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.architecture import FEATURES
from eqkin.evaluation.formulas import Float32s
from eqkin.formulas import Forest, Vocabulary
from eqkin.formulas.forest import compute_preorder
from eqkin.learning.augmentation import Augmentation, Masking
from eqkin.learning.batches import DeviceBatch, DeviceForest
from eqkin.learning.config import Recipe
from eqkin.learning.losses import MaskingHeads, compute_histogram_loss
from eqkin.learning.randomness import make_step_column
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.tree_ops import average_trees

Integers = npt.NDArray[np.int64]

_INITIAL_DEVIATION = 0.02  # BERT's
_STEPS_PER_DRAW = 256
_EMBEDDED_NODES = {"cuda": 400_000, "cpu": 16_000}  # at once, about


@dataclass(frozen=True)
class TransformerShape:
    """Sizes of the network."""

    layers: int = 8
    width: int = 256
    inner: int = 768
    heads: int = 4  # of 64, as in BERT
    longest: int = 256  # nodes of a tree; longer ones are truncated
    dimensions: int = 64  # of the embedding


@dataclass(frozen=True)
class SequenceBatch:
    """Some trees."""

    batch: DeviceBatch
    rank: Tensor  # (nodes,) int64, depth-first


class TreeSequences:
    """Trees on a device, truncated to their first `longest` nodes in depth-first order."""

    def __init__(self, forest: Forest, vocabulary: Vocabulary, longest: int, device: torch.device) -> None:
        forest, rank = truncate(forest, longest)
        self.device = device
        self.sizes: Integers = forest.sizes
        self.trees = DeviceForest(forest, vocabulary, device)
        self._rank = torch.from_numpy(rank.astype(np.int32)).to(device)

    def __len__(self) -> int:
        return len(self.sizes)

    def make_batch(self, trees: Integers) -> SequenceBatch:
        """Make a batch of some trees, which may repeat."""
        nodes = torch.arange(int(self.sizes[trees].sum()), device=self.device)
        tree_ids = torch.from_numpy(trees).to(self.device, non_blocking=True)
        batch = self.trees.collate(tree_ids, nodes)
        tree, offsets = batch.trees.tree, batch.trees.offsets.long()
        return SequenceBatch(batch, self._rank[self.trees.offsets[tree_ids][tree] + nodes - offsets[tree]].long())


def truncate(forest: Forest, longest: int) -> tuple[Forest, npt.NDArray[np.int32]]:
    """Truncate trees to their first nodes in depth-first order; return them with the rank of each remaining node.

    A node's parent comes before it, so the remaining nodes are a tree.
    """
    rank = compute_preorder(forest)
    kept = rank < longest
    if kept.all():
        return forest, rank
    parent = forest.compute_parent()
    child = kept.copy()
    child[forest.offsets[:-1]] = False
    n_children = np.bincount(parent[child], minlength=len(kept))[kept]
    offsets = np.concatenate(([0], np.cumsum(kept, dtype=np.int64)))[forest.offsets]
    return Forest(
        forest.tags, forest.attributes, forest.texts, forest.tag[kept], forest.attribute[kept], forest.text[kept],
        n_children, offsets,
    ), rank[kept]  # fmt: skip


class TransformerLayer(nn.Module):
    """Attention among the nodes of each tree, then an inner layer; both normalised before, added to the input."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self._heads, self._longest = shape.heads, shape.longest
        self.attention_norm, self.inner_norm = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention_input = nn.Linear(shape.width, 3 * shape.width)
        self.attention_output = nn.Linear(shape.width, shape.width)
        self.inner, self.output = nn.Linear(shape.width, shape.inner), nn.Linear(shape.inner, shape.width)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Compute new vectors of all nodes, (nodes, width); tree t has the nodes offsets[t] to offsets[t + 1]."""
        query, key, value = self.attention_input(self.attention_norm(x)).unflatten(1, (3, self._heads, -1)).unbind(1)
        if x.is_cuda:
            from torch.nn.attention.varlen import varlen_attn

            attended = varlen_attn(query, key, value, offsets, offsets, self._longest, self._longest)
            assert isinstance(attended, Tensor)
        else:
            parts = (part.transpose(0, 1).split(offsets.diff().tolist(), 1) for part in (query, key, value))
            found = [functional.scaled_dot_product_attention(*tree) for tree in zip(*parts, strict=True)]
            attended = torch.cat(found, 1).transpose(0, 1)
        x = x + self.attention_output(attended.flatten(1))
        added: Tensor = self.output(functional.gelu(self.inner(self.inner_norm(x))))
        return x + added


class TransformerNetwork(nn.Module):
    """Trees to embeddings; on GPUs products are in bfloat16, weights stay in float32."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.shape = shape
        self.input = nn.Linear(FEATURES, shape.width)
        self.position = nn.Embedding(shape.longest, shape.width)
        self.input_norm, self.output_norm = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.layers = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))
        self.output = nn.Linear(shape.width, shape.dimensions)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_INITIAL_DEVIATION)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @property
    def precision(self) -> torch.dtype:
        """Precision of the features it takes."""
        return torch.bfloat16 if self.output.weight.is_cuda else torch.float32

    def encode_nodes(self, features: Tensor, trees: SequenceBatch) -> Tensor:
        """Compute the last layer's vector of every node: (nodes, 256) features -> (nodes, width)."""
        with torch.autocast(features.device.type, torch.bfloat16, enabled=features.is_cuda):
            x = self.input_norm(self.input(features) + self.position(trees.rank))
            for layer in self.layers:
                x = layer(x, trees.batch.trees.offsets)
            nodes: Tensor = self.output_norm(x).float()
            return nodes

    def average_nodes(self, nodes: Tensor, trees: SequenceBatch) -> Tensor:
        """Compute the mean of the nodes of each tree: (trees, width)."""
        return average_trees(nodes, trees.batch.trees)

    def pool(self, nodes: Tensor, trees: SequenceBatch) -> Tensor:
        """Compute embeddings of trees from the vectors of all nodes: (trees, dimensions)."""
        embedding: Tensor = self.output(self.average_nodes(nodes, trees))
        return embedding

    def forward(self, features: Tensor, trees: SequenceBatch) -> Tensor:
        """Compute embeddings of trees: (trees, dimensions)."""
        return self.pool(self.encode_nodes(features, trees), trees)


class TransformerObjective(nn.Module):
    """The network, its masking heads, and the loss of a step: the histogram loss of unit vectors, and masking."""

    def __init__(self, recipe: Recipe, shape: TransformerShape, trees: TreeSequences, sampler: TripletSampler) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = TransformerNetwork(shape)
            self.heads = MaskingHeads(shape.width)
        self.to(trees.device)
        if trees.device.type == "cuda":
            for layer in self.network.layers:
                layer.compile(dynamic=True)
        self._batch, self._device, self._trees, self._sampler = recipe.batch, trees.device, trees, sampler
        self._masking = Masking(recipe.masking, seed=recipe.seed)
        self._augmentation = None
        if recipe.transpositions:
            self._augmentation = Augmentation(recipe.transpositions, seed=recipe.seed, device=trees.device)
        self._first, self._drawn = -_STEPS_PER_DRAW, np.zeros((0, 3 * recipe.batch), np.int64)

    def compute_loss(self, step: int) -> Tensor:
        """Compute the sum of the similarity loss and the masking loss."""
        if not self._first <= step < self._first + _STEPS_PER_DRAW:  # many steps at once: the device rarely waits
            self._first = step - step % _STEPS_PER_DRAW
            drawn = self._sampler.draw(make_step_column(self._first, _STEPS_PER_DRAW, self._device), self._batch)
            self._drawn = drawn.concatenate().cpu().numpy()
        trees = self._trees.make_batch(self._drawn[step - self._first])
        nodes = torch.arange(len(trees.rank), device=self._device)
        now = torch.full((), step, dtype=torch.int64, device=self._device)
        mask = self._masking.draw(now, nodes, trees.batch.trees.node_count)
        renaming = self._augmentation.draw(now, 3 * self._batch) if self._augmentation else None
        forest = self._trees.trees
        features = forest.build_features(trees.batch, self.network.precision, renaming=renaming, mask=mask)
        vectors = self.network.encode_nodes(features, trees)
        anchor, partner, negative = functional.normalize(self.network.pool(vectors, trees)).chunk(3)
        targets = forest.build_masking_targets(trees.batch, mask.nodes, renaming)
        masking_loss: Tensor = self.heads(vectors, mask, targets)
        similarity_loss: Tensor = compute_histogram_loss(anchor, partner, negative)
        return similarity_loss + masking_loss


@torch.no_grad()
def embed_sequences(network: TransformerNetwork, trees: TreeSequences) -> Float32s:
    """Embed all trees, a batch at a time."""
    vectors = np.empty((len(trees), network.shape.dimensions), np.float32)
    batches = np.cumsum(trees.sizes) // _EMBEDDED_NODES[trees.device.type]
    for part in np.split(np.arange(len(trees)), np.flatnonzero(np.diff(batches)) + 1):
        batch = trees.make_batch(part)
        vectors[part] = network(trees.trees.build_features(batch.batch, network.precision), batch).cpu().numpy()
    return vectors
