"""Batches on the device have the structure and features of a forest of the same trees."""

# ruff: noqa: E402
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import ATTRIBUTE_SLOTS, CHARACTER_SLOTS, TAG_SLOTS, Vocabulary
from eqkin.errors import LimitReached
from eqkin.learning.batches import Augmentation, DeviceForest, Masking
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


def test_device_forest_rejects_trees_above_the_limit():
    largest = build([("mrow", "", "", [LEAF] * (LIMITS.tree_nodes - 1))])
    batch = collated(DeviceForest(largest, VOCABULARY, CPU), [0, 0])
    assert int(batch.trees.position.max()) == LIMITS.tree_nodes - 2
    larger = build([LEAF, ("mrow", "", "", [LEAF] * LIMITS.tree_nodes)])
    with pytest.raises(LimitReached, match="4,001 nodes; training allows at most 4,000"):
        DeviceForest(larger, VOCABULARY, CPU)
