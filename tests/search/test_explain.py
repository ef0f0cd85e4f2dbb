"""Which parts of a hit answer which parts of a query."""

import re

import pytest

from eqkin.mathml.tree import ATTRIBUTES, TAGS, parse_mathml
from eqkin.search.explain import align, hit_marks, marked_mathml, parts_of
from eqkin.search.query import FormulaReader


@pytest.fixture(scope="module")
def trees():
    reader = FormulaReader(1)
    yield lambda latex: reader.read(latex).root
    reader.close()


def _nodes(root):
    nodes = [root]
    for node in nodes:
        nodes.extend(node.children)
    return nodes


def _written(node):
    return node.text if not node.children else f"{node.tag}({' '.join(_written(child) for child in node.children)})"


def _pairs(encoder, query, hit):
    ours, theirs = parts_of(encoder, [query, hit])
    mine, other = _nodes(query), _nodes(hit)
    return {_written(mine[p.query_node]): _written(other[p.hit_node]) for p in align(ours, theirs)}


def test_a_square_lights_up_a_square_of_another_letter(encoder, trees):
    pairs = _pairs(encoder, trees(r"x^2 + \sqrt{a}"), trees(r"\sqrt{b_1} = 3 y^2"))
    assert pairs["msup(x 2)"] == "msup(y 2)"
    assert pairs["x"] == "y"
    assert pairs["2"] == "2"
    assert pairs["msqrt(a)"] == "msqrt(msub(b 1))"


def test_numerator_answers_numerator(encoder, trees):
    pairs = _pairs(encoder, trees(r"\frac{P(d|s)P(s)}{P(d)}"), trees(r"\frac{L(x|t)\pi(t)}{\int L(x|u)\pi(u)du}"))
    assert pairs["mrow(P ( d ))"].startswith("mrow(∫")


def test_a_formula_answers_itself_node_by_node(encoder, trees):
    root = trees(r"E = -\sum_{i<j} J_{ij} s_i s_j + \frac{a_1}{\sqrt{b}}")
    ours, theirs = parts_of(encoder, [root, root])
    pairings = align(ours, theirs)
    assert [(p.query_node, p.hit_node) for p in pairings] == [(i, i) for i in range(len(_nodes(root)))]
    assert all(p.similarity == pytest.approx(1, abs=1e-4) for p in pairings)


def test_every_node_is_in_one_pair_at_most(encoder, trees):
    ours, theirs = parts_of(encoder, [trees(r"\sum_i a_i^2 = \sum_j b_j"), trees(r"x_1 + \sum_k c_k^2 c_k d_k = 0")])
    pairings = align(ours, theirs)
    assert len({p.query_node for p in pairings}) == len({p.hit_node for p in pairings}) == len(pairings)
    assert all(0 <= p.similarity <= 1 for p in pairings)


def test_one_node_and_a_huge_tree_are_explained_or_passed_over(encoder, trees):
    huge = parse_mathml("<math>" + "<mi>x</mi>" * 700 + "</math>")
    one, none = parts_of(encoder, [parse_mathml("<math><mi>x</mi></math>"), huge])
    assert none is None
    assert len(align(one, one)) == 1


def test_marked_mathml_stays_within_what_is_allowed(encoder, trees):
    query, hit = trees(r"x^2"), trees(r"\text{<script>alert(1)</script>} = \color{red} y^2")
    ours, theirs = parts_of(encoder, [query, hit])
    markup = marked_mathml(hit, hit_marks(align(ours, theirs)))
    assert "<script" not in markup
    names = {name for _, attributes in re.findall(r"<(m\w+)((?: [\w-]+=\"[^\"]*\")*)>", markup) for name in
             re.findall(r" ([\w-]+)=", attributes)}  # fmt: skip
    assert names <= ATTRIBUTES | {"xmlns", "display", "class", "data-node"}
    assert set(re.findall(r"<(\w+)", markup)) <= TAGS | {"math"}
    numbers = [int(number) for number in re.findall(r'data-node="(\d+)"', markup)]
    assert sorted(numbers) == list(range(len(_nodes(hit))))
    assert re.search(r'class="kin kin-[123]"', markup)
    assert parse_mathml(markup) == parse_mathml(marked_mathml(hit, {}))
