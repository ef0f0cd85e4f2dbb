"""What the ranking's weights are learned from: features of formulas whose relation to a query is known.

Of a judged set, all judged formulas of each topic; of a labelled set, for each equation those of the same label and the
most similar of other labels. Features are as in a search of the whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.sets.judged import JudgedSet
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.systems.base import Floats, FormulaSet, normalize_rows
from eqkin.search import features
from eqkin.search.features import FormulaFeatures, extract_features
from eqkin.search.rerank import FIRST_STAGE_VECTOR_WEIGHT, RERANK_DEPTH

GRADE_RELEVANCE = np.array([0, 0.25, 0.7, 1])  # how related a formula of each grade is; higher ones as the last
SAME_LABEL_RELEVANCE = 0.8
NEGATIVES_PER_EQUATION = 30  # equations of other labels, for each
_TOPIC_WEIGHT_EXPONENT = 0.7  # how much many judgements of a topic count less each

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RankingQuery:
    """A query with formulas whose relation to it is known."""

    features: Floats  # (formulas, features)
    grades: Integers  # (formulas,) grades, or 1 for the same label
    places: Integers  # (formulas,) in the collection
    topic_grades: Integers  # all grades of the topic, also of formulas that cannot be read

    @property
    def linear_scores(self) -> Floats:
        """What the ranking begins with, nothing learned."""
        return features.compute_linear_score(self.features)


@dataclass(frozen=True, eq=False)
class RankingExamples:
    """The queries of one set."""

    name: str
    queries: list[RankingQuery]
    labels: Sequence[str] | None = None  # of a labelled set, whose queries are all its equations

    def collect_rows(
        self, queries: Sequence[int] | None = None
    ) -> tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Features, how related, and weights of the examples of some queries; by default of all."""
        chosen = range(len(self.queries)) if queries is None else queries
        parts = [
            _make_labelled_rows(self.queries[at]) if self.labels else _make_judged_rows(self.queries[at])
            for at in chosen
        ]
        parts = [part for part in parts if len(part[1])]
        if not parts:
            return np.zeros((0, len(features.FEATURES)), np.float32), np.zeros(0), np.zeros(0)
        columns, related, weights = zip(*parts, strict=True)
        return np.concatenate(columns), np.concatenate(related), np.concatenate(weights)


def make_judged_examples(given: JudgedSet, encoder: Encoder) -> RankingExamples:
    """Those of a judged set; what cannot be read is left out."""
    asked, ranked = (
        _FeatureCollection(given.topics.formulas, encoder),
        _FeatureCollection(given.formulas.formulas, encoder),
    )
    place = {name: at for at, name in enumerate(given.formulas.names) if given.formulas.readable[at]}
    queries = []
    for at in np.flatnonzero(given.topics.readable).tolist():
        grades = given.qrels[given.topics.names[at]]
        names = [name for name in grades if name in place]
        places = np.array([place[name] for name in names], np.int64)
        columns = ranked.compute_features(asked.profile.select(np.array([at])), asked.vectors[at], places)
        every = np.array(list(grades.values()), np.int64)
        queries.append(RankingQuery(columns, np.array([grades[name] for name in names], np.int64), places, every))
    return RankingExamples(given.name, queries)


def make_labelled_examples(given: LabelledSet, encoder: Encoder) -> RankingExamples:
    """Those of a labelled set; no equation is a candidate for itself."""
    collection = _FeatureCollection(given.equations.formulas, encoder)
    labels, queries = np.array(given.labels), []
    for at in range(len(given)):
        others = np.flatnonzero(np.arange(len(given)) != at)
        query = collection.profile.select(np.array([at]))
        columns = collection.compute_features(query, collection.vectors[at], others, without=at)
        same = (labels[others] == labels[at]).astype(np.int64)
        queries.append(RankingQuery(columns, same, others, same))
    return RankingExamples(given.name, queries, given.labels)


class _FeatureCollection:
    """Formulas, ready to be compared."""

    def __init__(self, formulas: FormulaSet, encoder: Encoder) -> None:
        self.profile: FormulaFeatures = extract_features(formulas.forest)
        self.vectors = np.asarray(normalize_rows(encoder.embed(formulas.forest)), np.float32)

    def compute_features(self, query: FormulaFeatures, vector: Floats, wanted: Integers, without: int = -1) -> Floats:
        """Features of some formulas, which compare them with the best of the whole collection."""
        cosines = np.asarray(self.vectors @ vector, np.float32)
        first = features.compute_structural_overlap(query, self.profile) + FIRST_STAGE_VECTOR_WEIGHT * cosines
        order = np.argsort(-first, kind="stable")
        needed = np.union1d(order[order != without][:RERANK_DEPTH], wanted)
        columns = features.build_feature_matrix(query, self.profile.select(needed), cosines[needed])
        return columns[np.searchsorted(needed, wanted)]


_Rows = tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]


def _make_judged_rows(query: RankingQuery) -> _Rows:
    related = GRADE_RELEVANCE[np.minimum(query.grades, len(GRADE_RELEVANCE) - 1)]
    return query.features, related, np.full(len(related), max(len(related), 1) ** -_TOPIC_WEIGHT_EXPONENT)


def _make_labelled_rows(query: RankingQuery) -> _Rows:
    """Equations of the same label and the most similar others; none where nobody has the label."""
    same = query.grades > 0
    if not same.any():
        return query.features[:0], np.zeros(0), np.zeros(0)
    others = np.argsort(np.where(same, np.inf, -query.linear_scores), kind="stable")[
        : min(NEGATIVES_PER_EQUATION, int((~same).sum()))
    ]
    kept = np.concatenate((np.flatnonzero(same), others))
    return query.features[kept], SAME_LABEL_RELEVANCE * same[kept].astype(np.float64), np.full(len(kept), 1 / len(kept))
