"""Operator trees: what formulas say, the same for usual notations of the same thing."""

import json
import sys
from itertools import combinations, count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import FormulaEngine, evaluate
from eqkin.formulas.kernels import find_parents
from eqkin.formulas.mathml import parse_mathml, to_forest
from eqkin.formulas.operators import FORM_KINDS, OperatorForest, load_label_tables
from eqkin.formulas.terms import TERM_FAMILIES, extract_terms
from eqkin.latex.typed import clean_typed_formula
from tests.formulas.strategies import build
from tests.limits import changed_limits

# Cases that the tests of the scripts read, too: notations of one thing, whose canonical operator trees are equal up to
# the order of commuting operands; formulas that say different things; what the parser makes of a construct.
CASES = json.loads(Path(__file__).with_name("notations.json").read_text("utf-8"))
SAME, DIFFERENT, PARSED = CASES["same"], CASES["different"], CASES["parsed"]

TEXTS = st.sampled_from(
    [*"xdefntTC∂∇Δ12+-−=<≤→()[]{}⟨⟩|∥∑∫/!,;:.′*⊤\u2061\u2062…", "sin", "lim", "if ", "max", "", "for all"]
)
ATTRIBUTES = st.sampled_from(["", "fence=true", "mathvariant=normal", "width=2em", "linethickness=0px"])
LEAF_TAGS = st.sampled_from("mi mo mn mtext mspace ms".split())
INNER_TAGS = st.sampled_from(
    "mrow mstyle msub msup msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd menclose "
    "mmultiscripts".split()
)
TREES = st.recursive(
    st.tuples(LEAF_TAGS, ATTRIBUTES, TEXTS, st.just([])),
    lambda children: st.tuples(INNER_TAGS, ATTRIBUTES, st.just(""), st.lists(children, max_size=6)),
    max_leaves=40,
)


@pytest.fixture(scope="module")
def parse(engine):
    def parse_latex(*formulas, canonical=True):
        conversion = convert_formulas(engine, [clean_typed_formula(latex) for latex in formulas])
        assert all(outcome.failure is None for outcome in conversion.outcomes)
        forest = engine.parse(conversion.forest, canonical=canonical)
        return [forest.to_json(tree) for tree in range(len(forest))]

    return parse_latex


def sort_operands(tree):
    """Bring operands whose order means nothing into one order."""
    if isinstance(tree, str):
        return tree
    label, *children = tree
    children = [sort_operands(child) for child in children]
    return [label, *(sorted(children, key=str) if label in load_label_tables()["unordered"] else children)]


@pytest.mark.parametrize("formulas", SAME.values(), ids=SAME)
def test_notations_of_one_thing_have_one_canonical_tree(parse, formulas):
    trees = [sort_operands(tree) for tree in parse(*formulas)]
    assert all(tree == trees[0] for tree in trees), "\n".join(f"{f}: {t}" for f, t in zip(formulas, trees, strict=True))


@pytest.mark.parametrize("formulas", DIFFERENT, ids=" / ".join)
def test_different_things_have_different_trees(parse, formulas):
    trees = [sort_operands(tree) for tree in parse(*formulas)]
    assert all(one != other for one, other in combinations(trees, 2)), trees


@pytest.mark.parametrize("latex", PARSED)
def test_constructs_are_parsed_by_precedence(parse, latex):
    assert parse(latex) == [PARSED[latex]]


def test_notation_is_kept_unless_canonical(parse):
    assert parse(r"\sqrt{x}", r"a \ge b", canonical=False) == [["sqrt", "v:x"], ["≥", "v:a", "v:b"]]


@pytest.mark.parametrize("name", ["a", "d", "e", "f", "t", "x", "P"])
def test_wildcards_are_parsed_whatever_their_name(engine, name):
    mathml = "<math><msub><mi>{0}</mi><mn>1</mn></msub><mo>-</mo><mover><mi>{0}</mi><mo>^</mo></mover><mi>y</mi></math>"
    forest = engine.parse(to_forest(parse_mathml(mathml.format("?" + name))))
    assert forest.to_json(0) == ["+", ["idx", f"v:?{name}", "n:1"], ["neg", ["*", ["hat", f"v:?{name}"], "v:y"]]]


def check_shape(forest: OperatorForest, presentation) -> None:
    """Check that arrays describe as many trees as were parsed."""
    assert len(forest) == len(presentation) == len(forest.unparsed)
    assert (np.diff(forest.offsets) >= 1).all()
    assert len(find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))) == len(forest.label)
    assert forest.label.max(initial=-1) < len(forest.labels)


@given(st.lists(TREES, max_size=4))
def test_any_presentation_tree_becomes_an_operator_tree(engine, trees):
    presentation = build(trees)
    check_shape(engine.parse(presentation), presentation)


def test_batches_make_no_difference(parse):
    formulas = [latex for group in SAME.values() for latex in group]
    assert parse(*formulas) == [tree for latex in formulas for tree in parse(latex)]


