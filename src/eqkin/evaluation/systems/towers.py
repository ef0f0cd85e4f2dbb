"""Towers of the baselines: the bag of words, fixed vectors with a linear map, the transformer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.evaluation.systems.base import Floats
from eqkin.evaluation.systems.transformer_batches import TreeSet
from eqkin.evaluation.systems.transformer_network import TransformerNetwork
from eqkin.training.finetuning import Integers, Tower
from eqkin.trees import Forest
from eqkin.trees.normal import label_nodes

DIMENSIONS = (64, 128, 256)  # the paper's choice for its bag of words and fastText


class BagTower(Tower):
    """A vector for each label of a node, added up over the nodes of a tree: one matrix times a bag of words.

    No label is too rare. Those that no pair to learn from has keep the vectors they were given at random, so what is
    learned from no example still tells formulas apart.

    Args:
        forest: The formulas.
        dimensions: Of the vectors.
        seed: Of the first vectors.
        device: Where to compute.
    """

    def __init__(self, forest: Forest, dimensions: int, seed: int, device: torch.device) -> None:
        super().__init__()
        names, label = label_nodes(forest)
        self._label, self._offsets, self._sizes = label.astype(np.int64), forest.offsets, forest.sizes
        first = torch.randn(len(names), dimensions, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter((first / dimensions**0.5).to(device))

    def forward(self, formulas: Integers) -> Tensor:
        """Vectors of some formulas, (formulas, dimensions)."""
        sizes = self._sizes[formulas]
        starts = np.cumsum(sizes) - sizes
        nodes = np.repeat(self._offsets[formulas] - starts, sizes) + np.arange(sizes.sum())
        words, bags = (torch.from_numpy(x).to(self.weight.device) for x in (self._label[nodes], starts))
        return functional.embedding_bag(words, self.weight, bags, mode="sum")


class LinearTower(Tower):
    """A linear map of vectors that stay as they are; it begins as a rotation, so cosines are theirs at first.

    Args:
        vectors: Those of the formulas, one a row.
        dimensions: After the map; with fewer than before, cosines are first those of a projection.
        seed: Of the first map.
        device: Where to compute.
    """

    def __init__(self, vectors: Floats, dimensions: int, seed: int, device: torch.device) -> None:
        super().__init__()
        self._vectors = functional.normalize(torch.from_numpy(vectors).to(device))
        width = max(vectors.shape[1], dimensions)
        square = torch.randn(width, width, generator=torch.Generator().manual_seed(seed))
        rotation = torch.linalg.qr(square)[0][:dimensions, : vectors.shape[1]]
        self.weight = nn.Parameter(rotation.contiguous().to(device))

    def forward(self, formulas: Integers) -> Tensor:
        """Vectors of some formulas, (formulas, dimensions)."""
        chosen = torch.from_numpy(formulas).to(self.weight.device)
        return functional.linear(self._vectors[chosen], self.weight)


class TransformerTower(Tower):
    """The transformer.

    Args:
        trees: The formulas.
        network: First weights; a network of its own, which is changed.
    """

    def __init__(self, trees: TreeSet, network: TransformerNetwork) -> None:
        super().__init__()
        self.network = network
        self._trees = trees

    def forward(self, formulas: Integers) -> Tensor:
        """Vectors of some formulas, (formulas, dimensions)."""
        some = self._trees.make_batch(formulas)
        features = self._trees.resident.build_features(some.batch, self.network.precision)
        embeddings: Tensor = self.network(features, some)
        return embeddings
