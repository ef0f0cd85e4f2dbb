"""Vocabularies: which tags, attributes and characters a model knows (paper, section 3.2).

A node's features are 256 wide: 32 tags, 32 attributes, 192 characters, the last slot of each block for everything
rare. A leaf with several characters counts each of them.
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
        """The most frequent tags, attributes and characters of some forests; ties in alphabetical order."""
        tags, attributes, characters = count_symbols(forests)
        return cls(
            _select_top(tags, TAG_SLOTS - 1),
            _select_top(attributes, ATTRIBUTE_SLOTS - 1),
            _select_top(characters, CHARACTER_SLOTS - 1),
        )

    def extract_features(self, forest: Forest) -> NodeFeatures:
        """Feature slots of every node of a forest."""
        tag = _assign_slots(self.tags, TAG_SLOTS, forest.tags)[forest.tag]
        attribute, attribute_offsets = _assign_ragged_slots(
            self.attributes, ATTRIBUTE_SLOTS, [_split_attributes(a) for a in forest.attributes], forest.attribute
        )
        character, character_offsets = _assign_ragged_slots(
            self.characters, CHARACTER_SLOTS, [_get_visible_characters(t) for t in forest.texts], forest.text
        )
        return NodeFeatures(tag, attribute, attribute_offsets, character, character_offsets)

    def to_json(self) -> str:
        """As a file has it."""
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
    """Feature vectors of the nodes, (nodes, 256): how often each tag, attribute and character comes up."""
    counted = np.zeros((len(features.tag), TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS), np.int16)
    node = np.arange(len(features.tag))
    counted[node, features.tag] = 1
    of_attribute = np.repeat(node, np.diff(features.attribute_offsets))
    np.add.at(counted, (of_attribute, TAG_SLOTS + features.attribute.astype(np.int64)), 1)
    of_character = np.repeat(node, np.diff(features.character_offsets))
    np.add.at(counted, (of_character, TAG_SLOTS + ATTRIBUTE_SLOTS + features.character.astype(np.int64)), 1)
    return counted


def count_symbols(forests: Iterable[Forest]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How often each tag, attribute and character occurs."""
    tags: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for forest in forests:
        for tag, n in _count_strings(forest.tags, forest.tag):
            tags[tag] += n
        for lines, n in _count_strings(forest.attributes, forest.attribute):
            for line in _split_attributes(lines):
                attributes[line] += n
        for text, n in _count_strings(forest.texts, forest.text):
            for character in _get_visible_characters(text):
                characters[character] += n
    return tags, attributes, characters


def _count_strings(strings: list[str], indices: Array) -> list[tuple[str, int]]:
    return list(zip(strings, np.bincount(indices, minlength=len(strings)).tolist(), strict=True))


def _split_attributes(attributes: str) -> list[str]:
    return attributes.split("\n") if attributes else []


def _get_visible_characters(text: str) -> list[str]:
    """Characters that can be seen: spaces, function application and the like carry no feature."""
    return [character for character in text if character.isprintable() and not character.isspace()]


def _select_top(counter: Counter[str], n: int) -> tuple[str, ...]:
    return tuple(value for value, _ in sorted(counter.items(), key=lambda item: (-item[1], item[0]))[:n])


def _assign_slots(known: tuple[str, ...], width: int, values: list[str]) -> npt.NDArray[np.uint8]:
    index = {value: i for i, value in enumerate(known)}
    return np.array([index.get(value, width - 1) for value in values], np.uint8)


def _assign_ragged_slots(
    known: tuple[str, ...], width: int, values: list[list[str]], nodes: Array
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Slots of each distinct value's parts, spread over the nodes that have that value."""
    lengths = np.array([len(parts) for parts in values], np.int64)
    starts = np.cumsum(lengths) - lengths
    flat = _assign_slots(known, width, [part for parts in values for part in parts])
    of_node = lengths[nodes] if len(lengths) else np.zeros(0, np.int64)
    offsets = np.concatenate(([0], np.cumsum(of_node)))
    take = np.repeat((starts[nodes] if len(starts) else of_node) - offsets[:-1], of_node) + np.arange(offsets[-1])
    return flat[take], offsets
