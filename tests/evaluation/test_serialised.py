"""Trees as sequences of tokens, as lines of text."""

from eqkin.evaluation.systems.serialised import serialize
from tests.evaluation.formulas import formulas
from tests.trees.strategies import build


def test_a_formula_is_written_with_the_kinds_of_its_symbols():
    sequences = serialize(formulas(r"\frac{a}{2} + \mathbf{x}", r"\text{if and only if}").forest)
    first, second = sequences.iter_lines()
    assert first.split() == ["mrow", "mfrac", "mi:a", "mn:2", "mo:+", "mi:x:bold"]
    assert second == "mrow mtext:if␣and␣only␣if"


def test_an_upright_letter_has_the_label_of_a_slanted_one_and_a_bold_one_has_not():
    upright, slanted, bold = serialize(formulas(r"\mathrm{x}y", "xy", r"\mathbf{x}y").forest).iter_lines()
    assert upright == slanted != bold


def test_lines_of_many_trees_stay_apart():
    forest = build([("mi", "", "xy"[i % 2], []) for i in range(20_001)])
    assert list(serialize(forest).iter_lines()) == [f"mi:{'xy'[i % 2]}" for i in range(20_001)]
