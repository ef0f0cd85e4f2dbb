"""Equations worth ranking: near the formula, of like structure, or near the words; and allowed by the filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.forest import Forest
from eqkin.index.structure_files import indexed
from eqkin.limits import LIMITS
from eqkin.mathml.tree import node_of
from eqkin.search import ranking
from eqkin.search.filtering import checked
from eqkin.search.kinship import Profile, profile
from eqkin.search.ranker import VECTOR_WEIGHT, Ranker
from eqkin.search.ranking import Candidate
from eqkin.search.results import Filters
from eqkin.search.store import Desk, Floats, Keys, Place
from eqkin.search.wildcards import Pattern, matches_first
from eqkin.structure.frequencies import bundled as bundled_frequencies

_CLOSELY = 40  # equations that are looked at closely for a short list
_A_HIT = 2  # and for every hit of a long one
_DEEP = 8  # times as many whose common structure is known
_PATTERN = 3  # times as many for a query with wildcards, which say little
_BESIDE = (
    300  # of those the words found that are compared with a formula for a short list: those nearest by words and vector
)


class Request:
    """A search's settings, checked, and what is known of its query."""

    def __init__(self, k: int, text: str, filters: Filters, group: bool, fold: bool, explain: bool) -> None:
        self.k, self.filters = counted(k), checked(filters)
        self.text = " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())
        if len(self.text) > LIMITS.query_words:
            raise LimitReached(f"words longer than {LIMITS.query_words:,} characters")
        self.group, self.fold, self.explain = group, fold, explain
        self.latex = self.mathml = ""
        self.without = -1  # key of an equation that is left out
        self.seconds: dict[str, float] = {}


def counted(k: int, most: int = LIMITS.results) -> int:
    """A number of results, checked; raises `BadInput` or `LimitReached`."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise BadInput(f"the number of results has to be a whole number above 0, not {str(k)[:40]}")
    if k > most:
        raise LimitReached(f"at most {most:,} results can be asked for")
    return int(k)


@dataclass(frozen=True)
class Query:
    """A formula that is searched for."""

    vector: Floats  # (d,), of length 1
    profile: Profile
    pattern: Pattern | None = None  # if it has wildcards

    @property
    def codes(self) -> npt.NDArray[np.uint32]:
        """The terms to look up."""
        codes: npt.NDArray[np.uint32] = self.profile.terms.code[indexed(self.profile.terms)]
        return codes


def query_of(forest: Forest, vector: Floats, pattern: Pattern | None = None) -> Query:
    """The query of a forest of one tree."""
    return Query(vector, profile(forest), pattern)


def find(desk: Desk, request: Request, query: Query | None, ranker: Ranker) -> list[Candidate]:
    """Equations near the formula, of like structure and in sections with the words, best first, with their scores.

    Raises:
        NoSuchEquation: one was removed meanwhile.
    """
    if not len(desk):
        return []
    words = desk.worded(request.text, request.filters) if request.text else {}
    keys = np.union1d(_beside(desk, words, request, query), _alike(desk, request, query))
    keys, places, forest = _at_hand(desk, keys[keys != request.without], query)
    cosines, kinship = np.zeros(len(keys), np.float32), np.zeros(len(keys), np.float32)
    if query is not None and forest is not None:
        cosines = np.clip(desk.vectors(keys) @ query.vector, -1, 1)  # kept with 16 bits, vectors are not quite 1 long
        kinship = _kinship(query, forest, cosines, ranker)
    scored = []
    for key, near, kin in zip(keys.tolist(), cosines.tolist(), kinship.tolist(), strict=True):
        fit = words.get(key, 0.0)
        scored.append((ranking.score(kin, fit, formula=query is not None, text=bool(request.text)), near, fit, key))
    scored.sort(key=lambda one: (-one[0], -one[1], one[3]))
    return [Candidate(places[key], near, fit, score) for score, near, fit, key in scored]


def _at_hand(desk: Desk, keys: Keys, query: Query | None) -> tuple[Keys, dict[int, Place], Forest | None]:
    """Equations without those removed meanwhile, where they stand, and for a formula the forest of their trees.

    Raises:
        NoSuchEquation: one was removed meanwhile.
    """
    places = desk.places(keys.tolist())
    keys = keys[np.array([key in places for key in keys.tolist()], bool)]
    return keys, places, desk.forest(keys) if query is not None and len(keys) else None


def _alike(desk: Desk, request: Request, query: Query | None) -> Keys:
    """Equations near the query's vector and equations that share most of its structure, the best of both."""
    if query is None:
        return np.zeros(0, np.int64)
    times = _PATTERN if query.pattern else 1
    most = times * max(_CLOSELY, _A_HIT * request.k)
    near = desk.nearest(query.vector[None], most, request.filters)[1]
    near = near[near >= 0]
    codes = query.codes
    worth = bundled_frequencies().idf(codes)
    shared, like = desk.alike(codes, worth, _DEEP * most, request.filters)
    if not len(like):
        return near
    keys = np.union1d(near, like[:most])
    order = np.argsort(like)
    like, shared = like[order], shared[order]
    at = np.minimum(np.searchsorted(like, keys), len(like) - 1)
    share = np.where(like[at] == keys, shared[at], 0)  # what is not even among so many shares little: none
    first = VECTOR_WEIGHT * (desk.vectors(keys) @ query.vector) + share / max(float(worth.sum()), 1e-9)
    return np.sort(keys[np.argsort(-first, kind="stable")[:most]])


def _kinship(query: Query, forest: Forest, cosines: Floats, ranker: Ranker) -> Floats:
    """How related each tree is; where the query has wildcards, those it matches come first, whole ones before parts."""
    scores = ranker.scores(query.profile, profile(forest), cosines)
    if query.pattern is not None:
        scores = matches_first(scores, query.pattern, lambda at: node_of(forest, at), range(len(forest)))
    return scores


def _beside(desk: Desk, words: dict[int, float], request: Request, query: Query | None) -> Keys:
    """The equations that words found, for a formula only the best by words and vectors: to compare takes time."""
    keys, most = np.array(list(words), np.int64), max(_BESIDE, _A_HIT * request.k)
    if query is None or len(keys) <= most:
        return keys
    near, fits = (desk.vectors(keys) @ query.vector).tolist(), words.values()
    scores = [ranking.score(one, fit, formula=True, text=True) for one, fit in zip(near, fits, strict=True)]
    return keys[np.argsort(-np.array(scores), kind="stable")[:most]]


def count(candidates: Sequence[Candidate]) -> tuple[dict[str, int], dict[int, int]]:
    """Candidates by field and by year, most frequent first."""
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for candidate in candidates:
        fields.update(candidate.place.fields)
        if candidate.place.year is not None:
            years[candidate.place.year] += 1
    return dict(fields.most_common()), dict(years.most_common())
