"""The ranking's weights, learned from judged and labelled sets: boosted trees that only rise with a similarity.

Scores are cross-validated: topics by weights learned from other topics and all labelled sets, a labelled set by those
learned from all other sets. They stand beside those of the plain similarity, which learns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.experiments.labelled import score_labels as labelled_scores
from eqkin.evaluation.metrics.grades import as_grades
from eqkin.evaluation.metrics.measures import JUDGED_MEASURES
from eqkin.evaluation.ranking_examples import (
    RankingExamples,
    RankingQuery,
    make_judged_examples,
    make_labelled_examples,
)
from eqkin.evaluation.results import Score
from eqkin.evaluation.sets.judged import JudgedSet
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.systems.base import Floats
from eqkin.evaluation.systems.terms import import_optional
from eqkin.search.features import FEATURES, SIZES
from eqkin.search.rerank import LINEAR_SCORE_WEIGHT, BoostedTrees
from eqkin.statistics import RESAMPLES, bootstrap_mean, compute_percentile_interval

BOOSTING_TREES = 120
FOLDS = 5
FOLD_SEED = 3  # of the folds
_MAX_LEAVES = 8
_BOOSTING_SETTINGS = {
    "learning_rate": 0.05, "max_leaf_nodes": _MAX_LEAVES, "min_samples_leaf": 25, "l2_regularization": 5.0,
    "max_features": 0.5, "early_stopping": False, "random_state": 0,
}  # fmt: skip


@dataclass(frozen=True)
class CrossValidatedScore:
    """One measure on one set, cross-validated."""

    given: str  # name of the set
    measure: str
    plain: Score  # of what the ranking begins with, nothing learned
    learned: Score
    difference: Score


def fit_ranker(
    judged_sets: Sequence[JudgedSet],
    labelled_sets: Sequence[LabelledSet],
    encoder: Encoder,
    trees: int = BOOSTING_TREES,
) -> BoostedTrees:
    """The weights of the ranking; `BoostedTrees.save` writes a file that `Ranker.load` takes.

    Raises:
        BadInput: There are no examples, or scikit-learn is not installed.
    """
    return fit_examples(make_examples(judged_sets, labelled_sets, encoder), trees)


def make_examples(
    judged_sets: Sequence[JudgedSet], labelled_sets: Sequence[LabelledSet], encoder: Encoder
) -> list[RankingExamples]:
    """The examples of all sets."""
    return [make_judged_examples(one, encoder) for one in judged_sets] + [
        make_labelled_examples(one, encoder) for one in labelled_sets
    ]


def fit_examples(
    examples: Sequence[RankingExamples],
    trees: int = BOOSTING_TREES,
    without: tuple[RankingExamples, Sequence[int]] | None = None,
) -> BoostedTrees:
    """Learn from examples, but not from some queries of one of the sets.

    Raises:
        BadInput: There are none, or scikit-learn is not installed.
    """
    parts = []
    for one in examples:
        left_out = set(without[1]) if without and without[0] is one else set()
        parts.append(one.collect_rows([at for at in range(len(one.queries)) if at not in left_out]))
    columns, related, weights = (np.concatenate([part[at] for part in parts] or [np.zeros(0)]) for at in range(3))
    if not len(related):
        raise BadInput("there is nothing to learn the ranking from: give judged or labelled sets")
    rising = [0 if name in SIZES else 1 for name in FEATURES]
    ensemble = import_optional("sklearn.ensemble")
    model = ensemble.HistGradientBoostingRegressor(max_iter=trees, monotonic_cst=rising, **_BOOSTING_SETTINGS)
    return _export_trees(model.fit(columns, related, sample_weight=weights))


def cross_validate(
    examples: Sequence[RankingExamples],
    *,
    trees: int = BOOSTING_TREES,
    folds: int = FOLDS,
    resamples: int = RESAMPLES,
    tell: Callable[[str], None] = lambda message: None,
) -> list[CrossValidatedScore]:
    """How well the ranking does on what it did not learn from, with intervals over topics or labels.

    A set is left out if there is nothing else to learn from.
    """
    found: list[CrossValidatedScore] = []
    for one in examples:
        tell(f"{one.name}: learning without parts of it")
        if one.labels is None:
            found += (
                _cross_validate_judged(one, examples, trees, min(folds, len(one.queries)), resamples)
                if len(one.queries) > 1
                else []
            )
        elif len(examples) > 1:
            found += _cross_validate_labelled(one, examples, trees, resamples)
    return found


def _cross_validate_judged(
    one: RankingExamples, examples: Sequence[RankingExamples], trees: int, folds: int, resamples: int
) -> list[CrossValidatedScore]:
    fold = np.random.default_rng(FOLD_SEED).permutation(len(one.queries)) % folds
    learned: dict[int, Floats] = {}
    for number in range(folds):
        asked = np.flatnonzero(fold == number).tolist()
        weights = fit_examples(examples, trees, (one, asked))
        learned |= {at: _compute_scores(weights, one.queries[at]) for at in asked}
    found = []
    for measure in JUDGED_MEASURES:
        values = [
            np.array(
                [
                    _measure_query(measure.compute, query, scores)
                    for query, scores in zip(one.queries, given, strict=True)
                ]
            )
            for given in (
                [query.linear_scores for query in one.queries],
                [learned[at] for at in range(len(one.queries))],
            )
        ]
        kept = [bootstrap_mean(each, resamples=resamples) for each in (*values, values[1] - values[0])]
        found.append(CrossValidatedScore(one.name, measure.title, *kept))
    return found


def _measure_query(measure: Callable[[Any, Any], float], query: RankingQuery, scores: Floats) -> float:
    order = np.argsort(-scores, kind="stable")
    return float(measure(as_grades(query.grades[order].tolist()), as_grades(query.topic_grades.tolist())))


def _cross_validate_labelled(
    one: RankingExamples, examples: Sequence[RankingExamples], trees: int, resamples: int
) -> list[CrossValidatedScore]:
    weights = fit_examples([other for other in examples if other is not one], trees)
    labels = list(one.labels or ())
    plain, learned = (
        labelled_scores(_to_square([score(query) for query in one.queries], one.queries), labels, resamples=resamples)
        for score in (lambda query: query.plain, lambda query: _compute_scores(weights, query))
    )
    change = bootstrap_mean(learned.correct - plain.correct, plain.groups, resamples=resamples)
    gain = Score(
        learned.ranking.value - plain.ranking.value, *compute_percentile_interval(learned.rankings - plain.rankings)
    )
    return [
        CrossValidatedScore(one.name, "accuracy", plain.accuracy, learned.accuracy, change),
        CrossValidatedScore(one.name, "ranking", plain.ranking, learned.ranking, gain),
    ]


def _to_square(rows: Sequence[Floats], queries: Sequence[RankingQuery]) -> npt.NDArray[np.float64]:
    similarity = np.zeros((len(rows), len(rows)))
    for at, (row, query) in enumerate(zip(rows, queries, strict=True)):
        similarity[at, query.places] = row
    return similarity


def _compute_scores(weights: BoostedTrees, query: RankingQuery) -> Floats:
    """What a search orders by."""
    return np.asarray(LINEAR_SCORE_WEIGHT * query.linear_scores + weights(query.features), np.float32)


def _export_trees(model: Any) -> BoostedTrees:
    """The trees of scikit-learn's model as arrays."""
    trees = [predictors[0].nodes for predictors in model._predictors]  # no public way leads there
    shape = len(trees), max(len(nodes) for nodes in trees)
    own = np.tile(np.arange(shape[1], dtype=np.int16), (shape[0], 1))
    feature, threshold, value = np.zeros(shape, np.int16), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    left, right = own.copy(), own.copy()
    for tree, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[tree, inner] = nodes["feature_idx"][inner]
        threshold[tree, inner] = _round_down(nodes["num_threshold"][inner])
        left[tree, inner], right[tree, inner] = nodes["left"][inner], nodes["right"][inner]
        value[tree, : len(nodes)] = np.where(nodes["is_leaf"], nodes["value"], 0)
    first = np.ravel(model._baseline_prediction).astype(np.float32)[:1]
    return BoostedTrees(FEATURES, feature, threshold, left, right, value, first)


def _round_down(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The largest single-precision numbers that are no larger, so that the same features lie below."""
    single = thresholds.astype(np.float32)
    lower: npt.NDArray[np.float32] = np.where(single > thresholds, np.nextafter(single, np.float32(-np.inf)), single)
    return lower
