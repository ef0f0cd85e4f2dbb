"""Shapes of the networks and features of their nodes, shared by the torch and numpy implementations.

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

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.formulas.forest import Forest, Places

# Slots of the features of a node, by kind.
TAG_SLOTS, ATTRIBUTE_SLOTS, CHARACTER_SLOTS = 32, 32, 192
FEATURES = TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS
# Added to the variance in batch normalisation, and to the mean square before taking its root.
NORM_EPSILON, SQUARE_EPSILON = 1e-5, 1e-6
SUM, MIX = ARCHITECTURE_KINDS = ("sum", "mix")
# The node, its parent, its children, its left sibling, its right sibling.
MIX_TERMS = 5


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


_VOCABULARY_VERSION = 1


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
