"""The search study: measures of known lists, judged by keywords."""

import json

import numpy as np
import pytest

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.evaluation import System
from research.experiment import SMALL_SCALE, Experiment
from research.keywords import StudyQuery, read_library_formulas
from research.published import STUDY_ROWS
from research.study import (
    RANDOM_TITLE,
    KeywordJudgements,
    compute_measures,
    compute_random_measures,
    find_top,
    run_study,
)
from research.tables import PAPER

TOPICS = {"sums": r"\sum_{i=%d}^n a_i", "roots": r"\sqrt{b_{%d} + c}", "limits": r"\lim_{t \to %d} f(t)"}
QUERIES = [
    StudyQuery("sums", "analysis", r"\sum_{i=0}^n a_i", ("sums",), True),
    StudyQuery("roots", "algebra", r"\sqrt{b_0 + c}", ("roots of something",)),
    StudyQuery("nothing", "algebra", r"\sqrt{b_0 + c}", ("quokka",)),
]


class Longest(System):
    """Finds what has the longest LaTeX, whatever is asked."""

    name, title, needs_latex = "longest", "Longest", True

    def rank(self, queries, formulas):
        lengths = np.array([len(text) for text in formulas.latex], np.float32)
        return np.tile(lengths, (len(queries), 1))


class Command(System):
    """Finds what begins with the same command."""

    name, title, needs_latex = "command", "Command", True

    def rank(self, queries, formulas):
        return np.array([[text[:4] == query[:4] for text in formulas.latex] for query in queries.latex], np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Three papers of forty equations, each about one topic; the words of the topic are in the section."""
    folder = tmp_path_factory.mktemp("study")
    records = []
    for number, (topic, formula) in enumerate(TOPICS.items()):
        equations = " ".join(rf"\[ {formula % i} + {'x' * (2 * i + number)} \]" for i in range(40))
        latex = rf"\section{{Of {topic}}} {topic} of somethings {equations} \section{{More}} Other. \[ z = {number} \]"
        records.append({"doc_id": topic, "title": topic, "latex": latex})
    (folder / "papers.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(folder / "library", create=True) as opened:
        opened.add(folder / "papers.jsonl")
        yield opened


def run(library, *systems, held_out=False):
    return run_study(Experiment(library.folder / "out", SMALL_SCALE), library, systems, QUERIES, held_out=held_out)


def test_measures_equal_those_of_known_lists(library):
    scores, differences, queries = run(library, Longest(), Command()).tables
    rows = {row.title: row.cells for row in scores.rows if row.origin != PAPER}
    # Both formulas that can be answered find their 40 kin first.
    expected = {"p10": 2 / 3, "p100": 2 / 3 * 0.4, "umap": 2 / 3 * 40, "map": 2 / 3}
    assert {key: rows["Command"][key].value for key in expected} == pytest.approx(expected)
    assert rows[RANDOM_TITLE]["p10"].value == pytest.approx(2 / 3 * 40 / 123)
    assert [row for row in scores.rows if row.origin == PAPER] == STUDY_ROWS
    assert [row.title for row in differences.rows] == ["Command"]
    by_query = {row.title: row.cells for row in queries.rows}
    assert by_query["sums"]["command"].value == pytest.approx(0.4)
    # By length, topics alternate: the longest are limits, then roots, then sums.
    assert by_query["sums"]["longest"].value == pytest.approx(33 / 100, abs=0.011)


def test_held_out_study_searches_only_works_that_no_network_saw(library):
    whole, part = (run(library, Command(), held_out=one) for one in (False, True))
    equations = [int(result.facts["library"].partition(" ")[0]) for result in (whole, part)]
    assert 0 < equations[1] < equations[0] and part.experiment == "study-held-out"


def test_scores_that_are_not_numbers_are_refused(library):
    class Broken(Longest):
        def rank(self, queries, formulas):
            return super().rank(queries, formulas) * np.nan

    _, formulas = read_library_formulas(library)
    with pytest.raises(BadInput, match="scores must be numbers"):
        find_top(Broken(), formulas.select(np.arange(2)), formulas, 50)
    with pytest.raises(BadInput, match="nothing to compare"):
        run(library)


def test_library_formulas_have_latex_in_the_order_of_trees(library):
    corpus, formulas = read_library_formulas(library)
    named = {equation["id"]: equation["latex"] for equation in library.iter_equations(mathml=False)}
    assert [named[corpus.get_equation_id(tree)] for tree in range(len(corpus))] == list(formulas.latex)


@pytest.mark.parametrize("sizes", [[3, 0, 5, 22], [0, 0, 0, 30], [1, 29]])
@pytest.mark.parametrize("depth", [10, 20, 50])
def test_random_measures_equal_mean_of_random_orders(sizes, depth):
    section = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    judged = KeywordJudgements([QUERIES[0]], np.arange(len(sizes))[None] == 0, section)
    generator = np.random.default_rng(0)
    flags = judged.is_relevant(0)
    drawn = np.zeros((4_000, depth), bool)
    for row in drawn:
        found = generator.permutation(flags)[:depth]
        row[: len(found)] = found
    repeated = KeywordJudgements(QUERIES[:1] * len(drawn), np.repeat(judged.sections, len(drawn), axis=0), section)
    means = compute_measures(drawn, repeated, depth)
    for key, value in compute_random_measures(judged, depth).items():
        assert value[0] == pytest.approx(means[key].mean(), rel=0.08, abs=0.01), key
