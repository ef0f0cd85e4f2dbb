"""Forests and their orders of nodes, compared with slow references."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import CorruptData
from eqkin.formulas import Forest
from eqkin.formulas.forest import iter_blocks

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
    joined = Forest.concatenate([build(first), build(second)])
    joined.validate()
    assert rows_of(joined) == [breadth_first(tree) for tree in first + second]


@given(FORESTS)
def test_canonicalise_gives_equal_trees_equal_bytes(trees):
    forest = build(trees)
    again = build(trees[::-1]).select(range(len(trees))[::-1])
    assert forest.canonicalise().to_bytes() == again.canonicalise().to_bytes()
    assert rows_of(forest.canonicalise()) == rows_of(forest)


def test_empty_forest_is_valid():
    forest = Forest.concatenate([])
    forest.validate()
    assert len(forest) == 0
    assert len(forest.compute_parent()) == len(forest.compute_first_child()) == 0
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


@given(st.lists(st.integers(1, 30), max_size=20))
def test_iter_blocks_covers_all_trees_and_nodes_once(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    parts = list(iter_blocks(offsets, 25))
    assert [tree for trees, _ in parts for tree in range(trees.start, trees.stop)] == list(range(len(sizes)))
    assert [node for _, nodes in parts for node in range(nodes.start, nodes.stop)] == list(range(sum(sizes)))
    for trees, nodes in parts:
        assert nodes.stop - nodes.start <= 25 or trees.stop - trees.start == 1
