"""A model on disk: weights as safetensors, their vocabulary, and a description of both.

A model is a folder with `weights.safetensors`, `vocabulary.json` and `model.json` (format, version, architecture,
hashes of the other two files, and how the model was trained). `model.json` is written last, so that an interrupted save
never looks complete. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.encoder.architecture import (
    ATTRIBUTE_SLOTS,
    CHARACTER_SLOTS,
    SUM,
    TAG_SLOTS,
    Architecture,
    Vocabulary,
    compute_weight_shapes,
)
from eqkin.errors import BadInput, CorruptData
from eqkin.files import make_folder, read_file, write_file

FORMAT = "eqkin-model"
VERSION = 1
DESCRIPTION_FILE, WEIGHTS_FILE, VOCABULARY_FILE = "model.json", "weights.safetensors", "vocabulary.json"
MODEL_FILES = (DESCRIPTION_FILE, WEIGHTS_FILE, VOCABULARY_FILE)


@dataclass(frozen=True)
class Model:
    """The weights of a network with everything needed to use them, and a record of their training."""

    architecture: Architecture
    vocabulary: Vocabulary
    weights: dict[str, npt.NDArray[np.float32]]  # those of `compute_weight_shapes`, and possibly others
    recipe: dict[str, Any] = field(default_factory=dict)  # settings of the training
    training: dict[str, Any] = field(default_factory=dict)  # results of the training, such as scores

    @cached_property
    def digest(self) -> str:
        """Identifier of the function: hash of architecture, vocabulary and the weights that an embedding needs."""
        vocabulary = [self.vocabulary.tags, self.vocabulary.attributes, self.vocabulary.characters]
        digest = hashlib.sha256(json.dumps([self.architecture.to_dict(), vocabulary], sort_keys=True).encode())
        for name in sorted(compute_weight_shapes(self.architecture)):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.weights[name], "<f4").tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write the model to a folder, which is created if necessary.

        Raises:
            CorruptData: The weights do not fit the architecture.
            StorageFailed: The disk is full or read-only.
        """
        _check_model(self, "model")
        weights = safetensors.save({name: np.asarray(array, order="C") for name, array in self.weights.items()})
        vocabulary = self.vocabulary.to_json().encode()
        description = {
            "format": FORMAT,
            "version": VERSION,
            "architecture": self.architecture.to_dict(),
            "sha256": {WEIGHTS_FILE: _compute_sha256(weights), VOCABULARY_FILE: _compute_sha256(vocabulary)},
            "recipe": self.recipe,
            "training": self.training,
        }
        text = json.dumps(description, ensure_ascii=False, indent=1) + "\n"
        write_file(make_folder(folder) / WEIGHTS_FILE, weights)
        write_file(folder / VOCABULARY_FILE, vocabulary)
        write_file(folder / DESCRIPTION_FILE, text.encode())

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read what `save` wrote.

        Raises:
            BadInput: The folder contains no model.
            CorruptData: A file is damaged, of another format or version, or does not belong to the others.
        """
        path = folder / DESCRIPTION_FILE
        if not path.is_file():
            raise BadInput(f"{folder}: contains no model ({DESCRIPTION_FILE} is missing)")
        try:
            description = json.loads(_read_file(path))
            found = (description["format"], description["version"])
            if found != (FORMAT, VERSION):
                raise CorruptData(f"{path}: format {found[0]} {found[1]}, this eqkin reads {FORMAT} {VERSION}")
            architecture = Architecture.from_dict(description["architecture"])
            hashes = [str(description["sha256"][name]) for name in (WEIGHTS_FILE, VOCABULARY_FILE)]
            recipe, training = dict(description["recipe"]), dict(description["training"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptData(f"{path}: not a description of a model ({error})") from error
        weights = _read_weights(folder / WEIGHTS_FILE, hashes[0])
        vocabulary_path = folder / VOCABULARY_FILE
        if _compute_sha256(_read_file(vocabulary_path)) != hashes[1]:
            raise CorruptData(f"{vocabulary_path}: the vocabulary is not the one the weights were trained with")
        model = cls(architecture, Vocabulary.load(vocabulary_path), weights, recipe, training)
        _check_model(model, str(folder))
        return model


def _compute_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_file(path: Path) -> bytes:
    content = read_file(path)
    if content is None:
        raise CorruptData(f"{path}: missing")
    return content


def _read_weights(path: Path, sha256: str) -> dict[str, npt.NDArray[np.float32]]:
    """Read the tensors of a safetensors file, checking its hash."""
    content = _read_file(path)
    # A safetensors file has eight bytes with the length of its JSON header, then the header.
    if content[8:9] != b"{":
        raise CorruptData(f"{path}: not a safetensors file; eqkin reads weights as safetensors only, never pickles")
    if _compute_sha256(content) != sha256:
        raise CorruptData(f"{path}: its hash is not the one in {DESCRIPTION_FILE}: damaged, or of another model")
    try:
        return dict(safetensors.load(content))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{path}: not a readable safetensors file ({error})") from error


def _check_model(model: Model, source: str) -> None:
    """Check that weights and vocabulary fit the architecture; raises `CorruptData` naming what does not."""
    shapes = compute_weight_shapes(model.architecture)
    missing = sorted(shapes.keys() - model.weights.keys())
    if missing:
        raise CorruptData(f"{source}: the weights lack {', '.join(missing)}")
    for name, shape in shapes.items():
        array = model.weights[name]
        if array.dtype != np.float32 or array.shape != shape:
            raise CorruptData(f"{source}: {name} is {array.dtype} {array.shape}, expected float32 {shape}")
    for name, array in model.weights.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CorruptData(f"{source}: {name} contains a number that is not finite")
        if name.endswith(".norm.variance") and (array < 0).any():
            raise CorruptData(f"{source}: {name} contains a negative variance")
    if model.architecture.kind == SUM:
        soft_norm = float(model.weights["soft_norm.mean"]) + float(model.weights["soft_norm.deviation"])
        if not soft_norm > 0:
            raise CorruptData(f"{source}: the soft norm is not positive")
    for name, slots in (("tags", TAG_SLOTS), ("attributes", ATTRIBUTE_SLOTS), ("characters", CHARACTER_SLOTS)):
        known = getattr(model.vocabulary, name)
        if len(known) >= slots or not all(isinstance(value, str) for value in known):
            raise CorruptData(f"{source}: the {name} of the vocabulary are not at most {slots - 1} strings")
