"""`SearchEngine`: a query in, ranked equations out. Safe to share between threads."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.index.manifest import load_encoder
from eqkin.library.files import LibraryFiles
from eqkin.limits import LIMITS
from eqkin.search.backend import Facets, NoSuchEquation, SearchBackend, Snapshot
from eqkin.search.cache import ONE_THREAD, VersionedCache
from eqkin.search.candidates import SETTINGS, QueryFeatures, RetrievalSettings
from eqkin.search.local import LocalBackend, get_folder
from eqkin.search.names import Completion, find_atlas_name, list_completions, name_forms
from eqkin.search.papers import find_related_papers, load_query_paper, read_draft
from eqkin.search.pipeline import Stopwatch, extract_features, search
from eqkin.search.query import Formula, FormulaReader, OversizedFormula, UnreadableFormula
from eqkin.search.reader import QueryReader, ReadQuery
from eqkin.search.results import (
    EquationRecord,
    PaperHit,
    PaperPage,
    Results,
    SearchKeywords,
    SearchOptions,
    check_k,
)

HITS_PER_PAPER = 2  # if there are enough other papers
_MAX_CACHED = 1_000  # queries, answers, lists of related papers, maps
_MAX_CACHED_HITS = 50  # of one answer


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
            self.encoder = encoder or Encoder.load()
            self.backend = collection
        self._reader = QueryReader(self.formulas, self._find_name, self._knows_word)
        self._cache = VersionedCache(_MAX_CACHED)

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()

    def __enter__(self) -> SearchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def search(
        self,
        query: str = "",
        options: SearchOptions | None = None,
        **changes: Unpack[SearchKeywords],
    ) -> Results:
        r"""Find the equations most related to a formula, to a name, to words, or to a formula and words.

        A repeated query gets the same answer, and the times of the first, until the collection changes. See
        `SearchOptions` for the options; those that are not given here are those of `options`.

        Args:
            query: What was typed: LaTeX, MathML, Unicode, ASCII math, a name, words, or words and a formula. It is
                read as one formula if `text` is given as well.
            options: How to search.
            **changes: Options by name, which outrank `options`; see `SearchKeywords`.

        Raises:
            UnreadableFormula: the formula is wrong; its `problem` says where.
            BadInput: there is nothing to search for, or the library has no vectors yet.
            LimitReached: the formula, the text or `k` is too large.
        """
        options = (options or SearchOptions()).change(**changes)
        if not query.strip() and not options.text:
            raise BadInput("nothing to search for: give a formula, words, or both")
        with self.backend.snapshot() as snapshot:
            # Two libraries may have the same version; the number of equations is that of the index that is open now.
            version = len(snapshot), snapshot.version
            if options.k > _MAX_CACHED_HITS:
                return self._answer(snapshot, query, options, version)
            key = ("answer", query, options)
            return self._cache.get(version, key, lambda: self._answer(snapshot, query, options, version))

    @ONE_THREAD
    def _answer(self, snapshot: Snapshot, query: str, options: SearchOptions, version: Hashable) -> Results:
        clock = Stopwatch()
        if not query.strip():
            return self._run(snapshot, None, options, clock)
        as_words = options.reading == "words"
        as_formula = options.reading == "formula" or (bool(options.text) and options.reading == "auto")

        def read_query() -> tuple[ReadQuery, QueryFeatures | None]:
            read = self._reader.read(query, as_words=as_words, as_formula=as_formula)
            if read.problem is not None:
                is_limit = read.problem.reason.startswith("limit")
                raise OversizedFormula(read.problem) if is_limit else UnreadableFormula(read.problem)
            clock.record("conversion")
            formula = read.formula
            return read, extract_features(self.encoder, formula, read.mathml) if formula is not None else None

        read, features = self._cache.get(version, ("query", query, as_words, as_formula), read_query)
        clock.record("embedding")
        return self._run(snapshot, features, replace(options, text=options.text or read.words), clock, read)

    @ONE_THREAD
    def find_similar(
        self,
        equation: str,
        options: SearchOptions | None = None,
        **changes: Unpack[SearchKeywords],
    ) -> Results:
        """Find equations related to an equation of the collection, given by its id, except itself; see `search`.

        Raises:
            BadInput: there is no such equation, or it could not be read when it was added.
        """
        clock = Stopwatch()
        options = (options or SearchOptions()).change(**changes)
        with self.backend.snapshot() as snapshot:
            record = snapshot.get_equation(_clean_name(equation))
            if record.tree < 0:
                raise BadInput(f"{record.id}: could not be read when it was added, so nothing is related to it")
            formula = Formula(record.latex, snapshot.get_trees(np.array([record.tree])))
            features = extract_features(self.encoder, formula, record.mathml)
            clock.record("embedding")
            return self._run(snapshot, features, replace(options, exclude=record.tree), clock)

    def _run(
        self,
        snapshot: Snapshot,
        query: QueryFeatures | None,
        options: SearchOptions,
        clock: Stopwatch,
        read: ReadQuery | None = None,
    ) -> Results:
        run = partial(
            search,
            query=query,
            options=options,
            settings=self.retrieval,
            per_paper=self.per_paper,
            clock=clock,
            read=read,
        )
        try:
            return run(snapshot)
        except NoSuchEquation:
            # It was removed between two reads: a new snapshot does not have it.
            with self.backend.snapshot() as later:
                return run(later)

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

    def get_equation(self, name: str) -> EquationRecord:
        """Return the equation with an id; raises `BadInput` if there is none."""
        with self.backend.snapshot() as snapshot:
            return snapshot.get_equation(_clean_name(name))

    def get_name(self, equation: EquationRecord) -> str | None:
        """Return the name of an equation, or of a law of the atlas with the same form; None if it has none."""
        if equation.tree < 0:
            return None
        with self.backend.snapshot() as snapshot:
            names = snapshot.get_names([equation.tree])
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
            equations: At most this many equations of a stored paper are compared, evenly spaced.

        Raises:
            BadInput: there is no such paper or file, or it has no equations.
        """
        if not isinstance(paper, str):
            return self.find_papers_similar_to_draft(os.fspath(paper), k)
        k = check_k(k)
        key = _clean_name(paper)
        with self.backend.snapshot() as snapshot:
            hits = self._cache.get(
                snapshot.version,
                ("papers", key, k, equations),
                lambda: find_related_papers(snapshot, load_query_paper(snapshot, key, equations), k),
            )
            return list(hits)

    def find_papers_similar_to_draft(self, source: str, k: int = 10) -> list[PaperHit]:
        """Find papers related to anything `eqkin add` can read: a path, `arxiv:ID`, `python:PACKAGE`."""
        k = check_k(k)
        draft = read_draft(source, self.encoder)
        with self.backend.snapshot() as snapshot:
            return find_related_papers(snapshot, draft, k)

    def count_facets(self) -> Facets:
        """Count the equations of the whole collection by field (most frequent first) and by year (in order)."""
        with self.backend.snapshot() as snapshot:
            return self._cache.get(snapshot.version, ("facets",), snapshot.count_facets, keep_slow=True)


def _clean_name(name: str) -> str:
    """Replace what UTF-8 cannot encode: no key contains it."""
    return name.encode("utf-8", "replace").decode()