@pytest.mark.parametrize(
    "latex", ["(" * 900, "|" * 900, r"\sum " * 900, "- " * 900, r"a \Rightarrow " * 500 + "b", "a:" * 900]
)
def test_long_rows_of_signs_are_parsed(parse, latex):
    assert len(parse(latex)) == 1


@changed_limits(parse_seconds=1e-6)
def test_tree_that_takes_too_long_becomes_one_node(engine):
    presentation = convert_formulas(engine, ["+".join(["a"] * 2_000), r"\frac{c}{d}" * 1_000]).forest
    forest = FormulaEngine().parse(presentation)
    assert [forest.to_json(0), forest.to_json(1)] == ["p:math", "p:math"]
    assert forest.unparsed.tolist() == [1, 1]


def test_arrays_describe_the_tree(engine):
    forest = engine.parse(convert_formulas(engine, [r"a = b + \frac{c}{d}", "x"]).forest)
    assert [forest.labels[label] for label in forest.label] == ["=", "v:a", "+", "v:b", "frac", "v:c", "v:d", "v:x"]
    parent = find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))
    assert parent.tolist() == [0, 0, 0, 2, 2, 4, 4, 7]
    assert forest.depth.tolist() == [0, 1, 1, 2, 2, 3, 3, 0]


def extract_term_sets(engine, *formulas):
    """Return, for each formula, the set of its terms by family."""
    forest = engine.parse(convert_formulas(engine, list(formulas)).forest)
    terms = extract_terms(forest)
    sets = []
    for tree in range(len(forest)):
        mine = slice(terms.offsets[tree], terms.offsets[tree + 1])
        family, code = terms.family[mine], terms.code[mine]
        sets.append({name: set(code[family == at].tolist()) for at, name in enumerate(TERM_FAMILIES)})
    return sets


def find_forms(engine, *formulas):
    """Return, for each formula, the hashes of its first statement, the formula itself, by kind."""
    forest = engine.parse(convert_formulas(engine, list(formulas)).forest)
    return [dict(zip(FORM_KINDS, row.tolist(), strict=True)) for row in forest.forms[forest.form_offsets[:-1]]]


def test_terms_do_not_depend_on_the_order_of_commuting_operands(engine):
    one, other = extract_term_sets(engine, r"x = ab + \frac{c}{d}", r"\frac{c}{d} + ba = x")
    assert one == other


def test_anonymous_terms_do_not_depend_on_names(engine):
    one, other = extract_term_sets(engine, r"f(x_1, x_2) = \frac{x_1x_2}{g(x_1, x_2)}", r"h(a, b) = \frac{ab}{k(a, b)}")
    assert one["tree"] == other["tree"] and one["path"] != other["path"]
    assert one["form"] & other["form"]


def test_terms_depend_on_the_order_of_other_operands(engine):
    one, other = extract_term_sets(engine, r"\frac{a}{2}", r"\frac{2}{a}")
    assert not any(one[family] & other[family] for family in ("tree", "form"))


def test_formula_contains_the_subtrees_of_its_parts(engine):
    part, whole = extract_term_sets(engine, r"\frac{a}{a + b}", r"y = \sqrt{\frac{a}{b + a}} - 1")
    assert part["tree"] <= whole["tree"]


def test_renamed_form_is_the_same_only_after_consistent_renaming(engine):
    same, renamed, confused, swapped = find_forms(engine, "x + xy = z", "a + ab = c", "a + bc = c", "b + ba = c")
    assert same["renamed"] == renamed["renamed"] == swapped["renamed"] != confused["renamed"]
    assert len({form["canonical"] for form in (same, renamed, confused, swapped)}) == 4


