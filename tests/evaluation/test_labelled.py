"""Labelled sets are read or refused with a reason; scores and intervals are those of drawing labels one by one."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from eqkin import Encoder
from eqkin.atlas import load_equation_groups
from eqkin.errors import BadInput, LimitReached
from eqkin.evaluation.labelled import (
    LabelledSet,
    compare_labelled,
    load_atlas_set,
    read_labelled,
    score_labels,
    summarize_labelled,
)
from eqkin.evaluation.measures import Score, draw_bootstrap_weights
from tests.evaluation.small_systems import Characters, Sizes

_ENTRIES = [
    {"latex": r"\frac{a}{b}", "label": "fraction"},
    {"latex": r"\frac{x}{y}", "label": "fraction"},
    {"latex": r"\frac{p+1}{q}", "label": "fraction"},
    {"latex": r"\sum_{i=1}^n x_i", "label": "sum"},
    {"latex": r"\sum_{k=0}^m a_k", "label": "sum"},
    {"latex": r"\int_0^1 f(x)\,dx", "label": "integral"},
]


def _file(folder: Path, entries: object = _ENTRIES) -> Path:
    path = folder / "my equations.json"
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries), "utf-8")
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LabelledSet:
    return read_labelled(_file(tmp_path_factory.mktemp("labelled")))


def test_labelled_set_keeps_labels_latex_and_trees(small):
    assert small.name == "my-equations"
    assert small.labels == [entry["label"] for entry in _ENTRIES]
    assert small.equations.formulas.latex == [entry["latex"] for entry in _ENTRIES]
    assert len(small.equations.formulas) == 6


def test_labelled_set_accepts_numbers_as_labels(tmp_path):
    found = read_labelled(_file(tmp_path, [{"latex": "x", "label": 3}, {"latex": "x", "label": " 3 "}]))
    assert found.labels == ["3", "3"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("", "not JSON"),
        ("{}", "a list of"),
        ([], "no equations"),
        ([{"latex": "x"}], 'entry 1: "label" must be'),
        ([{"latex": "x", "label": " "}], 'entry 1: "label" must be'),
        ([{"latex": "x", "label": True}], 'entry 1: "label" must be'),
        ([{"latex": "x", "label": "a"}, {"latex": None, "label": "a"}], 'entry 2: "latex" must be'),
        (["x"], 'entry 1: "latex" must be'),
    ],
)
def test_read_labelled_rejects_other_forms(tmp_path, entries, message):
    with pytest.raises(BadInput, match=message):
        read_labelled(_file(tmp_path, entries))


def test_read_labelled_reports_missing_file(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_labelled(tmp_path / "none.json")


def test_read_labelled_limits_size(tmp_path):
    with pytest.raises(LimitReached, match="give a part"):
        read_labelled(_file(tmp_path, [{"latex": "x", "label": "a"}] * 5_001))


def test_read_labelled_names_unreadable_formulas(tmp_path):
    entries = [*_ENTRIES[:3], {"latex": r"\frac{1}", "label": "fraction"}, *_ENTRIES[3:]]
    path = _file(tmp_path, entries)
    with pytest.raises(BadInput, match=r"entry 4, '\\\\frac\{1\}': the formula cannot be read"):
        read_labelled(path)


def test_atlas_is_a_labelled_set():
    found = load_atlas_set()
    groups = load_equation_groups()
    label = dict(zip(found.equations.names, found.labels, strict=True))
    assert label == {member: group.id for group in groups for member in group.equations}
    assert len(found.equations.formulas) == len(found) == len(label)
    assert not found.equations.problems
    place = list(found.equations.names).index("probability:bayes")
    assert r"\frac" in found.equations.formulas.latex[place]
    forest = found.equations.formulas.forest.select([place])
    assert "mfrac" in forest.tags


def _one_by_one(similarity: np.ndarray, labels: list[str], weight: dict[str, float]) -> tuple[float, float]:
    n = len(labels)
    right = total = 0.0
    for i, j in combinations(range(n), 2):
        for k in range(n):
            if labels[i] == labels[j] != labels[k]:
                w = weight[labels[i]] * weight[labels[k]]
                total += w
                right += w * (similarity[i, j] >= max(similarity[i, k], similarity[j, k]))
    queries = [i for i in range(n) if labels.count(labels[i]) > 1]
    nearest = [max((j for j in range(n) if j != i), key=lambda j: similarity[i, j]) for i in queries]
    accuracy = np.mean([labels[i] == labels[j] for i, j in zip(queries, nearest, strict=True)])
    return float(accuracy), right / total if total else np.nan


def test_score_labels_and_its_resamples_equal_explicit_triples():
    generator = np.random.default_rng(7)
    labels = [*"aaaabbbccd"]
    similarity = generator.random((10, 10))
    similarity = np.round(similarity + similarity.T, 6)
    found = score_labels(similarity, labels, resamples=40)
    accuracy, ranking = _one_by_one(similarity, labels, dict.fromkeys(labels, 1.0))
    assert found.accuracy.value == pytest.approx(accuracy)
    assert found.ranking.value == pytest.approx(ranking)
    resampled = [
        _one_by_one(similarity, labels, dict(zip("abcd", row.tolist(), strict=True)))[1]
        for row in draw_bootstrap_weights(4, 40)
    ]
    assert found.rankings == pytest.approx(resampled, nan_ok=True)
    low, high = np.nanquantile(resampled, [0.025, 0.975])
    assert (found.ranking.low, found.ranking.high) == pytest.approx((low, high))
    assert len(found.correct) == 9  # d is alone


def test_score_labels_of_perfect_and_useless_similarities():
    labels = [*"aabbcc"]
    same = np.equal.outer(labels, labels).astype(float)
    perfect = score_labels(same, labels, resamples=50)
    assert perfect.accuracy == perfect.ranking == Score(1.0, 1.0, 1.0)
    worst = score_labels(1 - same, labels, resamples=50)
    assert worst.accuracy == worst.ranking == Score(0.0, 0.0, 0.0)
    constant = score_labels(np.ones((6, 6)), labels, resamples=50)
    assert constant.accuracy.value == pytest.approx(1 / 5)  # all five others are equally near


def test_score_labels_treats_single_label_as_distractor():
    similarity = np.array([[1, 0.5, 0.9], [0.5, 1, 0.1], [0.9, 0.1, 1]])
    found = score_labels(similarity, ["a", "a", "b"], resamples=50)
    assert found.accuracy.value == 0.5
    assert found.ranking.value == 0


def test_score_labels_treats_rounding_noise_as_tie():
    similarity = np.full((4, 4), 0.7) + 1e-9 * np.random.default_rng(0).random((4, 4))
    assert score_labels(similarity, [*"aabb"], resamples=50).ranking.value == 1


def test_score_labels_averages_directions_for_ranking():
    similarity = np.array([[0, 0.9, 0.5], [0.1, 0, 0.3], [0.5, 0.9, 0]])
    found = score_labels(similarity, ["a", "a", "b"], resamples=50)
    assert found.accuracy.value == 0.5
    assert found.ranking.value == 0  # .5 for the pair, .6 for one of it and the third


@pytest.mark.parametrize(
    ("similarity", "labels", "message"),
    [
        (np.ones((2, 2)), ["a", "a"], r"only one label \(a\)"),
        (np.ones((2, 2)), ["a", "b"], "no label occurs twice"),
        (np.ones((0, 0)), [], "only one label"),
        (np.ones((2, 3)), ["a", "a"], "as many rows"),
        (np.full((3, 3), np.nan), ["a", "a", "b"], "not finite"),
    ],
)
def test_score_labels_rejects_bad_input(similarity, labels, message):
    with pytest.raises(BadInput, match=message):
        score_labels(similarity, labels)


def test_summary_has_scores_of_engine_and_vector(small):
    found = summarize_labelled(small, resamples=100)
    assert set(found) == {"accuracy", "ranking", "embedding", "intervals", "equations", "labels"}
    assert set(found["embedding"]) == {"accuracy", "ranking"}
    assert (found["equations"], found["labels"]) == (6, 3)
    vectors = Encoder.load().encode([entry["latex"] for entry in _ENTRIES]).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    distance = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)  # the paper's, as it is defined
    accuracy, ranking = _one_by_one(-distance, small.labels, dict.fromkeys(small.labels, 1.0))
    assert found["embedding"] == pytest.approx({"accuracy": 100 * accuracy, "ranking": 100 * ranking}, abs=1e-3)
    for scored, intervals in ((found, found["intervals"]), (found["embedding"], found["intervals"]["embedding"])):
        for key in ("accuracy", "ranking"):
            low, high = intervals[key]
            assert 0 <= low <= scored[key] <= high <= 100
    assert json.loads(json.dumps(found)) == found


def test_compare_labelled_tests_systems_against_the_first(small):
    first, second = compare_labelled([Characters(), Sizes()], small, resamples=100)
    direct = score_labels(Characters().rank(*[small.equations.formulas] * 2), small.labels, resamples=100)
    assert first["accuracy"] == pytest.approx(100 * direct.accuracy.value, abs=1e-3)
    assert first["ranking"] == pytest.approx(100 * direct.ranking.value, abs=1e-3)
    assert "p" not in first and all(0 < p <= 1 for p in second["p"].values())


def test_systems_tuned_on_a_set_are_marked(small):
    tuned = Characters()
    tuned.tuned_on = ("another", small.name)
    marked, plain = compare_labelled([tuned, Sizes()], small, resamples=10)
    assert small.name in marked["warnings"][0] and plain["warnings"] == []
