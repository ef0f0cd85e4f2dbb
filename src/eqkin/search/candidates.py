"""What passes between the stages of a search: the query's features, candidates, and candidates in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest
from eqkin.library.references import EquationColumns
from eqkin.search.backend import Floats
from eqkin.search.features import QueryTerms
from eqkin.search.wildcards import Pattern

Rows: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class QueryFeatures:
    """A formula that is searched for: all that is computed of it, once."""

    latex: str  # as given; "" for MathML
    mathml: str
    nodes: NodeColumns
    vector: Floats  # (d,), of length 1
    terms: QueryTerms
    operators: OperatorForest  # one tree
    pattern: Pattern | None = None  # if it has wildcards


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Equations that may become hits, by ascending key."""

    columns: EquationColumns  # what tells them apart
    vectors: Floats  # (candidates, d), of length 1; d is 0 where nothing is compared
    text_score: Scores  # how well the text around them matches, in [0, 1]


@dataclass(frozen=True, kw_only=True)
class RankedCandidates:
    """Candidates in the order of the list of hits, best first; each array has one row of each."""

    columns: EquationColumns
    vectors: Floats
    operators: OperatorForest  # of the query by a formula; of a search by text alone only of the first ones
    similarity: Scores  # cosines
    text_score: Scores
    score: Scores
    matches: npt.NDArray[np.uint8]  # 2: has the form of a query with wildcards, 1: a part has it; see `Pattern.match`
