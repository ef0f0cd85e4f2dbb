"""Forests and their orders of nodes, compared with slow references."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import CorruptData
from eqkin.formulas import Forest, ForestBuilder
from eqkin.formulas.forest import compute_preorder, iter_blocks, order_depth_first, to_bytes
from eqkin.formulas.mathml import to_node
from tests.evaluation.formulas import formulas

from .strategies import FORESTS, breadth_first, build, rows_of


@given(FORESTS)
def test_forest_arrays_describe_the_trees(trees):
    forest = build(trees)
    forest.validate()
    assert len(forest) == len(trees)
    assert forest.sizes.tolist() == [len(breadth_first(tree)) for tree in trees]
    assert rows_of(forest) == [breadth_first(tree) for tree in trees]


@given(FORESTS.filter(bool), st.data())
def test_select_returns_the_chosen_trees_with_their_strings(trees, data):
    indices = data.draw(st.lists(st.integers(0, len(trees) - 1), max_size=8))
    chosen = build(trees).select(indices)
    chosen.validate()
    assert rows_of(chosen) == [breadth_first(trees[i]) for i in indices]
    used = {row[2] for i in indices for row in breadth_first(trees[i])}
    assert set(chosen.texts) == used


@given(FORESTS, FORESTS)
def test_builder_joins_forests(first, second):
    builder = ForestBuilder()
    builder.add_forest(build(first))
    builder.add_forest(build(second))
    joined = builder.build()
    joined.validate()
    assert rows_of(joined) == [breadth_first(tree) for tree in first + second]


@given(FORESTS)
def test_canonicalise_gives_equal_trees_equal_bytes(trees):
    forest = build(trees)
    again = build(trees[::-1]).select(range(len(trees))[::-1])
    assert to_bytes(forest.canonicalise()) == to_bytes(again.canonicalise())
    assert rows_of(forest.canonicalise()) == rows_of(forest)


def test_empty_forest_is_valid():
    forest = ForestBuilder().build()
    forest.validate()
    assert len(forest) == 0
    assert len(forest.compute_parent()) == len(forest.compute_position()) == len(forest.compute_first_child()) == 0
    assert len(forest.select([])) == 0
    assert len(forest.canonicalise()) == 0


@pytest.fixture
def forest() -> Forest:
    leaf = ("mi", "", "x", [])
    return build([("mrow", "a=b", "", [leaf, ("mo", "", "+", []), leaf]), leaf])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_children", [3, 0, 0, 1, 0]),
        ("n_children", [0, 3, 0, 0, 0]),
        ("n_children", [2, 0, 0, 0, 0]),
        ("n_children", [3, 0, 0, 0]),
        ("n_children", [2**63, 0, 0, 0, 0]),
        ("offsets", [0, 4]),
        ("offsets", [1, 4, 5]),
        ("offsets", [0, 5, 5]),
        ("offsets", [0, 6, 5]),
        ("offsets", [0, -4, 5]),
        ("offsets", []),
        ("tag", [0, 1, 2, 1, 9]),
        ("text", [0, 1, 2, 1, 3]),
        ("attribute", [0, 1, 1, 1, 2]),
    ],
)
def test_validate_rejects_arrays_that_are_not_trees(forest, field, value):
    dtype = np.uint64 if value and max(value) > 2**62 else np.int64
    with pytest.raises(CorruptData):
        replace(forest, **{field: np.array(value, dtype)}).validate()


def walk(node):
    """Yield a node and all nodes below it, depth first."""
    yield node
    for child in node[3]:
        yield from walk(child)


@given(FORESTS, st.sampled_from([1, 7, 1_000_000]))
def test_depth_first_order_is_that_of_a_recursive_walk(trees, block):
    forest = build(trees)
    walked = [node[:3] for tree in trees for node in walk(tree)]
    tags, attributes, texts = forest.tags, forest.attributes, forest.texts
    nodes = zip(forest.tag, forest.attribute, forest.text, strict=True)
    said = [(tags[tag], attributes[attribute], texts[text]) for tag, attribute, text in nodes]
    rank = compute_preorder(forest, block)
    assert [said[node] for node in order_depth_first(forest)] == walked
    assert np.array_equal(rank, compute_preorder(forest))
    for start, end in zip(forest.offsets[:-1], forest.offsets[1:], strict=True):
        assert rank[start] == 0  # the root
        assert sorted(rank[start:end]) == list(range(end - start))


@given(st.lists(st.integers(1, 30), max_size=20))
def test_iter_blocks_covers_all_trees_and_nodes_once(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    parts = list(iter_blocks(offsets, 25))
    assert [tree for trees, _ in parts for tree in range(trees.start, trees.stop)] == list(range(len(sizes)))
    assert [node for _, nodes in parts for node in range(nodes.start, nodes.stop)] == list(range(sum(sizes)))
    for trees, nodes in parts:
        assert nodes.stop - nodes.start <= 25 or trees.stop - trees.start == 1


def test_depth_first_order_of_a_formula_is_that_of_its_mathml():
    given_ = formulas(r"\sum_{i=1}^n \sqrt{x_i^2 + \begin{pmatrix} a & b \\ c & d \end{pmatrix}}")
    tags = [given_.forest.tags[given_.forest.tag[i]] for i in order_depth_first(given_.forest)]
    stack, walked = [to_node(given_.forest, 0)], []
    while stack:
        node = stack.pop()
        walked.append(node.tag)
        stack.extend(reversed(node.children))
    assert tags == walked


@pytest.mark.parametrize("children", [(-1, 0), (2, 0), (0, 1), (0, 0), (2**62, 0), (2**63 - 1, 0)])
def test_preorder_of_what_is_no_tree_is_refused(children: tuple[int, int]) -> None:
    forest = replace(build([("mi", (), "x", [("mi", (), "y", [])])]), n_children=np.array(children))
    with pytest.raises(ValueError, match="trees"):
        compute_preorder(forest)
