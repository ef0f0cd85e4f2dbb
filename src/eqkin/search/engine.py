"""`SearchEngine`: a query in, ranked equations out. Safe to share between threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import ContextDecorator, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import NodeColumns, to_mathml
from eqkin.formulas.operators import OperatorForest
from eqkin.index.manifest import load_encoder
from eqkin.library.files import LibraryFiles
from eqkin.limits import LIMITS, check_cancelled
from eqkin.search.backend import EquationRef, Facets, Floats, Keys, NoSuchEquation, SearchBackend, Snapshot
from eqkin.search.candidates import QueryFeatures, RankedCandidates, Rows
from eqkin.search.deduplicate import deduplicate, keep_best_of_display, limit_per_paper
from eqkin.search.explain import Explanation, explain_hits
from eqkin.search.facets import FACETS, FacetPool, count_facets, drop_facet_filters, find_best_per_field
from eqkin.search.features import QueryTerms
from eqkin.search.local import LocalBackend, get_folder
from eqkin.search.names import Completion, find_atlas_name, list_completions, name_forms
from eqkin.search.papers import find_related_papers, load_query_paper, read_draft
from eqkin.search.query import Formula, FormulaReader, OversizedFormula, UnreadableFormula
from eqkin.search.reader import QueryReader, ReadQuery
from eqkin.search.rerank import rank
from eqkin.search.results import (
    WEAK_SCORE,
    EquationRecord,
    FacetCount,
    Hit,
    MapPoints,
    PaperHit,
    PaperPage,
    PaperRecord,
    Results,
    SearchOptions,
    check_k,
)
from eqkin.search.retrieve import SETTINGS, RetrievalSettings, retrieve
from eqkin.search.wildcards import Pattern, replace_wildcards

K = TypeVar("K")
V = TypeVar("V")
STAGES = ("conversion", "embedding", "candidates", "ranking", "records", "explaining", "facets")
HITS_PER_PAPER = 2  # if there are enough other papers
_SLOW_SECONDS = 1.0  # a cached result that took longer
_SLOW_LIFETIME_FACTOR = 20.0  # stays valid this many times as long, even if the collection changes
_MAX_CACHED_MAPS = 4
_MAX_CACHED_PAPERS = 128  # lists of related papers
_MAX_BEST_FIELDS = 10  # fields whose best hit is shown
_PATTERN_RELATIONS = ("", "contains", "same")  # by what `Pattern.match` returns
_MAX_CACHED_POOLS = 64  # candidates of queries, for facets that do not depend on what is chosen of them
_MAX_CACHED_QUERIES = 512  # that were read and embedded
_MAX_CACHED_ANSWERS = 256
_MAX_CACHED_HITS = 50  # of one answer
_WAIT_SECONDS = 0.05  # for another thread's result, between checks whether anybody still waits for it
_BEND_AT_DEVIATIONS = 2.0  # standard deviations at which the map begins to bend towards its border


class _OneThread(ContextDecorator):
    """While any search runs, numeric libraries use one thread: for so few numbers, others only wait for work.

    threadpoolctl lets only the first thread that set OpenBLAS's number of threads change it, until that thread releases
    control. Here, the first search to begin and the last one to end set it, whichever threads they are in; a limit that
    another thread of the program sets meanwhile ends with them.
    """

    def __init__(self) -> None:
        self._lock, self._running = threading.Lock(), 0

    @cached_property
    def _controller(self) -> ThreadpoolController:
        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._running:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limiter = self._controller.limit(limits=1)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                OpenBLASController.clear_controlling_thread(force=True)
                self._limiter.restore_original_limits()
                OpenBLASController.clear_controlling_thread(force=True)


_ONE_THREAD = _OneThread()


class SearchEngine:
    """Searches a collection.

    Args:
        collection: A library or its folder; or any other `SearchBackend`, which the engine then closes.
        encoder: The network that embeds queries, the same that made the collection's vectors. By default that of the
            library; the bundled one if it has none.
        per_paper: Hits of one paper, if there are enough others.
        retrieval: How many candidates are retrieved.
    """

    def __init__(
        self,
        collection: LibraryFiles | str | os.PathLike[str] | SearchBackend,
        encoder: Encoder | None = None,
        *,
        per_paper: int = HITS_PER_PAPER,
        retrieval: RetrievalSettings = SETTINGS,
    ) -> None:
        self.formulas: FormulaReader = FormulaReader()
        self.per_paper: int = per_paper
        self.retrieval: RetrievalSettings = retrieval
        self.encoder: Encoder
        self.backend: SearchBackend
        if isinstance(collection, LibraryFiles | str | os.PathLike):
            folder = get_folder(collection)
            self.encoder = encoder or load_encoder(folder)
            self.backend = LocalBackend(folder, self.encoder.digest)
        else:
            self.encoder, self.backend = encoder or Encoder.load(), collection
        self._reader = QueryReader(self.formulas, self._find_name, self._knows_word)
        self._facets = _VersionedCache[None, Facets](1)
        self._pools = _VersionedCache[Hashable, FacetPool](_MAX_CACHED_POOLS)
        self._papers = _VersionedCache[Hashable, list[PaperHit]](_MAX_CACHED_PAPERS, keep_slow=False)
        self._maps = _VersionedCache[int, MapPoints](_MAX_CACHED_MAPS)
        self._queries = _VersionedCache[Hashable, tuple[ReadQuery, QueryFeatures | None]](
            _MAX_CACHED_QUERIES, keep_slow=False
        )
        self._answers = _VersionedCache[Hashable, Results](_MAX_CACHED_ANSWERS, keep_slow=False)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()

    def __enter__(self) -> SearchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(self, query: str = "", options: SearchOptions | None = None, **changes: Any) -> Results:
        r"""Find the equations most related to a formula, to a name, to words, or to a formula and words.

        A repeated query gets the same answer, and the times of the first, until the collection changes.

        Args:
            query: What was typed: LaTeX, MathML, Unicode, ASCII math, a name, words, or words and a formula. It is
                read as one formula if `text` is given as well.
            options: How to search.
            changes: Options by name that differ from `options`, see `SearchOptions.change`.

        Raises:
            UnreadableFormula: the formula is wrong; its `problem` says where.
            BadInput: there is nothing to search for, or the library has no vectors yet.
            LimitReached: the formula, the text or `k` is too large.
        """
        options = (options or SearchOptions()).change(**changes)
        if not query.strip() and not options.text:
            raise BadInput("nothing to search for: give a formula, words, or both")
        with self.backend.snapshot() as snapshot:
            version = len(snapshot), snapshot.version  # of the index that is open now
            if options.k > _MAX_CACHED_HITS:
                return self._answer(snapshot, query, options, version)
            return self._answers.get(version, (query, options), lambda: self._answer(snapshot, query, options, version))

    @_ONE_THREAD
    def _answer(self, snapshot: Snapshot, query: str, options: SearchOptions, version: Hashable) -> Results:
        clock = _Stopwatch()
        if not query.strip():
            return self._search(snapshot, None, options, clock)
        as_words = options.reading == "words"
        as_formula = options.reading == "formula" or (bool(options.text) and options.reading == "auto")

        def read_query() -> tuple[ReadQuery, QueryFeatures | None]:
            read = self._reader.read(query, as_words=as_words, as_formula=as_formula)
            if read.problem is not None:
                is_limit = read.problem.reason.startswith("limit")
                raise OversizedFormula(read.problem) if is_limit else UnreadableFormula(read.problem)
            clock.record("conversion")
            formula = read.formula
            if formula is None:
                return read, None
            return read, self._extract_features(formula, read.mathml)

        read, features = self._queries.get(version, (query, as_words, as_formula), read_query)
        clock.record("embedding")
        return self._search(snapshot, features, replace(options, text=options.text or read.words), clock, read)

    def read(self, query: str, *, as_words: bool = False, as_formula: bool = False) -> ReadQuery:
        """Return how a query is read, with the names and words of the collection; raises nothing for what was typed."""
        return self._reader.read(query, as_words=as_words, as_formula=as_formula)

    def complete(self, text: str, k: int = 8) -> list[Completion]:
        """Return names of equations that begin with a text, or have a word that does; the most frequent first."""
        with self.backend.snapshot() as snapshot:
            return list_completions(text, snapshot.complete_name(text, k), k)

    def _find_name(self, words: str) -> tuple[str, str]:
        name, latex = find_atlas_name(words)
        if name:
            return name, latex
        with self.backend.snapshot() as snapshot:
            return snapshot.match_name(words), ""

    def _knows_word(self, word: str) -> bool:
        with self.backend.snapshot() as snapshot:
            return snapshot.knows_word(word)

    @_ONE_THREAD
    def find_similar(self, equation: str, options: SearchOptions | None = None, **changes: Any) -> Results:
        """Find equations related to an equation of the collection, given by its id, except itself; see `search`.

        Raises:
            BadInput: there is no such equation, or it could not be read when it was added.
        """
        options, clock = (options or SearchOptions()).change(**changes), _Stopwatch()
        with self.backend.snapshot() as snapshot:
            record = snapshot.get_equation(_clean_name(equation))
            if record.tree < 0:
                raise BadInput(f"{record.id}: could not be read when it was added, so nothing is related to it")
            forest = snapshot.get_trees(np.array([record.tree]))
            features = self._extract_features(Formula(record.latex, forest), record.mathml)
            clock.record("embedding")
            return self._search(snapshot, features, replace(options, exclude=record.tree), clock)

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput` if there is none."""
        with self.backend.snapshot() as snapshot:
            return snapshot.get_equation(_clean_name(name))

    def get_name(self, equation: EquationRecord) -> str | None:
        """Return the name of an equation, or of a law of the atlas with the same form; None if it has none."""
        if equation.tree < 0:
            return None
        with self.backend.snapshot() as snapshot:
            names = snapshot.get_names(snapshot.get_refs([equation.tree]).values())
            return names.get(equation.tree) or name_forms(snapshot.get_operators(np.array([equation.tree])))[0]

    def get_paper(self, key: str) -> PaperPage:
        """Return a paper with its equations by section; raises `BadInput` if there is none."""
        with self.backend.snapshot() as snapshot:
            return snapshot.get_paper(_clean_name(key))

    def has_paper(self, key: str) -> bool:
        """Return whether the collection has a paper with this key."""
        with self.backend.snapshot() as snapshot:
            return _clean_name(key) in snapshot.get_papers([_clean_name(key)])

    def find_similar_papers(
        self, paper: str | os.PathLike[str], k: int = 10, *, equations: int = LIMITS.draft_equations
    ) -> list[PaperHit]:
        """Find papers related by their mathematics to a paper of the collection or to a draft, which is not added.

        Args:
            paper: A paper's key (text), or the path of a file or folder (a `Path`). Text is never taken for a path.
            k: Most papers.
            equations: Of a paper of the collection that has more, as many are compared, evenly spread.

        Raises:
            BadInput: there is no such paper or file, or it has no equations.
        """
        k = check_k(k)
        if isinstance(paper, str):
            key = _clean_name(paper)
            with self.backend.snapshot() as snapshot:
                hits = self._papers.get(
                    snapshot.version,
                    (key, k, equations),
                    lambda: find_related_papers(snapshot, load_query_paper(snapshot, key, equations), k),
                )
                return list(hits)
        return self.find_papers_similar_to_draft(os.fspath(paper), k)

    def find_papers_similar_to_draft(self, source: str, k: int = 10) -> list[PaperHit]:
        """Find papers related to anything `eqkin add` can read: a path, `arxiv:ID`, `python:PACKAGE`."""
        k = check_k(k)
        draft = read_draft(source, self.encoder)
        with self.backend.snapshot() as snapshot:
            return find_related_papers(snapshot, draft, k)

    def build_map(self, limit: int = 20_000) -> MapPoints:
        """Project the collection's equations onto a plane, evenly thinned out to `limit`; always the same."""
        limit = min(check_k(limit, LIMITS.map_points), LIMITS.map_points)
        with self.backend.snapshot() as snapshot:
            if not len(snapshot):
                return _project_equations(snapshot, np.zeros(0, np.int64))
            return self._maps.get(
                snapshot.version, limit, lambda: _project_equations(snapshot, snapshot.sample_keys(limit))
            )

    def count_facets(self) -> Facets:
        """Count the equations of the whole collection by field (most frequent first) and by year (in order)."""
        with self.backend.snapshot() as snapshot:
            return self._facets.get(snapshot.version, None, snapshot.count_facets)

    def _extract_features(self, formula: Formula, mathml: str) -> QueryFeatures:
        """Compute all that a search needs of the query."""
        operators, wildcards = formula.operators, bool(formula.wildcards)
        plain = replace_wildcards(formula.forest) if wildcards else formula.forest
        (vector,) = self.encoder.embed(plain)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise BadInput("the network has no vector for this formula; is the model damaged?")
        unit, pattern = vector / np.float32(length), Pattern(operators) if wildcards else None
        plain_operators = parse_operators(plain) if wildcards else operators
        return QueryFeatures(
            latex=formula.latex,
            mathml=mathml,
            nodes=formula.nodes,
            vector=unit,
            terms=QueryTerms.extract(plain_operators, operators if wildcards else None),
            operators=operators,
            pattern=pattern,
        )

    def _search(
        self,
        snapshot: Snapshot,
        query: QueryFeatures | None,
        options: SearchOptions,
        clock: _Stopwatch,
        read: ReadQuery | None = None,
    ) -> Results:
        try:
            return self._run_pipeline(snapshot, query, options, clock, read)
        except NoSuchEquation:  # removed between two reads: a new snapshot does not have it
            with self.backend.snapshot() as later:
                return self._run_pipeline(later, query, options, clock, read)

    def _run_pipeline(
        self,
        snapshot: Snapshot,
        query: QueryFeatures | None,
        options: SearchOptions,
        clock: _Stopwatch,
        read: ReadQuery | None = None,
    ) -> Results:
        named = snapshot.find_named(read.name, options.filters) if read is not None and read.name else set()
        candidates = retrieve(snapshot, query, options, self.retrieval, named)
        clock.record("candidates")
        ranked = rank(snapshot, query, candidates, text=bool(options.text), named=named)
        chosen = self._choose(ranked, options)
        clock.record("ranking")
        rows = chosen.rows[options.offset :]
        keys = ranked.keys[rows]
        trees = dict(zip(keys.tolist(), snapshot.get_nodes(keys.tolist()), strict=True))
        records = snapshot.get_records(trees, trees)  # first: references are read with them
        shown = [row for row in _build_candidates(snapshot, ranked, chosen, rows) if row.ref.key in records]
        operators = snapshot.get_operators(ranked.keys[[one.row for one in shown]]) if shown else None
        clock.record("records")
        marked, reasons = "", [Explanation()] * len(shown)
        if query is not None and operators is not None:
            reasons = _explain(query, ranked, trees, shown, operators, options.explain)
            marked = to_mathml(query.nodes, classes={}) if options.explain else ""
            clock.record("explaining")
        forms = name_forms(operators) if operators is not None else []
        hits = _build_hits(snapshot, shown, records, reasons, forms, named)
        results = Results(
            *((query.latex, query.mathml) if query is not None else ("", "")),
            options.text,
            hits,
            offset=options.offset,
            more=chosen.more,
            nothing_close=query is not None
            and all(hit.relation == "weak" for hit in hits)
            and bool((ranked.score[chosen.rows[: options.offset]] < WEAK_SCORE).all()),
            seconds=clock.seconds,
            marked=marked,
            missing=snapshot.missing,
            query=read,
        )
        if options.facets and len(snapshot):
            results = self._add_facets(snapshot, query, options, lambda: FacetPool.build(snapshot, ranked), results)
            clock.record("facets")
        return results

    def _add_facets(
        self,
        snapshot: Snapshot,
        query: QueryFeatures | None,
        options: SearchOptions,
        build_pool: Callable[[], FacetPool],
        results: Results,
    ) -> Results:
        """Count the query's equations by field, year, language and paper, and find the best one of each field."""
        filters, base = options.filters, drop_facet_filters(options.filters)

        def rank_pool() -> FacetPool:
            if filters == base:
                return build_pool()
            without = replace(options, filters=base)
            candidates = retrieve(snapshot, query, without, self.retrieval)
            return FacetPool.build(snapshot, rank(snapshot, query, candidates, text=bool(without.text)))

        formula = (query.latex, query.mathml) if query is not None else None
        pool = self._pools.get(snapshot.version, (formula, options.text, base, options.exclude), rank_pool)
        same = None
        if query is not None and query.pattern is None:
            same = snapshot.count_same_form(query.operators, base, options.exclude)
        counts = count_facets(same, pool, filters)
        best = find_best_per_field(pool, filters, counts.list_values("fields")[:_MAX_BEST_FIELDS], WEAK_SCORE)
        papers = snapshot.get_papers(
            {pool.papers[place].key for place in best.values()} | set(map(str, counts.list_values("papers")))
        )
        shown = {hit.equation.tree: hit for hit in results.hits}
        others = sorted({place for place in best.values() if pool.keys[place] not in shown})
        shown |= _build_short_hits(snapshot, pool, others, papers) if others else {}

        def build(facet: str) -> tuple[FacetCount, ...]:
            same = counts.same[facet] if counts.same is not None else None
            return tuple(
                FacetCount(
                    value,
                    same[value] if same is not None else None,
                    counts.pool[facet][value],
                    shown.get(pool.keys[best[value]]) if facet == "fields" and value in best else None,
                    papers[value].title if facet == "papers" and value in papers else "",
                )
                for value in counts.list_values(facet)
            )

        fields, years, languages, keys = map(build, FACETS)
        return replace(results, same=counts.total, fields=fields, years=years, languages=languages, papers=keys)

    def _choose(self, ranked: RankedCandidates, options: SearchOptions) -> _Choice:
        """Choose the list up to its last hit that is shown.

        Each formula is listed once, of a display and its rows the best, and there are not too many of one paper.
        """
        rows, duplicates = keep_best_of_display(ranked), dict[int, list[int]]()
        if options.fold:
            rows, duplicates = deduplicate(ranked, rows)
        end = options.offset + options.k
        papers = ranked.columns.paper[rows].tolist()
        places, hidden = limit_per_paper(papers, end, self.per_paper if options.group else len(rows))
        counts = {int(rows[place]): count for place, count in hidden.items()}
        return _Choice(rows[places], duplicates, counts, min(len(rows), LIMITS.results) > end)


