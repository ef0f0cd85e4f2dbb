import json
from dataclasses import replace

import numpy as np
import pytest

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.study import find_top, run_study
from eqkin.evaluation.experiments.study_lists import (
    KeywordJudgements,
    ResultLists,
    compute_random_measures,
    get_cutoffs,
)
from eqkin.evaluation.experiments.study_report import RANDOM_TITLE
from eqkin.evaluation.published import STUDY_QUERIES, STUDY_ROWS
from eqkin.evaluation.results import PAPER, ExperimentResult
from eqkin.evaluation.scale import SMALL_SCALE
from eqkin.evaluation.sets.library_formulas import compute_content_digest, read_library_formulas
from eqkin.evaluation.sets.queries import StudyQuery
from eqkin.evaluation.store import ResultCache
from eqkin.evaluation.systems.base import FormulaSet, System

TOPICS = {"sums": r"\sum_{i=%d}^n a_i", "roots": r"\sqrt{b_{%d} + c}", "limits": r"\lim_{t \to %d} f(t)"}
QUERIES = [
    StudyQuery("sums", "analysis", r"\sum_{i=0}^n a_i", ("sums",), True),
    StudyQuery("roots", "algebra", r"\sqrt{b_0 + c}", ("roots of something",)),
    StudyQuery("nothing", "algebra", r"\sqrt{b_0 + c}", ("quokka",)),
]


class Longest(System):
    """Finds what has the longest LaTeX, whatever is asked; counts how often it was."""

    name, title, needs_latex, asked = "longest", "Longest", True, 0

    def rank(self, queries: FormulaSet, formulas: FormulaSet):
        self.asked += 1
        lengths = np.array([len(text) for text in formulas.latex], np.float32)
        return np.tile(lengths, (len(queries), 1))


class Command(System):
    """Finds what begins with the same command."""

    name, title, needs_latex = "command", "Command", True

    def rank(self, queries: FormulaSet, formulas: FormulaSet):
        return np.array([[text[:4] == query[:4] for text in formulas.latex] for query in queries.latex], np.float32)


