"""Vocabularies and features compared with a naive count."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from eqkin.encoder.model import Vocabulary, count_symbols
from eqkin.errors import CorruptData

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
    expected = np.zeros((len(rows), 256), int)
    for row, (tag, lines, text, *_) in zip(expected, rows, strict=True):
        parts = ([tag], lines.split("\n") if lines else [], text.replace("\n", ""))
        known_parts = (vocabulary.tags, vocabulary.attributes, vocabulary.characters)
        for values, learned, first, width in zip(parts, known_parts, (0, 32, 64), (32, 32, 192), strict=True):
            for value in values:
                row[first + (learned.index(value) if value in learned else width - 1)] += 1
    assert np.array_equal(features, expected)


def test_vocabulary_round_trips_through_a_file(tmp_path):
    vocabulary = Vocabulary.learn([build([("mi", "a=b", "α𝔸", [])])])
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == vocabulary


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "tags": 3}', "\x00", "[" * 100_000])
def test_damaged_vocabulary_is_refused(tmp_path, text):
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(CorruptData):
        Vocabulary.load(tmp_path / "v.json")
