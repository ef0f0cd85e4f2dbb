"""Clean-up of typed formulas: lost spaces, HTML entities, and original places."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.latex.typed import decode_entities, restore_spaces, rewrite_matches


@pytest.mark.parametrize(
    ("text", "unknown", "expected"),
    [
        (r"\intx^n", [r"\intx"], r"\int x^n"),
        (r"\sinhx", [r"\sinhx"], r"\sinh x"),
        (r"\sinx", [r"\sinx"], r"\sin x"),
        (r"\pir^2", [r"\pir"], r"\pi r^2"),
        (r"a\cdotx\cdotsy", [r"\cdotx", r"\cdotsy"], r"a\cdot x\cdots y"),
        (r"m\leqn\len", [r"\leqn", r"\len"], r"m\leq n\le n"),
        (r"\int f\dx", [r"\dx"], r"\int f dx"),
        (r"zr\drdz", [r"\drdz"], r"zr drdz"),
        (r"f:\BbbR\to A", [r"\BbbR"], r"f:\Bbb R\to A"),
        (r"y\=\f(x)\+\1", [r"\f", r"\+", r"\1"], "y = f(x) + 1"),
        (r"x\(\text{mod}\3)", [r"\3"], r"x (\text{mod} 3)"),
        (r"\(x\) \foo", [r"\foo"], r"\(x\)  foo"),  # delimiters of a formula
        (r"\mymacro", [r"\mymacro"], r"\mymacro"),
        (r"\mymacros \int x", [r"\mymacro"], r"\mymacros \int x"),
        (r"a\\frac12", [], r"a\ \frac12"),
        (r"a\\to b", [r"\<"], r"a\ \to b"),
        (r"\lim=\\lim\limits_n", None, r"\lim=\ \lim\limits_n"),
        (r"a\\in b", None, r"a\ \in b"),
    ],
)
def test_restore_spaces_splits_glued_commands(text, unknown, expected):
    assert restore_spaces(text, unknown or (), failed=unknown is None) == expected


@pytest.mark.parametrize("text", [r"a\\b", r"a\\\frac12", r"\\to", r"\= \dx \(x", r"\begin{cases}a\\b\end{cases}", ""])
def test_restore_spaces_keeps_intact_formulas(text):
    assert restore_spaces(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &lt; b &gt; c", "a < b > c"),
        ("x &amp;= y", "x &= y"),
        ("it&#39;s &#x27;so&quot;", "it's 'so\""),
        ("a&nbsp;b&#160;c&#8203;d&#0;", "a b cd"),
        ("a &amp;lt; b", "a < b"),
        ("&le;&alpha;", "≤α"),
        ("a & b &= c", "a & b &= c"),
        ("a&b; &nosuchname; &lt", "a&b; &nosuchname; &lt"),
        ("&amp;nosuch;", "&nosuch;"),
    ],
)
def test_decode_entities_replaces_html_entities(text, expected):
    assert decode_entities(text).text == expected


@given(st.lists(st.sampled_from(["a", "&lt;", "&nbsp;", "&", ";", "&amp;", "xy", "&#8203;"]), max_size=12).map("".join))
def test_rewritten_text_finds_original_places(text):
    new = decode_entities(text)
    places = [new.find_origin(at) for at in range(len(new.text) + 1)]
    assert places == sorted(places)
    assert places[-1] == len(text)
    for at, place in enumerate(places[:-1]):
        assert new.text[at] == text[place] or text[place] == "&"


def test_rewritten_text_finds_places_of_removed_parts():
    new = rewrite_matches(re.compile("b+"), lambda match: "", "abbcb")
    assert new.text == "ac"
    assert [new.find_origin(at) for at in (0, 1, 2)] == [0, 3, 5]
