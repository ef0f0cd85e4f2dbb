"""A comparison gives trec_eval's means, tests systems in pairs, and measures each system once."""

from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from eqkin.errors import BadInput
from eqkin.evaluation.context import SMALL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.formulas import NamedFormulas, read_formulas
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.scores import rank_formulas, score_systems
from eqkin.evaluation.systems.base import System
from tests.evaluation.small_systems import Characters, Sizes

_LATEX = {
    "a": "a+b=c", "b": "x+y=z", "c": r"\frac{a}{b}", "d": r"\sum_{i=1}^n x_i", "e": r"\int_0^1 f(x)\,dx",
    "f": r"e^{i\pi}", "g": r"\sqrt{a^2+b^2}", "h": "a+b", "i": r"\sum_i a_i b_i", "j": r"\frac{x}{y}+z",
}  # fmt: skip
_QRELS = {
    "one": {"a": 3, "b": 2, "c": 0, "h": 2, "d": 0, "f": 1},
    "two": {"d": 3, "i": 3, "a": 0, "e": 1, "j": 0},
    "three": {"c": 2, "j": 3, "e": 0, "g": 1, "b": 0},
}


@pytest.fixture(scope="module")
def topics() -> NamedFormulas:
    return read_formulas([("one", "u+v=w"), ("two", r"\sum_{k=1}^m y_k"), ("three", r"\frac{p}{q}")])


@pytest.fixture(scope="module")
def formulas() -> NamedFormulas:
    return read_formulas(_LATEX.items())


def _context(folder: Path) -> ExperimentContext:
    return ExperimentContext(ResultCache(folder), SMALL_SCALE)


def test_compare_means_equal_those_of_trec_eval(tmp_path, topics, formulas):
    systems = [Sizes(), Characters()]
    lines = score_systems(systems, JudgedSet("set", topics, formulas, _QRELS), context=_context(tmp_path))
    measures = {"ndcg": "ndcg", "map": "map", "p10": "P_10", "bpref": "bpref"}
    evaluator = pytrec_eval.RelevanceEvaluator(
        _QRELS, {"ndcg", "map", "P.10", "bpref"}, relevance_level=2, judged_docs_only_flag=True
    )
    for system, line in zip(systems, lines, strict=True):
        lists = dict(zip(topics.names, rank_formulas(system, topics, formulas), strict=True))
        run = {topic: {name: -float(place) for place, name in enumerate(names)} for topic, names in lists.items()}
        theirs = evaluator.evaluate(run)
        for key, name in measures.items():
            expected = [theirs[topic][name] for topic in topics.names]
            assert line.values[key] == pytest.approx(expected, abs=1e-6)
            assert line.scores[key].value == pytest.approx(np.mean(expected), abs=1e-6)
            assert line.scores[key].low <= line.scores[key].value <= line.scores[key].high


def test_compare_tests_others_against_baseline(tmp_path, topics, formulas):
    ideal = {topic: sorted(judged, key=judged.__getitem__, reverse=True) for topic, judged in _QRELS.items()}
    context, systems = _context(tmp_path), [Sizes(), Characters()]

    def tested(baseline: str) -> list[float | None]:
        runs = {"ideal": ideal}
        lines = score_systems(
            systems, JudgedSet("set", topics, formulas, _QRELS), baseline=baseline, context=context, runs=runs
        )
        return [line.p.get("ndcg") for line in lines]

    by_sizes, by_ideal = tested("sizes"), tested("ideal")
    assert tested("") == by_sizes
    assert by_sizes[0] is by_ideal[2] is None
    assert by_sizes[2] == by_ideal[0] == 0.5  # worse for two topics, as good for one: two of four patterns
    assert by_sizes[1] != by_ideal[1]


def test_compare_p_values_equal_paired_test(tmp_path, topics, formulas):
    lines = score_systems(
        [Sizes(), Characters()], JudgedSet("set", topics, formulas, _QRELS), context=_context(tmp_path)
    )
    differences = np.subtract(lines[1].values["ndcg"], lines[0].values["ndcg"])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1)
    assert lines[1].p["ndcg"] == np.mean(np.abs(differences @ signs) >= abs(differences.sum()) - 1e-9)


