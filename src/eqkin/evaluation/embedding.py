"""Vectors of many trees by a network of eqkin: on a GPU where there is one, else with numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqkin.evaluation.systems.base import Floats
from eqkin.forest import Forest
from eqkin.network.encoder import Encoder
from eqkin.network.model_files import Model


def embed(model: Model, forest: Forest, device: str = "auto", progress: Callable[[int], None] | None = None) -> Floats:
    """Vectors, one a row; `progress` is told now and then how many trees are done."""
    if device == "cpu" or not _gpu():
        return Encoder(model).embed(forest, progress)
    import torch

    from eqkin.learning.held_out import embed as embed_there
    from eqkin.learning.resident import Resident
    from eqkin.network.torch_network import GraphNetwork

    there = torch.device("cuda")
    network = GraphNetwork.of_weights(model.architecture, model.weights).to(there)
    resident = Resident(forest, model.vocabulary, there)
    vectors = embed_there(network, resident, torch.arange(len(forest), device=there))
    return np.asarray(vectors.cpu().numpy(), np.float32)


def _gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
