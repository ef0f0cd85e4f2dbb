"""Vectors of many trees by a network of eqkin: on a GPU where there is one, else with numpy."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import Floats
from eqkin.trees import Forest


def embed_forest(
    model: Model, forest: Forest, device: str = "auto", progress: Callable[[int], None] | None = None
) -> Floats:
    """Vectors, one a row.

    Args:
        model: The network.
        forest: The trees.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        progress: Told now and then how many trees are done.

    Raises:
        BadInput: There is no such device here.
    """
    if not _uses_gpu(device):
        return Encoder(model).embed(forest, progress)
    from eqkin.encoder.torch_network import build_network
    from eqkin.training.batches import DeviceForest
    from eqkin.training.config import choose_device

    there = choose_device(device)
    network = build_network(model.architecture, model.weights).to(there)
    vectors = DeviceForest(forest, model.vocabulary, there).embed(network)
    return np.asarray(vectors.cpu().numpy(), np.float32)


def _uses_gpu(device: str) -> bool:
    if device == "cpu":
        return False
    if importlib.util.find_spec("torch") is None:
        if device == "auto":
            return False
        raise BadInput(f"{device} cannot be used without torch: pip install 'eqkin[train]'")
    from eqkin.training.config import choose_device

    return choose_device(device).type == "cuda"
