"""Other letters, the same formula."""

import numpy as np
import pytest

from benchmarks.growth import LetterPermutation, draw_permutation
from eqkin.atlas import list_articles
from eqkin.formulas.conversion import convert_formulas
from eqkin.formulas.engine import FormulaEngine
from eqkin.latex.environments import to_converter_input
from eqkin.latex.outline import parse


@pytest.fixture
def swapped() -> LetterPermutation:
    return LetterPermutation({ord("x"): "y", ord("y"): "x", ord("l"): "m", ord("m"): "l"}, {r"\alpha": r"\beta"})


@pytest.mark.parametrize(
    ("formula", "renamed"),
    [
        (r"x^2 + y", r"y^2 + x"),
        (r"\frac xy + \max_x\alpha x", r"\frac yx + \max_y\beta y"),
        (r"\mathbf{x} = \hat x", r"\mathbf{y} = \hat y"),
        (r"\text{max over $x$ and \textit{y}} x", r"\text{max over $x$ and \textit{y}} y"),
        (r"x \label{eq:x} \tag{x}", r"y \label{eq:x} \tag{x}"),
        (r"\begin{array}{lll} x & l\\[3mm] m \end{array}", r"\begin{array}{lll} y & m\\[3mm] l \end{array}"),
        (r"\operatorname{xml} x + {\rm max} + \mathrm{lx}", r"\operatorname{xml} y + {\rm max} + \mathrm{lx}"),
        (r"\lim \alphax\xy x \kern 1mm", r"\lim \alphax\xy y \kern 1mm"),
        (r"loss(x) = lx", r"loss(y) = my"),
    ],
)
def test_permutation_renames_only_variables(swapped: LetterPermutation, formula: str, renamed: str) -> None:
    assert swapped(formula) == renamed


def test_drawn_permutation_is_a_bijection_that_changes_letters() -> None:
    drawn = draw_permutation(np.random.default_rng(7))
    assert sorted(drawn.latin.values()) == sorted(map(chr, drawn.latin))
    assert sorted(drawn.greek.values()) == sorted(drawn.greek)
    assert sum(chr(old) != new for old, new in drawn.latin.items()) > 20


def test_renaming_keeps_the_shape_of_trees() -> None:
    """All formulas of some articles, read by the converter before and after."""
    drawn, converter = draw_permutation(np.random.default_rng(1)), FormulaEngine()
    changed = 0
    for article in list(list_articles())[:4]:
        texts = [to_converter_input(e.environment, e.body) for e in parse(article.read_text("utf-8")).equations]
        before, after = (convert_formulas(converter, some).forest for some in (texts, [drawn(text) for text in texts]))
        assert np.array_equal(before.offsets, after.offsets)
        assert np.array_equal(before.n_children, after.n_children)
        changed += sum(drawn(text) != text for text in texts) / len(texts)
    assert changed > 3
