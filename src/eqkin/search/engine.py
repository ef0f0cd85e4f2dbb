"""`Engine`: a query in, ranked equations out. Safe to share between threads; knows nothing of HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.index import load_encoder
from eqkin.library import LibraryFiles
from eqkin.limits import LIMITS
from eqkin.search import candidates, papers, plane, ranking
from eqkin.search import explain as explaining
from eqkin.search.candidates import QueryFeatures, Request, check_k, make_query_features
from eqkin.search.query import FormulaReader, Preview
from eqkin.search.ranker import Ranker
from eqkin.search.ranker import load_bundled_ranker as bundled_ranker
from eqkin.search.ranking import Candidate
from eqkin.search.results import EquationRecord, Filters, Hit, MapPoints, PaperHit, PaperPage, Results
from eqkin.search.shelves import LocalBackend, get_folder
from eqkin.search.store import NO_FILTERS, Facets, Floats, NoSuchEquation, SearchBackend, Snapshot
from eqkin.search.wildcards import Pattern, replace_wildcards
from eqkin.trees import Forest
from eqkin.trees.mathml import Node, to_mathml, to_node

K = TypeVar("K")
V = TypeVar("V")
STAGES = ("conversion", "embedding", "candidates", "ranking", "records", "explaining")
_MIN_COMPARED = 50  # candidates whose trees are compared to tell whether they are the same
_COMPARED_PER_HIT = 2  # and so many for each hit of a long list
_SLOW_SECONDS, _SLOW_LIFETIME_FACTOR = (
    1.0,
    20.0,
)  # what took more seconds is good for so many times as long, whatever changes
_MAX_CACHED_MAPS = 4  # of different sizes that are kept
HITS_PER_PAPER = 2  # hits of one paper, if there are enough others


class SearchEngine:
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
        collection: LibraryFiles | str | os.PathLike[str] | SearchBackend,
        encoder: Encoder | None = None,
        *,
        ranker: Ranker | None = None,
        per_paper: int = HITS_PER_PAPER,
    ) -> None:
        self.ranker = ranker or bundled_ranker()
        self.formulas = FormulaReader()
        self.per_paper = per_paper
        if isinstance(collection, LibraryFiles | str | os.PathLike):
            folder = get_folder(collection)
            self.encoder = encoder or load_encoder(folder)
            self.store: SearchBackend = LocalBackend(folder, self.encoder.digest)
        else:
            self.encoder, self.store = encoder or Encoder.load(), collection
        self._facets = _VersionedCache[None, Facets](1)
        self._maps = _VersionedCache[int, MapPoints](_MAX_CACHED_MAPS)

    def close(self) -> None:
        """Let the collection and the converters go."""
        self.store.close()
        self.formulas.close()

    def __enter__(self) -> SearchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        query: str = "",
        *,
        k: int = 10,
        text: str = "",
        filters: Filters = NO_FILTERS,
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
            return self._search_snapshot(request, None, None)
        start = time.perf_counter()
        formula = self.formulas.read(query)
        request.seconds["conversion"] = time.perf_counter() - start
        root = formula.root
        request.latex, request.mathml = formula.latex, to_mathml(root)
        pattern = Pattern(root) if formula.wildcards else None
        query_ = self._extract_features(
            replace_wildcards(formula.forest) if pattern else formula.forest, request, pattern
        )
        return self._search_snapshot(request, query_, root if explain else None)

    def find_similar(
        self,
        equation: str,
        *,
        k: int = 10,
        text: str = "",
        filters: Filters = NO_FILTERS,
        group: bool = True,
        fold: bool = True,
        explain: bool = False,
    ) -> Results:
        """The kin of an equation of the library, given by its id; itself left out. See `search`.

        Raises:
            BadInput: there is no such equation, or it could not be read when it was added.
        """
        request = Request(k, text, filters, group, fold, explain)
        with self.store.snapshot() as desk:
            record = desk.get_equation(_clean_name(equation))
            if record.tree < 0:
                raise BadInput(f"{record.id}: could not be read when it was added, so it has no kin")
            forest = desk.get_trees(np.array([record.tree]))
        request.latex, request.mathml, request.without = record.latex, record.mathml, record.tree
        return self._search_snapshot(
            request, self._extract_features(forest, request), to_node(forest, 0) if explain else None
        )

    def preview(self, latex: str) -> Preview:
        """A formula as MathML, or what is wrong with it and where; raises nothing for what was typed."""
        return self.formulas.preview(latex)

    def get_equation(self, name: str) -> EquationRecord:
        """The equation with an id; raises `BadInput` if there is none."""
        with self.store.snapshot() as desk:
            return desk.get_equation(_clean_name(name))

    def get_paper(self, key: str) -> PaperPage:
        """A paper with its equations by section; raises `BadInput` if there is none."""
        with self.store.snapshot() as desk:
            return desk.get_paper(_clean_name(key))

    def has_paper(self, key: str) -> bool:
        """Whether the collection has a paper with this key."""
        with self.store.snapshot() as desk:
            return _clean_name(key) in desk.get_papers([_clean_name(key)])

    def find_similar_papers(self, paper: str | os.PathLike[str], k: int = 10) -> list[PaperHit]:
        """Papers related by their mathematics to a paper of the collection or to a draft, which is not added.

        Args:
            paper: a paper's key (text), or the path of a file or folder (a `Path`). A text is never taken for a path.
            k: most papers.

        Raises:
            BadInput: there is no such paper or file, or it has no equations.
        """
        k = check_k(k)
        if isinstance(paper, str):
            with self.store.snapshot() as desk:
                return papers.find_related_papers(desk, papers.load_query_paper(desk, _clean_name(paper)), k)
        return self.find_papers_similar_to_draft(os.fspath(paper), k)

    def find_papers_similar_to_draft(self, source: str, k: int = 10) -> list[PaperHit]:
        """The same for anything `eqkin add` can read: a path, `arxiv:ID`, `python:PACKAGE`."""
        k = check_k(k)
        subject = papers.read_draft(source, self.encoder)
        with self.store.snapshot() as desk:
            return papers.find_related_papers(desk, subject, k)

    def build_map(self, limit: int = 20_000) -> MapPoints:
        """The collection's equations on a plane, evenly thinned out to `limit`; the same every time."""
        limit = min(check_k(limit, LIMITS.map_points), LIMITS.map_points)
        with self.store.snapshot() as desk:
            if not len(desk):
                return plane.project_equations(desk, np.zeros(0, np.int64))
            return self._maps.get(desk.version, limit, lambda: plane.project_equations(desk, desk.sample_keys(limit)))

    def count_facets(self) -> Facets:
        """Equations of the whole collection by field (most frequent first) and by year (in order)."""
        with self.store.snapshot() as desk:
            return self._facets.get(desk.version, None, desk.count_facets)

    def _embed(self, forest: Forest) -> Floats:
        (vector,) = self.encoder.embed(forest)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise BadInput("the network has no vector for this formula; is the model damaged?")
        unit: Floats = vector / np.float32(length)
        return unit

    def _extract_features(self, forest: Forest, request: Request, pattern: Pattern | None = None) -> QueryFeatures:
        start = time.perf_counter()
        query = make_query_features(forest, self._embed(forest), pattern)
        request.seconds["embedding"] = time.perf_counter() - start
        return query

    def _search_snapshot(self, request: Request, query: QueryFeatures | None, root: Node | None) -> Results:
        with self.store.snapshot() as desk:
            try:
                return self._run_pipeline(desk, request, query, root)
            except NoSuchEquation:  # removed between two looks: the next does not find it
                return self._run_pipeline(desk, request, query, root)

    def _run_pipeline(
        self, desk: Snapshot, request: Request, query: QueryFeatures | None, root: Node | None
    ) -> Results:
        clock = _Stopwatch(request.seconds)
        found = candidates.retrieve(desk, request, query, self.ranker)
        clock.record("candidates")
        fields, years = candidates.count_facets(found)
        chosen = self._choose(desk, request, found)
        clock.record("ranking")
        hits = _build_hits(desk, chosen)
        clock.record("records")
        marked = ""
        if root is not None:
            hits = _explain_hits(desk, root, hits, query.pattern if query else None)
            marked = explaining.mark_mathml(root, {})
            clock.record("explaining")
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

    def _choose(self, desk: Snapshot, request: Request, found: list[Candidate]) -> list[Candidate]:
        if request.fold and found:
            vectors = desk.get_vectors(np.array([candidate.ref.key for candidate in found], np.int64))
            closely = max(_MIN_COMPARED, _COMPARED_PER_HIT * request.k)
            found = ranking.deduplicate(
                found, vectors, lambda key: to_node(desk.get_trees(np.array([key])), 0), closely
            )
        return ranking.limit_per_paper(found, request.k, self.per_paper if request.group else request.k)


