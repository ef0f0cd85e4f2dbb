"""`Engine`: a query in, ranked equations out. Safe to share between threads; knows nothing of HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from eqkin.errors import BadInput
from eqkin.forest import Forest
from eqkin.library import Library
from eqkin.library.database import generation
from eqkin.library.library import NoSuchTree
from eqkin.limits import LIMITS
from eqkin.mathml.tree import Node, forest_of, to_mathml
from eqkin.network.encoder import Encoder
from eqkin.search import candidates, papers, plane, ranking, records
from eqkin.search import explain as explaining
from eqkin.search.candidates import Query, Request, Vector, counted, query_of
from eqkin.search.query import FormulaReader, Preview
from eqkin.search.ranker import Ranker
from eqkin.search.ranker import bundled as bundled_ranker
from eqkin.search.ranking import Candidate
from eqkin.search.reading import Desk, ReadingRoom
from eqkin.search.results import EquationRecord, Filters, Hit, MapPoints, PaperHit, PaperPage, Results
from eqkin.search.wildcards import Pattern, without_wildcards

STAGES = ("conversion", "embedding", "candidates", "ranking", "records", "explaining")
ANYTHING = Filters()
Facets: TypeAlias = tuple[dict[str, int], dict[int, int]]
_CLOSELY = 50  # candidates whose trees are compared to tell whether they are the same
_A_HIT = 2  # and so many for each hit of a long list
_MAPS = 4  # of different sizes that are kept
_PER_PAPER = 2  # hits of one paper, if there are enough others


class Engine:
    """Searches a library. Encoder and ranking are the bundled ones unless others are given."""

    def __init__(
        self,
        library: Library | str | os.PathLike[str],
        encoder: Encoder | None = None,
        *,
        ranker: Ranker | None = None,
        per_paper: int = _PER_PAPER,
    ) -> None:
        self.encoder = encoder or Encoder.load()
        self.ranker = ranker or bundled_ranker()
        self.formulas = FormulaReader()
        self.per_paper = per_paper
        self._room = ReadingRoom(_folder(library), self.encoder.digest)
        self._facets: tuple[int, Facets] | None = None  # of a generation of the library

    def close(self) -> None:
        """Let the database and the converters go."""
        self._room.close()
        self.formulas.close()

    def refresh(self) -> None:
        """Take the index as it is on disk now; otherwise a large one that changed is taken a little later."""
        self._room.refresh()

    @property
    def complete(self) -> bool:
        """Whether vectors and structure of all equations were in the index when it was opened last."""
        return self._room.complete

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
        with self._room.desk() as desk:
            with desk.library.reading():
                record = records.equation_named(desk.library, equation)
                if record.tree < 0:
                    raise BadInput(f"{record.id}: could not be read when it was added, so it has no kin")
                root = desk.library.tree(record.tree)
        request.latex, request.mathml, request.without = record.latex, record.mathml, record.tree
        return self._answer(request, self._query(forest_of(root), request), root if explain else None)

    def preview(self, latex: str) -> Preview:
        """A formula as MathML, or what is wrong with it and where; raises nothing for what was typed."""
        return self.formulas.preview(latex)

    def equation(self, name: str) -> EquationRecord:
        """The equation with an id; raises `BadInput` if there is none."""
        with self._room.desk(index=False) as desk, desk.library.reading():
            return records.equation_named(desk.library, name)

    def paper(self, key: str) -> PaperPage:
        """A paper with its equations by section; raises `BadInput` if there is none."""
        with self._room.desk(index=False) as desk, desk.library.reading():
            return records.paper_page(desk.library, key)

    def has_paper(self, key: str) -> bool:
        """Whether the library has a paper with this key."""
        with self._room.desk(index=False) as desk, desk.library.reading():
            return desk.library.connection.execute("SELECT 1 FROM papers WHERE key = ?", (key,)).fetchone() is not None

    def similar_papers(self, paper: str | os.PathLike[str], k: int = 10) -> list[PaperHit]:
        """Papers related by their mathematics to a paper of the library or to a draft, which is not added.

        Args:
            paper: a paper's key (text), or the path of a file or folder (a `Path`). A text is never taken for a path.
            k: most papers.

        Raises:
            BadInput: there is no such paper or file, or it has no equations.
        """
        k = counted(k)
        if isinstance(paper, str):
            with self._room.desk() as desk, desk.library.reading():
                subject = papers.of_library(desk.library, desk.view.opened, paper)
                return papers.related(desk.library, desk.view.opened, subject, k)
        return self.similar_to_draft(os.fspath(paper), k)

    def similar_to_draft(self, source: str, k: int = 10) -> list[PaperHit]:
        """The same for anything `eqkin add` can read: a path, `arxiv:ID`, `python:PACKAGE`."""
        k = counted(k)
        subject = papers.of_draft(source, self.encoder)
        with self._room.desk() as desk, desk.library.reading():
            return papers.related(desk.library, desk.view.opened, subject, k)

    def map(self, limit: int = 20_000) -> MapPoints:
        """The library's equations on a plane, evenly thinned out to `limit`; the same every time."""
        limit = min(counted(limit, LIMITS.map_points), LIMITS.map_points)
        with self._room.desk() as desk:
            kept = desk.view.maps.get(limit)
            if kept is None:
                with desk.library.reading():
                    kept = plane.points(desk.library, desk.view.index, limit)
                if len(desk.view.maps) >= _MAPS:
                    desk.view.maps.clear()
                desk.view.maps[limit] = kept
            return kept

    def facets(self) -> Facets:
        """Equations of the whole library by field (most frequent first) and by year (in order)."""
        with self._room.desk(index=False) as desk, desk.library.reading():
            now, kept = generation(desk.library.connection), self._facets
            if kept is None or kept[0] != now:
                kept = self._facets = now, records.facets(desk.library)
            return kept[1]

    def _vector(self, forest: Forest) -> Vector:
        (vector,) = self.encoder.embed(forest)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise BadInput("the network has no vector for this formula; is the model damaged?")
        unit: Vector = vector / np.float32(length)
        return unit

    def _query(self, forest: Forest, request: Request, pattern: Pattern | None = None) -> Query:
        start = time.perf_counter()
        query = query_of(forest, self._vector(forest), pattern)
        request.seconds["embedding"] = time.perf_counter() - start
        return query

    def _answer(self, request: Request, query: Query | None, root: Node | None) -> Results:
        with self._room.desk() as desk:
            try:
                return self._found(desk, request, query, root)
            except NoSuchTree:  # most of the library was removed, the rest has other numbers: a second look finds none
                return self._found(desk, request, query, root)

    def _found(self, desk: Desk, request: Request, query: Query | None, root: Node | None) -> Results:
        clock = _Clock(request.seconds)
        found = candidates.find(desk, request, query, self.ranker)
        clock.lap("candidates")
        fields, years = candidates.count(desk, found)
        chosen = self._chosen(desk, request, found)
        clock.lap("ranking")
        hits = _hits(desk, chosen)
        clock.lap("records")
        marked = ""
        if root is not None:
            hits = self._explained(desk, root, hits, query.pattern if query else None)
            marked = explaining.marked_mathml(root, {})
            clock.lap("explaining")
        missing = desk.view.index.missing if desk.view.index is not None else 0
        return Results(
            request.latex, request.mathml, request.text, tuple(hits), fields, years, request.seconds, marked, missing
        )

    def _chosen(self, desk: Desk, request: Request, found: list[Candidate]) -> list[Candidate]:
        if request.fold and desk.view.index is not None:
            vectors = desk.view.index.vectors(np.array([candidate.place.tree for candidate in found], np.int64))
            found = ranking.folded(found, vectors, desk.library.tree, max(_CLOSELY, _A_HIT * request.k))
        return ranking.grouped(found, request.k, self.per_paper if request.group else request.k)

    def _explained(self, desk: Desk, root: Node, hits: Sequence[Hit], pattern: Pattern | None) -> list[Hit]:
        found = explaining.explained(root, [desk.library.tree(hit.equation.tree) for hit in hits], pattern)
        return [
            replace(hit, pairings=why.pairings, marked=why.marked, renaming=why.renaming, bindings=why.bindings)
            for hit, why in zip(hits, found, strict=True)
        ]


def _folder(library: Library | str | os.PathLike[str]) -> Path:
    if isinstance(library, Library):
        return library.folder
    with Library.open(library, create=False) as opened:
        return opened.folder


class _Clock:
    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.start = seconds, time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self.start
        self.start = now


def _hits(desk: Desk, chosen: Sequence[Candidate]) -> list[Hit]:
    with desk.library.reading():
        found = records.equations(desk.library, [candidate.place.tree for candidate in chosen])
        same = {place.paper for candidate in chosen for place in candidate.same}
        keys = records.papers_of(desk.library, same)
    hits = []
    for candidate in chosen:
        record = found.get(candidate.place.tree)
        if record is not None:  # it was removed a moment ago
            named = tuple(f"{keys[p.paper].key}#{p.number}" for p in candidate.same if p.paper in keys)
            hits.append(Hit(record, candidate.score, candidate.similarity, candidate.words, named, candidate.more))
    return hits
