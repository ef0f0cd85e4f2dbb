"""A transformer on disk: weights as safetensors, the vocabulary, and a description that is written last."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import CorruptData
from eqkin.evaluation.systems.transformer_network import TransformerNetwork, TransformerShape
from eqkin.storage import write_file
from eqkin.trees import Vocabulary

DESCRIPTION_FILE = "transformer.json"
_WEIGHTS, _VOCABULARY = "weights.safetensors", "vocabulary.json"
_REMEDY = "delete the folder to learn it again"


def save_transformer(folder: Path, network: TransformerNetwork, vocabulary: Vocabulary, facts: dict[str, Any]) -> None:
    """Write a network; raises `StorageFailed`."""
    weights = safetensors.save({name: w.detach().float().cpu().numpy() for name, w in network.state_dict().items()})
    words = vocabulary.to_json().encode()
    hashes = {_WEIGHTS: hashlib.sha256(weights).hexdigest(), _VOCABULARY: hashlib.sha256(words).hexdigest()}
    write_file(folder / _WEIGHTS, weights)
    write_file(folder / _VOCABULARY, words)
    description = {"shape": asdict(network.shape), "sha256": hashes, "learned": facts}
    write_file(folder / DESCRIPTION_FILE, json.dumps(description, indent=1).encode() + b"\n")


def load_transformer(folder: Path, shape: TransformerShape) -> tuple[TransformerNetwork, Vocabulary]:
    """Read what `save` wrote, on the CPU; raises `CorruptData` if it is damaged or of another shape."""
    try:
        description = json.loads((folder / DESCRIPTION_FILE).read_bytes())
        found, hashes = TransformerShape(**description["shape"]), description["sha256"]
        content = {name: (folder / name).read_bytes() for name in (_WEIGHTS, _VOCABULARY)}
        for name, data in content.items():
            if hashlib.sha256(data).hexdigest() != hashes[name]:
                raise CorruptData(f"{folder / name}: does not match its hash; {_REMEDY}")
        weights = safetensors.load(content[_WEIGHTS])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CorruptData(f"{folder}: not a transformer, or damaged ({error}); {_REMEDY}") from error
    if found != shape:
        raise CorruptData(f"{folder}: a transformer of another shape ({found}); {_REMEDY}")
    network = TransformerNetwork(shape)
    try:
        network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    except RuntimeError as error:
        raise CorruptData(f"{folder}: the weights are not those of its shape; {_REMEDY}") from error
    return network.eval(), Vocabulary.load(folder / _VOCABULARY)
