"""Data that passes between the stages of a search: the query's features, and candidates with all that ranks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import Terms
from eqkin.library.records import PaperCount
from eqkin.library.references import EquationColumns
from eqkin.search.backend import EquationRef, Floats, Keys, Snapshot
from eqkin.search.features import QueryTerms
from eqkin.search.wildcards import Pattern

Rows: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class QueryFeatures:
    """A formula that is searched for: all that is computed of it, once."""

    latex: str  # as given; "" for MathML
    mathml: str
    nodes: NodeColumns
    vector: Floats  # (d,), of length 1
    terms: Terms  # of its presentation tree
    formula: QueryTerms
    operators: OperatorForest  # one tree
    pattern: Pattern | None = None  # if it has wildcards


@dataclass(frozen=True, slots=True)
class Candidate:
    """An equation that is shown or counted."""

    ref: EquationRef
    row: int  # in its `CandidateSet`
    similarity: float  # cosine
    text_score: float
    score: float
    duplicates: tuple[EquationRef, ...] = ()
    hidden: int = 0  # better candidates of the same paper that are not shown


class CandidateSet:
    """Candidates with vectors, trees and scores; each of these is read from the backend once.

    Args:
        snapshot: The view of the collection they come from.
        columns: What tells them apart, by ascending key.
        vectors: Their unit vectors, in the same order.
        text_scores: How well the text around equations matches, by key.
        rest: Keys of further candidates, best first, that are not ranked by all features.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        columns: EquationColumns,
        vectors: Floats,
        text_scores: dict[int, float],
        rest: Keys | None = None,
    ) -> None:
        self.columns: EquationColumns = columns
        self.vectors: Floats = vectors
        self.keys: Keys = columns.keys  # of those ranked by all features
        self.matches = np.zeros(0, np.uint8)  # of those with a query that has wildcards, see `Pattern.match`
        self.text_score: Scores = self._get_text_scores(text_scores, self.keys)
        self.similarity: Scores = np.zeros(len(self.keys))  # cosines; `rerank` computes them, and scores
        self.score: Scores = np.zeros(len(self.keys))
        self._text_scores = text_scores
        self._rest = self.keys[:0] if rest is None else rest
        self._snapshot = snapshot
        self._operators: OperatorForest | None = None  # of those ranked by all features
        self._nodes: dict[int, NodeColumns] = {}

    def __len__(self) -> int:
        return len(self.columns.keys)

    @staticmethod
    def _get_text_scores(known: dict[int, float], keys: Keys) -> Scores:
        """Return how well the text around equations matches; 0 for unknown ones."""
        if not known:
            return np.zeros(len(keys))
        return np.array([known.get(key, 0.0) for key in keys.tolist()], np.float64)

    def build(
        self,
        rows: Sequence[int] | Rows,
        duplicates: Mapping[int, Sequence[int]] | None = None,
        hidden: Mapping[int, int] | None = None,
    ) -> list[Candidate]:
        """Read references; those that are gone are left out.

        Args:
            rows: Of the candidates.
            duplicates: Rows of other candidates that are the same formula as one.
            hidden: How many others of its paper are not shown.
        """
        rows, same = [int(row) for row in rows], duplicates or {}
        others = [row for one in rows for row in same.get(one, ())]
        refs = self._snapshot.get_refs(self.columns.keys[[*rows, *others]].tolist()) if rows else {}
        keys, similarity = self.columns.keys.tolist(), self.similarity.tolist()
        text_score, score, counts = self.text_score.tolist(), self.score.tolist(), hidden or {}
        return [
            Candidate(
                refs[keys[row]], row, similarity[row], text_score[row], score[row],
                tuple(refs[keys[other]] for other in same.get(row, ()) if keys[other] in refs), counts.get(row, 0),
            )
            for row in rows
            if keys[row] in refs
        ]  # fmt: skip

    def get_paper_facets(self, rows: Rows) -> dict[int, PaperCount]:
        """Return the papers of some candidates by key, with what facets count of them; see `Snapshot`."""
        return self._snapshot.get_paper_facets(self.columns.select(rows))

    @property
    def operators(self) -> OperatorForest:
        """Operator trees of the candidates that are ranked by all features; raises `NoSuchEquation`."""
        if self._operators is None:
            self._operators = self._snapshot.get_operators(self.keys)
        return self._operators

    @property
    def has_operators(self) -> bool:
        """True if operator trees have been read."""
        return self._operators is not None

    def compare_terms(self, query: QueryTerms) -> tuple[Floats, Floats]:
        """Return overlaps with a query and norms of the candidates that are ranked by all features."""
        return self._snapshot.compare_terms(self.keys, self.operators, query)

    def get_operators(self, rows: Sequence[int] | Rows) -> OperatorForest:
        """Return the operator trees of some candidates, in the order of their rows; raises `NoSuchEquation`."""
        if self._operators is not None and max(rows, default=0) < len(self.keys):
            return self._operators.select(rows)
        return self._snapshot.get_operators(self.columns.keys[rows])

    @property
    def has_rest(self) -> bool:
        """True if there are candidates that are not ranked by all features and not loaded yet."""
        return len(self._rest) > 0

    def load_rest(self, vector: Floats, least: float) -> Rows:
        """Load the candidates that are not ranked by all features, with scores below `least`; return their rows.

        Raises:
            NoSuchEquation: an equation is gone.
        """
        start, columns = len(self), self._snapshot.get_columns(self._rest)
        vectors = self._snapshot.get_vectors(columns.keys)
        self.columns, self._rest = self.columns.append(columns), self._rest[:0]
        self.vectors = np.concatenate((self.vectors, vectors))
        self.similarity = np.append(self.similarity, np.clip(vectors @ vector, -1, 1))
        self.text_score = np.append(self.text_score, self._get_text_scores(self._text_scores, columns.keys))
        self.score = np.append(self.score, least * np.linspace(1, 0, len(vectors) + 2)[1:-1])
        return np.arange(start, len(self))

    def get_nodes(self, rows: Sequence[int]) -> list[NodeColumns]:
        """Return the nodes of some candidates, reading those not read yet in one request; raises `NoSuchEquation`."""
        if missing := [row for row in rows if row not in self._nodes]:
            nodes = self._snapshot.get_nodes(self.columns.keys[missing].tolist())
            self._nodes |= dict(zip(missing, nodes, strict=True))
        return [self._nodes[row] for row in rows]
