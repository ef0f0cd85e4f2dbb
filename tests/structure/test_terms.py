"""Terms of trees: the same as counted node by node, whatever the layout, and for runs whatever the names."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.atlas import articles
from eqkin.forest import ForestBuilder
from eqkin.latex import parse
from eqkin.library.reading import convert_document
from eqkin.structure.terms import FAMILIES, terms_of
from tests.forest.strategies import build
from tests.structure import reference

TAGS = st.sampled_from(["mi", "mi", "mo", "mn", "mtext", "mspace", "mrow", "mrow", "mstyle", "mpadded", "mfrac", "mtd"])
ATTRIBUTES = st.sampled_from(["", "", "mathvariant=bold", "mathvariant=normal", "stretchy=false"])
TEXTS = st.sampled_from(["", " ", "x", "x", "y", "z", "a b", "a\u2003b"])
TREES = st.recursive(
    st.tuples(TAGS, ATTRIBUTES, TEXTS, st.just([])),
    lambda children: st.tuples(TAGS, ATTRIBUTES, TEXTS, st.lists(children, max_size=5)),
    max_leaves=30,
)


def listed(terms, tree):
    """One tree's terms: code, family, count."""
    part = slice(terms.offsets[tree], terms.offsets[tree + 1])
    return list(zip(terms.code[part].tolist(), terms.family[part].tolist(), terms.count[part].tolist(), strict=True))


def where(occurrences):
    """Of each term (family, what it is), in which trees it is and how often; sorted, without saying what it is."""
    places = defaultdict(list)
    for tree, term, count in occurrences:
        places[term].append((tree, min(count, 255)))
    return Counter((term[0], tuple(found)) for term, found in places.items())


def quick(forest, block=100_000):
    """`where` of the terms by code."""
    terms = terms_of(forest, block)
    assert len(terms) == len(forest)
    return where((tree, (FAMILIES[f], code), n) for tree in range(len(forest)) for code, f, n in listed(terms, tree))


def slow(forest):
    """`where` of the terms counted node by node."""
    return where((tree, *term) for tree in range(len(forest)) for term in reference.terms(forest, tree).items())


@pytest.fixture(scope="module")
def atlas():
    """The trees of the atlas."""
    builder = ForestBuilder()
    for article in articles():
        builder.add_forest(convert_document(parse(article.read_text("utf-8")))[1])
    return builder.build()


def test_codes_stand_for_the_terms_counted_node_by_node_in_real_formulas(atlas):
    by_code, by_name = quick(atlas), slow(atlas)
    assert by_code == by_name


@given(st.lists(TREES, max_size=6), st.sampled_from([1, 7, 100_000]))
def test_codes_stand_for_the_terms_counted_node_by_node_in_any_tree(trees, block):
    forest = build(trees)
    assert quick(forest, block) == slow(forest)
