"""What people type, and how it is read."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.formulas.engine import parse_operators
from eqkin.search.query import FormulaReader
from eqkin.search.reader import KINDS, QueryReader

_FORMULAS = FormulaReader(1)
_READER = QueryReader(_FORMULAS)
_TYPED = json.loads(Path(__file__).with_name("typed.json").read_text("utf-8"))


def canonical_form(formula):
    operators = parse_operators(formula.forest)
    return operators.forms[0, 0]


@pytest.mark.parametrize("case", _TYPED, ids=[case["typed"] for case in _TYPED])
def test_reader_understands_what_is_typed(case):
    read = _READER.read(case["typed"])
    assert read.problem is None
    assert read.words == case.get("words", "")
    if not case["latex"]:
        assert read.kind == "words" and read.formula is None
    else:
        assert canonical_form(read.formula) == canonical_form(_FORMULAS.read(case["latex"])), read.latex


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (r"\frac{a}{b", "Added a missing } at the end."),
        ("(a+b", "Added a missing ) at the end."),
        ("$x^2", "Removed a stray $."),
        (r"\left( a + b", r"Ignored \left and \right, which do not match."),
        (r"a}", "Removed a } that nothing opens."),
        (r"\sinx", "Separated commands that were written together."),
    ],
)
def test_reader_says_what_it_repaired(typed, sentence):
    assert sentence in _READER.read(typed).repairs


@pytest.mark.parametrize("typed", ["E = mc^2", r"\frac{a}{b}", "[0, 1)", "$x$", "x,", "law of cosines", "1/2"])
def test_reader_repairs_nothing_that_is_right(typed):
    assert _READER.read(typed).repairs == ()


@pytest.mark.parametrize("typed", ["a + b + ...", "1/2 + 1/4 + ...", "$a, b, ...$"])
def test_dots_at_the_end_belong_to_the_formula(typed):
    without = typed.replace("...", "")
    assert canonical_form(_READER.read(typed).formula) != canonical_form(_READER.read(without).formula)
    assert canonical_form(_READER.read("a + b.").formula) == canonical_form(_READER.read("a + b").formula)


@pytest.mark.parametrize(
    ("typed", "message", "place"),
    [
        (r"x + \begin{nope} y", "there is no environment nope", 4),
        (r"\frac{", "a command lacks its argument", 6),
        (r"<math><mi>x</mo></math>", "", None),
        ("", "nothing was typed", 0),
    ],
)
def test_reader_says_what_is_wrong_in_plain_words(typed, message, place):
    problem = _READER.read(typed).problem
    assert message in problem.message and "Expected" not in problem.message and "KaTeX" not in problem.message
    assert (
        place is None or typed[place : problem.position + 1].startswith((r"\begin", "")) and problem.position >= place
    )


def test_reader_can_be_told_how_to_read():
    words = _READER.read("sin x", as_words=True)
    assert (words.kind, words.words, words.latex) == ("words", "sin x", "")
    formula = _READER.read("law of cosines", as_formula=True)
    assert formula.formula is not None and not formula.words
    assert ("Read as words instead", "words") in _READER.read("sin x").alternatives
    assert ("Read as a formula instead", "formula") in words.alternatives


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (r"\frac{a}{b}", "latex"),
        ("E = mc^2", "latex"),
        ("a/b", "ascii"),
        ("a ≤ b", "unicode"),
        ("<math><mi>x</mi></math>", "mathml"),
        ("law of cosines", "words"),
        ("law of cosines c^2", "mixed"),
    ],
)
def test_reader_names_the_kind_of_input(typed, kind):
    assert _READER.read(typed).kind == kind


_PIECES = [
    *"\\{}()[]^_&$<>/|ab1!?'~=+-., \n%#",
    *("√", "²", "₁", "∂", "ħ", "̂", "½", "∑", "⟨", "‖", "𝔼", "x̂", "\ud800", "\x01", "\0"),
    *("sqrt", "sum", "alpha", "frac", "lim", " of ", "integral from ", " to ", "theorem ", "Bayes' ", "law"),
    *(r"\frac", r"\left", r"\right", r"\begin{", r"\text{", "<mi>", "</math>", "&lt;", "?x", "<=", "->", "||", "root("),
]


@given(st.lists(st.sampled_from(_PIECES), max_size=25).map("".join), st.booleans(), st.booleans())
@settings(max_examples=150)
def test_reader_never_raises(text, as_words, as_formula):
    read = _READER.read(text, as_words=as_words, as_formula=as_formula)
    assert read.kind in KINDS
    assert read.formula is not None or read.words or read.problem is not None
    assert "\x01" not in read.latex
    if read.problem is not None:
        assert -1 <= read.problem.position <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 9_000,
        "{" * 9_000,
        "a/" * 6_000,
        "|" * 9_000,
        "<" * 9_000,
        "x^" * 6_000,
        "sqrt " * 3_000,
        "?" * 9_000,
        r"\frac" * 700,
    ],
)
def test_reader_bounds_hostile_input(text):
    read = _READER.read(text)
    assert read.formula is not None or read.problem is not None
    assert _READER.read("x").formula is not None
