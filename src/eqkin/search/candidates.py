"""Data that passes between the stages of a search: the query's features, and candidates with all that ranks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eqkin.search.backend import EquationRef, Floats, Keys, Snapshot
from eqkin.search.features import QueryTerms
from eqkin.search.wildcards import Pattern
from eqkin.trees.mathml import NodeColumns
from eqkin.trees.operators import OperatorForest
from eqkin.trees.terms import Terms


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


@dataclass(slots=True)
class Candidate:
    """An equation that may be shown."""

    ref: EquationRef
    row: int  # in its `CandidateSet`
    similarity: float = 0.0  # cosine
    text_score: float = 0.0
    score: float = 0.0
    duplicates: list[EquationRef] = field(default_factory=list)
    hidden: int = 0  # better candidates of the same paper that are not shown


class CandidateSet:
    """Candidates with references, vectors and trees; each of these is read from the backend once.

    Args:
        snapshot: The view of the collection they come from.
        refs: Their references, by ascending key.
        vectors: Their unit vectors, in the same order.
        text_scores: How well the text around equations matches, by key.
        rest: Keys of further candidates, best first, that are not ranked by all features.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        refs: Sequence[EquationRef],
        vectors: Floats,
        text_scores: dict[int, float],
        rest: Keys | None = None,
    ) -> None:
        self.refs: list[EquationRef] = list(refs)
        self.vectors: Floats = vectors
        self.text_scores: dict[int, float] = text_scores
        self.keys: Keys = np.array([ref.key for ref in refs], np.int64)  # of those ranked by all features
        self.matches = np.zeros(0, np.uint8)  # of those with a query that has wildcards, see `Pattern.match`
        self._rest = self.keys[:0] if rest is None else rest
        self._snapshot = snapshot
        self._operators: OperatorForest | None = None  # of those ranked by all features
        self._nodes: dict[int, NodeColumns] = {}

    def __len__(self) -> int:
        return len(self.refs)

    def get_text_scores(self, keys: Keys) -> npt.NDArray[np.float64]:
        """Return how well the text around equations matches; 0 for unknown ones."""
        if not self.text_scores:
            return np.zeros(len(keys))
        return np.array([self.text_scores.get(key, 0.0) for key in keys.tolist()], np.float64)

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

    def get_operators(self, rows: Sequence[int]) -> OperatorForest:
        """Return the operator trees of some candidates, in the order of their rows; raises `NoSuchEquation`."""
        if self._operators is not None and max(rows, default=0) < len(self.keys):
            return self._operators.select(rows)
        return self._snapshot.get_operators(np.array([self.refs[row].key for row in rows], np.int64))

    @property
    def has_rest(self) -> bool:
        """True if there are candidates that are not ranked by all features and not loaded yet."""
        return len(self._rest) > 0

    def load_rest(self, vector: Floats, least: float) -> list[Candidate]:
        """Return the candidates that are not ranked by all features, in their order, with scores below `least`.

        Raises:
            NoSuchEquation: an equation is gone.
        """
        refs = self._snapshot.get_refs(self._rest.tolist())
        keys = self._rest[np.array([key in refs for key in self._rest.tolist()], bool)]
        vectors, start = self._snapshot.get_vectors(keys), len(self.refs)
        self.refs += [refs[key] for key in keys.tolist()]
        self.vectors = np.concatenate((self.vectors, vectors))
        self._rest = keys[:0]
        cosines = np.clip(vectors @ vector, -1, 1).tolist()
        scores = (least * np.linspace(1, 0, len(keys) + 2)[1:-1]).tolist()
        return [
            Candidate(self.refs[row], row, cosine, self.text_scores.get(self.refs[row].key, 0.0), score)
            for row, (cosine, score) in enumerate(zip(cosines, scores, strict=True), start)
        ]

    def get_nodes(self, rows: Sequence[int]) -> list[NodeColumns]:
        """Return the nodes of some candidates, reading those not read yet in one request; raises `NoSuchEquation`."""
        if missing := [row for row in rows if row not in self._nodes]:
            nodes = self._snapshot.get_nodes([self.refs[row].key for row in missing])
            self._nodes |= dict(zip(missing, nodes, strict=True))
        return [self._nodes[row] for row in rows]
