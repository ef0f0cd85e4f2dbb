"""The normal form of texts and leaves, and labels of nodes."""

import pytest
from hypothesis import given

from eqkin.formulas.normal import is_sign, is_silent, label_nodes, normalise_tag, normalise_text
from tests.formulas.strategies import FORESTS, build


@given(FORESTS)
def test_labels_distinguish_nodes_by_tag_and_text(trees):
    forest = build(trees)
    names, label = label_nodes(forest)
    assert len(set(names)) == len(names)
    assert all(name and len(name.split()) == 1 for name in names)
    said = {(int(tag), int(text)) for tag, text in zip(forest.tag, forest.text, strict=True)}
    assert len(said) == len(set(label.tolist())) == len(names)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("sign", "other"), [("∣", "|"), ("‖", "∥"), ("⩽", "≤"), ("⟶", "→"), ("ε", "ϵ"), ("a  b", "a b")]
)
def test_signs_that_mean_the_same_have_one_text(sign, other, exact):
    assert normalise_text(sign, exact=exact) == normalise_text(other, exact=exact)


@pytest.mark.parametrize(("sign", "other"), [("-", "−"), ("'", "′"), ("〈", "⟨"), ("⋆", "*")])  # noqa: RUF001
def test_typed_signs_are_normalised_for_exact_comparison(sign, other):
    assert normalise_text(sign, exact=True) == normalise_text(other, exact=True)


def test_angle_brackets_are_relations_for_features_and_brackets_for_exact_comparison():
    assert normalise_text("⟨") == "<"
    assert normalise_text("⟨", exact=True) == "⟨"


@pytest.mark.parametrize(
    ("tag", "text", "silent", "exactly"),
    [
        ("mspace", "", True, True),
        ("mtext", "\u00a0", True, True),
        ("mo", "\u2061", True, True),
        ("mo", "⋅", True, False),
        ("mi", "", False, True),
        ("mn", "0", False, False),
    ],
)
def test_silent_leaves(tag, text, silent, exactly):
    assert is_silent(tag, text) is silent
    assert is_silent(tag, text, exact=True) is exactly


def test_symbols_without_letters_are_signs():
    assert is_sign("∞") and is_sign("|") and not is_sign("sin") and not is_sign(" ")


def test_limits_are_scripts():
    assert [normalise_tag(tag) for tag in ("munder", "mover", "munderover", "mfrac")] == [
        "msub",
        "msup",
        "msubsup",
        "mfrac",
    ]