# one relation with terms moved, scaled, or solved for another variable: the weak form is the same
SOLVED = [
    ["F = ma", "a = F/m", r"m = \frac{F}{a}", "-F = -ma", "F - ma = 0"],
    [r"v = \sqrt{2gh}", "v^2 = 2gh", r"h = \frac{v^2}{2g}"],
    [r"c = \sqrt{a^2 + b^2}", "c^2 = a^2 + b^2", "a^2 = c^2 - b^2", "a^2 + b^2 - c^2 = 0"],
    [r"\frac1f = \frac1u + \frac1v", r"f = \frac{uv}{u + v}", "(u + v)f - uv = 0"],
    [r"T = 2\pi\sqrt{l/g}", r"T^2 = \frac{4\pi^2 l}{g}", r"\frac{T}{2\pi} = \sqrt{\frac lg}"],
    [r"N = N_0 e^{-\lambda t}", r"\ln\frac{N}{N_0} = -\lambda t"],
    [r"G = -RT\ln K", r"K = e^{-G/(RT)}"],
    ["(a + b)(a - b) = c", "a^2 - b^2 = c"],
    ["x = 2y", "y = 0.5x"],
    [r"f(x) = x^2", r"f = x^2", r"f(x; a) = x^2"],
    [r"\ddot x + k x = 0", r"x'' = -kx", r"\frac{d^2 x(s)}{ds^2} = -kx(s)"],
    [r"(fg)' = f'g + fg'", r"\frac{d}{dx}[f(x)g(x)] = f'(x)g(x) + f(x)g'(x)"],
    [r"H = -\sum_i p_i \log p_i", r"H = \sum_i p_i \log\frac1{p_i}", r"\frac H2 = \sum_i \frac{-p_i \log p_i}{2}"],
    [r"a = \sup_x f(x)", r"a = \max_x f(x)"],
    [r"m = \frac1n \sum_{i=1}^n x_i", r"mn = \sum_i x_i"],
    [r"k = n^n e^{-n}", r"k = \left(\frac ne\right)^n"],
    [r"y = 2^{n+1}", r"\frac y2 = 2^n"],
    ["a + b < c", "a < c - b", "2c > 2a + 2b"],
]
NOT_SOLVED = [
    ["a = b + c", "a = b - c"],
    ["F = ma", "F = m/a", "F = m + a"],
    ["a < b", "b < a", "-a < b"],
    ["x^2 = y", "x = y^2", "x = y"],
    ["y = 2x", "y = 3x"],
    [r"\sum_{i=1}^n x_i = 1", r"\sum_{i=1}^3 x_i = 1", r"\sum_{j=1}^n x_i = 1"],
    ["f(2) = x", "f = x"],
    ["f(a) = f(b) + c", "f = f + c"],
    [
        r"\frac{\partial u}{\partial t} = \frac{\partial u}{\partial x} + 1",
        r"\frac{\partial u}{\partial t} = \frac{\partial u}{\partial t} + 1",
    ],
    [r"a = \sum_i i x_i", r"a = i\sum_i x_i"],
    ["x = 0", "y = 0", "xy = 0"],
    [r"b = (X^T X)^{-1} X^T y", "y = Xb", "X^T X b = X^T y"],
    ["(a + b)^2 = a^2 + 2ab + b^2", "(a - b)(a + b) = a^2 - b^2"],
]


@pytest.mark.parametrize("formulas", SOLVED, ids=" / ".join)
def test_weak_form_does_not_depend_on_what_a_relation_is_solved_for(engine, formulas):
    forms = find_forms(engine, *formulas)
    assert len({form["weak"] for form in forms}) == len({form["weak renamed"] for form in forms}) == 1
    assert len({form["canonical"] for form in forms}) > 1


@pytest.mark.parametrize("formulas", NOT_SOLVED, ids=" / ".join)
def test_weak_forms_of_different_relations_differ(engine, formulas):
    assert len({form["weak"] for form in find_forms(engine, *formulas)}) == len(formulas)


@pytest.mark.parametrize(
    "whole", [r"a = b = c^2", r"a = b, \quad b = c^2", r"a = b \\ a = c^2", r"b = a \le c^2", r"x \Rightarrow b = a"]
)
def test_statements_of_a_formula_are_found(engine, whole):
    part, all_of_it = extract_term_sets(engine, "a = b", whole)
    assert part["form"] < all_of_it["form"]


def test_statements_that_follow_from_a_chain_are_found(engine):
    part, *wholes = extract_term_sets(engine, "a < c^2", "a = b < c^2", "c^2 > b = a", "a < b = c^2")
    assert all(part["form"] < whole["form"] for whole in wholes)


def test_empty_forest_has_no_terms(engine):
    assert len(extract_terms(engine.parse(build([]))).code) == 0


@pytest.fixture(scope="module")
def forest(engine):
    formulas = ["a = b", r"x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}", r"\int f(x) dx < y = z, \quad y > 0"]
    return engine.parse(convert_formulas(engine, formulas).forest)


def describe(forest):
    """Return everything a forest says, without its numbering of labels."""
    numbers = forest.unparsed, forest.forms, np.diff(forest.form_offsets), forest.depth
    return [forest.to_json(tree) for tree in range(len(forest))], [array.tolist() for array in numbers]


def test_selected_trees_concatenated_are_the_forest(forest):
    whole = OperatorForest.concatenate([forest.select([0]), forest.select([2, 1])])
    assert describe(whole.select([0, 2, 1])) == describe(forest)
    assert len(OperatorForest.concatenate([])) == 0


def test_parser_interrupted_at_any_line_does_not_answer_the_next_call():
    engine, forests = FormulaEngine(), [to_forest(parse_mathml(f"<math><mi>{name}</mi></math>")) for name in "ab"]
    wanted = engine.parse(forests[1]).labels

    def interrupt_at(number):
        lines = count()

        def trace(frame, event, _):
            if event == "line" and next(lines) == number:
                raise KeyboardInterrupt
            return trace

        return lambda frame, *_: trace if frame.f_code is evaluate.__code__ else None

    interrupted, before = 0, sys.gettrace()
    while True:
        try:
            sys.settrace(interrupt_at(interrupted))
            engine.parse(forests[0])
            break  # it has no line of this number
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(before)
        assert engine.parse(forests[1]).labels == wanted
    assert interrupted > 5
