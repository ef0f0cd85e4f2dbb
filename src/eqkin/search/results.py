"""What a search takes and gives: plain records, the same for Python, the command line and the web."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eqkin.library.records import EquationRecord as EquationRecord
from eqkin.library.records import Filters as Filters
from eqkin.library.records import PaperPage as PaperPage
from eqkin.library.records import PaperRecord as PaperRecord


@dataclass(frozen=True)
class Pairing:
    """A part of the query and the part of a hit that answers it: nodes of their trees, breadth first."""

    query_node: int
    hit_node: int
    similarity: float  # in [0, 1]: 1 the same, 0.75 a letter of another name, 0.5 what a wildcard stands for


@dataclass(frozen=True)
class Hit:
    """An equation found, with why."""

    equation: EquationRecord
    score: float  # what the list is sorted by, in [0, 1]
    similarity: float  # cosine of the vectors, in [-1, 1]
    words: float  # how well the words fit, in [0, 1]; 0 without words
    same: tuple[str, ...] = ()  # ids of near-identical formulas folded into this one
    more: int = 0  # further hits of the same paper that were left out
    pairings: tuple[Pairing, ...] = ()  # with `explain`
    marked: str = ""  # with `explain`: the MathML, nodes numbered (`data-node`), matched ones of class `kin kin-1` .. 3
    renaming: tuple[tuple[str, str], ...] = ()  # with `explain`: letters of the query with another name here, that name
    bindings: tuple[tuple[str, str], ...] = ()  # with `explain`: the query's wildcards, MathML of what they stand for


@dataclass(frozen=True)
class Results:
    """The answer to one query."""

    latex: str  # the query as understood; "" for a query of MathML or of words alone
    mathml: str
    text: str
    hits: tuple[Hit, ...]
    fields: dict[str, int] = field(default_factory=dict)  # of the candidates, most frequent first
    years: dict[int, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # by stage, see `eqkin.search.engine.STAGES`
    marked: str = ""  # with `explain`: the query's MathML, nodes numbered (`data-node`)
    missing: int = 0  # equations of the library that have no vector yet and cannot be found; `eqkin index` makes them


@dataclass(frozen=True)
class PaperHit:
    """A paper related by its mathematics, and the pairs of equations that say so."""

    paper: PaperRecord
    score: float  # in [0, 1]
    pairs: tuple[tuple[EquationRecord, EquationRecord, float], ...]  # ours, theirs, cosine; best first


@dataclass(frozen=True)
class MapPoints:
    """The library's equations on a plane."""

    trees: npt.NDArray[np.int64]
    ids: list[str]
    fields: list[str]  # the first field of each equation's paper, "" if it has none
    coordinates: npt.NDArray[np.float32]  # (n, 2), in [-1, 1]
