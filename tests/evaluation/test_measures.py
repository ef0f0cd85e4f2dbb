"""Measures agree with ranx on random lists, and with their formulas worked out by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqkin.evaluation.measures import (
    JUDGED_MEASURES,
    compute_ranking_scores,
    count_correct_triples,
    count_triples,
    measure_lists,
    score_nearest_labels,
)

_names = st.sampled_from([f"f{number:02}" for number in range(25)])


@st.composite
def _judged_list(draw: st.DrawFn) -> tuple[dict[str, int], list[str]]:
    """Judgements of one topic, and a list of some judged and some other formulas."""
    qrels = draw(st.dictionaries(_names, st.integers(0, 3), min_size=1))
    return qrels, draw(st.lists(_names, min_size=1, unique=True))


_RANX = """
import json, sys, ranx
for line in sys.stdin:
    qrels, run, keys = json.loads(line)
    print(json.dumps(ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), keys)), flush=True)
"""


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Callable[..., dict[str, float]]]:
    """Ask ranx, in a process without numba's compiler: it would compile for half a minute."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RANX], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None

    def ask(*question: object) -> dict[str, float]:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.communicate()


@given(_judged_list().filter(lambda case: min(case[0].values()) < 2 <= max(case[0].values())))
def test_measures_equal_those_of_ranx_on_judged_formulas(evaluate, case):
    qrels, names = case
    values = measure_lists(["t"], [names], {"t": qrels})
    judged = [name for name in names if name in qrels] or ["none"]
    run = {"t": {name: float(len(judged) - place) for place, name in enumerate(judged)}}
    keys = ["ndcg", "map-l2", "precision@10-l2", "bpref-l2"]
    theirs = evaluate({"t": qrels}, run, keys)
    ours = {key: values[measure.key][0] for key, measure in zip(keys, JUDGED_MEASURES, strict=True)}
    assert ours == pytest.approx(theirs, abs=1e-9)


def test_measures_of_a_known_list():
    qrels = {"t": {"a": 3, "b": 0, "c": 2, "d": 1}}
    values = measure_lists(["t"], [["x", "b", "a", "y", "c"]], qrels)
    ideal = 3 + 2 / np.log2(3) + 1 / np.log2(4)
    assert values["ndcg"] == pytest.approx([(3 / np.log2(3) + 2 / np.log2(4)) / ideal])
    assert values["map"] == pytest.approx([(1 / 2 + 2 / 3) / 2])
    assert values["p10"] == pytest.approx([0.2])
    assert values["bpref"] == pytest.approx([(1 / 2 + 1 / 2) / 2])


def test_measures_of_empty_lists_and_topics_without_relevant_formulas_are_0():
    qrels = {"empty": {"a": 3}, "irrelevant": {"a": 0, "b": 0}, "full": {"a": 3}}
    values = measure_lists(list(qrels), [[], ["a", "b"], ["a"]], qrels)
    assert values["ndcg"] == [0, 0, 1]
    assert values["map"] == [0, 0, 1]
    assert values["bpref"] == [0, 0, 1]
    assert values["p10"] == [0, 0, 0.1]


def test_measures_keep_the_order_of_the_list_whatever_the_names_are():
    names = ["z", "a", "10", "9"]
    qrels = {"t": {"z": 3, "a": 0, "10": 0, "9": 0}}
    assert measure_lists(["t"], [names], qrels, JUDGED_MEASURES[:1])["ndcg"] == [1]
    assert measure_lists(["t"], [names[::-1]], qrels, JUDGED_MEASURES[:1])["ndcg"] == pytest.approx([1 / np.log2(5)])


_sets = st.integers(2, 9).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n),
        st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=n * n, max_size=n * n),
        st.lists(st.integers(0, 3), min_size=2 * n, max_size=2 * n),
    )
)


@given(_sets)
def test_correct_triples_equal_explicit_count(case):
    labels, values, counts = case
    n = len(labels)
    groups = np.unique(labels, return_inverse=True)[1]
    similarity = np.array(values).reshape(n, n)
    similarity = (similarity + similarity.T) / 2
    kinds = int(groups.max()) + 1
    weights = np.array(counts, np.float32)[: 2 * kinds].reshape(2, kinds)
    total, correct = np.zeros((2, kinds, kinds))
    for i, j in combinations(range(n), 2):
        for k in range(n):
            if labels[i] == labels[j] != labels[k]:
                total[groups[i], groups[k]] += 1
                correct[groups[i], groups[k]] += similarity[i, j] >= max(similarity[i, k], similarity[j, k])
    assert count_triples(groups).tolist() == total.tolist()
    assert count_correct_triples(similarity, groups).tolist() == correct.tolist()
    drawn = [np.repeat(np.arange(kinds), row.astype(int)) for row in weights]  # labels, each as often as it was drawn
    shares = [[counted[np.ix_(row, row)].sum() for counted in (correct, total)] for row in drawn]
    expected = [right / every if every else np.nan for right, every in shares]
    assert compute_ranking_scores(correct, total, weights) == pytest.approx(expected, nan_ok=True)


def test_nearest_label_ignores_itself_and_shares_ties():
    similarity = np.array([[9, 0.5, 0.5, 0.1], [0.7, 9, 0.2, 0.1], [0.3, 0.2, 9, 0.4], [0.6, 0.1, 0.1, 9]])
    right = score_nearest_labels(similarity, np.array([0, 0, 1, 2]))
    assert right[:2].tolist() == [0.5, 1]  # the first has two nearest ones, of which one has its label
    assert np.isnan(right[2:]).all()  # alone with their labels
