"""Tokens compared with a slow reference, under changes of layout and of names."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.trees.mathml import to_node
from eqkin.trees.normal import normalise_text
from eqkin.trees.terms import TERM_FAMILIES, extract_terms
from eqkin.trees.tokens import LETTER_KIND, MAX_TOKENS, NEW_LETTER, NUMBER_KIND, Tokens, extract_tokens
from tests.trees import reference
from tests.trees.any_trees import TREES
from tests.trees.strategies import build

UNNUMBERED = ("mrow", "mtable", "mtr", "mtd")


def slow(forest, tree):
    """Return (label and slot, the same without names, distance back, label, kind) of each token, by recursion."""
    root, tokens, last = reference.normalise(to_node(forest, tree)), [], {}

    def walk(node, slot):
        tag, text, members = node
        if tag != "mrow":
            letter = reference.is_renameable(node)
            back = len(tokens) - last.get(text, -NEW_LETTER) if letter else 0
            kind = LETTER_KIND if letter else NUMBER_KIND if tag == "mn" else (tag, text)
            tokens.append(
                ((slot, tag, text), (slot, "any" if letter else (tag, text)), min(back, NEW_LETTER), (tag, text), kind)
            )
            if letter:
                last[text] = len(tokens) - 1
        for at, member in enumerate(members):
            walk(member, (tag,) if tag in UNNUMBERED else (tag, at))

    if root is not None:
        walk(root, ("mrow",))
    return tokens


def check(forest):
    """Check that hashes are equal exactly where the tokens are."""
    tokens = extract_tokens(forest)
    expected = [slow(forest, tree) for tree in range(len(forest))]
    assert tokens.length.tolist() == [min(len(one), MAX_TOKENS) for one in expected]
    for column, table in ((0, tokens.exact), (1, tokens.shape), (3, tokens.label), (4, tokens.kind)):
        meaning = {}
        for tree, one in enumerate(expected):
            length = int(tokens.length[tree])
            assert not table[tree, length:].any()
            for code, token in zip(table[tree, :length].tolist(), one, strict=False):
                assert code and meaning.setdefault(code, token[column]) == token[column]
        assert len(set(meaning.values())) == len(meaning)
    for tree, one in enumerate(expected):
        length = int(tokens.length[tree])
        assert tokens.distance[tree, :length].tolist() == [token[2] for token in one[:length]]
        assert not tokens.distance[tree, length:].any()


@given(st.lists(TREES, max_size=6))
def test_tokens_equal_those_of_a_slow_walk_in_any_tree(trees):
    check(build(trees))


def test_tokens_do_not_depend_on_blocks():
    letter, power = ("mi", "", "x", []), ("msup", "", "", [("mi", "", "x", []), ("mn", "", "2", [])])
    forest = build([("mrow", "", "", [letter, power, letter])] * 5 + [letter] * 3)
    at_once = extract_tokens(forest)
    in_blocks = extract_tokens(forest, block=5)
    for name in ("exact", "shape", "distance", "label", "kind", "node", "length"):
        assert np.array_equal(getattr(in_blocks, name), getattr(at_once, name))
    check(forest)


@given(st.lists(TREES, min_size=1, max_size=4))
def test_token_knows_its_breadth_first_node(trees):
    forest = build(trees)
    tokens = extract_tokens(forest)
    for tree in range(len(forest)):
        numbers = tokens.node[tree, : tokens.length[tree]]
        assert len(set(numbers.tolist())) == len(numbers)
        assert (tokens.node[tree, tokens.length[tree] :] == -1).all()
        said = [forest.texts[forest.text[forest.offsets[tree] + number]] for number in numbers]
        assert [normalise_text(text) for text in said] == [
            token[0][2].rpartition(":")[0] for token in slow(forest, tree)
        ]


@given(st.lists(TREES, min_size=1, max_size=4))
def test_token_labels_are_label_terms(trees):
    forest = build(trees)
    tokens, terms = extract_tokens(forest), extract_terms(forest)
    for tree in range(len(forest)):
        part = slice(terms.offsets[tree], terms.offsets[tree + 1])
        labels = terms.code[part][terms.family[part] == TERM_FAMILIES.index("label")]
        assert set(tokens.label[tree, : tokens.length[tree]].tolist()) <= set(labels.tolist())


def test_letters_and_numbers_have_one_kind_each():
    leaves = [
        ("mi", "", "x", []),
        ("mi", "", "y", []),
        ("mi", "", "sin", []),
        ("mn", "", "1", []),
        ("mn", "", "25", []),
    ]
    kinds = extract_tokens(build([("mrow", "", "", leaves)])).kind[0].tolist()
    assert kinds == [LETTER_KIND, LETTER_KIND, kinds[2], NUMBER_KIND, NUMBER_KIND]
    assert len({0, *kinds}) == 4


def _row(*texts):
    return ("mrow", "", "", [("mi" if text.isalpha() else "mo", "", text, []) for text in texts])


def test_distance_is_to_the_previous_occurrence_of_a_letter():
    tokens = extract_tokens(build([_row("x", "+", "y", "+", "x", "x")]))
    assert tokens.distance.tolist() == [[NEW_LETTER, 0, NEW_LETTER, 0, 4, 1]]


def test_letter_too_far_back_is_new():
    for between, distance in ((NEW_LETTER - 2, NEW_LETTER - 1), (NEW_LETTER - 1, NEW_LETTER), (NEW_LETTER, NEW_LETTER)):
        tokens = extract_tokens(build([_row("x", *"+" * between, "x")]), longest=1_000)
        assert tokens.distance[0, -1] == distance


def test_renaming_changes_only_exact_tokens():
    one, other = _row("a", "+", "b", "=", "a"), _row("x", "+", "y", "=", "x")
    tokens = extract_tokens(build([one, other]))
    assert np.array_equal(tokens.shape[0], tokens.shape[1])
    assert np.array_equal(tokens.distance[0], tokens.distance[1])
    assert (tokens.exact[0] == tokens.exact[1]).tolist() == [False, True, False, True, False]


def test_same_letter_in_another_slot_is_another_token():
    x, y = ("mi", "", "x", []), ("mi", "", "y", [])
    above, below = extract_tokens(build([("mfrac", "", "", [x, y]), ("mfrac", "", "", [y, x])])).exact
    assert above[1] != below[2] and above[2] != below[1]
    assert above[0] == below[0]


def test_tokens_of_long_formulas_are_cut():
    forest = build([_row(*"x" * (MAX_TOKENS + 50)), _row("x", "+")])
    tokens = extract_tokens(forest)
    assert tokens.exact.shape == (2, MAX_TOKENS)
    assert tokens.length.tolist() == [MAX_TOKENS, 2]
    assert extract_tokens(forest, longest=3).length.tolist() == [3, 2]


@pytest.mark.parametrize("trees", [[], [("mrow", "", "", [("mspace", "", "", [])])]])
def test_blank_trees_have_no_tokens(trees):
    tokens = extract_tokens(build(trees))
    assert tokens.length.tolist() == [0] * len(trees)
    assert tokens.exact.shape == Tokens.make_empty(len(trees)).exact.shape == (len(trees), 0)


def test_select_returns_tokens_in_the_given_order():
    tokens = extract_tokens(build([_row("x"), _row(*"abcdef"), _row("x", "+", "y")]))
    chosen = tokens.select(np.array([2, 0, 2]))
    assert chosen.length.tolist() == [3, 1, 3]
    for name in ("exact", "shape", "distance", "label", "kind", "node"):
        assert getattr(chosen, name).shape == (3, 3)
        assert np.array_equal(getattr(chosen, name), getattr(tokens, name)[[2, 0, 2], :3])
    assert tokens.select(np.zeros(0, np.int64)).exact.shape == (0, 0)
