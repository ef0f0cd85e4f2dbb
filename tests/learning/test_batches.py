"""Batches on the device have the structure and features of a forest of the same trees."""

# ruff: noqa: E402
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from benchmarks.train import count_device_bytes
from eqkin.errors import LimitReached
from eqkin.formulas import Vocabulary
from eqkin.formulas.vocabulary import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS
from eqkin.learning.augmentation import Augmentation, Masking
from eqkin.learning.batches import DeviceForest
from eqkin.learning.tree_ops import PADDING
from eqkin.limits import LIMITS
from tests.encoder.batches import batch_trees
from tests.formulas.strategies import build
from tests.learning.corpora import FORESTS

CPU = torch.device("cpu")
VOCABULARY = Vocabulary(("mi", "mo", "mrow"), ("a=b", "a=1"), ("x", "y", "1", "e"))
LEAF = ("mi", "", "x", [])


def collated(forest_on_device: DeviceForest, chosen: list[int], padding: int = 0):
    trees = torch.tensor(chosen)
    return forest_on_device.collate(trees, torch.arange(int(forest_on_device.get_sizes(trees).sum()) + padding))


@st.composite
def selections(draw: st.DrawFn):
    """Draw a forest and some of its trees, in any order, with repeats."""
    forest = draw(FORESTS)
    return forest, draw(st.lists(st.integers(0, len(forest) - 1), min_size=1, max_size=9))


@given(selections(), st.integers(0, 9))
def test_collate_concatenates_trees_and_pads(selection, padding):
    forest, chosen = selection
    batch = collated(DeviceForest(forest, VOCABULARY, CPU), chosen, padding)
    expected = batch_trees(forest.select(chosen))
    nodes = int(expected.node_count)
    for name in ("parent", "n_children", "position", "tree"):
        assert torch.equal(getattr(batch.trees, name)[:nodes], getattr(expected, name)), name
        assert getattr(batch.trees, name).dtype == getattr(expected, name).dtype
    inner = expected.n_children > 0
    assert torch.equal(batch.trees.first_child[:nodes][inner], expected.first_child[inner])
    assert torch.equal(batch.trees.offsets, expected.offsets)
    assert int(batch.trees.node_count) == nodes
    assert len(batch.trees.parent) == len(batch.label) == nodes + padding
    assert (batch.trees.parent[nodes:] == PADDING).all()
    assert (batch.trees.n_children[nodes:] == 0).all()
    assert ((batch.trees.tree >= 0) & (batch.trees.tree < len(chosen))).all()
    assert ((batch.trees.position >= 0) & (batch.trees.position < LIMITS.tree_nodes)).all()


@given(selections(), st.integers(0, 3))
def test_features_match_the_vocabulary(selection, padding):
    forest, chosen = selection
    for vocabulary in (VOCABULARY, Vocabulary.learn([forest]), Vocabulary((), (), ())):
        forest_on_device = DeviceForest(forest, vocabulary, CPU)
        batch = collated(forest_on_device, chosen, padding)
        expected = torch.from_numpy(vocabulary.extract_features(forest.select(chosen)))
        for dtype in (torch.float32, torch.bfloat16):
            features = forest_on_device.build_features(batch, dtype)
            assert features.dtype == dtype
            assert torch.equal(features[: len(expected)], expected.to(dtype))


@given(selections())
def test_masking_targets_are_tag_first_attribute_and_first_character(selection):
    forest, chosen = selection
    forest_on_device = DeviceForest(forest, VOCABULARY, CPU)
    batch = collated(forest_on_device, chosen)
    trees = forest.select(chosen)

    def find_slots(strings: int, number: int) -> list[int]:
        first = len(trees.tags) if strings == 1 else len(trees.tags) + len(trees.attributes)
        begin = ends[first + number - 1]
        return slots[begin : ends[first + number]].tolist()

    slots, ends = VOCABULARY.assign_slots(trees)
    some = torch.arange(len(batch.label)).flip(0)[::2]
    answers = forest_on_device.build_masking_targets(batch, some)
    assert answers.dtype == torch.int64
    for node, (tag, attribute, character) in zip(some.tolist(), answers.tolist(), strict=True):
        attributes, characters = find_slots(1, int(trees.attribute[node])), find_slots(2, int(trees.text[node]))
        assert tag == slots[trees.tag[node]]
        assert attribute == (attributes[0] - TAG_SLOTS if attributes else ATTRIBUTE_SLOTS)
        assert character == (characters[0] - TAG_SLOTS - ATTRIBUTE_SLOTS if characters else CHARACTER_SLOTS)


