"""Vocabularies: the tags, attributes and characters that a model knows (paper, section 3.2).

The features of a node have 256 slots: 32 tags, 32 attributes, 192 characters. The last slot of each block counts
everything rare. A leaf with several characters counts each of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.errors import CorruptData
from eqkin.formulas.forest import Forest, Places

TAG_SLOTS, ATTRIBUTE_SLOTS, CHARACTER_SLOTS = 32, 32, 192
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
