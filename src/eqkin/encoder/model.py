"""Models: shapes of the networks, features of their nodes, and their files.

A model is a folder with `weights.safetensors`, `vocabulary.json` and `model.json` (format, version, architecture,
hashes of the other two files, and how the model was trained). `model.json` is written last, so that an interrupted save
never looks complete. Nothing is ever unpickled.

A node has 256 features: how often each of 32 tags, 32 attributes and 192 characters occurs in it (paper, section 3.2).
The last of each kind counts everything rare. There are two kinds of networks.

"sum", the paper's (section 4.1):

    first    x_i = relu( sum over i and its neighbours j of  W f_j + alpha E(p_j) + b )
    layers   x_i = relu( sum over i and its neighbours j of  W norm(x_j) + b )
    output   mean over the nodes of a tree, then W x + b, divided by the soft norm

The neighbours of a node are its parent and children. f_j are the node's 256 features, p_j is its position among its
siblings, E are fixed sinusoids, and alpha is learned. `norm` is batch normalisation for the layers in `normalised` and
the identity for the others.

"mix", which distinguishes between the neighbours of a node:

    first    x_i = relu( W f_i + alpha E(p_i) + b )
    layers   m_i = a_0 x_i + a_1 x_parent + a_2 (mean of x_children) + a_3 x_left + a_4 x_right
             x_i = x_i + relu( norm(W m_i) )
    output   mean over the nodes of a tree and root mean square, concatenated, then W x + b, scaled to length 1

The a_k are vectors, multiplied element by element. Left and right are the adjacent siblings; a missing neighbour
counts as 0. Every layer has batch normalisation.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from eqkin.errors import BadInput, CorruptData
from eqkin.files import make_folder, read_file, write_file
from eqkin.formulas.forest import Forest, Places

# Slots of the features of a node, by kind.
TAG_SLOTS, ATTRIBUTE_SLOTS, CHARACTER_SLOTS = 32, 32, 192
FEATURES = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
# Added to the variance in batch normalisation, and to the mean square before taking its root.
NORM_EPSILON, SQUARE_EPSILON = 1e-5, 1e-6
SUM, MIX = ARCHITECTURE_KINDS = ("sum", "mix")
# The node, its parent, its children, its left sibling, its right sibling.
MIX_TERMS = 5
_VOCABULARY_VERSION = 1
FORMAT = "eqkin-model"
VERSION = 1
DESCRIPTION_FILE, WEIGHTS_FILE, VOCABULARY_FILE = "model.json", "weights.safetensors", "vocabulary.json"
MODEL_FILES = (DESCRIPTION_FILE, WEIGHTS_FILE, VOCABULARY_FILE)


@dataclass(frozen=True)
class Architecture:
    """Everything needed to build a network or to read its weights."""

    width: int = 512  # width of every layer
    layers: int = 3  # tree convolutions after the first
    normalised: tuple[int, ...] = (0, 2)  # layers with batch normalisation before them (`sum` only)
    dimensions: int = 64  # numbers in a vector
    kind: str = SUM  # `sum` of the neighbours as in the paper, or `mix`: separate weights for each kind of neighbour

    def __post_init__(self) -> None:
        # In "mix" this has no meaning, so it must not make two equal shapes differ.
        if self.kind == MIX:
            object.__setattr__(self, "normalised", ())

    @property
    def pooled_width(self) -> int:
        """Length of the vector of a tree before the output layer."""
        return 2 * self.width if self.kind == MIX else self.width

    def to_dict(self) -> dict[str, Any]:
        """Return the shape as JSON values; `kind` is omitted for "sum", as in files written before "mix" existed."""
        values = asdict(self) | {"normalised": list(self.normalised)}
        if self.kind == SUM:
            del values["kind"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """Read what `to_dict` returned; raises `TypeError`, `KeyError` or `ValueError` for anything else."""
        shape = cls(**values | {"normalised": tuple(values["normalised"])})
        numbers, layers = (shape.width, shape.layers, shape.dimensions), shape.normalised
        is_valid = all(type(number) is int and number > 0 for number in numbers) and shape.kind in ARCHITECTURE_KINDS
        if not is_valid or not all(type(layer) is int and 0 <= layer < shape.layers for layer in layers):
            raise ValueError(f"not the shape of a network: {values}")
        return shape


def compute_weight_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights of a network."""
    width, dimensions, mixed = architecture.width, architecture.dimensions, architecture.kind == MIX
    shapes: dict[str, tuple[int, ...]] = {
        "first.weight": (width, FEATURES),
        "first.bias": (width,),
        "first.alpha": (),
    }
    for layer in range(architecture.layers):
        shapes[f"layers.{layer}.weight"] = (width, width)
        shapes |= {f"layers.{layer}.mix": (MIX_TERMS, width)} if mixed else {f"layers.{layer}.bias": (width,)}
        if mixed or layer in architecture.normalised:
            shapes |= {f"layers.{layer}.norm.{name}": (width,) for name in ("weight", "bias", "mean", "variance")}
    shapes |= {"output.weight": (dimensions, architecture.pooled_width), "output.bias": (dimensions,)}
    return shapes if mixed else shapes | {"soft_norm.mean": (), "soft_norm.deviation": ()}


