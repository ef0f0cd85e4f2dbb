"""Equations worth ranking: near the formula, or in sections with the words, and allowed by the filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS
from eqkin.search import ranking, records
from eqkin.search.filtering import allowed_papers, checked
from eqkin.search.ranking import Candidate
from eqkin.search.reading import Desk
from eqkin.search.results import Filters

_CANDIDATES = 300  # equations that are looked at for a short list
_A_HIT = 4  # and for each hit of a long one
_SECTIONS = 300  # that fit the words best
_IN_SECTIONS = 3_000  # equations of them

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


def find(desk: Desk, request: Request, vector: Vector | None) -> list[Candidate]:
    """Equations near the formula and equations in sections with the words, best first, each with both scores."""
    index = desk.view.index
    if index is None or not len(index):
        return []
    wanted = max(_CANDIDATES, _A_HIT * request.k)
    allowed = desk.allowed(request.filters)
    similarity: dict[int, float] = {}
    if vector is not None:
        cosines, trees = index.search(vector[None], wanted, allowed)
        similarity = dict(zip(trees[0].tolist(), cosines[0].tolist(), strict=True))
        similarity.pop(-1, None)
    words = _in_sections(desk, index.trees, request) if request.text else {}
    if vector is not None and words:
        others = np.array([tree for tree in words if tree not in similarity], np.int64)
        similarity |= dict(zip(others.tolist(), (index.vectors(others) @ vector).tolist(), strict=True))
    scored = []
    for tree in similarity | words:
        near, fit = similarity.get(tree, 0.0), words.get(tree, 0.0)
        scored.append((ranking.score(near, fit, formula=vector is not None, text=bool(request.text)), near, fit, tree))
    scored.sort(key=lambda one: (-one[0], -one[1], one[3]))
    with desk.library.reading():
        places = records.places_of_trees(desk.library, (tree for *_, tree in scored[: wanted + 1]))
    return [
        Candidate(places[tree], near, fit, score)
        for score, near, fit, tree in scored[: wanted + 1]
        if tree in places and tree != request.without
    ]


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
