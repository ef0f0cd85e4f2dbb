"""Trees read as rows: equal and different formulas."""

from random import Random

import numpy as np
import pytest

from eqkin.mathml.formulas import convert_formulas
from eqkin.trees.mathml import Node, parse_mathml, to_forest, to_node
from eqkin.trees.normal import ROW_TAGS
from eqkin.trees.rows import RowReader, build_node
from eqkin.trees.terms import extract_terms
from tests.trees.test_golden import GOLDEN


@pytest.fixture(scope="module")
def codes(converter):
    reader = RowReader()
    return lambda latex: reader.read(to_node(convert_formulas(converter, [latex]).forest, 0)).codes


@pytest.fixture(scope="module")
def forest(converter):
    return convert_formulas(converter, [latex for _, _, latex in GOLDEN]).forest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a+b", r"a\,+\;b ."),
        ("a+b", r"{a}+{{b}},"),
        ("a+b", r"\phantom{x} a+b :"),
        (r"\frac{a}{b}", r"\frac{{a}}{b}"),
        ("x", r"\displaystyle x\quad"),
        (r"\sum_{k}^n a_k", r"\textstyle\sum\nolimits_{k}^n \, {\displaystyle a_k}"),
        (r"\lVert x\rVert \leqslant |y|", r"\| x \| \le \mid y \mid"),
        (r"\varepsilon \longrightarrow \phi", r"\epsilon \to \varphi"),
        ("x_i^2", "{x_i}^2"),
        ("a = b = c", r"\begin{aligned} a &= b \\ &= c \end{aligned}"),
    ],
)
def test_layout_makes_no_difference(codes, one, other):
    assert codes(one) == codes(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x^2", "y^2"),
        ("x^2", "x_2"),
        (r"\frac ab", r"\frac ba"),
        ("a+b", "a-b"),
        ("x^{ab}", "x^a b"),
        ("a,b", "ab"),
        (r"a \cdot b", "ab"),
        (r"\langle x", "< x"),
        (r"\mathbf{x}", "x"),
    ],
)
def test_different_formulas_have_different_codes(codes, one, other):
    assert codes(one) != codes(other)


def test_variants_of_letters_can_be_ignored():
    reader = RowReader(variants=False)
    bold, plain = (f"<math><mi{how}>x</mi></math>" for how in (' mathvariant="bold"', ""))
    assert reader.read(parse_mathml(bold)).codes == reader.read(parse_mathml(plain)).codes


@pytest.mark.parametrize("blank", ["<mspace/>", "<mrow></mrow>", "<mrow><mrow/></mrow>", "<mtext> </mtext>"])
def test_a_tree_of_blanks_is_an_empty_row(blank):
    assert RowReader().read(parse_mathml(f"<math>{blank}</math>")).items == ()


def add_layout(node, random):
    """Add rows, styles and spaces that mean nothing."""
    children = [add_layout(child, random) for child in node.children]
    if node.tag in ROW_TAGS and random.random() < 0.5:
        children.insert(random.randrange(len(children) + 1), Node("mspace", {"width": "1em"}))
    changed = Node(node.tag, node.attributes, node.text, children)
    return Node(random.choice(["mrow", "mstyle"]), children=[changed]) if random.random() < 0.3 else changed


def test_rows_and_terms_ignore_the_same_layout(forest):
    random, reader = Random(1), RowReader()
    for tree in range(len(forest)):
        plain = to_node(forest, tree)
        other = add_layout(plain, random)
        assert reader.read(other).codes == reader.read(plain).codes
        terms = [extract_terms(to_forest(node)) for node in (plain, other)]
        assert np.array_equal(terms[0].code, terms[1].code) and np.array_equal(terms[0].count, terms[1].count)


def test_items_can_be_written_as_trees_again(forest):
    reader = RowReader()
    for tree in range(len(forest)):
        row = reader.read(to_node(forest, tree))
        assert reader.read(build_node(row.items)).codes == row.codes