@settings(max_examples=25)
@given(selections(), st.integers(0, 1000))
def test_masking_targets_follow_renamed_identifiers(selection, step):
    forest, chosen = selection
    forest_on_device = DeviceForest(forest, VOCABULARY, CPU)
    batch = collated(forest_on_device, chosen)
    renaming = Augmentation(100.0, seed=0, device=CPU).draw(torch.tensor(step), len(chosen))
    nodes = torch.arange(len(batch.label))
    before, after = (
        forest_on_device.build_masking_targets(batch, nodes),
        forest_on_device.build_masking_targets(batch, nodes, renaming),
    )
    assert torch.equal(before[:, :2], after[:, :2])
    picked = forest.select(chosen)
    features = forest_on_device.build_features(batch, torch.float32, renaming=renaming)
    for node, tag in enumerate(picked.tag.tolist()):
        old, new = int(before[node, 2]), int(after[node, 2])
        if picked.tags[tag] == "mi" and old < CHARACTER_SLOTS:
            assert new == renaming.new[batch.trees.tree[node], old]
            assert (
                features[node, TAG_SLOTS + ATTRIBUTE_SLOTS + new] >= 1
            )  # what is asked for is what would have been seen
        else:
            assert new == old


@settings(max_examples=25)
@given(selections(), st.integers(0, 9), st.integers(0, 1000), st.booleans())
def test_mask_zeroes_features_of_hidden_nodes_only(selection, padding, step, renamed):
    forest, chosen = selection
    forest_on_device = DeviceForest(forest, VOCABULARY, CPU)
    batch = collated(forest_on_device, chosen, padding)
    at = torch.tensor(step)
    renaming = Augmentation(32.0, seed=0, device=CPU).draw(at, len(chosen)) if renamed else None
    mask = Masking(0.5, seed=0).draw(at, torch.arange(len(batch.label)), batch.trees.node_count)
    for dtype in (torch.float32, torch.bfloat16):
        features = forest_on_device.build_features(batch, dtype, renaming=renaming, mask=mask)
        assert features.dtype == dtype
        assert not features[mask.hidden].any()
        assert torch.equal(
            features[~mask.hidden], forest_on_device.build_features(batch, dtype, renaming=renaming)[~mask.hidden]
        )


def test_repeated_trees_are_renamed_independently():
    forest_on_device = DeviceForest(build([LEAF]), VOCABULARY, CPU)
    batch = collated(forest_on_device, [0] * 50)
    renaming = Augmentation(300.0, seed=0, device=CPU).draw(torch.tensor(0), 50)
    features = forest_on_device.build_features(batch, torch.float32, renaming=renaming)
    assert torch.equal(features[:, TAG_SLOTS + ATTRIBUTE_SLOTS :].argmax(1), renaming.new[:, 0].long())
    assert len(features.unique(dim=0)) > 20


def test_device_forest_has_sizes_and_length_of_the_forest():
    forest = build([LEAF, ("mrow", "", "", [LEAF] * 5), LEAF])
    forest_on_device = DeviceForest(forest, VOCABULARY, CPU)
    assert len(forest_on_device) == 3
    assert forest_on_device.get_sizes(torch.tensor([[1, 0], [2, 1]])).tolist() == [[6, 1], [1, 6]]


def test_device_forest_takes_eight_bytes_per_node():
    forest = build([("mrow", "", "", [LEAF] * 99)] * 50)
    forest_on_device = DeviceForest(forest, VOCABULARY, CPU)
    tables = len(forest_on_device.table) * (2 * 256 + 3 * 8 + 1)
    assert count_device_bytes(forest_on_device) == 8 * len(forest.tag) + 8 * 51 + tables


def test_labels_beyond_16_bits_are_distinguished():
    many = 33_000
    texts = [chr(0x4E00 + i % 20_000) + chr(0x61 + i // 20_000) for i in range(many)]
    forest = build([LEAF])
    forest.texts, forest.tags, forest.attributes = texts, ["mi"], [""]
    forest.text, forest.tag = np.arange(many), np.zeros(many, np.uint8)
    forest.attribute = forest.n_children = np.zeros(many, np.uint8)
    forest.offsets = np.arange(many + 1)
    forest.validate()
    vocabulary = Vocabulary(("mi",), (), ("a", texts[-1][0]))
    forest_on_device = DeviceForest(forest, vocabulary, CPU)
    batch = collated(forest_on_device, [many - 1, 0])
    expected = torch.from_numpy(vocabulary.extract_features(forest.select([many - 1, 0])))
    assert torch.equal(forest_on_device.build_features(batch, torch.float32), expected.float())


def test_device_forest_rejects_trees_above_the_limit():
    largest = build([("mrow", "", "", [LEAF] * (LIMITS.tree_nodes - 1))])
    batch = collated(DeviceForest(largest, VOCABULARY, CPU), [0, 0])
    assert int(batch.trees.position.max()) == LIMITS.tree_nodes - 2
    larger = build([LEAF, ("mrow", "", "", [LEAF] * LIMITS.tree_nodes)])
    with pytest.raises(LimitReached, match="4,001 nodes; training allows at most 4,000"):
        DeviceForest(larger, VOCABULARY, CPU)


def test_device_forest_accepts_an_empty_forest():
    forest_on_device = DeviceForest(build([]), VOCABULARY, CPU)
    assert len(forest_on_device) == 0
    assert forest_on_device.table.shape == (0, TAG_SLOTS + ATTRIBUTE_SLOTS + CHARACTER_SLOTS)
