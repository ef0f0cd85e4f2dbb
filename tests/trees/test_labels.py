"""Labels of nodes: what they say, without their layout."""

from hypothesis import given

from eqkin.trees.normal import label_nodes
from tests.trees.strategies import FORESTS, build


@given(FORESTS)
def test_labels_tell_nodes_apart_by_tag_text_and_nothing_else_here(trees):
    forest = build(trees)
    names, label = label_nodes(forest)
    assert len(set(names)) == len(names)
    assert all(name and len(name.split()) == 1 for name in names)
    said = {(int(tag), int(text)) for tag, text in zip(forest.tag, forest.text, strict=True)}
    assert len(said) == len(set(label.tolist())) == len(names)
