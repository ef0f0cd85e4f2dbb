"""The normal form of trees, compared with a slow reference, and under changes of layout."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.api import Library
from eqkin.formulas import Forest
from eqkin.formulas.mathml import to_node
from eqkin.learning.normal import Normaliser, is_sign, is_silent, normalise_tag, normalise_text
from eqkin.limits import LIMITS
from tests.formulas.strategies import build

TAGS = st.sampled_from(["mi", "mi", "mo", "mn", "mtext", "mspace", "mrow", "mrow", "mstyle", "mpadded", "mfrac", "mtd"])
ATTRIBUTES = st.sampled_from(["", "", "mathvariant=bold", "mathvariant=normal", "stretchy=false"])
TEXTS = st.sampled_from(["", " ", "x", "x", "y", "z", "a b", "a\u2003b"])
TREES = st.recursive(
    st.tuples(TAGS, ATTRIBUTES, TEXTS, st.just([])),
    lambda children: st.tuples(TAGS, ATTRIBUTES, TEXTS, st.lists(children, max_size=5)),
    max_leaves=30,
)


def normalise(node):
    """Return the normal form of a tree as (tag, text, members), None if nothing remains."""
    if is_silent(node.tag, node.text):
        return None
    members = [member for member in map(normalise, node.children) if member is not None]
    if node.tag not in ("mrow", "mstyle", "mpadded", "math"):
        text = normalise_text(node.text)
        variant = node.attributes.get("mathvariant", "")
        variant = "" if variant == "normal" or not node.text.strip() else variant
        is_operator = node.tag == "mi" and text and not any(map(str.isalnum, text))
        return "mo" if is_operator else normalise_tag(node.tag), f"{text}:{variant}", members
    flat = []
    for member in members:
        flat.extend(member[2] if member[0] == "mrow" else [member])
    if len(flat) < 2:
        return flat[0] if flat else None
    return "mrow", "", flat


def list_slow(forest):
    """Return the label, parent and number of members of all nodes, depth first, computed node by node."""
    found = []

    def add(node, tree, parent):
        tag, text, members = node
        at = len(found)
        found.append((tree, f"{tag}:{text}", parent, len(members)))
        for member in members:
            add(member, tree, at)

    for tree in range(len(forest)):
        root = normalise(to_node(forest, tree))
        if root is not None:
            add(root, tree, -1)
    return found


def check(forest):
    """Check that the arrays describe what the slow reference finds."""
    nodes = Normaliser(forest).normalise(slice(0, len(forest)), slice(0, len(forest.tag)))
    expected = list_slow(forest)
    columns = nodes.tree.tolist(), nodes.label.tolist(), nodes.parent.tolist(), nodes.n_children.tolist()
    found = list(zip(*columns, strict=True))
    assert [(row[0], *row[2:]) for row in found] == [(row[0], *row[2:]) for row in expected]
    pairs = {(row[1], other[1]) for row, other in zip(found, expected, strict=True)}
    assert len(pairs) == len({label for label, _ in pairs}) == len({name for _, name in pairs})


@pytest.fixture(scope="module")
def atlas(atlas_library):
    """Read the trees of the atlas."""
    forests = []
    with Library.open(atlas_library) as library:
        for _, forest, _ in library.iter_trees(library.list_tree_keys()):
            forests.append(forest)
    return Forest.concatenate(forests)


def test_normal_form_of_real_formulas_equals_that_computed_node_by_node(atlas):
    check(atlas)


@given(st.lists(TREES, max_size=6))
def test_normal_form_of_any_tree_equals_that_computed_node_by_node(trees):
    check(build(trees))


def test_largest_trees_have_a_normal_form():
    most, deepest = LIMITS.tree_nodes, LIMITS.tree_depth
    wide = ("mrow", "", "", [("mi", "", f"x{i % 7}", []) for i in range(most - 1)])
    rows = fractions = ("mi", "", "x", [])
    for _ in range(deepest - 1):
        rows = ("mrow", "", "", [rows, ("mi", "", "y", [])])
        fractions = ("mfrac", "", "", [fractions, ("mi", "", "y", [])])
    check(build([wide, rows, fractions]))


def add_layout(tree, random):
    """Add rows and blanks that mean nothing."""
    tag, attributes, text, children = tree
    children = [add_layout(child, random) for child in children]
    if tag in ("mrow", "mstyle") and len(children) > 2 and random.random() < 0.3:
        children = [("mrow", "", "", children[:2]), *children[2:]]
    if children and random.random() < 0.3:
        blank = random.choice([("mspace", "width=1em", "", []), ("mtext", "", "\u00a0", []), ("mpadded", "", "", [])])
        children.insert(random.randrange(len(children) + 1), blank)
    tree = (tag, attributes, text, children)
    return (random.choice(["mrow", "mstyle"]), "displaystyle=true", "", [tree]) if random.random() < 0.3 else tree


def list_tuples(forest, index):
    """Return the tree at `index` as nested tuples."""

    def nest(node):
        attributes = "\n".join(f"{name}={value}" for name, value in sorted(node.attributes.items()))
        return node.tag, attributes, node.text, [nest(child) for child in node.children]

    return nest(to_node(forest, index))


def test_normal_form_ignores_layout_rows_and_blanks(atlas):
    random = Random(5)
    trees = [list_tuples(atlas, tree) for tree in range(0, len(atlas), 2)]
    assert list_slow(build(trees)) == list_slow(build([add_layout(tree, random) for tree in trees]))


@pytest.mark.parametrize(
    ("sign", "other"), [("∣", "|"), ("‖", "∥"), ("⩽", "≤"), ("⟶", "→"), ("ε", "ϵ"), ("a  b", "a b"), ("⟨", "<")]
)
def test_signs_that_mean_the_same_have_one_text(sign, other):
    assert normalise_text(sign) == normalise_text(other)


@pytest.mark.parametrize(
    ("tag", "text", "silent"),
    [
        ("mspace", "", True),
        ("mtext", "\u00a0", True),
        ("mo", "\u2061", True),
        ("mo", "⋅", True),
        ("mi", "", False),
        ("mn", "0", False),
    ],
)
def test_silent_leaves(tag, text, silent):
    assert is_silent(tag, text) is silent


def test_symbols_without_letters_are_signs():
    assert is_sign("∞") and is_sign("|") and not is_sign("sin") and not is_sign(" ")
