"""Training of the ranker: examples as in a search, trees as scikit-learn's, tests on other queries only."""

from itertools import product

import numpy as np
import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import NamedFormulas, normalize_rows
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.labelled import LabelledSet
from eqkin.search.features import FEATURES, LINEAR_WEIGHTS, SIMILARITIES, SIZES, build_feature_matrix, extract_features
from eqkin.search.rerank import BoostedTrees, Ranker
from reproduce.ranker import (
    GRADE_RELEVANCE,
    NEGATIVES_PER_EQUATION,
    SAME_LABEL_RELEVANCE,
    RankingExamples,
    RankingQuery,
    _export_trees,
    cross_validate,
    fit_examples,
    make_examples,
    make_judged_examples,
    make_labelled_examples,
)
from tests.evaluation.formulas import formulas

ensemble = pytest.importorskip("sklearn.ensemble", reason="tuning needs scikit-learn: pip install 'eqkin[eval]'")

FORMS = {
    "square": "{0}^2 + {1}^2 = {2}^2",
    "sum": r"\sum_{{{0}=1}}^{1} {0}^2 = {2}",
    "integral": r"\int_{0}^{1} f({2}) \, d{2}",
    "fraction": r"\frac{{{0}}}{{{1} + {2}}} = 1",
}
LETTERS = ("abc", "xyz", "pqr", "uvw", "klm", "rst", "ghe", "nij")
KINDS = [(kind, form.format(*letters)) for (kind, form), letters in product(FORMS.items(), LETTERS)]


@pytest.fixture(scope="module")
def labelled():
    named = NamedFormulas([str(at) for at in range(len(KINDS))], formulas(*(latex for _, latex in KINDS)))
    return LabelledSet("kinds", named, [kind for kind, _ in KINDS])


@pytest.fixture(scope="module")
def judged(labelled):
    """Topics that ask for each kind; formula 0 of each is the best, the others follow, some are not judged."""
    asked = formulas(*(form.format("e", "d", "o") for form in FORMS.values()))
    qrels = {
        kind: {str(at): 0 if other != kind else 3 - at % 2 for at, (other, _) in enumerate(KINDS) if at % 5}
        for kind in FORMS
    }
    return JudgedSet("topics", NamedFormulas(list(FORMS), asked), labelled.equations, qrels)


@pytest.fixture(scope="module")
def examples(judged, labelled):
    encoder = Encoder.load()
    return [make_judged_examples(judged, encoder), make_labelled_examples(labelled, encoder)]


def vectors_of(given):
    return normalize_rows(Encoder.load().embed(given.forest))


def test_ranking_features_equal_those_of_a_search(examples, judged):
    ours, theirs = judged.topics.formulas, judged.formulas.formulas
    query = extract_features(ours.forest).select(np.array([1]))
    expected = build_feature_matrix(query, extract_features(theirs.forest), vectors_of(theirs) @ vectors_of(ours)[1])
    found = examples[0].queries[1]
    np.testing.assert_allclose(found.features, expected[found.indices], rtol=1e-5, atol=1e-5)
    assert found.grades.tolist() == [judged.qrels["sum"][judged.formulas.names[place]] for place in found.indices]


def test_equation_is_not_a_candidate_for_itself(examples, labelled):
    for at, query in enumerate(examples[1].queries):
        assert query.indices.tolist() == [other for other in range(len(KINDS)) if other != at]
        assert query.grades.sum() == len(LETTERS) - 1
    theirs = extract_features(labelled.equations.formulas.forest)
    vectors = vectors_of(labelled.equations.formulas)
    others = np.arange(1, len(KINDS))
    expected = build_feature_matrix(theirs.select(np.array([0])), theirs.select(others), vectors[others] @ vectors[0])
    np.testing.assert_allclose(examples[1].queries[0].features, expected, rtol=1e-5, atol=1e-5)


def join(rows):
    return [np.concatenate(column) for column in zip(*rows, strict=True)]


