"""All sets in one run: the bundled laws, the search among other formulas, differences, and searches in a library."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqkin import Library
from eqkin.evaluation import LabelledSet, System
from eqkin.evaluation.measures import Score
from eqkin.evaluation.systems import FormulaSet, read_formulas
from research.experiment import SMALL_SCALE, Experiment
from research.sets import (
    SetMeasure,
    compute_mean_over_sets,
    draw_distractors,
    make_search_task,
    read_notations,
    run_end_to_end,
    run_sets,
)

LAWS = [("x^2+y^2=z^2", "sum"), ("a^2+b^2=c^2", "sum"), (r"\frac{a}{b}", "part"), ("a / b", "part"), ("e^x", "alone")]
OTHERS = ["q", "w = 7", r"\int f"]


def make_labelled(laws: list[tuple[str, str]]) -> LabelledSet:
    equations = read_formulas([(str(number), latex) for number, (latex, _) in enumerate(laws)])
    return LabelledSet("laws", equations, [label for _, label in laws])


def read_others() -> FormulaSet:
    return read_formulas([(str(number), latex) for number, latex in enumerate(OTHERS)]).formulas


class Fixed(System):
    """Scores a formula by the position of its LaTeX in a list, whatever the query."""

    def __init__(self, name: str, order: list[str]) -> None:
        self.name = self.title = name
        self._order = order

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> np.ndarray:
        scores = [-float(self._order.index(latex)) for latex in formulas.latex]
        return np.tile(np.array(scores, np.float32), (len(queries), 1))


@pytest.fixture
def context(tmp_path) -> Experiment:
    return Experiment(tmp_path / "out", replace(SMALL_SCALE, distractors=3, searches=4))


def test_bundled_laws_have_four_notations_each_and_no_formula_twice():
    sets = read_notations()
    laws = [Counter(one.labels) for one in sets]
    assert all(len(counts) >= 60 and min(counts.values()) >= 4 for counts in laws)
    assert not laws[0].keys() & laws[1].keys()
    latex = [set(one.equations.formulas.latex) for one in sets]
    assert not latex[0] & latex[1]


def test_search_task_asks_for_the_other_notations_of_a_law():
    task, labels = make_search_task(make_labelled([*LAWS, ("a/b", "part")]), read_others())
    assert task.qrels == {
        "s0": {"s1": 3}, "s1": {"s0": 3}, "s2": {"s3": 3, "s5": 3}, "s3": {"s2": 3}, "s5": {"s2": 3}
    }  # fmt: skip
    assert labels == ["sum", "sum", "part", "part", "part"]
    assert task.is_complete
    assert task.find_excluded()["s3"] == {"s3", "s5"}  # the same but for spaces
    assert task.formulas.names[-3:] == ["d0", "d1", "d2"]


def test_run_sets_measures_searches_and_differences(context):
    latex = [law for law, _ in LAWS]
    good, bad = Fixed("good", [*latex, *OTHERS]), Fixed("bad", [*OTHERS, *reversed(latex)])
    result = run_sets(context, [good, bad], [], [make_labelled(LAWS)], read_others())
    rows = {row.title: row.cells for row in result.tables[0].rows}
    # the partner's place without the topic itself: good 1, 1, 3, 3; bad 7, 7, 5, 5
    assert rows["laws, MAP"]["good"].value == pytest.approx((1 + 1 / 3) / 2)
    assert rows["laws, MAP"]["bad"].value == pytest.approx((1 / 7 + 1 / 5) / 2)
    assert rows.keys() == {"laws, MAP", "laws, accuracy", "laws, ranking", "mean over sets"}
    differences = {row.title: row.cells for row in result.tables[1].rows}
    assert differences["laws, MAP"]["bad"].startswith(".495 [")
    assert differences.keys() == rows.keys() - {"mean over sets"}


def test_mean_over_sets_weights_sets_equally_and_leaves_test_sets_out():
    rows = [("one", 0.2), ("one", 0.4), ("one", 0.6), ("two", 0.8), ("notations-test", 0.0)]
    measures = [SetMeasure(name, "MAP", {"system": Score(value)}, {}) for name, value in rows]
    assert compute_mean_over_sets(measures, "system") == pytest.approx(0.6)


def test_end_to_end_searches_a_copy_of_the_library(context, tmp_path):
    note = tmp_path / "note.tex"
    note.write_text("".join(f"\\[ {latex} = 0 \\]\n" for latex in OTHERS))
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(note)
        distractors = draw_distractors(library, 3, [make_labelled([("q = 0", "known")])])
        assert sorted(distractors.latex) == [r"\int f = 0", "w = 7 = 0"]
        table = run_end_to_end(context, library, [make_labelled(LAWS)])
        assert len(list(library.iter_equations())) == len(OTHERS)
    (row,) = table.rows
    assert {key: score.value for key, score in row.cells.items()} == {"search": 1, "same": 1, "overlap": 1, "all": 1}
    assert not list(Path(tmp_path).glob("eqkin-sets-*"))
