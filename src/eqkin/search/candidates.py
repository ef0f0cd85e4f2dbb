"""Equations worth ranking: near the formula, of like structure, or near the words; and allowed by the filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.forest import Forest
from eqkin.index import VectorIndex
from eqkin.index.structure_files import indexed
from eqkin.limits import LIMITS
from eqkin.mathml.tree import node_of
from eqkin.search import ranking, records
from eqkin.search.filtering import allowed_papers, checked
from eqkin.search.kinship import Profile, profile
from eqkin.search.ranker import VECTOR_WEIGHT, Ranker
from eqkin.search.ranking import Candidate
from eqkin.search.reading import Desk
from eqkin.search.records import Place
from eqkin.search.results import Filters
from eqkin.search.wildcards import Pattern, matches_first
from eqkin.structure.frequencies import bundled as bundled_frequencies

_CLOSELY = 40  # equations that are looked at closely for a short list
_A_HIT = 2  # and for every hit of a long one
_DEEP = 8  # times as many whose common structure is known
_PATTERN = 3  # times as many for a query with wildcards, which say little
_SECTIONS = 300  # that fit the words best
_IN_SECTIONS = 3_000  # equations of them
_BESIDE = 300  # of these that are compared with a formula for a short list: those nearest by words and vector

Vector = npt.NDArray[np.float32]
Trees = npt.NDArray[np.int64]


class Request:
    """A search's settings, checked, and what is known of its query."""

    def __init__(self, k: int, text: str, filters: Filters, group: bool, fold: bool, explain: bool) -> None:
        self.k, self.filters = counted(k), checked(filters)
        self.text = " ".join(text.encode("utf-8", "replace").decode().replace("\0", " ").split())
        if len(self.text) > LIMITS.query_words:
            raise LimitReached(f"words longer than {LIMITS.query_words:,} characters")
        self.group, self.fold, self.explain = group, fold, explain
        self.latex = self.mathml = ""
        self.without = -1  # a tree that is left out
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

    vector: Vector  # of length 1
    profile: Profile
    pattern: Pattern | None = None  # if it has wildcards

    @property
    def codes(self) -> npt.NDArray[np.uint32]:
        """The terms to look up."""
        codes: npt.NDArray[np.uint32] = self.profile.terms.code[indexed(self.profile.terms)]
        return codes


def query_of(forest: Forest, vector: Vector, pattern: Pattern | None = None) -> Query:
    """The query of a forest of one tree."""
    return Query(vector, profile(forest), pattern)


def find(desk: Desk, request: Request, query: Query | None, ranker: Ranker) -> list[Candidate]:
    """Equations near the formula, of like structure and in sections with the words, best first, with their scores.

    Raises:
        NoSuchTree: a writer gave trees other numbers meanwhile.
    """
    index = desk.view.index
    if index is None or not len(index):
        return []
    words = _in_sections(desk, index.trees, request) if request.text else {}
    trees = np.union1d(_beside(index, words, request, query), _alike(desk, request, query))
    trees, places, forest = _at_hand(desk, trees[trees != request.without], query)
    cosines, kinship = np.zeros(len(trees), np.float32), np.zeros(len(trees), np.float32)
    if query is not None and forest is not None:
        cosines = np.clip(index.vectors(trees) @ query.vector, -1, 1)  # kept with 16 bits, vectors are not quite 1 long
        kinship = _kinship(query, forest, cosines, ranker)
    scored = []
    for tree, near, kin in zip(trees.tolist(), cosines.tolist(), kinship.tolist(), strict=True):
        fit = words.get(tree, 0.0)
        scored.append((ranking.score(kin, fit, formula=query is not None, text=bool(request.text)), near, fit, tree))
    scored.sort(key=lambda one: (-one[0], -one[1], one[3]))
    return [Candidate(places[tree], near, fit, score) for score, near, fit, tree in scored]


