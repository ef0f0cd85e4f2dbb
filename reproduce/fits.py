"""Weights of fitted networks on disk: safetensors, and a JSON description with their hash that is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import numpy as safetensors
from torch import Tensor, nn

from eqkin.errors import CorruptData
from eqkin.storage import write_file

_WEIGHTS_FILE = "weights.safetensors"


def save_fit(folder: Path, description_file: str, network: nn.Module, description: Mapping[str, Any]) -> None:
    """Write a network; raises `StorageFailed`."""
    state: dict[str, Tensor] = network.state_dict()
    weights = safetensors.save({name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()})
    write_file(folder / _WEIGHTS_FILE, weights)
    content = {"sha256": hashlib.sha256(weights).hexdigest(), **description}
    write_file(folder / description_file, json.dumps(content, indent=1).encode() + b"\n")


def load_fit(folder: Path, description_file: str, network: nn.Module) -> dict[str, Any]:
    """Load the weights that `save_fit` wrote into a network; return the description. Raises `CorruptData`."""
    try:
        description: dict[str, Any] = json.loads((folder / description_file).read_bytes())
        content = (folder / _WEIGHTS_FILE).read_bytes()
        if hashlib.sha256(content).hexdigest() != description["sha256"]:
            raise ValueError("the weights do not match their hash")
        weights = {name: torch.from_numpy(array.copy()) for name, array in safetensors.load(content).items()}
        network.load_state_dict(weights)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise CorruptData(
            f"{folder}: not a fit of {description_file}, or damaged ({error}); delete the folder"
        ) from error
    return description
