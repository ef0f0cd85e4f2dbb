"""Pairs of sides: where lines, statements and sides begin and end, what is left out, and that none comes up twice."""

import numpy as np
import pytest

from eqkin.errors import BadInput
from eqkin.formulas import Forest
from eqkin.formulas.mathml import parse_mathml, to_forest, to_node
from eqkin.learning.finetuning import PAIR_SIGNS, compute_mrr, compute_partner_ranks, find_pairs, split_pairs
from tests.learning.pairs import corpus_of_equalities


def forest(*formulas):
    """Trees of formulas as KaTeX makes them, given as MathML."""
    forests = []
    for formula in formulas:
        forests.append(to_forest(parse_mathml(f"<math>{formula}</math>")))
    return Forest.concatenate(forests)


def row(text):
    """Letters, digits and signs one after the other; `_` is a wide space, `~` an empty row."""
    pieces = []
    for character in text.replace(" ", ""):
        if character == "_":
            pieces.append('<mspace width="1em"/>')
        elif character == "~":
            pieces.append("<mrow></mrow>")
        elif character == ".":
            pieces.append('<mi mathvariant="normal">.</mi>')
        else:
            tag = "mi" if character.isalpha() else "mn" if character.isdigit() else "mo"
            pieces.append(f"<{tag}>{'&lt;' if character == '<' else character}</{tag}>")
    return "".join(pieces)


def table(*rows):
    """A table as `align` makes it, cells parted by `&`."""
    lines = []
    for line in rows:
        cells = "".join(f"<mtd><mstyle><mrow>{row(cell)}</mrow></mstyle></mtd>" for cell in line.split("&"))
        lines.append(f"<mtr>{cells}</mtr>")
    return f"<mtable>{''.join(lines)}</mtable>"


def written(tree, index):
    """A tree's leaves."""

    def leaves(node):
        return node.text + "".join(leaves(child) for child in node.children)

    return leaves(to_node(tree, index))


def pairs(formula, name="relations"):
    """What is found in one formula."""
    found = find_pairs(forest(formula), PAIR_SIGNS[name])
    found.forest.validate()
    return [(written(found.forest, i), written(found.forest, len(found) + i)) for i in range(len(found))]


def line(text):
    return f"<mrow>{row(text)}</mrow>"


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("a+b+c=d+e+f", "a+b+c", "d+e+f"),
        ("a+b+c=d+e+f.", "a+b+c", "d+e+f"),
        ("a+b+c=d+e+f,", "a+b+c", "d+e+f"),
        ("a+b+c:=d+e+f", "a+b+c", "d+e+f"),
        ("a+b+c=d+e+f_x>0", "a+b+c", "d+e+f"),
        ("a+b+c=d+e+f,x∈X", "a+b+c", "d+e+f"),
        ("x=y⇒a+b+c=d+e+f", "a+b+c", "d+e+f"),
        ("P(x=y)+c≤d+e+f+1+2", "P(x=y)+c", "d+e+f+1+2"),
        ("a+b+c=d+e+f=g+h+i", "a+b+c", "d+e+f"),
        ("x=d+e+f=g+h+i", "d+e+f", "g+h+i"),
        ("x∈a+b+c=d+e+f∈Y", "a+b+c", "d+e+f"),
        ("a+b+c+1+2=d+e+[0,1)", "a+b+c+1+2", "d+e+[0,1)"),
    ],
)
def test_line_is_split_into_sides(text, left, right):
    assert pairs(line(text)) == [(left, right)]


@pytest.mark.parametrize(
    "text",
    [
        "a+b+c",  # no sign
        "f(x)=g(y)",  # too small
        "x=a+b+c+d",  # a lone symbol
        "a+b+c=d+e+f+g+h",  # 10 nodes and 6
        "P(a+b+c=d+e+f)",  # in brackets
        "(a+b+c=d+e+f",  # which do not match
        "a+b+c)=(d+e+f",
        "a+b+c=d+e+",  # something is missing
        "a+b+c≈d+e+f",  # another relation
        "a+b+c=a+b+c",  # the same
        "a+b+c+d=e,f+g+h",  # a comma parts statements
    ],
)
def test_unfit_sides_are_left_out(text):
    assert pairs(line(text)) == []


def test_sets_select_pairs_by_sign():
    text = line("a+b+c=d+e+f<g+h+i>1+2+3≥4+5+6")
    assert pairs(text, "equalities") == [("a+b+c", "d+e+f")]
    assert pairs(text, "inequalities") == [("d+e+f", "g+h+i")]
    assert pairs(text, "relations") == [("a+b+c", "d+e+f")]
    assert pairs(line("a+b+c≥d+e+f"), "inequalities") == []