def _at_hand(desk: Desk, trees: Trees, query: Query | None) -> tuple[Trees, dict[int, Place], Forest | None]:
    """Trees, without those removed since the index was opened, where they stand, and for a formula the forest of them.

    Raises:
        NoSuchTree: a writer gave them other numbers meanwhile.
    """
    with desk.library.reading():
        places = records.places_of_trees(desk.library, trees.tolist())
    trees = trees[np.array([tree in places for tree in trees.tolist()], bool)]
    return trees, places, desk.library.trees(trees) if query is not None and len(trees) else None


def _alike(desk: Desk, request: Request, query: Query | None) -> Trees:
    """Trees near the query's vector and trees that share most of its structure, the best of both."""
    if query is None:
        return np.zeros(0, np.int64)
    times = _PATTERN if query.pattern else 1
    most = times * max(_CLOSELY, _A_HIT * request.k)
    index, allowed = desk.view.opened, desk.allowed(request.filters)
    _, near = index.search(query.vector[None], most, allowed)
    near = near[near >= 0]
    if index.structure is None:
        return near
    codes = query.codes
    worth = bundled_frequencies().idf(codes)
    shared, like = index.structure.search(codes, worth, _DEEP * most, allowed)
    trees = np.union1d(near, like[:most])
    trees = trees[within(trees, index.trees)]
    order = np.argsort(like)
    share = np.zeros(len(trees), np.float32)  # nothing is little, for what is not even among so many
    known = within(trees, like[order])
    share[known] = shared[order][np.searchsorted(like[order], trees[known])] / max(float(worth.sum()), 1e-9)
    first = VECTOR_WEIGHT * (index.vectors(trees) @ query.vector) + share
    return np.sort(trees[np.argsort(-first, kind="stable")[:most]])


def _kinship(query: Query, forest: Forest, cosines: Vector, ranker: Ranker) -> Vector:
    """How related each tree is; where the query has wildcards, those it matches come first, whole ones before parts."""
    scores = ranker.scores(query.profile, profile(forest), cosines)
    if query.pattern is not None:
        scores = matches_first(scores, query.pattern, lambda at: node_of(forest, at), range(len(forest)))
    return scores


def _in_sections(desk: Desk, indexed: Trees, request: Request) -> dict[int, float]:
    """Trees in the sections that fit the words best, with how well these fit; only those with vectors, and allowed."""
    papers = allowed_papers(desk.library, request.filters)
    sections = dict(desk.words().search(request.text, _SECTIONS, papers=papers))
    with desk.library.reading():
        found = records.trees_in_sections(desk.library, sections)
    trees = np.array(sorted(found), np.int64)
    trees = trees[within(trees, indexed)]
    best = sorted(trees.tolist(), key=lambda tree: (-sections[found[tree]], tree))[:_IN_SECTIONS]
    return {tree: sections[found[tree]] for tree in best}


def _beside(index: VectorIndex, words: dict[int, float], request: Request, query: Query | None) -> Trees:
    """The trees that words found, for a formula only the best of them by words and vectors: to compare takes time."""
    trees, most = np.array(list(words), np.int64), max(_BESIDE, _A_HIT * request.k)
    if query is None or len(trees) <= most:
        return trees
    near, fits = (index.vectors(trees) @ query.vector).tolist(), words.values()
    scores = [ranking.score(one, fit, formula=True, text=True) for one, fit in zip(near, fits, strict=True)]
    return trees[np.argsort(-np.array(scores), kind="stable")[:most]]


def within(trees: Trees, known: Trees) -> npt.NDArray[np.bool_]:
    """Which trees are among those known, which are in ascending order."""
    if not len(known):
        return np.zeros(len(trees), bool)
    places = np.minimum(np.searchsorted(known, trees), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[places] == trees
    return found


def count(desk: Desk, candidates: Sequence[Candidate]) -> tuple[dict[str, int], dict[int, int]]:
    """Candidates by field and by year, most frequent first."""
    with desk.library.reading():
        known = records.subjects_of(desk.library, {candidate.place.paper for candidate in candidates})
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for candidate in candidates:
        year, names = known.get(candidate.place.paper, (None, ()))
        fields.update(names)
        if year is not None:
            years[year] += 1
    return dict(fields.most_common()), dict(years.most_common())