class Shapeless(Longest):
    def rank(self, queries: FormulaSet, formulas: FormulaSet):
        return super().rank(queries, formulas) * self.factor


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Three papers of forty equations, each about one topic; the words of the topic stand in the section."""
    folder = tmp_path_factory.mktemp("study")
    records = []
    for number, (topic, formula) in enumerate(TOPICS.items()):
        equations = " ".join(rf"\[ {formula % i} + {'x' * (2 * i + number)} \]" for i in range(40))
        latex = rf"\section{{Of {topic}}} {topic} of somethings {equations} \section{{More}} Other. \[ z = {number} \]"
        records.append({"doc_id": topic, "title": topic, "latex": latex})
    (folder / "papers.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    with Library.open(folder / "library") as opened:
        opened.add(folder / "papers.jsonl")
        yield opened


@pytest.fixture
def context(tmp_path):
    return ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE)


def cell(result: ExperimentResult, table: str, row: str, column: str):
    (found,) = [found for found in result.tables if found.name == table]
    (line,) = [line for line in found.rows if line.title == row and line.origin != PAPER]
    return line.cells[column]


def test_precisions_are_those_of_the_lists(context, library):
    result = run_study(context, library, [Command(), Longest()], QUERIES, baseline="longest")
    # both formulas that can be answered find their 40 kin first
    assert cell(result, "study", Command.title, "p10").value == pytest.approx(2 / 3)
    assert cell(result, "study", Command.title, "p100").value == pytest.approx(2 / 3 * 0.4)
    assert cell(result, "study", Command.title, "umap").value == pytest.approx(2 / 3 * 40)
    assert cell(result, "study", Command.title, "map").value == pytest.approx(2 / 3)
    # by length, topics alternate: the longest are limits, then roots, then sums
    assert cell(result, "study-queries", "sums", "system-1").value == pytest.approx(33 / 100, abs=0.011)
    assert cell(result, "study-queries", "sums", "system-0").value == pytest.approx(0.4)
    assert cell(result, "study-queries", "sums", "equations").value == 40
    assert cell(result, "study-queries", "sums", "sections").value == 1


def test_every_mean_has_an_interval_and_the_papers_rows_stand_beside(context, library):
    result = run_study(context, library, [Command(), Longest()], QUERIES, baseline="longest")
    scores = result.tables[0]
    assert [row for row in scores.rows if row.origin == PAPER] == STUDY_ROWS
    for row in scores.rows:
        if row.origin != PAPER:
            assert {"p10", "p100", "umap", "map"} == row.cells.keys()
            assert all(score.low <= score.value <= score.high for score in row.cells.values())
    assert {"study", "study-differences", "study-queries", "study-levels"} == {table.name for table in result.tables}


def test_a_system_may_have_the_name_of_another_column(context, library):
    system = Command()
    system.name = "paper"
    printed = next(row for row in STUDY_QUERIES if row.title == "policy gradient")
    asked = [replace(QUERIES[0], keywords=("sums", printed.title))]
    result = run_study(context, library, [system], asked)
    (table,) = [table for table in result.tables if table.name == "study-queries"]
    assert len({column.key for column in table.columns}) == len(table.columns)
    shown = {column.title: table.rows[0].cells.get(column.key) for column in table.columns}
    assert shown["Command"].value == pytest.approx(0.4)
    assert shown["the paper"] == printed.cells["p100"]


def test_single_queries_are_sorted_and_those_without_answers_told(context, library):
    result = run_study(context, library, [Command()], QUERIES)
    (table,) = [table for table in result.tables if table.name == "study-queries"]
    assert [row.title for row in table.rows] == ["sums", "roots of something", "quokka"]
    assert [row.note for row in table.rows] == ["", "", "nothing in the library is relevant"]
    assert any(finding == "Nothing in the library is relevant to 1 query: nothing." for finding in result.findings)


def test_a_random_order_has_the_relevant_share(context, library):
    result = run_study(context, library, [Command()], QUERIES)
    assert cell(result, "study", RANDOM_TITLE, "p10").value == pytest.approx(2 / 3 * 40 / 123)
    assert cell(result, "study-queries", "sums", "chance").value == pytest.approx(40 / 123)


def test_a_result_survives_being_saved(context, library):
    result = run_study(context, library, [Command(), Longest()], QUERIES, baseline="longest")
    assert ExperimentResult.load(context.store.keep(result)) == result


def test_nothing_is_ranked_or_read_twice(context, library):
    said = []
    context = replace(context, tell=said.append)
    first, again = Longest(), Longest()
    one = run_study(context, library, [first], QUERIES)
    assert first.asked == 1
    assert any("keywords looked for" in line for line in said)
    said.clear()
    assert run_study(context, library, [again], QUERIES) == one
    assert again.asked == 0
    assert said == []


@pytest.mark.parametrize("change", [{"keywords": ("limits",)}, {"latex": r"\sqrt{q}"}])
def test_other_queries_are_measured_anew(context, library, change):
    run_study(context, library, [Longest()], QUERIES)
    system = Longest()
    run_study(context, library, [system], [replace(QUERIES[0], **change), *QUERIES[1:]])
    assert system.asked == 1


def test_the_verdict_follows_the_first_system(context, library):
    many = [replace(QUERIES[0], id=f"sums{i}") for i in range(12)]
    good = run_study(context, library, [Command(), Longest()], many, baseline="longest")
    bad = run_study(context, library, [Longest(), Command()], many, baseline="command")
    alone = run_study(context, library, [Command()], many, baseline="longest")
    words = [result.findings[0].partition(":")[0] for result in (good, bad, alone)]
    assert words == ["Holds", "Does not hold", "Undecided"]


def test_equal_scores_stand_in_one_random_order(library):
    corpus, formulas = read_library_formulas(library)
    system = Shapeless()
    system.factor = 0
    places = find_top(system, formulas.select(np.arange(2)), formulas, 50)
    assert np.array_equal(places[0], places[1])
    assert len(np.unique(corpus.paper[places[0]])) == 3


@pytest.mark.parametrize("factor", [np.nan, np.ones((2, 1, 1))])
def test_scores_that_are_none_are_refused(library, factor):
    _, formulas = read_library_formulas(library)
    system = Shapeless()
    system.factor = factor
    with pytest.raises(BadInput, match="Longest: scores are numbers of shape"):
        find_top(system, formulas.select(np.arange(2)), formulas, 50)


def test_nothing_to_compare_is_refused(context, library, tmp_path):
    with pytest.raises(BadInput, match="nothing to compare"):
        run_study(context, library, [], QUERIES)
    with pytest.raises(BadInput, match="names of their own"):
        run_study(context, library, [Longest(), Longest()], QUERIES)
    with Library.open(tmp_path / "empty") as empty, pytest.raises(BadInput, match="no equations"):
        run_study(context, empty, [Longest()], QUERIES)


def test_a_library_whose_prose_alone_differs_is_another_one(tmp_path):
    digests = set()
    for prose in ("of cats", "of dogs", "of cats"):
        (tmp_path / "paper.jsonl").write_text(
            json.dumps({"doc_id": "a", "title": "A", "latex": rf"{prose} \[ x = y \]"})
        )
        with Library.open(tmp_path / "library") as opened:
            opened.add(tmp_path / "paper.jsonl")
            digests.add(compute_content_digest(opened))
    assert len(digests) == 2


def test_latex_and_trees_of_a_library_fit_together(library):
    corpus, formulas = read_library_formulas(library)
    named = {equation["id"]: equation["latex"] for equation in library.equations(mathml=False)}
    assert [named[corpus.get_equation_id(tree)] for tree in range(len(corpus))] == list(formulas.latex)


@pytest.mark.parametrize("sizes", [[3, 0, 5, 22], [0, 0, 0, 30], [1, 29]])
@pytest.mark.parametrize("depth", [10, 20, 50])
def test_expected_figures_of_a_random_order_are_the_mean_of_random_orders(sizes, depth):
    section = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    judged = KeywordJudgements([QUERIES[0]], np.arange(len(sizes))[None] == 0, section)
    generator = np.random.default_rng(0)
    flags = judged.is_relevant(0)
    drawn = np.zeros((4_000, depth), bool)
    for row in drawn:
        found = generator.permutation(flags)[:depth]
        row[: len(found)] = found
    repeated = KeywordJudgements(QUERIES[:1] * len(drawn), np.repeat(judged.sections, len(drawn), axis=0), section)
    means = ResultLists("", "", drawn).compute_measures(repeated)
    for key, value in compute_random_measures(judged, depth).items():
        assert value[0] == pytest.approx(means[key].mean(), rel=0.08, abs=0.01), key


def test_lists_are_cut_where_they_end():
    assert get_cutoffs(1_000) == [10, 100, 1_000]
    assert get_cutoffs(100) == [10, 100]
    assert get_cutoffs(7) == [7]
