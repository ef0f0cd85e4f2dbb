"""Measures agree with trec_eval and ranx on random lists, and with their formulas worked out by hand."""

import os
from itertools import combinations

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from eqkin.errors import BadInput
from eqkin.evaluation.metrics.average_precision import compute_ap, compute_unnormalised_ap
from eqkin.evaluation.metrics.bpref import compute_bpref
from eqkin.evaluation.metrics.grades import UNJUDGED
from eqkin.evaluation.metrics.label_triples import compute_ranking_scores, count_correct_triples, count_triples
from eqkin.evaluation.metrics.measures import BPREF, MAP, NDCG, P10
from eqkin.evaluation.metrics.ndcg import compute_ndcg
from eqkin.evaluation.metrics.nearest import score_nearest_labels
from eqkin.evaluation.metrics.precision import compute_precision
from eqkin.evaluation.metrics.prime import drop_unjudged
from eqkin.evaluation.metrics.recall import compute_recall, find_hits

_jit = os.environ.get("NUMBA_DISABLE_JIT")
os.environ["NUMBA_DISABLE_JIT"] = "1"  # ranx compiles for half a minute, and is fast enough without
import ranx  # noqa: E402

if _jit is None:
    del os.environ["NUMBA_DISABLE_JIT"]

_K = 4
_names = st.sampled_from([f"f{number:02}" for number in range(25)])


@st.composite
def _judged_list(draw: st.DrawFn) -> tuple[dict[str, int], list[str]]:
    """Judgements of one topic, and a list that has some of the judged formulas and some others."""
    qrels = draw(st.dictionaries(_names, st.integers(0, 3), min_size=1))
    return qrels, draw(st.lists(_names, min_size=1, unique=True))


def _graded(qrels: dict[str, int], names: list[str]) -> tuple[list[int], list[int]]:
    return [qrels.get(name, UNJUDGED) for name in names], list(qrels.values())


def _run(names: list[str]) -> dict[str, dict[str, float]]:
    return {"t": {name: float(len(names) - place) for place, name in enumerate(names)}}


@given(_judged_list())
def test_measures_are_those_of_trec_eval(case):
    qrels, names = case
    measures = {f"P.{_K},10", "map", "ndcg", f"ndcg_cut.{_K}", "bpref", f"recall.{_K}"}
    theirs = pytrec_eval.RelevanceEvaluator({"t": qrels}, measures, relevance_level=2).evaluate(_run(names))["t"]
    ranked, judged = _graded(qrels, names)
    ours = {
        f"P_{_K}": compute_precision(ranked, _K), "P_10": compute_precision(ranked, 10), "map": compute_ap(ranked, judged),
        "ndcg": compute_ndcg(ranked, judged), f"ndcg_cut_{_K}": compute_ndcg(ranked, judged, _K), "bpref": compute_bpref(ranked, judged),
        f"recall_{_K}": compute_recall(ranked, judged, _K),
    }  # fmt: skip
    assert ours == pytest.approx(theirs, abs=1e-6)


@given(_judged_list())
def test_primes_are_trec_evals_with_judged_formulas_only(case):
    qrels, names = case
    evaluator = pytrec_eval.RelevanceEvaluator(
        {"t": qrels}, {"P.10", "map", "ndcg", "bpref"}, relevance_level=2, judged_docs_only_flag=True
    )
    theirs = evaluator.evaluate(_run(names))["t"]
    ranked, judged = map(np.array, _graded(qrels, names))
    ours = {"P_10": P10, "map": MAP, "ndcg": NDCG, "bpref": BPREF}
    assert {key: measure.compute(ranked, judged) for key, measure in ours.items()} == pytest.approx(theirs, abs=1e-6)


@given(_judged_list().filter(lambda case: min(case[0].values()) < 2 <= max(case[0].values())))
def test_measures_are_those_of_ranx(case):
    qrels, names = case
    keys = ["ndcg", f"ndcg@{_K}", "map-l2", f"precision@{_K}-l2", f"recall@{_K}-l2", "bpref-l2"]
    theirs = ranx.evaluate(ranx.Qrels({"t": qrels}), ranx.Run(_run(names)), keys)
    ranked, judged = _graded(qrels, names)
    ours = [
        compute_ndcg(ranked, judged), compute_ndcg(ranked, judged, _K), compute_ap(ranked, judged), compute_precision(ranked, _K),
        compute_recall(ranked, judged, _K), compute_bpref(ranked, judged),
    ]  # fmt: skip
    assert dict(zip(keys, ours, strict=True)) == pytest.approx(theirs, abs=1e-6)


