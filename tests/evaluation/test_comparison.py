"""A researcher compares own systems, runs and named systems in one call; means are those of trec_eval."""

import re
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from eqkin.errors import BadInput
from eqkin.evaluation import JudgedSet, compare
from eqkin.evaluation.comparison import rank_formulas, score_lists, score_systems
from eqkin.evaluation.judged import read_run
from eqkin.evaluation.systems import read_formulas
from tests.evaluation.small_systems import Characters, Sizes

TOPICS = [("q1", "x^2"), ("q2", r"\frac{a}{b}")]
FORMULAS = [("f1", "y^2"), ("f2", r"\frac{p}{q}"), ("f3", "z + 1"), ("f4", r"\sum")]
QRELS = [("q1", "f1", 3), ("q1", "f3", 0), ("q2", "f2", 2), ("q2", "f4", 0)]
PERFECT = "q1 Q0 f1 1 2.0 theirs\nq1 Q0 f3 2 1.0 theirs\nq2 Q0 f2 1 2.0 theirs\nq2 Q0 f4 2 1.0 theirs\n"

LATEX = {
    "a": "a+b=c", "b": "x+y=z", "c": r"\frac{a}{b}", "d": r"\sum_{i=1}^n x_i", "e": r"\int_0^1 f(x)\,dx",
    "f": r"e^{i\pi}", "g": r"\sqrt{a^2+b^2}", "h": "a+b", "i": r"\sum_i a_i b_i", "j": r"\frac{x}{y}+z",
}  # fmt: skip
GRADES = {
    "one": {"a": 3, "b": 2, "c": 0, "h": 2, "d": 0, "f": 1},
    "two": {"d": 3, "i": 3, "a": 0, "e": 1, "j": 0},
    "three": {"c": 2, "j": 3, "e": 0, "g": 1, "b": 0},
}


@pytest.fixture(scope="module")
def larger():
    """A judged set of three topics."""
    topics = read_formulas([("one", "u+v=w"), ("two", r"\sum_{k=1}^m y_k"), ("three", r"\frac{p}{q}")])
    return JudgedSet("larger", topics, read_formulas(LATEX.items()), GRADES)


@pytest.fixture
def folder(tmp_path):
    """The folder of a judged set."""
    path = tmp_path / "my-set"
    path.mkdir()
    for name, rows in (("topics.tsv", TOPICS), ("formulas.tsv", FORMULAS)):
        (path / name).write_text("".join("\t".join(row) + "\n" for row in rows))
    (path / "qrels.txt").write_text("".join(f"{topic} 0 {formula} {grade}\n" for topic, formula, grade in QRELS))
    return path


def count_shared(queries, formulas):
    return [[len(set(one) & set(other)) for other in formulas] for one in queries]


class Lengths:
    def encode(self, formulas):
        return np.array([[len(one), 1] for one in formulas], float)


def test_means_equal_those_of_trec_eval(larger):
    measures = {"ndcg": "ndcg", "map": "map", "p10": "P_10", "bpref": "bpref"}
    evaluator = pytrec_eval.RelevanceEvaluator(
        GRADES, {"ndcg", "map", "P.10", "bpref"}, relevance_level=2, judged_docs_only_flag=True
    )
    partial = {"one": ["a", "unknown", "b", "h"], "two": ["a", "d"]}
    lists = {one.name: rank_formulas(one, larger.topics, larger.formulas) for one in (Sizes(), Characters())}
    for system in score_lists(larger, lists | {"theirs": partial}, {}):
        run = (lists | {"theirs": partial})[system.name]
        theirs = evaluator.evaluate({topic: {name: -float(place) for place, name in enumerate(names)}
                                     for topic, names in run.items()})  # fmt: skip
        for key, name in measures.items():
            # A topic that is missing from a run counts as 0.
            expected = [theirs[topic][name] if topic in run else 0 for topic in GRADES]
            assert system.values[key] == pytest.approx(expected, abs=1e-6)
            assert system.scores[key].value == pytest.approx(np.mean(expected), abs=1e-6)


def test_others_are_tested_against_the_baseline(larger):
    ideal = {topic: sorted(judged, key=judged.__getitem__, reverse=True) for topic, judged in GRADES.items()}
    lists = {one.name: rank_formulas(one, larger.topics, larger.formulas) for one in (Sizes(), Characters())}
    first, second, best = score_lists(larger, lists | {"ideal": ideal}, {})
    assert first.p == first.differences == {}
    for one in (second, best):
        change = np.subtract(one.values["ndcg"], first.values["ndcg"])
        signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1)
        assert one.p["ndcg"] == np.mean(np.abs(change @ signs) >= abs(change.sum()) - 1e-9)
        assert one.differences["ndcg"].value == pytest.approx(change.mean())
    assert score_lists(larger, lists, {}, baseline="characters")[1].p == {}


