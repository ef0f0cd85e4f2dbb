"""Weights of the ranking: measured as in `research.sets`, chosen on other sets."""

from itertools import product

import numpy as np
import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.labelled import LabelledSet
from eqkin.evaluation.systems import EngineSystem, NamedFormulas
from eqkin.search.candidates import WEIGHTS
from research.experiment import SMALL_SCALE, Experiment
from research.sets import run_sets
from research.weights import ComparedSet, choose_weights, compare_set, make_weights_table, measure_topic
from tests.evaluation.formulas import formulas

FORMS = {
    "square": "{0}^2 + {1}^2 = {2}^2",
    "sum": r"\sum_{{{0}=1}}^{1} {0}^2 = {2}",
    "integral": r"\int_{0}^{1} f({2}) \, d{2}",
    "fraction": r"\frac{{{0}}}{{{1} + {2}}} = 1",
}
KINDS = [
    (kind, form.format(*letters)) for (kind, form), letters in product(FORMS.items(), ("abc", "xyz", "pqr", "uvw"))
]


def make_sets():
    """Return a labelled set, a judged set of which some formulas are not judged, and a complete one."""
    named = NamedFormulas([str(at) for at in range(len(KINDS))], formulas(*(latex for _, latex in KINDS)))
    labelled = LabelledSet("kinds", named, [kind for kind, _ in KINDS])
    asked = NamedFormulas(list(FORMS), formulas(*(form.format("a", "b", "c") for form in FORMS.values())))
    graded, complete = {}, {}
    for kind in FORMS:
        grades = {str(at): 3 - at % 3 if other == kind else 0 for at, (other, _) in enumerate(KINDS)}
        graded[kind] = {name: grade for name, grade in grades.items() if int(name) % 5}
        complete[kind] = {name: grade for name, grade in grades.items() if grade}
    return labelled, JudgedSet("graded", asked, named, graded), JudgedSet("complete", asked, named, complete)


@pytest.fixture(scope="module")
def others():
    return formulas(r"\nabla f = 0", "q^2 + 1", r"\sum_j j", r"\int g")


@pytest.fixture(scope="module")
def compared(others):
    return [compare_set(one, others, Encoder.load()) for one in make_sets()]


def test_scores_are_those_of_the_engine_on_all_sets(compared, others, tmp_path):
    labelled, *judged = make_sets()
    experiment = Experiment(tmp_path, SMALL_SCALE)
    (table,) = run_sets(experiment, [EngineSystem()], judged, [labelled], others).tables
    for one in compared:
        values = [row.cells["eqkin"].value for row in table.rows if row.title.startswith(f"{one.name},")]
        assert len(values) == 3
        assert one.measure(WEIGHTS) == pytest.approx(np.mean(values), abs=1e-6)


def test_measures_of_a_list_of_grades():
    found = measure_topic(np.array([0, 3, 1, 2]), np.array([3, 2, 2, 1, 0]))
    assert found["map"] == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert (found["mrr"], found["hit1"], found["hit10"], found["p10"]) == (0.5, 0, 1, 0.2)
    assert 0 < found["ndcg"] < measure_topic(np.array([3, 2, 2]), np.array([3, 2, 2, 1, 0]))["ndcg"] < 1
    assert not any(measure_topic(np.zeros(0, int), np.zeros(0, int)).values())


def make_toy(name, telling, misleading):
    """Return a set in which one similarity finds the relevant formula and others find another one."""
    columns = np.array([[key in misleading for key in WEIGHTS], [key == telling for key in WEIGHTS]], np.float32)
    known = np.ones(len(WEIGHTS), bool)
    return ComparedSet(name, ("mrr",), [columns], [known], {0: np.array([0, 3])}, np.ones(2, bool), None)


def test_ascent_removes_what_misleads_and_keeps_what_helps():
    heaviest, lightest = (choose(WEIGHTS, key=WEIGHTS.get) for choose in (max, min))
    toy = make_toy("toy", lightest, [heaviest])
    assert toy.measure(WEIGHTS) == 0.5
    chosen = choose_weights([toy])
    assert toy.measure(chosen) == 1
    assert chosen[heaviest] < WEIGHTS[heaviest] or chosen[lightest] > WEIGHTS[lightest]


def test_sets_of_one_group_are_left_out_together():
    logged = []
    heaviest, lightest = (choose(WEIGHTS, key=WEIGHTS.get) for choose in (max, min))
    sets = [make_toy(name, lightest, [heaviest]) for name in ("arq-dev", "arq2-part")]
    sets.append(make_toy("laws", heaviest, [lightest]))
    table = make_weights_table(sets, logged.append)
    assert [line.partition(":")[0] for line in logged] == ["chosen without arq", "chosen without laws"]
    rows = {row.title: row.cells for row in table.rows}
    assert list(rows) == ["all similarities", *(f"without {name}" for name in WEIGHTS), "chosen on the other sets"]
    # What the laws ask for is what the weights are already.
    assert rows["all similarities"]["arq-dev"].value == rows["chosen on the other sets"]["arq-dev"].value == 0.5
