"""The weights of eqkin's ranker, trained on judged and labelled sets: boosted trees, monotonic in each similarity.

Examples are formulas whose relation to a query is known: of a judged set, all judged formulas of each topic; of a
labelled set, for each equation those of the same label and the most similar ones of other labels. Features are computed
as in a search of the whole collection.

Scores are cross-validated: topics by weights trained on other topics and all labelled sets, a labelled set by weights
trained on all other sets. They are compared with the linear score, which is not trained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, FormulaSet, import_optional, normalize_rows
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.labelled import LabelledSet, score_labels
from eqkin.evaluation.measures import JUDGED_MEASURES, measure_lists
from eqkin.evaluation.tables import Table, TableColumn, TableRow
from eqkin.search.features import (
    FEATURES,
    SIZES,
    FormulaFeatures,
    build_feature_matrix,
    compute_linear_score,
    compute_structural_overlap,
    extract_features,
)
from eqkin.search.rerank import FIRST_STAGE_VECTOR_WEIGHT, LINEAR_SCORE_WEIGHT, RERANK_DEPTH, BoostedTrees
from eqkin.statistics import RESAMPLES, Score, bootstrap_mean, compute_percentile_interval

Integers = npt.NDArray[np.int64]
_Rows = tuple[Float32s, npt.NDArray[np.float64], npt.NDArray[np.float64]]  # features, relevance, weights

BOOSTING_TREES = 120
FOLDS = 5
FOLD_SEED = 3
GRADE_RELEVANCE = np.array([0, 0.25, 0.7, 1])  # target of each grade; higher grades as the last
SAME_LABEL_RELEVANCE = 0.8
NEGATIVES_PER_EQUATION = 30  # equations of other labels
_TOPIC_WEIGHT_EXPONENT = 0.7  # a judgement counts less if its topic has many
_BOOSTING_SETTINGS = {
    "learning_rate": 0.05, "max_leaf_nodes": 8, "min_samples_leaf": 25, "l2_regularization": 5.0,
    "max_features": 0.5, "early_stopping": False, "random_state": 0,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RankingQuery:
    """A query with formulas whose relation to it is known."""

    features: Float32s  # (formulas, features)
    grades: Integers  # (formulas,) grades, or 1 for the same label
    indices: Integers  # (formulas,) in the collection
    unreadable_grades: Sequence[int] = ()  # of judged formulas that cannot be read

    @property
    def linear_scores(self) -> Float32s:
        """The scores without training."""
        return compute_linear_score(self.features)

    def make_rows(self, is_labelled: bool) -> _Rows:
        """Return features, relevance and weights of the training examples."""
        if not is_labelled:
            relevance = GRADE_RELEVANCE[np.minimum(self.grades, len(GRADE_RELEVANCE) - 1)]
            weight = max(len(relevance), 1) ** -_TOPIC_WEIGHT_EXPONENT
            return self.features, relevance, np.full(len(relevance), weight)
        same = self.grades > 0
        if not same.any():
            return self.features[:0], np.zeros(0), np.zeros(0)
        nearest = np.argsort(np.where(same, np.inf, -self.linear_scores), kind="stable")
        negatives = nearest[: min(NEGATIVES_PER_EQUATION, int((~same).sum()))]
        kept = np.concatenate((np.flatnonzero(same), negatives))
        relevance = SAME_LABEL_RELEVANCE * same[kept].astype(np.float64)
        return self.features[kept], relevance, np.full(len(kept), 1 / len(kept))


@dataclass(frozen=True, eq=False)
class RankingExamples:
    """The queries of one set."""

    name: str
    queries: list[RankingQuery]
    labels: Sequence[str] | None = None  # of a labelled set, whose queries are all its equations

    def collect_rows(self, without: Collection[int] = ()) -> list[_Rows]:
        """Collect features, relevance and weights of the queries, without some."""
        chosen = [query for index, query in enumerate(self.queries) if index not in without]
        return [query.make_rows(self.labels is not None) for query in chosen]


class _FeatureCollection:
    """Formulas of a collection, ready to be compared."""

    def __init__(self, formulas: FormulaSet, encoder: Encoder) -> None:
        self.formulas: FormulaFeatures = extract_features(formulas.forest)
        self.vectors = np.asarray(normalize_rows(encoder.embed(formulas.forest)), np.float32)

    def compute_features(
        self, query: FormulaFeatures, vector: Float32s, wanted: Integers, without: int = -1
    ) -> Float32s:
        """Compute features of some formulas, relative to the best of the whole collection."""
        cosines = np.asarray(self.vectors @ vector, np.float32)
        first = compute_structural_overlap(query, self.formulas) + FIRST_STAGE_VECTOR_WEIGHT * cosines
        order = np.argsort(-first, kind="stable")
        needed = np.union1d(order[order != without][:RERANK_DEPTH], wanted)
        columns = build_feature_matrix(query, self.formulas.select(needed), cosines[needed])
        return columns[np.searchsorted(needed, wanted)]


def make_judged_examples(judged: JudgedSet, encoder: Encoder) -> RankingExamples:
    """Make examples of a judged set, without unreadable formulas."""
    topics = _FeatureCollection(judged.topics.formulas, encoder)
    formulas = _FeatureCollection(judged.formulas.formulas, encoder)
    index_of = {name: index for index, name in enumerate(judged.formulas.names) if judged.formulas.readable[index]}
    queries = []
    for topic in np.flatnonzero(judged.topics.readable).tolist():
        grades = judged.qrels[judged.topics.names[topic]]
        names = [name for name in grades if name in index_of]
        indices = np.array([index_of[name] for name in names], np.int64)
        query = topics.formulas.select(np.array([topic]))
        columns = formulas.compute_features(query, topics.vectors[topic], indices)
        unreadable = [grade for name, grade in grades.items() if name not in index_of]
        known = np.array([grades[name] for name in names], np.int64)
        queries.append(RankingQuery(columns, known, indices, unreadable))
    return RankingExamples(judged.name, queries)


def make_labelled_examples(labelled: LabelledSet, encoder: Encoder) -> RankingExamples:
    """Make examples of a labelled set; an equation is not a candidate for itself."""
    collection = _FeatureCollection(labelled.equations.formulas, encoder)
    labels, queries = np.array(labelled.labels), []
    for index in range(len(labelled)):
        others = np.flatnonzero(np.arange(len(labelled)) != index)
        query = collection.formulas.select(np.array([index]))
        columns = collection.compute_features(query, collection.vectors[index], others, without=index)
        queries.append(RankingQuery(columns, (labels[others] == labels[index]).astype(np.int64), others))
    return RankingExamples(labelled.name, queries, labelled.labels)


def make_examples(sets: Sequence[JudgedSet | LabelledSet], encoder: Encoder) -> list[RankingExamples]:
    """Make the examples of all sets."""
    return [
        make_judged_examples(one, encoder) if isinstance(one, JudgedSet) else make_labelled_examples(one, encoder)
        for one in sets
    ]


def fit_examples(
    examples: Sequence[RankingExamples],
    trees: int = BOOSTING_TREES,
    without: tuple[RankingExamples, Sequence[int]] | None = None,
) -> BoostedTrees:
    """Train the weights on all sets, `without` some queries of one; `BoostedTrees.save` writes them for `Ranker.load`.

    Raises `BadInput` if there are no examples, or scikit-learn is not installed.
    """
    parts: list[_Rows] = []
    for one in examples:
        parts += one.collect_rows(without[1] if without and without[0] is one else ())
    if not any(len(relevance) for _, relevance, _ in parts):
        raise BadInput("there is nothing to train the ranker on: give judged or labelled sets")
    features, relevance, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    monotonic = [0 if name in SIZES else 1 for name in FEATURES]
    ensemble = import_optional("sklearn.ensemble")
    model = ensemble.HistGradientBoostingRegressor(max_iter=trees, monotonic_cst=monotonic, **_BOOSTING_SETTINGS)
    return _export_trees(model.fit(features, relevance, sample_weight=weights))


@dataclass(frozen=True)
class CrossValidatedScore:
    """One measure on one set, cross-validated."""

    set_name: str
    measure: str
    linear: Score  # without training
    trained: Score
    difference: Score


def cross_validate(
    examples: Sequence[RankingExamples],
    *,
    trees: int = BOOSTING_TREES,
    folds: int = FOLDS,
    resamples: int = RESAMPLES,
    log: Callable[[str], None] = lambda message: None,
) -> list[CrossValidatedScore]:
    """Measure the ranker on queries it was not trained on, with intervals over topics or labels.

    A set is skipped if there is nothing else to train on.
    """
    found: list[CrossValidatedScore] = []
    for one in examples:
        log(f"{one.name}: training without parts of it")
        if one.labels is None and len(one.queries) > 1:
            found += _cross_validate_judged(one, examples, trees, min(folds, len(one.queries)), resamples)
        elif one.labels is not None and len(examples) > 1:
            found += _cross_validate_labelled(one, examples, trees, resamples)
    return found


def make_cross_validation_table(scores: Sequence[CrossValidatedScore]) -> Table:
    """Make a table of cross-validated scores."""
    names = ("linear", "trained", "difference")
    columns = [TableColumn(name, name, best="") for name in names]
    rows = [TableRow(f"{one.set_name}, {one.measure}", {name: getattr(one, name) for name in names}) for one in scores]
    caption = "Cross-validated; 95 % intervals by bootstrap over topics or labels."
    return Table("ranker", "Ranker", columns, rows, caption)


def _cross_validate_judged(
    one: RankingExamples, examples: Sequence[RankingExamples], trees: int, folds: int, resamples: int
) -> list[CrossValidatedScore]:
    fold = np.random.default_rng(FOLD_SEED).permutation(len(one.queries)) % folds
    trained: dict[int, Float32s] = {}
    for number in range(folds):
        tested = np.flatnonzero(fold == number).tolist()
        weights = fit_examples(examples, trees, (one, tested))
        trained |= {index: _compute_scores(weights, one.queries[index]) for index in tested}
    linear = {index: query.linear_scores for index, query in enumerate(one.queries)}
    values = [_measure_queries(one.queries, scores) for scores in (linear, trained)]
    found = []
    for measure in JUDGED_MEASURES:
        before, after = (np.array(each[measure.key]) for each in values)
        kept = [bootstrap_mean(each, resamples=resamples) for each in (before, after, after - before)]
        found.append(CrossValidatedScore(one.name, measure.title, *kept))
    return found


def _measure_queries(queries: Sequence[RankingQuery], scores: dict[int, Float32s]) -> dict[str, list[float]]:
    """Compute the measures of each query; unreadable formulas are judged but not found."""
    topics = [str(number) for number in range(len(queries))]
    qrels = {}
    for topic, query in zip(topics, queries, strict=True):
        grades = {str(index): int(grade) for index, grade in enumerate(query.grades)}
        qrels[topic] = grades | {f"unreadable-{index}": grade for index, grade in enumerate(query.unreadable_grades)}
    orders = [np.argsort(-scores[number], kind="stable").tolist() for number in range(len(queries))]
    lists = [[str(index) for index in order] for order in orders]
    return measure_lists(topics, lists, qrels)


def _cross_validate_labelled(
    one: RankingExamples, examples: Sequence[RankingExamples], trees: int, resamples: int
) -> list[CrossValidatedScore]:
    weights = fit_examples([other for other in examples if other is not one], trees)
    linear, trained = np.zeros((2, len(one.queries), len(one.queries)))
    for index, query in enumerate(one.queries):
        linear[index, query.indices] = query.linear_scores
        trained[index, query.indices] = _compute_scores(weights, query)
    before, after = (score_labels(each, list(one.labels or ()), resamples=resamples) for each in (linear, trained))
    change = bootstrap_mean(after.correct - before.correct, before.groups, resamples=resamples)
    bounds = compute_percentile_interval(after.rankings - before.rankings)
    gain = Score(after.ranking.value - before.ranking.value, *bounds)
    return [
        CrossValidatedScore(one.name, "accuracy", before.accuracy, after.accuracy, change),
        CrossValidatedScore(one.name, "ranking", before.ranking, after.ranking, gain),
    ]


def _compute_scores(weights: BoostedTrees, query: RankingQuery) -> Float32s:
    """Compute the scores that a search ranks by."""
    return np.asarray(LINEAR_SCORE_WEIGHT * query.linear_scores + weights(query.features), np.float32)


def _export_trees(model: Any) -> BoostedTrees:
    """Copy the trees of scikit-learn's model into arrays."""
    trees = [predictors[0].nodes for predictors in model._predictors]  # there is no public access
    shape = len(trees), max(len(nodes) for nodes in trees)
    own = np.tile(np.arange(shape[1], dtype=np.int16), (shape[0], 1))
    feature, threshold, value = np.zeros(shape, np.int16), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    left, right = own.copy(), own.copy()
    for tree, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[tree, inner] = nodes["feature_idx"][inner]
        exact = nodes["num_threshold"][inner]
        single = exact.astype(np.float32)
        # rounded down, so that the same features are below the threshold
        threshold[tree, inner] = np.where(single > exact, np.nextafter(single, np.float32(-np.inf)), single)
        left[tree, inner], right[tree, inner] = nodes["left"][inner], nodes["right"][inner]
        value[tree, : len(nodes)] = np.where(nodes["is_leaf"], nodes["value"], 0)
    first = np.ravel(model._baseline_prediction).astype(np.float32)[:1]
    return BoostedTrees(FEATURES, feature, threshold, left, right, value, first)