def compute_sinusoids(positions: int, width: int) -> npt.NDArray[np.float32]:
    """Return fixed position vectors (Vaswani et al. 2017), one row per position, starting at 0.

    E(p)_2k = sin(p / 10000^(2k / width)), E(p)_2k+1 = cos(p / 10000^(2k / width))
    """
    rates = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(positions, -1)[:, :width].astype(np.float32)


@dataclass(frozen=True)
class Vocabulary:
    """The known tags (at most 31), attributes as `name=value` (31) and characters (191), most frequent first."""

    tags: tuple[str, ...]
    attributes: tuple[str, ...]
    characters: tuple[str, ...]

    @classmethod
    def learn(cls, forests: Iterable[Forest]) -> Vocabulary:
        """Choose the most frequent tags, attributes and characters of some forests; ties in alphabetical order."""
        widths = (TAG_SLOTS, ATTRIBUTE_SLOTS, CHARACTER_SLOTS)
        ranked = (sorted(counts, key=lambda value: (-counts[value], value)) for counts in count_symbols(forests))
        return cls(*(tuple(values[: width - 1]) for values, width in zip(ranked, widths, strict=True)))

    def assign_slots(self, forest: Forest) -> tuple[npt.NDArray[np.uint8], Places]:
        """Return the slots, 0 to 255, of a forest's strings (tags, attributes, texts), and where those of each end."""
        slots: list[int] = []
        ends: list[int] = []
        characters = TAG_SLOTS + ATTRIBUTE_SLOTS
        for known, first, width, strings in (
            (self.tags, 0, TAG_SLOTS, ([tag] for tag in forest.tags)),
            (self.attributes, TAG_SLOTS, ATTRIBUTE_SLOTS, map(_split_attributes, forest.attributes)),
            (self.characters, characters, CHARACTER_SLOTS, map(_get_visible_characters, forest.texts)),
        ):
            index, rare = _index_slots(known, first), first + width - 1
            for parts in strings:
                slots += [index.get(part, rare) for part in parts]
                ends.append(len(slots))
        return np.array(slots, np.uint8), np.array(ends, np.int64)

    def extract_features(self, forest: Forest) -> npt.NDArray[np.int16]:
        """Return the features of every node, (nodes, 256): how often each tag, attribute and character occurs."""
        slots, ends = self.assign_slots(forest)
        strings = np.zeros((len(ends), TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS), np.int16)
        np.add.at(strings, (np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0)), slots), 1)
        tags, attributes, texts = np.split(strings, np.cumsum([len(forest.tags), len(forest.attributes)]))
        return np.asarray(tags[forest.tag] + attributes[forest.attribute] + texts[forest.text], np.int16)

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps({"version": _VOCABULARY_VERSION} | self.__dict__, ensure_ascii=False, indent=1) + "\n"

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(self.to_json(), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read what `save` wrote; raises `CorruptData`."""
        try:
            data = json.loads(path.read_text("utf-8"))
            if data["version"] != _VOCABULARY_VERSION:
                raise CorruptData(
                    f"{path}: vocabulary version {data['version']}, this eqkin reads {_VOCABULARY_VERSION}"
                )
            return cls(tuple(data["tags"]), tuple(data["attributes"]), tuple(data["characters"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptData(f"{path}: not a vocabulary ({error})") from error


def count_symbols(forests: Iterable[Forest]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count the occurrences of each tag, attribute and character."""
    tags, attributes, characters = Counter[str](), Counter[str](), Counter[str]()
    for forest in forests:
        for strings, indices, split, counts in (
            (forest.tags, forest.tag, lambda tag: [tag], tags),
            (forest.attributes, forest.attribute, _split_attributes, attributes),
            (forest.texts, forest.text, _get_visible_characters, characters),
        ):
            for string, count in zip(strings, np.bincount(indices, minlength=len(strings)).tolist(), strict=True):
                for part in split(string):
                    counts[part] += count
    return tags, attributes, characters


def _split_attributes(attributes: str) -> list[str]:
    return attributes.split("\n") if attributes else []


def _get_visible_characters(text: str) -> list[str]:
    """Return the visible characters: spaces, function application and the like are not features."""
    return [character for character in text if character.isprintable() and not character.isspace()]


@lru_cache
def _index_slots(known: tuple[str, ...], first: int) -> dict[str, int]:
    return {value: first + i for i, value in enumerate(known)}


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
