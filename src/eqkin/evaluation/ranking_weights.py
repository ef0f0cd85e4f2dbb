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

from eqkin.errors import BadInput
from eqkin.evaluation.bootstrap import RESAMPLES, mean_interval, middle
from eqkin.evaluation.experiments.labelled import scores as labelled_scores
from eqkin.evaluation.metrics.grades import as_grades
from eqkin.evaluation.metrics.measures import JUDGED
from eqkin.evaluation.ranking_examples import Examples, Query, judged_examples, labelled_examples
from eqkin.evaluation.results import Score
from eqkin.evaluation.sets.judged import JudgedSet
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.systems.base import Floats
from eqkin.evaluation.systems.terms import installed
from eqkin.network.encoder import Encoder
from eqkin.search.boosted import BoostedTrees
from eqkin.search.kinship import FEATURES, SIZES
from eqkin.search.ranker import PLAIN_WEIGHT

TREES = 120
FOLDS = 5
SEED = 3  # of the folds
_LEAVES = 8
_SETTINGS = {
    "learning_rate": 0.05, "max_leaf_nodes": _LEAVES, "min_samples_leaf": 25, "l2_regularization": 5.0,
    "max_features": 0.5, "early_stopping": False, "random_state": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """One measure on one set, cross-validated."""

    given: str  # name of the set
    measure: str
    plain: Score  # of what the ranking begins with, nothing learned
    learned: Score
    difference: Score


def fit(
    judged_sets: Sequence[JudgedSet], labelled_sets: Sequence[LabelledSet], encoder: Encoder, trees: int = TREES
) -> BoostedTrees:
    """The weights of the ranking; `BoostedTrees.save` writes a file that `Ranker.load` takes.

    Raises:
        BadInput: There are no examples, or scikit-learn is not installed.
    """
    return fit_examples(examples_of(judged_sets, labelled_sets, encoder), trees)


def examples_of(
    judged_sets: Sequence[JudgedSet], labelled_sets: Sequence[LabelledSet], encoder: Encoder
) -> list[Examples]:
    """The examples of all sets."""
    return [judged_examples(one, encoder) for one in judged_sets] + [
        labelled_examples(one, encoder) for one in labelled_sets
    ]


def fit_examples(
    examples: Sequence[Examples], trees: int = TREES, without: tuple[Examples, Sequence[int]] | None = None
) -> BoostedTrees:
    """Learn from examples, but not from some queries of one of the sets.

    Raises:
        BadInput: There are none, or scikit-learn is not installed.
    """
    parts = []
    for one in examples:
        left_out = set(without[1]) if without and without[0] is one else set()
        parts.append(one.rows([at for at in range(len(one.queries)) if at not in left_out]))
    columns, related, weights = (np.concatenate([part[at] for part in parts] or [np.zeros(0)]) for at in range(3))
    if not len(related):
        raise BadInput("there is nothing to learn the ranking from: give judged or labelled sets")
    rising = [0 if name in SIZES else 1 for name in FEATURES]
    ensemble = installed("sklearn.ensemble")
    model = ensemble.HistGradientBoostingRegressor(max_iter=trees, monotonic_cst=rising, **_SETTINGS)
    return _exported(model.fit(columns, related, sample_weight=weights))


def cross_validated(
    examples: Sequence[Examples],
    *,
    trees: int = TREES,
    folds: int = FOLDS,
    resamples: int = RESAMPLES,
    tell: Callable[[str], None] = lambda message: None,
) -> list[Scored]:
    """How well the ranking does on what it did not learn from, with intervals over topics or labels.

    A set is left out if there is nothing else to learn from.
    """
    found: list[Scored] = []
    for one in examples:
        tell(f"{one.name}: learning without parts of it")
        if one.labels is None:
            found += (
                _judged(one, examples, trees, min(folds, len(one.queries)), resamples) if len(one.queries) > 1 else []
            )
        elif len(examples) > 1:
            found += _labelled(one, examples, trees, resamples)
    return found


def _judged(one: Examples, examples: Sequence[Examples], trees: int, folds: int, resamples: int) -> list[Scored]:
    fold = np.random.default_rng(SEED).permutation(len(one.queries)) % folds
    learned: dict[int, Floats] = {}
    for number in range(folds):
        asked = np.flatnonzero(fold == number).tolist()
        weights = fit_examples(examples, trees, (one, asked))
        learned |= {at: _total(weights, one.queries[at]) for at in asked}
    found = []
    for measure in JUDGED:
        values = [
            np.array([_measured(measure.of, query, scores) for query, scores in zip(one.queries, given, strict=True)])
            for given in ([query.plain for query in one.queries], [learned[at] for at in range(len(one.queries))])
        ]
        kept = [mean_interval(each, resamples=resamples) for each in (*values, values[1] - values[0])]
        found.append(Scored(one.name, measure.title, *kept))
    return found


def _measured(measure: Callable[[Any, Any], float], query: Query, scores: Floats) -> float:
    order = np.argsort(-scores, kind="stable")
    return float(measure(as_grades(query.known[order].tolist()), as_grades(query.every.tolist())))


def _labelled(one: Examples, examples: Sequence[Examples], trees: int, resamples: int) -> list[Scored]:
    weights = fit_examples([other for other in examples if other is not one], trees)
    labels = list(one.labels or ())
    plain, learned = (
        labelled_scores(_square([score(query) for query in one.queries], one.queries), labels, resamples=resamples)
        for score in (lambda query: query.plain, lambda query: _total(weights, query))
    )
    change = mean_interval(learned.right - plain.right, plain.groups, resamples=resamples)
    gain = Score(learned.ranking.value - plain.ranking.value, *middle(learned.rankings - plain.rankings))
    return [
        Scored(one.name, "accuracy", plain.accuracy, learned.accuracy, change),
        Scored(one.name, "ranking", plain.ranking, learned.ranking, gain),
    ]


def _square(rows: Sequence[Floats], queries: Sequence[Query]) -> npt.NDArray[np.float64]:
    similarity = np.zeros((len(rows), len(rows)))
    for at, (row, query) in enumerate(zip(rows, queries, strict=True)):
        similarity[at, query.places] = row
    return similarity


def _total(weights: BoostedTrees, query: Query) -> Floats:
    """What a search orders by."""
    return np.asarray(PLAIN_WEIGHT * query.plain + weights(query.columns), np.float32)


def _exported(model: Any) -> BoostedTrees:
    """The trees of scikit-learn's model as arrays."""
    trees = [predictors[0].nodes for predictors in model._predictors]  # no public way leads there
    shape = len(trees), max(len(nodes) for nodes in trees)
    own = np.tile(np.arange(shape[1], dtype=np.int16), (shape[0], 1))
    feature, threshold, value = np.zeros(shape, np.int16), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    left, right = own.copy(), own.copy()
    for tree, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[tree, inner] = nodes["feature_idx"][inner]
        threshold[tree, inner] = _rounded_down(nodes["num_threshold"][inner])
        left[tree, inner], right[tree, inner] = nodes["left"][inner], nodes["right"][inner]
        value[tree, : len(nodes)] = np.where(nodes["is_leaf"], nodes["value"], 0)
    first = np.ravel(model._baseline_prediction).astype(np.float32)[:1]
    return BoostedTrees(FEATURES, feature, threshold, left, right, value, first)


def _rounded_down(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The largest single-precision numbers that are no larger, so that the same features lie below."""
    single = thresholds.astype(np.float32)
    lower: npt.NDArray[np.float32] = np.where(single > thresholds, np.nextafter(single, np.float32(-np.inf)), single)
    return lower
