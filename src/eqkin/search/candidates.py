"""Equations worth ranking: near the formula, of like structure, or near the words; and allowed by the filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.index.structure_files import is_indexed
from eqkin.library.records import check_filters
from eqkin.limits import LIMITS
from eqkin.search import ranking
from eqkin.search.kinship import FormulaFeatures, extract_features
from eqkin.search.ranker import FIRST_STAGE_VECTOR_WEIGHT, Ranker
from eqkin.search.ranking import Candidate
from eqkin.search.results import Filters
from eqkin.search.store import EquationRef, Floats, Keys, Snapshot
from eqkin.search.wildcards import Pattern, rank_matches_first
from eqkin.trees import Forest
from eqkin.trees.idf import load_bundled_frequencies as bundled_frequencies
from eqkin.trees.mathml import to_node

_MIN_CANDIDATES = 40  # equations that are looked at closely for a short list
_CANDIDATES_PER_HIT = 2  # and for every hit of a long one
_SPARSE_DEPTH_FACTOR = 8  # times as many whose common structure is known
_WILDCARD_DEPTH_FACTOR = 3  # times as many for a query with wildcards, which say little
_TEXT_CANDIDATES = (
    300  # of those the words found that are compared with a formula for a short list: those nearest by words and vector
)


class Request:
    """A search's settings, checked, and what is known of its query."""

    def __init__(self, k: int, text: str, filters: Filters, group: bool, fold: bool, explain: bool) -> None:
        self.k, self.filters = check_k(k), check_filters(filters)
        self.text = " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())
        if len(self.text) > LIMITS.query_words:
            raise LimitReached(f"words longer than {LIMITS.query_words:,} characters")
        self.group, self.fold, self.explain = group, fold, explain
        self.latex = self.mathml = ""
        self.without = -1  # key of an equation that is left out
        self.seconds: dict[str, float] = {}


def check_k(k: int, most: int = LIMITS.results) -> int:
    """A number of results, checked; raises `BadInput` or `LimitReached`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise BadInput(f"the number of results has to be a whole number above 0, not {str(k)[:40]}")
    if k > most:
        raise LimitReached(f"at most {most:,} results can be asked for")
    return int(k)


@dataclass(frozen=True)
class QueryFeatures:
    """A formula that is searched for."""

    vector: Floats  # (d,), of length 1
    formula: FormulaFeatures
    pattern: Pattern | None = None  # if it has wildcards

    @property
    def codes(self) -> npt.NDArray[np.uint32]:
        """The terms to look up."""
        codes: npt.NDArray[np.uint32] = self.formula.terms.code[is_indexed(self.formula.terms)]
        return codes


def make_query_features(forest: Forest, vector: Floats, pattern: Pattern | None = None) -> QueryFeatures:
    """The query of a forest of one tree."""
    return QueryFeatures(vector, extract_features(forest), pattern)


def retrieve(desk: Snapshot, request: Request, query: QueryFeatures | None, ranker: Ranker) -> list[Candidate]:
    """Equations near the formula, of like structure and in sections with the words, best first, with their scores.

    Raises:
        NoSuchEquation: one was removed meanwhile.
    """
    if not len(desk):
        return []
    words = desk.search_text(request.text, request.filters) if request.text else {}
    keys = np.union1d(_retrieve_by_text(desk, words, request, query), _retrieve_by_formula(desk, request, query))
    keys, places, forest = _load_candidates(desk, keys[keys != request.without], query)
    cosines, kinship = np.zeros(len(keys), np.float32), np.zeros(len(keys), np.float32)
    if query is not None and forest is not None:
        cosines = np.clip(
            desk.get_vectors(keys) @ query.vector, -1, 1
        )  # kept with 16 bits, vectors are not quite 1 long
        kinship = _score_formulas(query, forest, cosines, ranker)
    scored = []
    for key, near, kin in zip(keys.tolist(), cosines.tolist(), kinship.tolist(), strict=True):
        fit = words.get(key, 0.0)
        scored.append(
            (ranking.combine_scores(kin, fit, formula=query is not None, text=bool(request.text)), near, fit, key)
        )
    scored.sort(key=lambda one: (-one[0], -one[1], one[3]))
    return [Candidate(places[key], near, fit, score) for score, near, fit, key in scored]


def _load_candidates(
    desk: Snapshot, keys: Keys, query: QueryFeatures | None
) -> tuple[Keys, dict[int, EquationRef], Forest | None]:
    """Equations without those removed meanwhile, where they stand, and for a formula the forest of their trees.

    Raises:
        NoSuchEquation: one was removed meanwhile.
    """
    places = desk.get_refs(keys.tolist())
    keys = keys[np.array([key in places for key in keys.tolist()], bool)]
    return keys, places, desk.get_trees(keys) if query is not None and len(keys) else None


def _retrieve_by_formula(desk: Snapshot, request: Request, query: QueryFeatures | None) -> Keys:
    """Equations near the query's vector and equations that share most of its structure, the best of both."""
    if query is None:
        return np.zeros(0, np.int64)
    times = _WILDCARD_DEPTH_FACTOR if query.pattern else 1
    most = times * max(_MIN_CANDIDATES, _CANDIDATES_PER_HIT * request.k)
    near = desk.search_vectors(query.vector[None], most, request.filters)[1]
    near = near[near >= 0]
    codes = query.codes
    worth = bundled_frequencies().compute_idf(codes)
    shared, like = desk.search_terms(codes, worth, _SPARSE_DEPTH_FACTOR * most, request.filters)
    if not len(like):
        return near
    keys = np.union1d(near, like[:most])
    order = np.argsort(like)
    like, shared = like[order], shared[order]
    at = np.minimum(np.searchsorted(like, keys), len(like) - 1)
    share = np.where(like[at] == keys, shared[at], 0)  # what is not even among so many shares little: none
    first = FIRST_STAGE_VECTOR_WEIGHT * (desk.get_vectors(keys) @ query.vector) + share / max(float(worth.sum()), 1e-9)
    return np.sort(keys[np.argsort(-first, kind="stable")[:most]])


def _score_formulas(query: QueryFeatures, forest: Forest, cosines: Floats, ranker: Ranker) -> Floats:
    """How related each tree is; where the query has wildcards, those it matches come first, whole ones before parts."""
    scores = ranker.score(query.formula, extract_features(forest), cosines)
    if query.pattern is not None:
        scores = rank_matches_first(scores, query.pattern, lambda at: to_node(forest, at), range(len(forest)))
    return scores


def _retrieve_by_text(desk: Snapshot, words: dict[int, float], request: Request, query: QueryFeatures | None) -> Keys:
    """The equations that words found, for a formula only the best by words and vectors: to compare takes time."""
    keys, most = np.array(list(words), np.int64), max(_TEXT_CANDIDATES, _CANDIDATES_PER_HIT * request.k)
    if query is None or len(keys) <= most:
        return keys
    near, fits = (desk.get_vectors(keys) @ query.vector).tolist(), words.values()
    scores = [ranking.combine_scores(one, fit, formula=True, text=True) for one, fit in zip(near, fits, strict=True)]
    return keys[np.argsort(-np.array(scores), kind="stable")[:most]]


def count_facets(candidates: Sequence[Candidate]) -> tuple[dict[str, int], dict[int, int]]:
    """Candidates by field and by year, most frequent first."""
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for candidate in candidates:
        fields.update(candidate.ref.fields)
        if candidate.ref.year is not None:
            years[candidate.ref.year] += 1
    return dict(fields.most_common()), dict(years.most_common())
