"""The search study: measures of known lists, judgements by keywords, nothing measured twice."""

import json
from dataclasses import replace

import numpy as np
import pytest
from eqkin.evaluation.context import SMALL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.tables import PAPER, ExperimentResult

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import FormulaSet
from research.keywords import StudyQuery, compute_content_digest, read_library_formulas
from research.published import STUDY_QUERIES, STUDY_ROWS
from research.study import (
    RANDOM_TITLE,
    KeywordJudgements,
    ResultLists,
    compute_random_measures,
    find_top,
    get_cutoffs,
    run_study,
)

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


@pytest.fixture
def context(tmp_path):
    return ExperimentContext(ResultCache(tmp_path / "store"), SMALL_SCALE)


def cell(result: ExperimentResult, table: str, row: str, column: str):
    (found,) = [found for found in result.tables if found.name == table]
    (line,) = [line for line in found.rows if line.title == row and line.origin != PAPER]
    return line.cells[column]


def test_study_measures_equal_those_of_known_lists(context, library):
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


def test_study_means_have_intervals_and_the_papers_rows_follow(context, library):
    result = run_study(context, library, [Command(), Longest()], QUERIES, baseline="longest")
    scores = result.tables[0]
    assert [row for row in scores.rows if row.origin == PAPER] == STUDY_ROWS
    for row in scores.rows:
        if row.origin != PAPER:
            assert {"p10", "p100", "umap", "map"} == row.cells.keys()
            assert all(score.low <= score.value <= score.high for score in row.cells.values())
    assert {"study", "study-differences", "study-queries"} == {table.name for table in result.tables}


def test_study_allows_a_system_called_paper(context, library):
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


def test_queries_table_is_sorted_and_notes_queries_without_answers(context, library):
    result = run_study(context, library, [Command()], QUERIES)
    (table,) = [table for table in result.tables if table.name == "study-queries"]
    assert [row.title for row in table.rows] == ["sums", "roots of something", "quokka"]
    assert [row.note for row in table.rows] == ["", "", "no equation of the library is relevant"]


def test_held_out_study_searches_only_works_that_no_network_saw(context, library):
    whole, part = (run_study(context, library, [Command()], QUERIES, held_out=one) for one in (False, True))
    assert (whole.experiment, part.experiment) == ("study", "study-held-out")
    equations = [int(result.facts["library"].partition(" ")[0]) for result in (whole, part)]
    assert 0 < equations[1] < equations[0] and "held out" in part.facts["library"]


def test_random_order_has_the_relevant_share(context, library):
    result = run_study(context, library, [Command()], QUERIES)
    assert cell(result, "study", RANDOM_TITLE, "p10").value == pytest.approx(2 / 3 * 40 / 123)
    assert cell(result, "study-queries", "sums", "chance").value == pytest.approx(40 / 123)


def test_study_ranks_and_judges_once(context, library):
    said = []
    context = replace(context, log=said.append)
    first, again = Longest(), Longest()
    one = run_study(context, library, [first], QUERIES)
    assert first.asked == 1
    assert any("sections for keywords" in line for line in said)
    said.clear()
    assert run_study(context, library, [again], QUERIES) == one
    assert again.asked == 0
    assert said == []


@pytest.mark.parametrize("change", [{"keywords": ("limits",)}, {"latex": r"\sqrt{q}"}])
def test_study_measures_changed_queries_again(context, library, change):
    run_study(context, library, [Longest()], QUERIES)
    system = Longest()
    run_study(context, library, [system], [replace(QUERIES[0], **change), *QUERIES[1:]])
    assert system.asked == 1


def test_find_top_breaks_ties_by_one_random_order(library):
    corpus, formulas = read_library_formulas(library)
    system = Shapeless()
    system.factor = 0
    places = find_top(system, formulas.select(np.arange(2)), formulas, 50)
    assert np.array_equal(places[0], places[1])
    assert len(np.unique(corpus.paper[places[0]])) == 3


@pytest.mark.parametrize("factor", [np.nan, np.ones((2, 1, 1))])
def test_find_top_rejects_nan_and_wrong_shapes(library, factor):
    _, formulas = read_library_formulas(library)
    system = Shapeless()
    system.factor = factor
    with pytest.raises(BadInput, match="Longest: scores must be numbers of shape"):
        find_top(system, formulas.select(np.arange(2)), formulas, 50)


def test_study_rejects_missing_systems_and_equations(context, library, tmp_path):
    with pytest.raises(BadInput, match="nothing to compare"):
        run_study(context, library, [], QUERIES)
    with pytest.raises(BadInput, match="distinct names"):
        run_study(context, library, [Longest(), Longest()], QUERIES)
    with Library.open(tmp_path / "empty", create=True) as empty, pytest.raises(BadInput, match="no equations"):
        run_study(context, empty, [Longest()], QUERIES)


def test_content_digest_depends_on_prose(tmp_path):
    digests = set()
    for prose in ("of cats", "of dogs", "of cats"):
        (tmp_path / "paper.jsonl").write_text(
            json.dumps({"doc_id": "a", "title": "A", "latex": rf"{prose} \[ x = y \]"})
        )
        with Library.open(tmp_path / "library", create=True) as opened:
            opened.add(tmp_path / "paper.jsonl")
            digests.add(compute_content_digest(opened))
    assert len(digests) == 2


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
    means = ResultLists("", "", drawn).compute_measures(repeated)
    for key, value in compute_random_measures(judged, depth).items():
        assert value[0] == pytest.approx(means[key].mean(), rel=0.08, abs=0.01), key


def test_cutoffs_do_not_exceed_the_depth():
    assert get_cutoffs(1_000) == [10, 100, 1_000]
    assert get_cutoffs(100) == [10, 100]
    assert get_cutoffs(7) == [7]
