"""Matching of wildcards: what matches, what wildcards are bound to, and what does not match."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import list_nodes, to_forest, to_mathml, to_node
from eqkin.formulas.operators import OperatorForest
from eqkin.search.candidates import QueryTerms
from eqkin.search.pipeline import explain_hits
from eqkin.search.query import FormulaReader
from eqkin.search.wildcards import match_pattern, replace_wildcards

_READER = FormulaReader(1)
PYTHAGORAS = "?a^2+?b^2=?c^2"


def tree(latex):
    return to_node(_READER.read(latex, wildcards=False).forest, 0)


WHOLE, PART, NOTHING = 2, 1, 0


def found(pattern, latex, **settings):
    """Return how much of a formula a pattern matches."""
    ours = parse_operators(_READER.read(pattern).forest)
    (extent,) = match_pattern(ours, parse_operators(to_forest(tree(latex))), **settings)
    return extent


def bindings(pattern, latex):
    """Return what wildcards match, as text without markup; None if the pattern does not match."""
    query, hit = _READER.read(pattern), _READER.read(latex, wildcards=False)
    (why,) = explain_hits(query.nodes, parse_operators(query.forest), [hit.nodes], parse_operators(hit.forest))
    if why.relation not in ("same", "contains"):
        return None
    texts = {name[1:]: "".join(part.split("<")[0] for part in markup.split(">")) for name, markup in why.bindings}
    return {name: text.replace("\u2061", "") for name, text in texts.items()}


@pytest.mark.parametrize(
    ("pattern", "latex", "expected"),
    [
        (PYTHAGORAS, "x^2+y^2=z^2", {"a": "x", "b": "y", "c": "z"}),
        (PYTHAGORAS, r"\cos^2+\sin^2=1^2", {"a": "cos", "b": "sin", "c": "1"}),
        (PYTHAGORAS, "(u+1)^2+v_1^2=r^2.", {"a": "(u+1)", "b": "v1", "c": "r"}),
        (PYTHAGORAS, r"\left(u+1\right)^2 + |w|^2 = {r_0}^2", {"a": "(u+1)", "b": "∣w∣", "c": "r0"}),
        ("?x", r"\frac ab + c", {"x": "ab+c"}),
        ("?l = ?r", "a+b=c-d", {"l": "a+b", "r": "c−d"}),  # noqa: RUF001
        (r"\frac{\qvar{a}}{\qvar{a}+\qvar{b}}", r"\frac{x}{x+y}", {"a": "x", "b": "y"}),
        (r"\frac{?a}{?a+?b}", r"\frac{x+1}{(x+1)+y}", {"a": "x+1", "b": "y"}),
        (r"\frac{?a}{?a+?b}", r"\frac{\sqrt x}{\,\sqrt{x} + y z}", {"a": "x", "b": "yz"}),
        (r"\int ?f d?x", r"\int g(t)\,dt", {"f": "g(t)", "x": "t"}),
        (r"\int ?f d?x", r"\int \frac{1}{1+s^2} \mathrm{d}s", {"f": "11+s2", "x": "s"}),
        (r"\sum_{?i=1}^{?n} ?e", r"\sum_{k=1}^{N+1} k^2 y", {"i": "k", "n": "N+1", "e": "k2y"}),
        (r"e^{i?t} = \cos ?t + i \sin ?t", r"e^{i(a+b)} = \cos(a+b) + i\sin(a+b)", {"t": "(a+b)"}),
        (r"?a^2-?b^2=(?a-?b)(?a+?b)", "(x+1)^2-y^2=(x+1-y)(x+1+y)", {"a": "(x+1)", "b": "y"}),
        (r"\begin{pmatrix} ?a & 0 \\ 0 & ?b \end{pmatrix}", r"\begin{pmatrix} x+1 & 0 \\ 0 & -y \end{pmatrix}",
         {"a": "x+1", "b": "−y"}),  # noqa: RUF001
        (r"f(?x) = \begin{cases} ?a & ?x > 0 \\ ?b & ?x \le 0 \end{cases}",
         r"f(t) = \begin{cases} t^2 & t > 0 \\ 0 & t \le 0 \end{cases}", {"x": "t", "a": "t2", "b": "0"}),
        (r"?a = ?b = ?c", r"\begin{aligned} x &= y + 1 \\ &= 2 \end{aligned}", {"a": "x", "b": "y+1", "c": "2"}),
        (r"\langle ?u, ?v \rangle", r"\left\langle x, A y \right\rangle", {"u": "x", "v": "Ay"}),
        ("?a + b", "x - y + b", {"a": "x−y"}),  # noqa: RUF001
        ("?a + ?b = ?c", "z = x + y", {"a": "x", "b": "y", "c": "z"}),
        (r"\frac{?a + ?b}{?a}", r"\frac{s + 1 + t}{1 + s}", {"a": "1+s", "b": "t"}),
        ("a(?x)", "a(x + 1)", {"x": "(x+1)"}),
        (r"\frac{?w}{x}", r"\frac{a/b}{x}", {"w": "a/b"}),
        (r"\frac{?w}{x y}", r"\frac{\frac{a}{b}}{xy}", {"w": "ab"}),
        ("x_?n", "x_1", {"n": "1"}),
        ("?x_1 + ?", r"\hat y_1 + 2", {"x": "y^", "1": "2"}),
        ("? + ?", "x + x", {"1": "x", "2": "x"}),
        (r"?p \Rightarrow ?q", r"x = y \Rightarrow x^2 = y^2", {"p": "x=y", "q": "x2=y2"}),
        (r"\sum_{?i} ?e", r"\sum_{k=1} k", {"i": "k=1", "e": "k"}),
        (r"f(?x)", r"f(\{a = b\})", {"x": "a=b"}),
    ],
)  # fmt: skip
def test_pattern_matches_whole_formula(pattern, latex, expected):
    assert found(pattern, latex) == WHOLE
    assert bindings(pattern, latex) == expected


@pytest.mark.parametrize(
    ("pattern", "latex", "expected"),
    [
        (PYTHAGORAS, "0 = x^2+y^2=z^2, z>0", {"a": "x", "b": "y", "c": "z"}),
        (PYTHAGORAS, r"\{(x,y) : x^2+y^2=r^2 \}", {"a": "x", "b": "y", "c": "r"}),
        (PYTHAGORAS, r"\begin{aligned} t &= 1, \\ x^2 + y^2 &= r^2 \end{aligned}", {"a": "x", "b": "y", "c": "r"}),
        (r"\frac{?a}{?b}", r"1 + \sqrt{\frac{x+1}{y}}", {"a": "x+1", "b": "y"}),
        (r"\sqrt{?a}", r"\begin{pmatrix} 1 & \sqrt{x+y} \end{pmatrix}", {"a": "x+y"}),
        (r"\sin ?x", r"2 \sin(x+y) z", {"x": "(x+y)"}),
        ("?a = ?b", "x < y = z + 1", {"a": "y", "b": "z+1"}),
        ("?a < c", "a < b < c", {"a": "a"}),
        (r"\sum_{?i=1}^{?n} ?e", r"\sum_{k=1}^{N+1} k^2 + k", {"i": "k", "n": "N+1", "e": "k2"}),
        (r"\frac{a}{?b}", r"\frac{2a}{x + 1}", {"b": "x+1"}),
        (r"?x^2", r"1+(a+b)^2", {"x": "(a+b)"}),
        (r"a+b", r"\frac{a+b}{c}", {}),
        (r"\int ?f d?x", r"1 = \int h dy + 1", {"f": "h", "x": "y"}),
        (r"\int ?f d?x", r"\int h dy = 1", {"f": "h", "x": "y"}),
    ],
)
def test_pattern_matches_part(pattern, latex, expected):
    assert found(pattern, latex) == PART
    assert bindings(pattern, latex) == expected


@pytest.mark.parametrize(
    ("pattern", "latex"),
    [
        (PYTHAGORAS, r"w^2 + u^2 = r^2"),
        (r"e^{i?t} = \cos ?t + i \sin ?t", r"e^{iy} = i\sin y + \cos y"),
        (r"\sum_{?i=1}^{?n} ?e + b", r"\sum_{k=1}^{N} q + b"),
    ],
)
def test_letters_that_stand_for_wildcards_do_not_count(pattern, latex):
    query = _READER.read(pattern)
    plain = parse_operators(replace_wildcards(query.forest))
    terms = QueryTerms.extract(plain, query.operators)
    assert 4 <= len(terms.codes) < len(QueryTerms.extract(plain).codes)
    assert np.isin(terms.codes, QueryTerms.extract(parse_operators(to_forest(tree(latex)))).codes).all()


@pytest.mark.parametrize(
    ("pattern", "latex"),
    [
        (r"\frac{?a}{?a+?b}", r"\frac{x}{y+z}"),
        (PYTHAGORAS, "x^2+y^2+z^2"),
        (PYTHAGORAS, "x^2+y^3=z^2"),
        ("?a^2+?a^2", "x^2+y^2"),
        (r"e^{i?t} = \cos ?t + i \sin ?t", r"e^{i x} = \cos x + i\sin y"),
        (r"\int ?f d?x", r"\int f = d + c"),  # a wildcard does not match an operator
        (r"g(?x)+1", "g(a)(b+1"),  # nor an unbalanced bracket
        (r"\begin{pmatrix} ?a & 0 \\ 0 & ?b \end{pmatrix}", r"\begin{pmatrix} x & 0 & 0 \\ 0 & y & 0 \end{pmatrix}"),
        ("?a b = c", "a + b = c"),  # precedence: b is no factor
        ("P(A|?b) = P(A)", "P(B) P(A|B) = P(A) P(B|A)"),
        ("f(?x)", "f(a, b)"),
        ("?a = ?b", "x"),
        ("?a + ?b", "x +"),
        ("x^2", "x^3"),
        (r"\frac{?w}{x}", r"\frac{a}{b + x}"),
    ],
)
def test_pattern_does_not_match_other_forms(pattern, latex):
    assert found(pattern, latex) == NOTHING


def test_pattern_ignores_layout():
    assert found(r"\sum_{?i} ?a", r"\textstyle\sum\nolimits_{k} \, {\displaystyle a_k}") == WHOLE
    assert found("|?x|", r"\left|\phantom{a} y \right|") == WHOLE


def test_match_pairs_nodes_of_both_trees():
    pattern, other = _READER.read(r"\frac{?a}{2} = y"), _READER.read(r"x \in \frac{(s+t)^2 u}{2} = y")
    (why,) = explain_hits(pattern.nodes, parse_operators(pattern.forest), [other.nodes], parse_operators(other.forest))
    ours = {number: node for node, number in _nodes(to_node(pattern.forest, 0))}
    theirs = {number: node for node, number in _nodes(to_node(other.forest, 0))}
    pairs = [(ours[p.query_node].text, theirs[p.hit_node].text) for p in why.pairings]
    assert ("=", "=") in pairs and ("y", "y") in pairs and ("2", "2") in pairs
    assert [theirs[p.hit_node].tag for p in why.pairings if ours[p.query_node].text == "?a"] == ["mrow"]  # all of it


def _nodes(root):
    return [(node, number) for number, node in enumerate(list_nodes(root))]


def test_match_stops_after_its_limit_of_steps():
    factors = "".join(f"x_{{{i % 7}}}" for i in range(300))
    assert found("?a?b?c?d?e?f?a?b?c?d?e?f=0", f"{factors}=0") == NOTHING  # trying all ways would take years
    assert found("?a+?b", "x+y") == WHOLE
    assert found("?a+?b", "x+y", max_steps=2) == NOTHING


def test_pattern_matches_trees_in_which_a_label_has_several_numbers():
    once = parse_operators(to_forest(tree(r"\frac{a}{b}")))
    first = replace(once, labels=[*once.labels, *once.labels])  # as in an index of two segments
    second = replace(first, label=once.label + len(once.labels))
    pattern = parse_operators(_READER.read(r"\frac{?x}{?y}").forest)
    assert match_pattern(pattern, OperatorForest.concatenate([first, second])).tolist() == [WHOLE, WHOLE]


@pytest.mark.parametrize(
    ("query", "same"),
    [
        (PYTHAGORAS, "x^2+y^2=z^2"),
        ("?p^2+?q^2=?d^2", "x^2+y^2=z^2"),
        ("?x + x", "y + x"),
        (r"\qvar{x}+\qvar{long}", "x+y"),
        (r"\int ?f d?x + f", r"\int x dy + f"),
    ],
)
def test_replace_wildcards_uses_free_letters(query, same):
    formula = _READER.read(query)
    plain = replace_wildcards(formula.forest)
    assert to_mathml(to_node(plain, 0)) == _READER.read(same).mathml
    assert "?" in formula.mathml  # the query itself is unchanged
    plain.validate()


def test_replace_wildcards_never_runs_out_of_letters():
    formula = _READER.read("".join(rf"\qvar{{{letter}{n}}}" for letter in "abc" for n in range(30)))
    texts = [node.text for node, _ in _nodes(to_node(replace_wildcards(formula.forest), 0)) if node.text]
    assert len(set(texts)) == 90 and not any("?" in text for text in texts)


_EXPRESSIONS = st.recursive(
    st.sampled_from(["x", "y", "2", r"\pi", r"\infty", "|z|", r"\dots"]),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "=", " ", "-"]), part).map("".join),
        st.tuples(part, part).map(lambda two: rf"\frac{{{two[0]}}}{{{two[1]}}}"),
        part.map(lambda one: rf"\left({one}\right)^2"),
        part.map(lambda one: rf"f({one})_k"),
        part.map(lambda one: rf"\begin{{pmatrix}}{one}&0\end{{pmatrix}}"),
    ),
    max_leaves=8,
)


@given(_EXPRESSIONS, _EXPRESSIONS)
@settings(max_examples=60)
def test_pattern_matches_the_formula_it_was_made_from(part, rest):
    query, other = rf"\sqrt{{?w}} \neq h({rest}, ?w)", rf"\sqrt{{{part}}} \neq h({rest}, {part})"
    assert found(query, other) == WHOLE
    assert found(rest, rf"1 < f({rest}) < 2") == PART
