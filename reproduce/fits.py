"""Training of baselines on triplets, and their weights: safetensors, and a JSON description that is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import numpy as safetensors
from torch import Tensor, nn

from eqkin.errors import CorruptData
from eqkin.storage import write_file
from eqkin.training.checkpoint import remove_checkpoint
from eqkin.training.config import OptimizerConfig
from eqkin.training.trainer import train_module

_WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True)
class TripletTraining:
    """Training settings; chosen beforehand, none was tuned on held-out data."""

    triplets: int
    batch: int  # triplets per step
    learning_rate: float  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    seed: int = 0


def train_on_triplets(
    module: nn.Module,
    compute_loss: Callable[[int], Tensor],
    training: TripletTraining,
    folder: Path,
    settings: dict[str, Any],
    log: Callable[[str], None],
    save_seconds: float,
) -> float:
    """Train a module, continuing an interrupted training, and return the last loss; see `train_module`."""
    config = OptimizerConfig(-(-training.triplets // training.batch), training.learning_rate, training.warm_up)
    folder.mkdir(parents=True, exist_ok=True)
    return train_module(
        module, compute_loss, config, folder, settings=settings, save_seconds=save_seconds,
        progress=lambda step, steps, loss: log(f"step {step:,} of {steps:,}, loss {loss:.3f}"),
    )  # fmt: skip


def save_fit(folder: Path, description_file: str, network: nn.Module, description: Mapping[str, Any]) -> None:
    """Write a network and remove the checkpoint of its training; raises `StorageFailed`."""
    state: dict[str, Tensor] = network.state_dict()
    weights = safetensors.save({name: tensor.detach().float().cpu().numpy() for name, tensor in state.items()})
    write_file(folder / _WEIGHTS_FILE, weights)
    content = {"sha256": hashlib.sha256(weights).hexdigest(), **description}
    write_file(folder / description_file, json.dumps(content, indent=1).encode() + b"\n")
    remove_checkpoint(folder)


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
