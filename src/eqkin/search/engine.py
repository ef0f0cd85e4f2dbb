"""`Engine`: a query in, ranked equations out. Safe to share between threads; knows nothing of HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from eqkin.errors import BadInput
from eqkin.forest import Forest
from eqkin.index import encoder_of
from eqkin.library import Library
from eqkin.limits import LIMITS
from eqkin.mathml.tree import Node, node_of, to_mathml
from eqkin.network.encoder import Encoder
from eqkin.search import candidates, papers, plane, ranking
from eqkin.search import explain as explaining
from eqkin.search.candidates import Query, Request, counted, query_of
from eqkin.search.query import FormulaReader, Preview
from eqkin.search.ranker import Ranker
from eqkin.search.ranker import bundled as bundled_ranker
from eqkin.search.ranking import Candidate
from eqkin.search.results import EquationRecord, Filters, Hit, MapPoints, PaperHit, PaperPage, Results
from eqkin.search.shelves import Shelves, folder_of
from eqkin.search.store import ANYTHING, Desk, Facets, Floats, NoSuchEquation, Store
from eqkin.search.wildcards import Pattern, without_wildcards

K = TypeVar("K")
V = TypeVar("V")
STAGES = ("conversion", "embedding", "candidates", "ranking", "records", "explaining")
_CLOSELY = 50  # candidates whose trees are compared to tell whether they are the same
_A_HIT = 2  # and so many for each hit of a long list
_LONG, _WORTH = 1.0, 20.0  # what took more seconds is good for so many times as long, whatever changes
_MAPS = 4  # of different sizes that are kept
_PER_PAPER = 2  # hits of one paper, if there are enough others


class Engine:
    """Searches a collection.

    Args:
        collection: a library or its folder; or any other `Store`, which then is the engine's to close.
        encoder: the network that queries are embedded with, the same as that of the collection's vectors. By default
            a library's own; the one that comes with eqkin if it has none.
        ranker: what tells how related two formulas are; by default with the weights that come with eqkin.
        per_paper: hits of one paper, if there are enough others.
    """

    def __init__(
        self,
        collection: Library | str | os.PathLike[str] | Store,
        encoder: Encoder | None = None,
        *,
        ranker: Ranker | None = None,
        per_paper: int = _PER_PAPER,
    ) -> None:
        self.ranker = ranker or bundled_ranker()
        self.formulas = FormulaReader()
        self.per_paper = per_paper
        if isinstance(collection, Library | str | os.PathLike):
            folder = folder_of(collection)
            self.encoder = encoder or encoder_of(folder)
            self.store: Store = Shelves(folder, self.encoder.digest)
        else:
            self.encoder, self.store = encoder or Encoder.load(), collection
        self._facets = _Latest[None, Facets](1)
        self._maps = _Latest[int, MapPoints](_MAPS)

    def close(self) -> None:
        """Let the collection and the converters go."""
        self.store.close()
        self.formulas.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        query: str = "",
        *,
        k: int = 10,
        text: str = "",
        filters: Filters = ANYTHING,
        group: bool = True,
        fold: bool = True,
        explain: bool = False,
    ) -> Results:
        r"""The equations nearest to a formula, to words, or to both.

        Args:
            query: LaTeX, with or without `$`, `\[ \]` or an environment around it, or MathML; empty for words alone.
            k: most hits.
            text: words that should stand around the equations.
            filters: what a hit has to be.
            group: at most two hits of one paper, as long as there are others.
            fold: show formulas that are the same but for spacing once.
            explain: say which parts of a hit answer which parts of the query.

        Raises:
            UnreadableFormula: the formula is wrong; its `problem` says where.
            BadInput: there is nothing to look for, or the library has no vectors yet.
            LimitReached: the formula or `k` is too large.
        """
        request = Request(k, text, filters, group, fold, explain)
        if not query.strip():
            if not request.text:
                raise BadInput("nothing to look for: give a formula, words, or both")
            return self._answer(request, None, None)
        start = time.perf_counter()
        formula = self.formulas.read(query)
        request.seconds["conversion"] = time.perf_counter() - start
        root = formula.root
        request.latex, request.mathml = formula.latex, to_mathml(root)
        pattern = Pattern(root) if formula.wildcards else None
        query_ = self._query(without_wildcards(formula.forest) if pattern else formula.forest, request, pattern)
        return self._answer(request, query_, root if explain else None)

    def like(
        self,
        equation: str,
        *,
        k: int = 10,
        text: str = "",
        filters: Filters = ANYTHING,
        group: bool = True,
        fold: bool = True,
        explain: bool = False,
    ) -> Results:
        """The kin of an equation of the library, given by its id; itself left out. See `search`.

        Raises:
            BadInput: there is no such equation, or it could not be read when it was added.
        """
        request = Request(k, text, filters, group, fold, explain)
        with self.store.desk() as desk:
            record = desk.equation(_text(equation))
            if record.tree < 0:
                raise BadInput(f"{record.id}: could not be read when it was added, so it has no kin")
            forest = desk.forest(np.array([record.tree]))
        request.latex, request.mathml, request.without = record.latex, record.mathml, record.tree
        return self._answer(request, self._query(forest, request), node_of(forest, 0) if explain else None)

    def preview(self, latex: str) -> Preview:
        """A formula as MathML, or what is wrong with it and where; raises nothing for what was typed."""
        return self.formulas.preview(latex)

    def equation(self, name: str) -> EquationRecord:
        """The equation with an id; raises `BadInput` if there is none."""
        with self.store.desk() as desk:
            return desk.equation(_text(name))

    def paper(self, key: str) -> PaperPage:
        """A paper with its equations by section; raises `BadInput` if there is none."""
        with self.store.desk() as desk:
            return desk.paper(_text(key))

    def has_paper(self, key: str) -> bool:
        """Whether the collection has a paper with this key."""
        with self.store.desk() as desk:
            return _text(key) in desk.papers([_text(key)])

    def similar_papers(self, paper: str | os.PathLike[str], k: int = 10) -> list[PaperHit]:
        """Papers related by their mathematics to a paper of the collection or to a draft, which is not added.

        Args:
            paper: a paper's key (text), or the path of a file or folder (a `Path`). A text is never taken for a path.
            k: most papers.

        Raises:
            BadInput: there is no such paper or file, or it has no equations.
        """
        k = counted(k)
        if isinstance(paper, str):
            with self.store.desk() as desk:
                return papers.related(desk, papers.of_collection(desk, _text(paper)), k)
        return self.similar_to_draft(os.fspath(paper), k)

    def similar_to_draft(self, source: str, k: int = 10) -> list[PaperHit]:
        """The same for anything `eqkin add` can read: a path, `arxiv:ID`, `python:PACKAGE`."""
        k = counted(k)
        subject = papers.of_draft(source, self.encoder)
        with self.store.desk() as desk:
            return papers.related(desk, subject, k)

    def map(self, limit: int = 20_000) -> MapPoints:
        """The collection's equations on a plane, evenly thinned out to `limit`; the same every time."""
        limit = min(counted(limit, LIMITS.map_points), LIMITS.map_points)
        with self.store.desk() as desk:
            if not len(desk):
                return plane.points(desk, np.zeros(0, np.int64))
            return self._maps.get(desk.moment, limit, lambda: plane.points(desk, desk.spread(limit)))

    def facets(self) -> Facets:
        """Equations of the whole collection by field (most frequent first) and by year (in order)."""
        with self.store.desk() as desk:
            return self._facets.get(desk.moment, None, desk.facets)

    def _vector(self, forest: Forest) -> Floats:
        (vector,) = self.encoder.embed(forest)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise BadInput("the network has no vector for this formula; is the model damaged?")
        unit: Floats = vector / np.float32(length)
        return unit

    def _query(self, forest: Forest, request: Request, pattern: Pattern | None = None) -> Query:
        start = time.perf_counter()
        query = query_of(forest, self._vector(forest), pattern)
        request.seconds["embedding"] = time.perf_counter() - start
        return query

    def _answer(self, request: Request, query: Query | None, root: Node | None) -> Results:
        with self.store.desk() as desk:
            try:
                return self._found(desk, request, query, root)
            except NoSuchEquation:  # removed between two looks: the next does not find it
                return self._found(desk, request, query, root)

    def _found(self, desk: Desk, request: Request, query: Query | None, root: Node | None) -> Results:
        clock = _Clock(request.seconds)
        found = candidates.find(desk, request, query, self.ranker)
        clock.lap("candidates")
        fields, years = candidates.count(found)
        chosen = self._chosen(desk, request, found)
        clock.lap("ranking")
        hits = _hits(desk, chosen)
        clock.lap("records")
        marked = ""
        if root is not None:
            hits = _explained(desk, root, hits, query.pattern if query else None)
            marked = explaining.marked_mathml(root, {})
            clock.lap("explaining")
        return Results(
            request.latex,
            request.mathml,
            request.text,
            tuple(hits),
            fields,
            years,
            request.seconds,
            marked,
            desk.missing,
        )

    def _chosen(self, desk: Desk, request: Request, found: list[Candidate]) -> list[Candidate]:
        if request.fold and found:
            vectors = desk.vectors(np.array([candidate.place.key for candidate in found], np.int64))
            closely = max(_CLOSELY, _A_HIT * request.k)
            found = ranking.folded(found, vectors, lambda key: node_of(desk.forest(np.array([key])), 0), closely)
        return ranking.grouped(found, request.k, self.per_paper if request.group else request.k)