def test_formulas_with_the_topics_own_latex_do_not_count_in_complete_sets():
    topics = read_formulas([("t", "x + y")])
    formulas = read_formulas([("same", "x+y"), ("kin", "a+b"), ("other", r"\sqrt{z}")])
    complete = JudgedSet("complete", topics, formulas, {"t": {"kin": 3}})
    (scores,) = score_systems([Characters()], complete)
    assert complete.is_complete and scores.values["mrr"] == [1]


def test_ties_do_not_depend_on_order_of_the_file():
    topics, names = read_formulas([("t", "x")]), [f"f{number:03}" for number in range(200)]
    found = rank_formulas(Characters(), topics, read_formulas([(name, "x") for name in names]))["t"]
    places = [found.index(name) for name in names]
    assert abs(np.corrcoef(places, range(200))[0, 1]) < 0.2


def test_unreadable_formulas_are_ranked_last_by_tree_systems():
    topics = read_formulas([("good", "a"), ("bad", r"\frac{")])
    formulas = read_formulas([("p", r"\frac{a+b"), ("q", "a+b"), ("r", r"\int_0^1"), ("s", "a=bc")])
    assert set(topics.problems) == {"bad"} and set(formulas.problems) == {"p"}
    by_tree, by_text = (rank_formulas(system, topics, formulas) for system in (Sizes(), Characters()))
    assert by_tree["good"][-1] == "p" and by_tree["bad"] == []
    assert by_text["good"] == ["q", "s", "p", "r"] and len(by_text["bad"]) == 4


def test_compare_takes_functions_classes_systems_names_and_runs(folder, tmp_path):
    (tmp_path / "theirs.txt").write_text(PERFECT)
    systems = [count_shared, Lengths, Characters(), Sizes, "eqkin", tmp_path / "theirs.txt"]
    table = compare(systems, folder, baseline="Lengths")
    records = table.to_dicts()
    assert {one["system"] for one in records} == {"count-shared", "Lengths", "characters", "sizes", "eqkin", "theirs"}
    (best,) = [one for one in records if (one["system"], one["measure"]) == ("theirs", "ndcg")]
    assert best["mean"] == best["low"] == best["high"] == 1 and 0 < best["p"] <= 1
    assert all(record["p"] is None for record in records if record["system"] == "Lengths")
    shown = repr(table)
    assert "Shared characters" in shown and "differences from Lengths" in shown


def test_saved_runs_give_the_scores_of_their_systems(folder, tmp_path):
    first = compare([Characters(), count_shared], folder, runs_folder=tmp_path / "runs")
    runs = tmp_path / "runs" / "my-set"
    assert sorted(read_run(runs / "characters.txt")["q1"]) == ["f1", "f2", "f3", "f4"]
    again = compare([runs / "characters.txt", runs / "count-shared.txt"], folder)
    assert [[one.values for one in table.sets[0].systems] for table in (first, again)][0] == [
        one.values for one in again.sets[0].systems
    ]


def test_engine_is_marked_on_sets_it_was_chosen_on(folder):
    development = folder.rename(folder.with_name("laws-dev"))
    assert "tuned on laws-dev" in compare(["eqkin", Sizes], development).sets[0].notes[0]


class Wrong(Sizes):
    def rank(self, queries, formulas):
        return np.full((len(queries), len(formulas)), np.nan, np.float32)


@pytest.mark.parametrize(
    ("systems", "options", "words"),
    [
        (["tfidf-lates"], {}, "unknown system 'tfidf-lates'"),
        ([], {}, "nothing to compare"),
        ([Sizes, Sizes], {}, "two systems"),
        ([Sizes], {"baseline": "bm25"}, "bm25 is not one of sizes"),
        ([Wrong], {}, "scores must be numbers"),
    ],
)
def test_compare_says_what_is_wrong(folder, systems, options, words):
    with pytest.raises(BadInput, match=words):
        compare(systems, folder, **options)


def test_example_of_the_documentation_runs(folder, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(folder.parent)
    Path("their-run.txt").write_text(PERFECT)
    names = {}
    exec(compile(example, "docs/evaluation.md", "exec"), names)
    assert "shared-tokens" in capsys.readouterr().out
    assert {one.name for one in names["table"].sets[0].systems} == {"eqkin", "shared-tokens", "their-run"}