def test_the_papers_average_precision_is_a_sum_of_precisions_up_to_a_depth():
    ranked = [2, 0, 3, UNJUDGED, 1, 2]
    assert compute_unnormalised_ap(ranked) == pytest.approx(1 + 2 / 3 + 3 / 6)
    assert compute_unnormalised_ap(ranked, depth=5) == pytest.approx(1 + 2 / 3)
    assert compute_unnormalised_ap(ranked, level=1) == pytest.approx(1 + 2 / 3 + 3 / 5 + 4 / 6)
    assert compute_unnormalised_ap([3] * 1_500) == pytest.approx(1_000)


def test_a_prime_drops_what_nobody_judged():
    assert drop_unjudged([UNJUDGED, 3, UNJUDGED, 0]).tolist() == [3, 0]
    assert drop_unjudged([]).tolist() == []


def test_the_level_moves_what_is_relevant():
    assert compute_precision([1, 2, 0, 3], 4) == 0.5
    assert compute_precision([1, 2, 0, 3], 4, level=1) == 0.75
    assert compute_ap([1, 2], [1, 2, 2], level=1) == pytest.approx(2 / 3)
    assert compute_bpref([0, 1, 2], [0, 1, 2], level=3) == 0


def test_topics_without_relevant_formulas_and_empty_lists_score_0():
    for measure in (compute_ap, compute_ndcg, compute_bpref):
        assert measure([0, 0], [0, 0]) == 0
        assert measure([], [3, 0]) == 0
    assert compute_recall([0], [0], 1) == 0
    assert compute_precision([], 10) == 0


def test_hits_say_whose_answer_stands_at_the_top():
    assert find_hits(np.array([0, 9, 10, -1]), 10).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "measure",
    [lambda: compute_precision([1], 0), lambda: compute_recall([1], [1], 0), lambda: find_hits(np.ones(1), -1)],
)
def test_there_is_no_zeroth_place(measure):
    with pytest.raises(BadInput, match="first place"):
        measure()


_sets = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=n * n, max_size=n * n),
        st.lists(st.integers(0, 3), min_size=2 * n, max_size=2 * n),
    )
)


@given(_sets)
def test_triples_are_counted_as_one_by_one(case):
    labels, values, counts = case
    n = len(labels)
    groups = np.unique(labels, return_inverse=True)[1]
    similarity = np.array(values).reshape(n, n)
    similarity = (similarity + similarity.T) / 2
    kinds = int(groups.max()) + 1
    weights = np.array(counts, np.float32)[: 2 * kinds].reshape(2, kinds)
    total, loose, strict = np.zeros((3, kinds, kinds))
    for i, j in combinations(range(n), 2):
        for k in range(n):
            if labels[i] == labels[j] != labels[k]:
                total[groups[i], groups[k]] += 1
                loose[groups[i], groups[k]] += similarity[i, j] >= max(similarity[i, k], similarity[j, k])
                strict[groups[i], groups[k]] += similarity[i, j] > max(similarity[i, k], similarity[j, k])
    assert count_triples(groups).tolist() == total.tolist()
    assert [part.tolist() for part in count_correct_triples(similarity, groups)] == [loose.tolist(), strict.tolist()]
    drawn = [np.repeat(np.arange(kinds), row.astype(int)) for row in weights]  # labels, each as often as it was drawn
    shares = [[counted[np.ix_(row, row)].sum() for counted in (loose, total)] for row in drawn]
    expected = [right / every if every else np.nan for right, every in shares]
    assert compute_ranking_scores(loose, total, weights) == pytest.approx(expected, nan_ok=True)


def test_triples_are_the_same_in_small_blocks(monkeypatch):
    generator = np.random.default_rng(0)
    groups = generator.integers(3, size=40)
    similarity = generator.random((40, 40))
    similarity += similarity.T
    whole = count_correct_triples(similarity, groups)
    monkeypatch.setattr("eqkin.evaluation.metrics.label_triples._MAX_CELLS", 100)
    assert np.array_equal(count_correct_triples(similarity, groups), whole)


def test_the_nearest_neighbour_is_another_equation_and_ties_are_shared():
    similarity = np.array([[9, 0.5, 0.5, 0.1], [0.7, 9, 0.2, 0.1], [0.3, 0.2, 9, 0.4], [0.6, 0.1, 0.1, 9]])
    right = score_nearest_labels(similarity, np.array([0, 0, 1, 2]))
    assert right[:2].tolist() == [0.5, 1]  # the first has two nearest ones, of which one has its label
    assert np.isnan(right[2:]).all()  # alone with their labels
