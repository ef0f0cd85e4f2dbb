"""Towers of the baselines that are finetuned: bag of words, fixed vectors with a linear map, transformer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.evaluation.formulas import Float32s
from eqkin.training.finetuning import Integers, Tower
from eqkin.trees import Forest
from eqkin.trees.normal import label_nodes
from reproduce.transformer import TransformerNetwork, TreeSequences

DIMENSIONS = (64, 128, 256)  # the paper's choice for its bag of words and fastText


class BagTower(Tower):
    """A vector for each label, summed over the nodes of a tree: one matrix times a bag of words.

    All labels count. Labels that occur in no training pair keep their random vectors, which still separate formulas.
    """

    def __init__(self, forest: Forest, dimensions: int, seed: int, device: torch.device) -> None:
        super().__init__()
        names, label = label_nodes(forest)
        self._label, self._offsets, self._sizes = label.astype(np.int64), forest.offsets, forest.sizes
        first = torch.randn(len(names), dimensions, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter((first / dimensions**0.5).to(device))

    def forward(self, formulas: Integers) -> Tensor:
        """Compute vectors of some formulas, (formulas, dimensions)."""
        sizes = self._sizes[formulas]
        starts = np.cumsum(sizes) - sizes
        nodes = np.repeat(self._offsets[formulas] - starts, sizes) + np.arange(sizes.sum())
        words, bags = (torch.from_numpy(x).to(self.weight.device) for x in (self._label[nodes], starts))
        return functional.embedding_bag(words, self.weight, bags, mode="sum")


class LinearTower(Tower):
    """A linear map of fixed vectors; it starts as a rotation, which keeps their cosines, or as a projection."""

    def __init__(self, vectors: Float32s, dimensions: int, seed: int, device: torch.device) -> None:
        super().__init__()
        self._vectors = functional.normalize(torch.from_numpy(vectors).to(device))
        width = max(vectors.shape[1], dimensions)
        square = torch.randn(width, width, generator=torch.Generator().manual_seed(seed))
        rotation = torch.linalg.qr(square)[0][:dimensions, : vectors.shape[1]]
        self.weight = nn.Parameter(rotation.contiguous().to(device))

    def forward(self, formulas: Integers) -> Tensor:
        """Compute vectors of some formulas, (formulas, dimensions)."""
        chosen = torch.from_numpy(formulas).to(self.weight.device)
        return functional.linear(self._vectors[chosen], self.weight)


class TransformerTower(Tower):
    """The transformer; the network is changed."""

    def __init__(self, trees: TreeSequences, network: TransformerNetwork) -> None:
        super().__init__()
        self.network = network
        self._trees = trees

    def forward(self, formulas: Integers) -> Tensor:
        """Compute vectors of some formulas, (formulas, dimensions)."""
        some = self._trees.make_batch(formulas)
        features = self._trees.trees.build_features(some.batch, self.network.precision)
        embeddings: Tensor = self.network(features, some)
        return embeddings
