"""Vocabularies and features compared with a naive count."""

from collections import Counter

import pytest
from hypothesis import given

from eqkin.errors import CorruptData
from eqkin.trees import Vocabulary
from eqkin.trees.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, count_symbols

from .strategies import FORESTS, breadth_first, build


def naive(trees):
    tags, attributes, characters = Counter(), Counter(), Counter()
    for tree in trees:
        for tag, lines, text, *_ in breadth_first(tree):
            tags[tag] += 1
            attributes.update(lines.split("\n") if lines else [])
            characters.update(text.replace("\n", ""))
    return tags, attributes, characters


@given(FORESTS, FORESTS)
def test_count_symbols_counts_every_node(first, second):
    found = count_symbols([build(first), build(second)])
    assert tuple(+counter for counter in found) == naive(first + second)


@given(FORESTS)
def test_vocabulary_learns_the_most_frequent_symbols(trees):
    vocabulary = Vocabulary.learn([build(trees)])
    expected = naive(trees)
    for known, counter in zip((vocabulary.tags, vocabulary.attributes, vocabulary.characters), expected, strict=True):
        assert list(known) == sorted(counter, key=lambda value: (-counter[value], value))[: len(known)]
        assert len(known) == len(counter)


def test_vocabulary_leaves_rare_symbols_out():
    trees = [(f"t{i:03}", f"a={i}", chr(0x400 + i), []) for i in range(300)]
    vocabulary = Vocabulary.learn([build([*trees, trees[299]])])
    assert (len(vocabulary.tags), len(vocabulary.attributes), len(vocabulary.characters)) == (31, 31, 191)
    assert vocabulary.tags[0] == "t299"


@given(FORESTS, FORESTS)
def test_extract_features_gives_the_slots_of_every_node(known, trees):
    vocabulary = Vocabulary.learn([build(known)])
    features = vocabulary.extract_features(build(trees))
    rows = [row for tree in trees for row in breadth_first(tree)]

    def slots(values, learned, width):
        return [learned.index(value) if value in learned else width - 1 for value in values]

    assert features.tag.tolist() == slots([row[0] for row in rows], vocabulary.tags, TAG_SLOTS)
    for i, (_, lines, text, *_) in enumerate(rows):
        start, end = features.attribute_offsets[i : i + 2]
        assert features.attribute[start:end].tolist() == slots(
            lines.split("\n") if lines else [], vocabulary.attributes, ATTRIBUTE_SLOTS
        )
        start, end = features.character_offsets[i : i + 2]
        assert features.character[start:end].tolist() == slots(
            text.replace("\n", ""), vocabulary.characters, CHARACTER_SLOTS
        )


def test_vocabulary_round_trips_through_a_file(tmp_path):
    vocabulary = Vocabulary.learn([build([("mi", "a=b", "α𝔸", [])])])
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == vocabulary


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "tags": 3}', "\x00", "[" * 100_000])
def test_damaged_vocabulary_is_refused(tmp_path, text):
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(CorruptData):
        Vocabulary.load(tmp_path / "v.json")
