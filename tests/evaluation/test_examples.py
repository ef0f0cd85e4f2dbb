import json
from pathlib import Path

import pytest

from eqkin import Encoder, Library
from eqkin.errors import BadInput
from eqkin.evaluation.experiments.bayes_law import states_bayes_law, states_total_probability
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.examples import BAYES_QUERY, ISING_QUERY, run_examples
from eqkin.evaluation.results import ExperimentResult
from eqkin.evaluation.store import ResultCache
from eqkin.index import update_index
from eqkin.trees.mathml import to_node

LAWS = [
    BAYES_QUERY,
    r"P(A|B) = \frac{P(AB)}{P(B)}",
    r"P(s \mid d) = \frac{P(d\mid s) P(s)}{P(d)}",
    r"p(\theta | x) = p(x | \theta) p(\theta) / p(x)",
    r"p(\theta | x) \propto p(x | \theta) p(\theta)",
    r"P_C(A | B) = \frac{P(A \cap B)}{P(B)},",
    r"P\left(Y = 1 \,\middle|\, X = x\right) = \frac{P(X = x | Y = 1) P(Y = 1)}{\sum_{i=0}^1 P(X = x, Y = i)}",
    r"\begin{aligned} a &= b \\ P[A | B] &= \frac{P[B | A] P[A]}{P[B]} \end{aligned}",
]
TOTALS = [
    r"P(d) = \int P(d\mid s) P(s) ds",
    r"P(A) = \sum_{i=1}^n P(A \mid B_i) P(B_i)",
]
NEITHER = [
    ISING_QUERY,
    r"P(i, j) = \frac{\pi(j) P(j, i)}{\pi(i)}",
    r"|x| = \frac{f(a, b)}{g(c)}",
    r"f(|x|) = \frac{f(a, b)}{g(c)}",
    r"p(x | \mu) = \frac{1}{\sqrt{2\pi}} e^{-(x - \mu)^2 / 2}",
    r"P(A \mid B) = P(A)",
    r"P(A) = \sum_i P(A, B_i)",
    r"P(x = a | y) \leq \frac{1}{2}",
    r"p(x | y) + q(z)",
]


def trees(formulas):
    forest = Encoder.load().parse_formulas(formulas)
    return [to_node(forest, number) for number in range(len(formulas))]


def test_laws_are_told_by_their_shape():
    for formulas, of in ((LAWS, (True, False)), (TOTALS, (False, True)), (NEITHER, (False, False))):
        for formula, tree in zip(formulas, trees(formulas), strict=True):
            assert (states_bayes_law(tree), states_total_probability(tree)) == of, formula


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("examples")
    machine = r"\section{Networks} A Boltzmann machine has energy \[ E = -\sum_{i<j} w_{ij} s_i s_j - \sum_i b_i s_i \]"
    magnets = r"\section{Spins} Rising heat. \[ H = -\sum_{i<j} J_{ij} \sigma_i \sigma_j - \sum_i h_i \sigma_i \]"
    bayes = (
        r"\section{Chances} Known: \[ P(s \mid d) = \frac{P(d \mid s) P(s)}{P(d)} \]"
        r"\section{Totals} and \[ P(d) = \int P(d \mid s) P(s) ds \] and \[ \nabla \times B = 0 \]"
    )
    records = [
        {"doc_id": "machine", "title": "Learning", "latex": machine},
        {"doc_id": "magnets", "title": "On the Ising model", "latex": magnets},
        {"doc_id": "bayes", "title": "Bayes", "latex": bayes},
    ]
    (place / "papers.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(place / "library") as library:
        library.add(place / "papers.jsonl")
        update_index(library, Encoder.load())
    return place / "library"


@pytest.fixture
def context(tmp_path) -> ExperimentContext:
    return ExperimentContext(ResultCache(tmp_path))


def test_both_examples_are_found_where_they_stand(context, folder):
    result = run_examples(context, folder)
    bayes, ising = result.examples
    assert (bayes.latex, ising.latex) == (BAYES_QUERY, ISING_QUERY)
    notes = {hit.where: hit.note for hit in bayes.hits if hit.note}
    assert bayes.hits[0].where == "Bayes, Chances"
    assert notes["Bayes, Chances"] == "the first result: states Bayes' law"
    assert "law of total probability" in notes["Bayes, Totals"]
    notes = {hit.where: hit.note for hit in ising.hits if hit.note}
    assert notes == {
        "Learning, Networks": "the first result that speaks of Boltzmann machine",
        "On the Ising model, Spins": "the first result that speaks of Ising",
    }
    assert result.findings[0].startswith(
        "Holds: of the first 5 results for a conditional probability 1 state Bayes' law, the"
    )
    assert all(hit.mathml.startswith("<math") for hit in bayes.hits + ising.hits)
    assert [hit.rank for hit in ising.hits] == sorted(hit.rank for hit in ising.hits)


def test_what_is_not_found_is_told(context, tmp_path):
    path = tmp_path / "paper.jsonl"
    path.write_text(json.dumps({"doc_id": "a", "title": "Rising", "latex": r"Promising. \[ a + b = c \]"}))
    with Library.open(tmp_path / "library") as library:
        library.add(path)
        update_index(library, Encoder.load())
        result = run_examples(context, library)
    assert result.findings[0].startswith("Does not hold")
    assert "none is the law of total probability" in result.findings[0]
    assert "none speaks of Boltzmann machine, none speaks of Ising" in result.findings[1]
    (hit,) = result.examples[0].hits
    assert hit.note == "the first result: does not state Bayes' law; the first result that does not state Bayes' law"


def test_the_result_survives_being_saved(context, folder):
    result = run_examples(context, folder)
    assert ExperimentResult.load(context.store.keep(result)) == result


def test_a_folder_without_a_library_is_refused(context, tmp_path):
    with pytest.raises(BadInput, match="no library"):
        run_examples(context, tmp_path / "none")