def test_compare_measures_each_system_once(tmp_path, topics, formulas):
    context = _context(tmp_path)
    first = Characters()
    lines = score_systems([first], JudgedSet("set", topics, formulas, _QRELS), context=context)
    again, new = Characters(), Sizes()
    more = score_systems([again, new], JudgedSet("set", topics, formulas, _QRELS), context=context)
    assert (first.ranked, again.ranked, new.encoded > 0) == (1, 0, True)
    assert more[0].values == lines[0].values


def test_compare_measures_again_if_settings_or_data_change(tmp_path, topics, formulas):
    context = _context(tmp_path)

    def asks(system: Sizes, qrels: dict[str, dict[str, int]] = _QRELS, ranked: NamedFormulas = formulas) -> bool:
        score_systems([system], JudgedSet("set", topics, ranked, qrels), context=context)
        return system.encoded > 0

    assert asks(Sizes())
    assert not asks(Sizes())
    assert asks(Sizes(setting=1))
    fitted = Sizes(setting=1)
    fitted.learned_from = "another corpus"
    assert asks(fitted)
    assert asks(Sizes(), _QRELS | {"one": {"a": 0, "b": 2}})
    assert asks(Sizes(), ranked=read_formulas([*_LATEX.items(), ("k", "k")]))


def test_ties_do_not_depend_on_order_of_the_file(topics):
    names = [f"f{number:03}" for number in range(200)]
    formulas = read_formulas([(name, "x") for name in names])
    (found, *_) = rank_formulas(Characters(), topics, formulas)
    assert sorted(found) == names
    places = [found.index(name) for name in names]
    assert abs(np.corrcoef(places, range(200))[0, 1]) < 0.2


def test_unreadable_formulas_are_ranked_last_by_tree_systems():
    topics = read_formulas([("good", "a"), ("bad", r"\frac{")])
    formulas = read_formulas([("p", r"\frac{a+b"), ("q", "a+b"), ("r", r"\int_0^1"), ("s", "a=bc")])
    assert set(topics.problems) == {"bad"}
    assert set(formulas.problems) == {"p"}
    by_tree, by_text = (rank_formulas(system, topics, formulas) for system in (Sizes(), Characters()))
    assert by_tree[0][-1] == "p"  # its stand-in is one node, as the topic is
    assert by_tree[1] == []
    assert sorted(by_text[1]) == ["p", "q", "r", "s"]
    assert by_text[0] == ["q", "s", "p", "r"]


def test_compare_measures_runs_of_others(tmp_path, topics, formulas):
    run = {"one": ["a", "unknown", "b", "h"], "two": ["a", "d"]}
    lines = score_systems(
        [Sizes()], JudgedSet("set", topics, formulas, _QRELS), context=_context(tmp_path), runs={"Theirs": run}
    )
    evaluator = pytrec_eval.RelevanceEvaluator(_QRELS, {"ndcg", "bpref"}, relevance_level=2, judged_docs_only_flag=True)
    scored = {topic: {name: -float(place) for place, name in enumerate(names)} for topic, names in run.items()}
    theirs = evaluator.evaluate(scored)
    assert lines[1].title == "Theirs"
    assert lines[1].values["ndcg"] == pytest.approx([theirs["one"]["ndcg"], theirs["two"]["ndcg"], 0], abs=1e-6)
    assert lines[1].values["bpref"] == pytest.approx([theirs["one"]["bpref"], theirs["two"]["bpref"], 0], abs=1e-6)


class _Wrong(Sizes):
    def rank(self, queries, formulas):
        return np.full((len(queries), len(formulas)), np.nan, np.float32)


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        ([], {}, "nothing to compare"),
        ([Sizes(), Sizes()], {}, "distinct names"),
        ([Sizes()], {"baseline": "bm25"}, "bm25 is not one of sizes"),
        ([Sizes()], {"runs": {"theirs": {"other": ["a"]}}}, "none of the topics"),
        ([_Wrong()], {}, "scores must be numbers"),
    ],
)
def test_compare_rejects_bad_input(tmp_path, topics, formulas, systems: list[System], options, message):
    with pytest.raises(BadInput, match=message):
        score_systems(systems, JudgedSet("set", topics, formulas, _QRELS), context=_context(tmp_path), **options)


def test_compare_rejects_topics_without_judgements(tmp_path, topics, formulas):
    with pytest.raises(BadInput, match="without judgements: three"):
        score_systems([Sizes()], JudgedSet("set", topics, formulas, _QRELS | {"three": {}}), context=_context(tmp_path))
