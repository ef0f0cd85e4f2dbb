"""Equations worth ranking: near the formula, or in sections with the words, and allowed by the filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput, LimitReached
from eqkin.limits import LIMITS
from eqkin.search import ranking, records
from eqkin.search.filtering import checked
from eqkin.search.ranking import Candidate
from eqkin.search.reading import Desk
from eqkin.search.results import Filters

_CANDIDATES = 300  # equations that are looked at for a short list
_A_HIT = 4  # and for each hit of a long one
_SECTIONS = 300  # that fit the words best
_IN_SECTIONS = 3_000  # equations of them

Vector = npt.NDArray[np.float32]


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
    allowed = desk.allowed(request.filters)
    similarity: dict[int, float] = {}
    if vector is not None:
        wanted = max(_CANDIDATES, _A_HIT * request.k)
        values, trees = index.search(vector[None], wanted, allowed)
        similarity = {
            tree: value for tree, value in zip(trees[0].tolist(), values[0].tolist(), strict=True) if tree >= 0
        }
    with desk.library.reading():
        places = records.places_of_trees(desk.library, similarity)
        words: dict[int, float] = {}
        if request.text:
            words = dict(desk.words().search(request.text, _SECTIONS))
            found = records.places_in_sections(desk.library, words)
            known = _usable(found, index.trees, allowed, words)
            places |= {tree: found[tree] for tree in known}
            if vector is not None:
                others = np.array([tree for tree in known if tree not in similarity], np.int64)
                cosines = index.vectors(others) @ vector
                similarity |= dict(zip(others.tolist(), cosines.tolist(), strict=True))
    candidates = []
    for tree, place in places.items():
        if tree != request.without:
            near, fit = similarity.get(tree, 0.0), words.get(place.section, 0.0)
            score = ranking.score(near, fit, formula=vector is not None, text=bool(request.text))
            candidates.append(Candidate(place, near, fit, score))
    candidates.sort(key=lambda c: (-c.score, -c.similarity, c.place.tree))
    return candidates


def _usable(
    found: dict[int, records.Place],
    indexed: npt.NDArray[np.int64],
    allowed: npt.NDArray[np.int64] | None,
    words: dict[int, float],
) -> list[int]:
    """Trees of sections that have vectors and are allowed; those of the best sections, if there are too many."""
    trees = np.array(sorted(found), np.int64)
    trees = trees[np.isin(trees, indexed)]
    if allowed is not None:
        trees = trees[np.isin(trees, allowed)]
    usable: list[int] = trees.tolist()
    if len(usable) > _IN_SECTIONS:
        usable.sort(key=lambda tree: (-words[found[tree].section], tree))
    return usable[:_IN_SECTIONS]


def count(desk: Desk, candidates: Sequence[Candidate]) -> tuple[dict[str, int], dict[int, int]]:
    """Candidates by field and by year, most frequent first."""
    with desk.library.reading():
        known = records.papers_of(desk.library, {candidate.place.paper for candidate in candidates})
    fields: Counter[str] = Counter()
    years: Counter[int] = Counter()
    for candidate in candidates:
        paper = known.get(candidate.place.paper)
        if paper is not None:
            fields.update(paper.fields)
            if paper.year is not None:
                years[paper.year] += 1
    return dict(fields.most_common()), dict(years.most_common())
