"""Trees as sequences: depth-first order, labels, whole forests and small blocks alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqkin.evaluation.systems.serialised import blocks, depth_first, labels, preorder, serialised
from eqkin.mathml.tree import node_of
from tests.evaluation.formulas import formulas
from tests.forest.strategies import FORESTS, build


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
    rank = preorder(forest, block)
    assert [said[node] for node in depth_first(forest)] == walked
    assert np.array_equal(rank, preorder(forest))
    for start, end in zip(forest.offsets[:-1], forest.offsets[1:], strict=True):
        assert rank[start] == 0  # the root
        assert sorted(rank[start:end]) == list(range(end - start))


@given(FORESTS)
def test_labels_tell_nodes_apart_by_tag_text_and_nothing_else_here(trees):
    forest = build(trees)
    names, label = labels(forest)
    assert len(set(names)) == len(names)
    assert all(name and len(name.split()) == 1 for name in names)
    said = {(int(tag), int(text)) for tag, text in zip(forest.tag, forest.text, strict=True)}
    assert len(said) == len(set(label.tolist())) == len(names)


def test_a_formula_is_written_with_the_kinds_of_its_symbols():
    sequences = serialised(formulas(r"\frac{a}{2} + \mathbf{x}", r"\text{if and only if}").forest)
    first, second = sequences.lines()
    assert first.split() == ["mrow", "mfrac", "mi:a", "mn:2", "mo:+", "mi:x:bold"]
    assert second == "mrow mtext:if␣and␣only␣if"


def test_an_upright_letter_has_the_label_of_a_slanted_one_and_a_bold_one_has_not():
    upright, slanted, bold = serialised(formulas(r"\mathrm{x}y", "xy", r"\mathbf{x}y").forest).lines()
    assert upright == slanted != bold


@given(st.lists(st.integers(1, 30), max_size=20))
def test_blocks_part_the_trees_and_their_nodes(sizes):
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    parts = list(blocks(offsets, 25))
    assert [tree for trees, _ in parts for tree in range(trees.start, trees.stop)] == list(range(len(sizes)))
    assert [node for _, nodes in parts for node in range(nodes.start, nodes.stop)] == list(range(sum(sizes)))
    for trees, nodes in parts:
        assert nodes.stop - nodes.start <= 25 or trees.stop - trees.start == 1


def test_lines_of_many_trees_stay_apart():
    forest = build([("mi", "", "xy"[i % 2], []) for i in range(20_001)])
    assert list(serialised(forest).lines()) == [f"mi:{'xy'[i % 2]}" for i in range(20_001)]


def test_the_tree_of_a_real_formula_is_walked_like_its_mathml():
    given_ = formulas(r"\sum_{i=1}^n \sqrt{x_i^2 + \begin{pmatrix} a & b \\ c & d \end{pmatrix}}")
    tags = [given_.forest.tags[given_.forest.tag[i]] for i in depth_first(given_.forest)]
    stack, walked = [node_of(given_.forest, 0)], []
    while stack:
        node = stack.pop()
        walked.append(node.tag)
        stack.extend(reversed(node.children))
    assert tags == walked
