"""Depth-first order: that of a recursive walk, whole forests and small blocks alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqkin.trees.forest import compute_preorder, iter_blocks, order_depth_first
from eqkin.trees.mathml import to_node
from tests.evaluation.formulas import formulas
from tests.trees.strategies import FORESTS, build


def walk(node):
    """A node and all below it, depth first."""
    yield node
    for child in node[3]:
        yield from walk(child)


@given(FORESTS, st.sampled_from([1, 7, 1_000_000]))
def test_nodes_come_in_the_order_of_a_recursive_walk(trees, block):
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
def test_blocks_part_the_trees_and_their_nodes(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    parts = list(iter_blocks(offsets, 25))
    assert [tree for trees, _ in parts for tree in range(trees.start, trees.stop)] == list(range(len(sizes)))
    assert [node for _, nodes in parts for node in range(nodes.start, nodes.stop)] == list(range(sum(sizes)))
    for trees, nodes in parts:
        assert nodes.stop - nodes.start <= 25 or trees.stop - trees.start == 1


def test_the_tree_of_a_real_formula_is_walked_like_its_mathml():
    given_ = formulas(r"\sum_{i=1}^n \sqrt{x_i^2 + \begin{pmatrix} a & b \\ c & d \end{pmatrix}}")
    tags = [given_.forest.tags[given_.forest.tag[i]] for i in order_depth_first(given_.forest)]
    stack, walked = [to_node(given_.forest, 0)], []
    while stack:
        node = stack.pop()
        walked.append(node.tag)
        stack.extend(reversed(node.children))
    assert tags == walked
