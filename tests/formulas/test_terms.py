"""Terms compared with a slow reference, under changes of layout and of names."""

from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.api import Library
from eqkin.formulas import ForestBuilder
from eqkin.formulas.kinds import TERM_FAMILIES
from eqkin.formulas.mathml import to_node
from eqkin.formulas.terms import extract_terms
from eqkin.limits import LIMITS
from tests.formulas import reference
from tests.formulas.any_trees import TREES
from tests.formulas.strategies import build


def listed(terms, tree):
    """List code, family and count of the terms of one tree."""
    part = slice(terms.offsets[tree], terms.offsets[tree + 1])
    return list(zip(terms.code[part].tolist(), terms.family[part].tolist(), terms.count[part].tolist(), strict=True))


def plain(forest, index):
    """Return the tree at `index` as nested tuples."""

    def nested(node):
        attributes = "\n".join(f"{name}={value}" for name, value in sorted(node.attributes.items()))
        return node.tag, attributes, node.text, [nested(child) for child in node.children]

    return nested(to_node(forest, index))


def where(occurrences):
    """Count terms by their family and the trees that contain them, regardless of their names or codes."""
    places = defaultdict(list)
    for tree, term, count in occurrences:
        places[term].append((tree, min(count, 255)))
    return Counter((term[0], tuple(found)) for term, found in places.items())


def quick(forest, block=100_000):
    """Apply `where` to extracted terms."""
    terms = extract_terms(forest, block)
    assert len(terms) == len(forest)
    return where(
        (tree, (TERM_FAMILIES[f], code), n) for tree in range(len(forest)) for code, f, n in listed(terms, tree)
    )


def slow(forest):
    """Apply `where` to terms counted node by node."""
    return where((tree, *term) for tree in range(len(forest)) for term in reference.terms(forest, tree).items())


@pytest.fixture(scope="module")
def atlas(atlas_library):
    """Read the trees of the atlas."""
    builder = ForestBuilder()
    with Library.open(atlas_library) as library:
        for _, forest in library.iter_forests():
            builder.add_forest(forest)
    return builder.build()


def test_terms_equal_those_counted_node_by_node_in_real_formulas(atlas):
    by_code, by_name = quick(atlas), slow(atlas)
    assert by_name.total() > 5_000
    # hashes have 32 bits: two of this many terms may collide, and then three entries differ
    assert (by_code - by_name).total() + (by_name - by_code).total() <= 3


@given(st.lists(TREES, max_size=6), st.sampled_from([1, 7, 100_000]))
def test_terms_equal_those_counted_node_by_node_in_any_tree(trees, block):
    forest = build(trees)
    assert quick(forest, block) == slow(forest)


def test_empty_forest_has_no_terms():
    terms = extract_terms(build([]))
    assert (len(terms), terms.offsets.tolist(), len(terms.code)) == (0, [0], 0)


def test_single_symbol_has_one_term_and_blanks_have_none():
    terms = extract_terms(build([("mi", "", "x", []), ("mrow", "", "", [("mspace", "", "", [])]), ("mi", "", "y", [])]))
    (x,), nothing, (y,) = (listed(terms, tree) for tree in range(3))
    assert nothing == []
    assert x[1:] == y[1:] == (TERM_FAMILIES.index("label"), 1)
    assert x[0] != y[0]


def test_terms_of_a_tree_do_not_depend_on_its_forest(atlas):
    terms = extract_terms(atlas)
    chosen = list(range(len(atlas)))[::-3]
    elsewhere = extract_terms(atlas.select(chosen).canonicalise(), block=999)
    assert all(listed(elsewhere, at) == listed(terms, tree) for at, tree in enumerate(chosen))


def test_counts_are_capped_at_255():
    terms = extract_terms(build([("mrow", "", "", [("mi", "", "x", [])] * 256)]))
    counts = {(TERM_FAMILIES[family], count) for _, family, count in listed(terms, 0)}
    assert ("label", 255) in counts
    assert ("sibling", 255) in counts


def padded(tree, random):
    """Add rows and blanks that mean nothing."""
    tag, attributes, text, children = tree
    children = [padded(child, random) for child in children]
    if tag in ("mrow", "mstyle") and len(children) > 2 and random.random() < 0.3:
        children = [("mrow", "", "", children[:2]), *children[2:]]
    if children and random.random() < 0.3:
        blank = random.choice([("mspace", "width=1em", "", []), ("mtext", "", "\u00a0", []), ("mpadded", "", "", [])])
        children.insert(random.randrange(len(children) + 1), blank)
    tree = (tag, attributes, text, children)
    return (random.choice(["mrow", "mstyle"]), "displaystyle=true", "", [tree]) if random.random() < 0.3 else tree


def test_terms_ignore_layout_rows_and_blanks(atlas):
    random = Random(5)
    given_ = [plain(atlas, tree) for tree in range(0, len(atlas), 2)]
    other = build([padded(tree, random) for tree in given_])
    assert len(other.tag) > 1.3 * sum(atlas.sizes[::2])
    ours, theirs = extract_terms(build(given_)), extract_terms(other)
    assert all(listed(ours, tree) == listed(theirs, tree) for tree in range(len(given_)))


def test_terms_of_the_largest_trees_are_counted():
    most, deepest = LIMITS.tree_nodes, LIMITS.tree_depth
    wide = ("mrow", "", "", [("mi", "", f"x{i % 7}", []) for i in range(most - 1)])
    rows = fractions = ("mi", "", "x", [])
    for _ in range(deepest - 1):
        rows = ("mrow", "", "", [rows, ("mi", "", "y", [])])
        fractions = ("mfrac", "", "", [fractions, ("mi", "", "y", [])])
    forest = build([wide, rows, fractions])
    assert quick(forest) == quick(forest, 1) == slow(forest)
