"""What the ranking's weights are learned from: features of formulas whose relation to a query is known.

Of a judged set, all judged formulas of each topic; of a labelled set, for each equation those of the same label and the
most similar of other labels. Features are as in a search of the whole collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.sets.judged import JudgedSet
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.systems.base import Floats, Formulas, unit
from eqkin.network.encoder import Encoder
from eqkin.search import kinship
from eqkin.search.kinship import Profile, profile
from eqkin.search.ranker import CLOSELY, VECTOR_WEIGHT

GRADES = np.array([0, 0.25, 0.7, 1])  # how related a formula of each grade is; higher ones as the last
SAME_LABEL = 0.8
OTHERS = 30  # equations of other labels, for each
_FLATTENED = 0.7  # how much many judgements of a topic count less each

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Query:
    """A query with formulas whose relation to it is known."""

    columns: Floats  # (formulas, features)
    known: Integers  # (formulas,) grades, or 1 for the same label
    places: Integers  # (formulas,) in the collection
    every: Integers  # all grades of the topic, also of formulas that cannot be read

    @property
    def plain(self) -> Floats:
        """What the ranking begins with, nothing learned."""
        return kinship.plain(self.columns)


@dataclass(frozen=True, eq=False)
class Examples:
    """The queries of one set."""

    name: str
    queries: list[Query]
    labels: Sequence[str] | None = None  # of a labelled set, whose queries are all its equations

    def rows(
        self, queries: Sequence[int] | None = None
    ) -> tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Features, how related, and weights of the examples of some queries; by default of all."""
        chosen = range(len(self.queries)) if queries is None else queries
        parts = [_labelled_rows(self.queries[at]) if self.labels else _judged_rows(self.queries[at]) for at in chosen]
        parts = [part for part in parts if len(part[1])]
        if not parts:
            return np.zeros((0, len(kinship.FEATURES)), np.float32), np.zeros(0), np.zeros(0)
        columns, related, weights = zip(*parts, strict=True)
        return np.concatenate(columns), np.concatenate(related), np.concatenate(weights)


def judged_examples(given: JudgedSet, encoder: Encoder) -> Examples:
    """Those of a judged set; what cannot be read is left out."""
    asked, ranked = _Collection(given.topics.formulas, encoder), _Collection(given.formulas.formulas, encoder)
    place = {name: at for at, name in enumerate(given.formulas.names) if given.formulas.readable[at]}
    queries = []
    for at in np.flatnonzero(given.topics.readable).tolist():
        grades = given.qrels[given.topics.names[at]]
        names = [name for name in grades if name in place]
        places = np.array([place[name] for name in names], np.int64)
        columns = ranked.features(asked.profile.select(np.array([at])), asked.vectors[at], places)
        every = np.array(list(grades.values()), np.int64)
        queries.append(Query(columns, np.array([grades[name] for name in names], np.int64), places, every))
    return Examples(given.name, queries)


def labelled_examples(given: LabelledSet, encoder: Encoder) -> Examples:
    """Those of a labelled set; no equation is a candidate for itself."""
    collection = _Collection(given.equations.formulas, encoder)
    labels, queries = np.array(given.labels), []
    for at in range(len(given)):
        others = np.flatnonzero(np.arange(len(given)) != at)
        query = collection.profile.select(np.array([at]))
        columns = collection.features(query, collection.vectors[at], others, without=at)
        same = (labels[others] == labels[at]).astype(np.int64)
        queries.append(Query(columns, same, others, same))
    return Examples(given.name, queries, given.labels)


class _Collection:
    """Formulas, ready to be compared."""

    def __init__(self, formulas: Formulas, encoder: Encoder) -> None:
        self.profile: Profile = profile(formulas.forest)
        self.vectors = np.asarray(unit(encoder.embed(formulas.forest)), np.float32)

    def features(self, query: Profile, vector: Floats, wanted: Integers, without: int = -1) -> Floats:
        """Features of some formulas, which compare them with the best of the whole collection."""
        cosines = np.asarray(self.vectors @ vector, np.float32)
        first = kinship.counted(query, self.profile) + VECTOR_WEIGHT * cosines
        order = np.argsort(-first, kind="stable")
        needed = np.union1d(order[order != without][:CLOSELY], wanted)
        columns = kinship.features(query, self.profile.select(needed), cosines[needed])
        return columns[np.searchsorted(needed, wanted)]


_Rows = tuple[Floats, npt.NDArray[np.float64], npt.NDArray[np.float64]]


def _judged_rows(query: Query) -> _Rows:
    related = GRADES[np.minimum(query.known, len(GRADES) - 1)]
    return query.columns, related, np.full(len(related), max(len(related), 1) ** -_FLATTENED)


def _labelled_rows(query: Query) -> _Rows:
    """Equations of the same label and the most similar others; none where nobody has the label."""
    same = query.known > 0
    if not same.any():
        return query.columns[:0], np.zeros(0), np.zeros(0)
    others = np.argsort(np.where(same, np.inf, -query.plain), kind="stable")[: min(OTHERS, int((~same).sum()))]
    kept = np.concatenate((np.flatnonzero(same), others))
    return query.columns[kept], SAME_LABEL * same[kept].astype(np.float64), np.full(len(kept), 1 / len(kept))