def _text(name: str) -> str:
    """A name as UTF-8 can write it: no key has what it cannot."""
    return name.encode("utf-8", "replace").decode()


class _Clock:
    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.start = seconds, time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self.start
        self.start = now


def _hits(desk: Desk, chosen: Sequence[Candidate]) -> list[Hit]:
    found = desk.records(candidate.place.key for candidate in chosen)
    hits = []
    for candidate in chosen:
        record = found.get(candidate.place.key)
        if record is not None:  # it was removed a moment ago
            named = tuple(place.name for place in candidate.same)
            hits.append(Hit(record, candidate.score, candidate.similarity, candidate.words, named, candidate.more))
    return hits


def _explained(desk: Desk, root: Node, hits: Sequence[Hit], pattern: Pattern | None) -> list[Hit]:
    forest = desk.forest(np.array([hit.equation.tree for hit in hits], np.int64))
    found = explaining.explained(root, [node_of(forest, at) for at in range(len(hits))], pattern)
    return [
        replace(hit, pairings=why.pairings, marked=why.marked, renaming=why.renaming, bindings=why.bindings)
        for hit, why in zip(hits, found, strict=True)
    ]


class _Latest(Generic[K, V]):
    """What was worked out of a collection as it is now; forgotten when that changes, or when it gets too much.

    What took long is kept for a while nevertheless: a large collection may change every few seconds.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._moment: Hashable = None
        self._kept: dict[K, V] = {}
        self._good_until: dict[K, float] = {}

    def get(self, moment: Hashable, key: K, make: Callable[[], V]) -> V:
        """What belongs to a key at a moment; `make` is asked if it is not known."""
        kept = self._kept
        if key in kept and time.monotonic() < self._good_until.get(key, 0.0):
            return kept[key]
        if moment != self._moment or (key not in kept and len(kept) >= self._most):
            self._moment, self._kept, self._good_until = moment, {}, {}
        kept = self._kept
        if key not in kept:
            start = time.monotonic()
            kept[key] = make()
            took = time.monotonic() - start
            if took > _LONG:
                self._good_until[key] = time.monotonic() + _WORTH * took
        return kept[key]