def _clean_name(name: str) -> str:
    """A name as UTF-8 can write it: no key has what it cannot."""
    return name.encode("utf-8", "replace").decode()


class _Stopwatch:
    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.start = seconds, time.perf_counter()

    def record(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self.start
        self.start = now


def _build_hits(desk: Snapshot, chosen: Sequence[Candidate]) -> list[Hit]:
    found = desk.get_records(candidate.ref.key for candidate in chosen)
    hits = []
    for candidate in chosen:
        record = found.get(candidate.ref.key)
        if record is not None:  # it was removed a moment ago
            named = tuple(place.name for place in candidate.duplicates)
            hits.append(
                Hit(record, candidate.score, candidate.similarity, candidate.text_score, named, candidate.hidden)
            )
    return hits


def _explain_hits(desk: Snapshot, root: Node, hits: Sequence[Hit], pattern: Pattern | None) -> list[Hit]:
    forest = desk.get_trees(np.array([hit.equation.tree for hit in hits], np.int64))
    found = explaining.explain_hits(root, [to_node(forest, at) for at in range(len(hits))], pattern)
    return [
        replace(hit, pairings=why.pairings, marked=why.marked, renaming=why.renaming, bindings=why.bindings)
        for hit, why in zip(hits, found, strict=True)
    ]


class _VersionedCache(Generic[K, V]):
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
            if took > _SLOW_SECONDS:
                self._good_until[key] = time.monotonic() + _SLOW_LIFETIME_FACTOR * took
        return kept[key]