def test_collect_rows_gives_relevance_and_weights():
    columns = np.random.default_rng(0).random((50, len(FEATURES))).astype(np.float32)
    known = np.arange(50) % 5
    judged = RankingExamples("j", [RankingQuery(columns, known, np.arange(50))])
    _, related, weights = join(judged.collect_rows())
    assert related.tolist() == GRADE_RELEVANCE[[0, 1, 2, 3, 3]].tolist() * 10
    assert (weights == 50**-0.7).all()
    query = RankingQuery(columns, (np.arange(50) == 7).astype(np.int64), np.arange(50))
    alone = RankingQuery(columns, np.zeros(50, np.int64), np.arange(50))
    rows, related, weights = join(RankingExamples("l", [query, alone], ["x"] * 51).collect_rows())
    assert related.tolist() == [SAME_LABEL_RELEVANCE] + [0] * NEGATIVES_PER_EQUATION
    assert weights.sum() == pytest.approx(1)
    nearest = sorted(set(range(50)) - {7}, key=lambda at: -query.linear_scores[at])[:NEGATIVES_PER_EQUATION]
    assert np.array_equal(rows, columns[[7, *nearest]])


def test_exported_trees_predict_as_scikit_learn():
    draw = np.random.default_rng(0)
    columns = draw.random((400, len(FEATURES))).astype(np.float32).round(1)  # many lie on a threshold
    target = columns[:, 0] + columns[:, 5] * columns[:, 9]
    model = ensemble.HistGradientBoostingRegressor(max_iter=20, max_leaf_nodes=8).fit(columns, target)
    trees = _export_trees(model)
    assert len(trees.feature) == 20
    np.testing.assert_allclose(trees(columns), model.predict(columns), atol=1e-6)
    other = draw.random((400, len(FEATURES))).astype(np.float32)
    np.testing.assert_allclose(trees(other), model.predict(other), atol=1e-6)


def test_trained_ranker_is_monotonic_in_every_similarity(judged, labelled, tmp_path):
    fit_examples(make_examples([judged, labelled], Encoder.load()), 20).save(tmp_path / "weights")
    Ranker.load(tmp_path / "weights")
    trees = BoostedTrees.load(tmp_path / "weights")
    assert np.ptp(trees.value) > 0.01
    columns = np.random.default_rng(1).random((200, len(FEATURES))).astype(np.float32)
    for at, name in enumerate(FEATURES):
        if name not in SIZES:
            more = columns.copy()
            more[:, at] += 0.5
            assert (trees(more) >= trees(columns) - 1e-6).all()


def test_fit_leaves_out_queries(examples):
    judged, labelled = examples
    without = fit_examples(examples, 10, (judged, [0, 2]))
    fewer = fit_examples([RankingExamples("fewer", [judged.queries[1], judged.queries[3]]), labelled], 10)
    everything = fit_examples(examples, 10)
    columns = judged.queries[0].features
    assert np.array_equal(without(columns), fewer(columns))
    assert not np.array_equal(without(columns), everything(columns))


def test_cross_validation_has_intervals_and_beats_reversed_features(examples):
    logged = []
    found = cross_validate(examples, trees=20, folds=2, resamples=50, log=logged.append)
    assert [(one.set_name, one.measure) for one in found] == [
        ("topics", "nDCG'"), ("topics", "MAP'"), ("topics", "P'@10"), ("topics", "bpref"),
        ("kinds", "accuracy"), ("kinds", "ranking"),
    ]  # fmt: skip
    assert len(logged) == 2
    for one in found:
        assert one.difference.value == pytest.approx(one.trained.value - one.linear.value)
        for score in (one.linear, one.trained, one.difference):
            assert score.low <= score.value <= score.high
    assert found[0].trained.value > 0.9
    reversed_ = [RankingQuery(-query.features, query.grades, query.indices) for query in examples[0].queries]
    assert (
        cross_validate([RankingExamples("against", reversed_)], trees=2, resamples=10)[0].linear.value
        < found[0].linear.value
    )
    assert cross_validate(examples[1:], trees=2) == []  # nothing else to learn from


def test_fit_rejects_no_examples():
    with pytest.raises(BadInput, match="nothing to train the ranker on"):
        fit_examples([])


def test_linear_score_weights_similarities():
    columns = np.zeros((1, len(FEATURES)), np.float32)
    columns[0, SIMILARITIES.index("counted")], columns[0, SIMILARITIES.index("vector")] = 0.5, 1
    expected = (0.5 * LINEAR_WEIGHTS["counted"] + LINEAR_WEIGHTS["vector"]) / sum(LINEAR_WEIGHTS.values())
    nothing = np.zeros(1, np.int64)
    assert RankingQuery(columns, nothing, nothing).linear_scores == pytest.approx(expected)