def _clean_name(name: str) -> str:
    """Replace what UTF-8 cannot encode: no key contains it."""
    return name.encode("utf-8", "replace").decode()


class _Stopwatch:
    """Measures the stages of a search."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    def record(self, stage: str) -> None:
        """Record the time since the last stage ended; stop the search if nobody waits for it any more."""
        check_cancelled()
        now = time.perf_counter()
        self.seconds[stage] = now - self._start
        self._start = now


class _Choice(NamedTuple):
    """Candidates that are shown, and why others are not."""

    rows: Rows
    duplicates: dict[int, list[int]]  # by row: others that are the same formula
    hidden: dict[int, int]  # by row: how many others of the same paper are left out
    more: bool  # whether there are more


@dataclass(frozen=True, slots=True)
class Candidate:
    """An equation that is shown."""

    ref: EquationRef
    row: int  # in `RankedCandidates`
    similarity: float  # cosine
    text_score: float
    score: float
    duplicates: tuple[EquationRef, ...] = ()
    hidden: int = 0  # better candidates of the same paper that are not shown


def _build_candidates(snapshot: Snapshot, ranked: RankedCandidates, chosen: _Choice, rows: Rows) -> list[Candidate]:
    """Read references; those that are gone are left out."""
    others = [row for one in rows.tolist() for row in chosen.duplicates.get(one, ())]
    refs = snapshot.get_refs(ranked.keys[[*rows.tolist(), *others]].tolist()) if len(rows) else {}
    keys = ranked.keys.tolist()
    return [
        Candidate(
            refs[keys[row]], row, float(ranked.similarity[row]), float(ranked.text_score[row]),
            float(ranked.score[row]),
            tuple(refs[keys[other]] for other in chosen.duplicates.get(row, ()) if keys[other] in refs),
            chosen.hidden.get(row, 0),
        )
        for row in rows.tolist()
        if keys[row] in refs
    ]  # fmt: skip


def _build_hits(
    snapshot: Snapshot,
    chosen: Sequence[Candidate],
    records: Mapping[int, EquationRecord],
    reasons: Sequence[Explanation],
    forms: Sequence[str | None],
    named: Collection[int],
) -> tuple[Hit, ...]:
    """Build hits with their names; one without a name gets that of a law of the atlas with the same form."""
    names = snapshot.get_names(candidate.ref for candidate in chosen)
    hits = []
    for candidate, why, form in zip(chosen, reasons, forms, strict=True):
        key, same = candidate.ref.key, tuple(ref.name for ref in candidate.duplicates)
        hit = Hit(
            records[key], candidate.score, candidate.similarity, candidate.text_score, same, candidate.hidden,
            why.pairings, why.marked, why.renaming, why.bindings, "named" if key in named else why.relation,
            why.changes, names.get(key) or form,
        )  # fmt: skip
        hits.append(hit)
    return tuple(hits)


def _build_short_hits(
    snapshot: Snapshot, pool: FacetPool, places: Sequence[int], papers: Mapping[str, PaperRecord]
) -> dict[int, Hit]:
    """Build hits without the text around equations, which takes the longest to read, and without their relation."""
    hits, keys = {}, [pool.keys[place] for place in places]
    refs = snapshot.get_refs(keys)
    for place, key, nodes in zip(places, keys, snapshot.get_nodes(keys), strict=True):
        if key in refs and refs[key].paper in papers:
            ref, mathml = refs[key], to_mathml(nodes)
            equation = EquationRecord(ref.name, key, ref.latex, mathml, "", "", "", "", papers[ref.paper])
            hits[key] = Hit(equation, pool.score[place], pool.similarity[place], pool.text_score[place])
    return hits


def _explain(
    query: QueryFeatures,
    ranked: RankedCandidates,
    nodes: Mapping[int, NodeColumns],
    shown: Sequence[Candidate],
    operators: OperatorForest,
    parts: bool,
) -> list[Explanation]:
    """Return how hits, given with their operator trees, are related to the query; with `parts`, what matches."""
    if query.pattern is not None and not parts:
        found = [Explanation(_PATTERN_RELATIONS[ranked.matches[candidate.row]]) for candidate in shown]
    else:
        trees = [nodes[candidate.ref.key] for candidate in shown]
        found = explain_hits(query.nodes, query.operators, trees, operators, parts=parts)
    reasons = []
    for candidate, why in zip(shown, found, strict=True):
        similar = "weak" if candidate.score < WEAK_SCORE else "similar"
        reasons.append(why if why.relation else replace(why, relation=similar))
    return reasons


def _project_equations(snapshot: Snapshot, keys: Keys) -> MapPoints:
    """Project equations onto a plane; those that are gone are left out."""
    refs = snapshot.get_refs(keys.tolist())
    known = np.array(sorted(refs), np.int64)
    if not len(known):
        return MapPoints(known, [], [], np.zeros((0, 2), np.float32))
    ordered = [refs[key] for key in known.tolist()]
    fields = [ref.fields[0] if ref.fields else "" for ref in ordered]
    vectors, named = snapshot.get_vectors(known), snapshot.get_names(ordered)
    project = fit_plane(vectors)
    names = [named.get(ref.key, "") for ref in ordered]
    return MapPoints(known, [ref.name for ref in ordered], fields, project(vectors), names, project)


def fit_plane(vectors: Floats) -> Callable[[Floats], Floats]:
    """Return the projection to the first two principal components, bent into [-1, 1]: (n, 2). Deterministic."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    centred = vectors.astype(np.float64) - mean
    _, _, directions = np.linalg.svd(centred.T @ centred)
    axes = directions[:2]
    strongest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[[0, 1], strongest])[:, None]  # the sign of an axis is arbitrary: fix it
    spread = np.maximum((centred @ axes.T).std(axis=0), 1e-9) * _BEND_AT_DEVIATIONS

    def project(others: Floats) -> Floats:
        bent: Floats = np.tanh((others - mean) @ axes.T / spread).astype(np.float32)
        return bent

    return project


