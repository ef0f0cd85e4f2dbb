"""Vocabularies: the tags, attributes and characters that a model knows (paper, section 3.2).

The features of a node have 256 slots: 32 tags, 32 attributes, 192 characters. The last slot of each block counts
everything rare. A leaf with several characters counts each of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.trees.forest import Array, Forest

TAG_SLOTS, ATTRIBUTE_SLOTS, CHARACTER_SLOTS = 32, 32, 192
_VOCABULARY_VERSION = 1


@dataclass(frozen=True)
class NodeFeatures:
    """Feature slots of a forest's nodes; node i has the attributes and characters `[offsets[i]:offsets[i + 1]]`."""

    tag: npt.NDArray[np.uint8]
    attribute: npt.NDArray[np.uint8]
    attribute_offsets: npt.NDArray[np.int64]
    character: npt.NDArray[np.uint8]
    character_offsets: npt.NDArray[np.int64]


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

    def extract_features(self, forest: Forest) -> NodeFeatures:
        """Return the feature slots of every node of a forest."""
        tag = _assign_slots(self.tags, TAG_SLOTS, forest.tags)[forest.tag]
        attribute, attribute_offsets = _assign_ragged_slots(
            self.attributes, ATTRIBUTE_SLOTS, [_split_attributes(a) for a in forest.attributes], forest.attribute
        )
        character, character_offsets = _assign_ragged_slots(
            self.characters, CHARACTER_SLOTS, [_get_visible_characters(t) for t in forest.texts], forest.text
        )
        return NodeFeatures(tag, attribute, attribute_offsets, character, character_offsets)

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


def to_dense(features: NodeFeatures) -> npt.NDArray[np.int16]:
    """Return the feature vectors of the nodes, (nodes, 256): counts of each tag, attribute and character."""
    counts = np.zeros((len(features.tag), TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS), np.int16)
    node = np.arange(len(features.tag))
    counts[node, features.tag] = 1
    of_attribute = np.repeat(node, np.diff(features.attribute_offsets))
    np.add.at(counts, (of_attribute, TAG_SLOTS + features.attribute.astype(np.int64)), 1)
    of_character = np.repeat(node, np.diff(features.character_offsets))
    np.add.at(counts, (of_character, TAG_SLOTS + ATTRIBUTE_SLOTS + features.character.astype(np.int64)), 1)
    return counts


def find_labels(forest: Forest) -> tuple[Forest, npt.NDArray[np.int64]]:
    """Return the distinct labels of nodes (tag, attributes, text) as trees of one node each, and each node's label."""
    texts, attributes = max(len(forest.texts), 1), max(len(forest.attributes), 1)
    code = (forest.tag.astype(np.int64) * attributes + forest.attribute) * texts + forest.text
    distinct, label = np.unique(code, return_inverse=True)
    columns = distinct // (texts * attributes), distinct // texts % attributes, distinct % texts
    no_children, offsets = np.zeros(len(distinct), np.uint8), np.arange(len(distinct) + 1)
    return Forest(forest.tags, forest.attributes, forest.texts, *columns, no_children, offsets), label


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


def _assign_slots(known: tuple[str, ...], width: int, values: list[str]) -> npt.NDArray[np.uint8]:
    index = {value: i for i, value in enumerate(known)}
    return np.array([index.get(value, width - 1) for value in values], np.uint8)


def _assign_ragged_slots(
    known: tuple[str, ...], width: int, values: list[list[str]], nodes: Array
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Assign slots to the parts of each distinct value, and repeat them for the nodes with that value."""
    lengths = np.array([len(parts) for parts in values], np.int64)
    starts = np.cumsum(lengths) - lengths
    flat = _assign_slots(known, width, [part for parts in values for part in parts])
    of_node = lengths[nodes] if len(lengths) else np.zeros(0, np.int64)
    offsets = np.concatenate(([0], np.cumsum(of_node)))
    take = np.repeat((starts[nodes] if len(starts) else of_node) - offsets[:-1], of_node) + np.arange(offsets[-1])
    return flat[take], offsets