def test_sides_differ_in_size_by_at_most_thirty_percent():
    assert pairs(line("a+b+c+d+e=1+2+3+4+5+6+x")) == []  # 10 and 14 nodes
    assert pairs(line("a+b+c+d+e=1+2+3+4+5+6")) == [("a+b+c+d+e", "1+2+3+4+5+6")]  # 10 and 12


def test_sign_with_accent_counts_as_that_sign():
    sign = "<mrow><mover><mrow><mo>=</mo></mrow><mtext>(a)</mtext></mover></mrow>"
    assert pairs(f"<mrow>{row('a+b+c')}{sign}{row('d+e+f')}</mrow>") == [("a+b+c", "d+e+f")]


def test_words_split_statements_and_names_do_not():
    assert pairs(f"<mrow>{row('a+b+c=d+e+f')}<mtext> for all </mtext>{row('x')}</mrow>") == [("a+b+c", "d+e+f")]
    named = f"<mrow><mtext>KL</mtext>{row('(x|y)=d+e+f+g')}</mrow>"
    assert pairs(named) == [("KL(x|y)", "d+e+f+g")]


def test_rows_of_a_table_are_lines():
    assert pairs(table("a+b+c&~=d+e+f,", "1+2+3&~=4+5+6.")) == [("a+b+c", "d+e+f"), ("1+2+3", "4+5+6")]
    assert pairs(table("a+b+c&=&d+e+f")) == [("a+b+c", "d+e+f")]  # as eqnarray has it


def test_empty_first_column_is_ignored():
    assert len(pairs(table("&a+b+c=d+e+f", "&1+2+3=4+5+6"))) == 2


def test_no_side_occurs_twice():
    lines = ["a+b+c=d+e+f", "a+b+c=d+e+f", "d+e+f=1+2+3", "4+5+6=a+b+c", "x+y+z=u+v+w"]
    found = find_pairs(forest(*map(line, lines)), "=")
    assert found.origin.tolist() == [0, 4]
    assert [written(found.forest, tree) for tree in range(4)] == ["a+b+c", "x+y+z", "d+e+f", "u+v+w"]


def test_sides_keep_their_structure():
    formula = f"<mrow><mfrac>{line('a+b')}{line('c+d')}</mfrac><mo>=</mo>{row('x+y(z)+1')}</mrow>"
    found = find_pairs(forest(formula), "=")
    left, right = to_node(found.forest, 0), to_node(found.forest, 1)
    assert (left.tag, [child.tag for child in left.children]) == ("mfrac", ["mrow", "mrow"])
    assert (right.tag, len(right.children)) == ("mrow", 8)


def test_formula_without_signs_has_no_pairs():
    found = find_pairs(forest(line("a+b+c")), "=")
    assert len(found) == 0
    assert len(found.forest) == 0


def test_row_that_begins_with_an_operator_has_no_first_side():
    assert pairs(table("F&~=a+b+c", "&~=d+e+f")) == []
    assert pairs(table("a+b+c&~=d+e+f", "&~=g+h+i")) == [("a+b+c", "d+e+f")]
    assert pairs(table("x=a+b+c+", "+g+h+i=1+2+3")) == []


def test_partner_ranks_put_ties_in_front_of_the_partner():
    vectors = np.array([[1, 0], [0, 1], [1, 0], [1, 1]], np.float32)  # pairs 0-2 and 1-3
    assert compute_partner_ranks(vectors).tolist() == [0, 0, 0, 2]
    assert compute_mrr(vectors) == pytest.approx((1 + 1 + 1 + 1 / 3) / 4)
    assert compute_partner_ranks(np.ones((4, 2), np.float32)).tolist() == [2, 2, 2, 2]


def test_pair_split_keeps_pairs_of_a_work_together():
    corpus = corpus_of_equalities()
    pairs = split_pairs(corpus, "equalities")
    found = find_pairs(corpus.forest, "=")
    parts = [part[:, 0] for part in (pairs.train, pairs.validation, pairs.test)]
    works = [set(corpus.paper[found.origin[part]].tolist()) for part in parts]
    assert works[0].isdisjoint(works[1] | works[2])
    assert works[1].isdisjoint(works[2])
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(found)))
    assert abs(len(pairs.test) - len(found) / 2) < 10
    assert 0 < len(pairs.validation) < len(pairs.train)


def test_pair_split_rejects_too_few_works_and_unknown_sets():
    with pytest.raises(BadInput, match="too few"):
        split_pairs(corpus_of_equalities(works=2), "equalities")
    with pytest.raises(BadInput, match="unknown set of pairs 'sums'"):
        split_pairs(corpus_of_equalities(), "sums")