class _VersionedCache(Generic[K, V]):
    """Results computed from a collection as it is now; dropped when it changes, or when there are too many.

    With `keep_slow`, results that took long are kept for a while nevertheless: a large collection may change every few
    seconds. Threads that ask for the same while it is computed wait for it.
    """

    def __init__(self, most: int, *, keep_slow: bool = True) -> None:
        self._most, self._keep_slow = most, keep_slow
        self._state: tuple[Hashable, dict[K, V], dict[K, float]] = None, {}, {}  # version, values, valid until
        self._computing: dict[tuple[Hashable, K], threading.Event] = {}

    def __len__(self) -> int:
        return len(self._state[1])

    def get(self, version: Hashable, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key at a version; `make` computes it if it is unknown."""
        known, values, valid_until = self._state
        found = values.get(key)
        if found is not None and (version == known or time.monotonic() < valid_until.get(key, 0.0)):
            return found
        finished = threading.Event()
        other = self._computing.setdefault((version, key), finished)
        if other is not finished:
            while not other.wait(_WAIT_SECONDS):
                check_cancelled()
            known, values, _ = self._state
            if version == known and key in values:  # otherwise it failed
                return values[key]
            return make()
        try:
            return self._compute(version, key, make)
        finally:
            del self._computing[version, key]
            finished.set()

    def _compute(self, version: Hashable, key: K, make: Callable[[], V]) -> V:
        known, values, valid_until = self._state
        if version != known:
            values, valid_until = {}, {}
            self._state = version, values, valid_until
        start = time.monotonic()
        made = make()
        seconds = time.monotonic() - start
        if self._keep_slow and seconds > _SLOW_SECONDS:
            valid_until[key] = time.monotonic() + _SLOW_LIFETIME_FACTOR * seconds
        with suppress(KeyError, RuntimeError, StopIteration):  # other threads do the same
            while len(values) >= self._most:
                del values[next(iter(values))]  # the oldest
        values[key] = made
        return made
