"""Explanations: which parts of a hit match which parts of a query, and under what names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import MATHML_ATTRIBUTES, MATHML_TAGS, Node, NodeColumns, parse_mathml, to_forest, to_node
from eqkin.formulas.operators import OperatorForest
from eqkin.search.pipeline import explain_hits
from eqkin.search.query import FormulaReader


@pytest.fixture(scope="module")
def reader():
    return FormulaReader(1)


@pytest.fixture(scope="module")
def trees(reader):
    return lambda latex: to_node(reader.read(latex).forest, 0)


@pytest.fixture(scope="module")
def explain(reader, trees):
    def why(query, hit):
        return explain_trees(trees(query), to_node(reader.read(hit, wildcards=False).forest, 0))

    return why


def explain_trees(query, hit):
    ours, theirs = NodeColumns.from_node(query), NodeColumns.from_node(hit)
    return explain_hits(ours, parse_operators(to_forest(query)), [theirs], parse_operators(to_forest(hit)))[0]


@pytest.fixture(scope="module")
def pairs(trees, explain):
    def written(query, hit):
        ours, theirs = _nodes(trees(query)), _nodes(trees(hit))
        found = explain(query, hit).pairings
        return {_written(ours[p.query_node]): (_written(theirs[p.hit_node]), p.similarity) for p in found}

    return written


def _nodes(root):
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return nodes


def _written(node):
    return node.text if not node.children else f"{node.tag}({' '.join(_written(child) for child in node.children)})"


def test_explanation_marks_the_same_structure_with_another_letter(pairs, explain):
    found = pairs(r"x^2 + \sqrt{a}", r"\sqrt{b_1} = 3 y^2")
    assert found["msup(x 2)"] == ("msup(y 2)", pytest.approx((0.75 + 1) / 2))
    assert found["x"] == ("y", 0.75)
    assert found["2"] == ("2", 1)
    assert found["msqrt(a)"] == ("msqrt(msub(b 1))", 0.75)  # a letter with an index is one variable
    assert explain(r"x^2 + \sqrt{a}", r"\sqrt{b_1} = 3 y^2").renaming == (("x", "y"), ("a", "b_1"))


def test_renaming_gives_each_letter_one_name(explain):
    energy = explain(r"E = -\sum_{i<j} J_{ij} s_i s_j", r"H = -\frac12 \sum_{i<j} w_{ij} \sigma_i \sigma_j")
    assert dict(energy.renaming) == {"E": "H", "J": "w", "s": "σ"}
    merged = explain(r"x^2 + y^2 = z^2", r"a^2 + a^2 = c^2")
    assert len({theirs for _, theirs in merged.renaming}) == len(merged.renaming)
    assert merged.renaming.count(("x", "a")) + merged.renaming.count(("y", "a")) == 1


def test_explanation_finds_the_query_in_a_longer_formula(pairs):
    found = pairs("a^2 + b^2 = c^2", r"\text{so } x^2 + y^2 = z^2, \quad x > 0")
    assert [found[key][0] for key in ("msup(a 2)", "+", "msup(b 2)", "=", "msup(c 2)")] == [
        "msup(x 2)", "+", "msup(y 2)", "=", "msup(z 2)",
    ]  # fmt: skip


def test_inner_node_matches_only_if_all_of_its_leaves_do(pairs):
    assert pairs(r"\frac{a+1}{b}", r"y = \frac{s+1}{t}")["mfrac(mrow(a + 1) b)"][0] == "mfrac(mrow(s + 1) t)"
    half = pairs(r"\frac{a+1}{b}", r"y = \frac{s+1}{t^2}")
    assert "mfrac(mrow(a + 1) b)" not in half
    assert half["mrow(a + 1)"][0] == "mrow(s + 1)"


def test_formula_matches_itself_node_by_node(trees, explain):
    latex = r"E = -\sum_{i<j} J_{ij} s_i s_j + \frac{a_1}{\sqrt{b}}"
    itself = explain(latex, latex)
    assert [(p.query_node, p.hit_node) for p in itself.pairings] == [(i, i) for i in range(len(_nodes(trees(latex))))]
    assert all(p.similarity == 1 for p in itself.pairings)
    assert itself.renaming == itself.bindings == ()


def test_pairings_use_each_node_at_most_once(explain):
    pairings = explain(r"\sum_i a_i^2 = \sum_j b_j", r"x_1 + \sum_k c_k^2 c_k d_k = 0").pairings
    assert pairings
    assert len({p.query_node for p in pairings}) == len({p.hit_node for p in pairings}) == len(pairings)
    assert all(0 <= p.similarity <= 1 for p in pairings)
    assert len({*pairings, *pairings}) == len(pairings)


def test_explanation_of_a_leaf_an_unrelated_and_a_huge_tree():
    one = parse_mathml("<math><mi>x</mi></math>")
    huge = parse_mathml("<math>" + "<mi>x</mi>" * 700 + "</math>")
    stranger = parse_mathml("<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>")
    assert [(p.query_node, p.hit_node) for p in explain_trees(one, one).pairings] == [(0, 0)]
    assert [p.query_node for p in explain_trees(one, huge).pairings] == [0]
    nothing = explain_trees(one, stranger)
    assert nothing.pairings == nothing.renaming == () and nothing.relation == ""
    assert len(explain_trees(huge, huge).pairings) == 701


def test_explanation_binds_wildcards(trees, explain):
    found = explain("?a^2 + ?b^2 = ?c^2", "y = 1, x^2 + (s+t)^2 = z^2")
    read = {name: parse_mathml(part) for name, part in found.bindings}
    assert list(read) == ["?a", "?b", "?c"]
    assert _written(read["?a"]) == "x"
    assert "s + t" in _written(read["?b"])
    assert found.renaming == ()
    query = _nodes(trees("?a^2 + ?b^2 = ?c^2"))
    marks = {pairing.query_node: pairing.similarity for pairing in found.pairings}
    assert {marks[number] for number, node in enumerate(query) if node.text.startswith("?")} == {0.5}
    assert {marks[number] for number, node in enumerate(query) if node.tag == "mn"} == {1}
    assert 'class="kin kin-1"' in found.marked


def test_hit_that_does_not_match_the_pattern_is_explained_by_letters(explain):
    found = explain("?a^2 + ?b^2 = ?c^2", "a^2 + y^2 = z")
    assert found.bindings == ()
    assert found.renaming == (("?a", "a"), ("?b", "y"))
    assert {round(p.similarity, 2) for p in found.pairings} >= {0.75, 1}


def test_marked_mathml_contains_only_allowed_markup(trees, explain):
    hit = r"\text{<script>alert(1)</script>} = \color{red} y^2"
    markup = explain(r"x^2", hit).marked
    assert "<script" not in markup
    names = {name for _, attributes in re.findall(r"<(m\w+)((?: [\w-]+=\"[^\"]*\")*)>", markup) for name in
             re.findall(r" ([\w-]+)=", attributes)}  # fmt: skip
    assert names <= MATHML_ATTRIBUTES | {"xmlns", "display", "class", "data-node"}
    assert set(re.findall(r"<(\w+)", markup)) <= MATHML_TAGS | {"math"}
    numbers = [int(number) for number in re.findall(r'data-node="(\d+)"', markup)]
    assert sorted(numbers) == list(range(len(_nodes(trees(hit)))))
    assert re.search(r'<mi[^>]*class="kin kin-2"[^>]*>y', markup)
    assert re.search(r'<mn[^>]*class="kin kin-3"[^>]*>2', markup)
    assert parse_mathml(markup) == trees(hit)


def test_commuted_operands_are_not_renamed(explain, pairs):
    found = explain(r"\sigma^2 S^2", r"S^2 \sigma^2")
    assert found.renaming == () and found.changes == ("commuted",)
    assert {p.similarity for p in found.pairings} == {1}
    assert pairs(r"\sigma^2 S^2", r"S^2 \sigma^2")["msup(σ 2)"] == ("msup(σ 2)", 1)
    assert explain("a + b = c", "c = a + b").changes == ("sides swapped",)
    assert explain("e^{-x}", r"\exp(-x)").changes == ("notation",)


@pytest.mark.parametrize(
    ("query", "hit", "relation"),
    [
        (r"E = m c^2", r"\mathbf{E} = \, m c^2 .", "same"),
        (r"\frac{a}{b} = c", r"c = a/b", "rewritten"),
        (r"X^T X", r"X^\top X", "rewritten"),
        (r"a + b = c", r"b = c - a", "rewritten"),
        (r"f(x_1,x_2) = \frac{x_1 x_2}{g(x_1,x_2)}", r"f(a,b) = \frac{ab}{g(a,b)}", "renamed"),
        (r"x + x", r"a + b", ""),
        (r"\sqrt{b^2 - 4ac}", r"x = \frac{-b + \sqrt{b^2 - 4ac}}{2a}", "contains"),
        (r"\sqrt{q^2 - 4pr}", r"x = \frac{-b + \sqrt{b^2 - 4ac}}{2a}", "contains"),
        (r"a = c", r"a = b = c", "contains"),
        (r"x = \frac{-b + \sqrt{b^2 - 4ac}}{2a}", r"b^2 - 4ac", "part of"),
        (r"E = m c^2", r"m", ""),
        (r"P(A|B) = P(A)", r"P(B) P(A|B) = P(A) P(B|A)", ""),
        (r"?a^2 + ?b^2", r"x^2 + (y + 1)^2", "same"),
        (r"?a^2 + ?b^2", r"x^2 + (y + 1)^2 = 1", "contains"),
        (r"?a^2 + ?a^2", r"x^2 + y^2", ""),
    ],
)  # fmt: skip
def test_relation_of_hit_to_query(explain, query, hit, relation):
    assert explain(query, hit).relation == relation


_LEAVES = [
    ("mi", "x"),
    ("mi", "y"),
    ("mi", "sin"),
    ("mn", "2"),
    *(("mo", sign) for sign in "+−=()|∑∂"),
    ("mspace", ""),
]
_INNER = ["mrow", "mfrac", "msqrt", "msup", "msub", "msubsup", "mover", "mtable", "mtr", "mtd", "mfenced"]
_TREES = st.recursive(
    st.sampled_from(_LEAVES).map(lambda leaf: Node(leaf[0], text=leaf[1])),
    lambda part: st.tuples(st.sampled_from(_INNER), st.lists(part, max_size=4)).map(
        lambda made: Node(made[0], children=made[1])
    ),
    max_leaves=20,
)


@given(_TREES, _TREES)
def test_any_two_trees_can_be_explained(one, other):
    found = explain_trees(one, other).pairings
    assert all(p.query_node < len(_nodes(one)) and p.hit_node < len(_nodes(other)) for p in found)
    assert len({p.query_node for p in found}) == len({p.hit_node for p in found}) == len(found)
    itself = explain_trees(one, one)
    assert itself.relation == "same" and len(itself.pairings) == len(_nodes(one))


def test_hit_at_a_limit_leaves_the_explanations_of_the_others():
    leaf = to_forest(parse_mathml("<math><mi>x</mi></math>"))
    one, operators = NodeColumns.read(leaf, 0), parse_operators(leaf)
    depth = 20_000  # more than the engine's stack holds
    deep = NodeColumns(
        ["math", *["mrow"] * depth, "mi"], [""] * (depth + 2), [*[""] * (depth + 1), "x"], [*[1] * (depth + 1), 0]
    )
    found = explain_hits(one, operators, [one, deep, one], OperatorForest.concatenate([operators] * 3))
    assert [bool(explanation.pairings) for explanation in found] == [True, False, True]
