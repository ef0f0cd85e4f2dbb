"""What can be finetuned: a tower gives vectors of some formulas of a fixed set, and learns."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from eqkin.encoder.model import Model
from eqkin.encoder.torch_network import build_network
from eqkin.training.resident import DeviceForest
from eqkin.trees import Forest

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_BATCH_FORMULAS = 1_024  # formulas at a time, when nothing is learned


class Tower(nn.Module):
    """Vectors of the formulas of a set, which are known by their numbers."""

    @abstractmethod
    def forward(self, formulas: Integers) -> Tensor:
        """Vectors of some formulas, (formulas, dimensions)."""

    @torch.no_grad()
    def compute_vectors(self, formulas: Integers) -> Floats:
        """The same as a search would have them: nothing is learned, running statistics are used."""
        learning = self.training
        self.eval()
        try:
            parts = [
                self(formulas[first : first + _BATCH_FORMULAS]).float().cpu().numpy()
                for first in range(0, len(formulas), _BATCH_FORMULAS)
            ]
        finally:
            self.train(learning)
        return np.concatenate(parts)


class GraphTower(Tower):
    """The graph network.

    Args:
        forest: The formulas.
        model: Vocabulary, architecture and first weights.
        device: Where to compute: in bfloat16 while learning on a GPU, else in float32.
        statistics: Whether batch normalisation goes by each batch and learns running statistics anew, as in
            pretraining. If not, those of the model stay: finetuning may take fewer steps than new ones need to settle.
    """

    def __init__(self, forest: Forest, model: Model, device: torch.device, *, statistics: bool = False) -> None:
        super().__init__()
        self.network = build_network(model.architecture, model.weights).to(device)
        self._resident = DeviceForest(forest, model.vocabulary, device)
        self._sizes = forest.sizes
        self._statistics = statistics

    def train(self, mode: bool = True) -> GraphTower:
        """Learn, or stop learning."""
        super().train(mode)
        self.network.train(mode and self._statistics)
        return self

    def forward(self, formulas: Integers) -> Tensor:
        """Vectors of some formulas, (formulas, dimensions)."""
        resident = self._resident
        nodes = torch.arange(int(self._sizes[formulas].sum()), device=resident.device)
        batch = resident.collate(torch.from_numpy(formulas).to(resident.device, non_blocking=True), nodes)
        fast = self.training and resident.device.type == "cuda"
        features = resident.build_features(batch, torch.bfloat16 if fast else torch.float32)
        embeddings: Tensor = self.network(features, batch.trees)
        return embeddings
