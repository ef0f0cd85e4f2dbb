"""Facets: how many equations each field, year, language and paper has for a query, whatever of them is chosen.

A value is counted with all *other* filters applied: with the field `ml` and the year 2020 chosen, fields are counted
among equations of 2020, and years among those of `ml`. There are two counts. `same` is exact: equations of the whole
collection that have the query's form (same, renamed or rewritten). `pool` counts the best candidates of the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from eqkin.formulas.mathml import to_mathml
from eqkin.library.records import Filters, PaperCount
from eqkin.search.backend import Snapshot
from eqkin.search.candidates import QueryFeatures, RankedCandidates
from eqkin.search.rank import rank
from eqkin.search.results import (
    WEAK_SCORE,
    EquationRecord,
    FacetCount,
    Hit,
    PaperRecord,
    Results,
    SearchOptions,
)
from eqkin.search.retrieve import RetrievalSettings, retrieve

# Candidates beyond these have little to do with the query.
_COUNTED_CANDIDATES = 200
MAX_PAPERS = 20  # in the facet of papers
_MAX_BEST_FIELDS = 10  # fields whose best hit is shown
FACETS = ("fields", "years", "languages", "papers")

Value: TypeAlias = str | int
Counts: TypeAlias = dict[str, Counter[Value]]  # by facet


@dataclass(frozen=True)
class FacetPool:
    """The candidates of a query, best first, that facets count: no more of each than that takes."""

    keys: list[int]
    papers: list[PaperCount]  # of each candidate, with one equation
    similarity: list[float]
    text_score: list[float]
    score: list[float]

    @classmethod
    def build(cls, snapshot: Snapshot, ranked: RankedCandidates) -> FacetPool:
        """Read the papers of ranked candidates; those that are gone are left out."""
        best = ranked.columns.select(np.arange(min(len(ranked.score), _COUNTED_CANDIDATES)))
        papers = snapshot.get_paper_facets(best)
        rows = [row for row, key in enumerate(best.keys.tolist()) if key in papers]
        keys = best.keys[rows].tolist()
        return cls(
            keys=keys,
            papers=[papers[key] for key in keys],
            similarity=ranked.similarity[rows].tolist(),
            text_score=ranked.text_score[rows].tolist(),
            score=ranked.score[rows].tolist(),
        )


@dataclass(frozen=True)
class CountedFacets:
    """Counts of the values of all facets, and how many equations pass all filters."""

    same: Counts | None  # None if the collection cannot count them, or the query has no form of its own
    pool: Counts
    total: int | None  # equations of the same form that pass all filters
    filters: Filters

    def list_values(self, facet: str) -> list[Value]:
        """List the values of a facet, also those chosen that have no equations: years in order, others by counts."""
        same = (self.same or {}).get(facet, Counter())
        values: set[Value] = {*same, *self.pool[facet], *getattr(self.filters, facet, ())}
        if facet == "years":
            return sorted(values)
        ordered = sorted(values, key=lambda value: (-same[value], -self.pool[facet][value], str(value)))
        return ordered[:MAX_PAPERS] if facet == "papers" else ordered


def drop_facet_filters(filters: Filters) -> Filters:
    """Return the filters that no facet offers."""
    return replace(filters, fields=(), first_year=None, last_year=None, languages=(), papers=())


def count_facets(same: Sequence[PaperCount] | None, pool: FacetPool, filters: Filters) -> CountedFacets:
    """Count equations by facet.

    Args:
        same: Papers with equations of the query's form.
        pool: Candidates.
        filters: The filters of the search; all but those of facets are already applied.
    """
    counted = _count(pool.papers, filters)[0]
    if same is None:
        return CountedFacets(None, counted, None, filters)
    counts, total = _count(same, filters)
    return CountedFacets(counts, counted, total, filters)


def find_best_per_field(
    pool: FacetPool, filters: Filters, fields: Iterable[Value], least_score: float
) -> dict[Value, int]:
    """Return the place in the pool of the best candidate of each of some fields that passes all other filters."""
    wanted, best = set(fields), dict[Value, int]()
    for place, (paper, score) in enumerate(zip(pool.papers, pool.score, strict=True)):
        new = wanted.intersection(paper.fields) - best.keys() if score >= least_score else ()
        if new and _list_failed(paper, filters) in ([], ["fields"]):
            best |= dict.fromkeys(new, place)
    return best


def _count(papers: Iterable[PaperCount], filters: Filters) -> tuple[Counts, int]:
    counts: Counts = {facet: Counter() for facet in FACETS}
    fields, years, languages, keys = (counts[facet] for facet in FACETS)
    total, unfiltered = 0, filters == drop_facet_filters(filters)
    for paper in papers:
        failed = [] if unfiltered else _list_failed(paper, filters)
        if len(failed) > 1:
            continue
        number, only = paper.equations, failed[0] if failed else ""
        total += 0 if failed else number
        if only in ("", "fields"):
            for name in paper.fields:
                fields[name] += number
        if only in ("", "years") and paper.year is not None:
            years[paper.year] += number
        if only in ("", "languages") and paper.lang:
            languages[paper.lang] += number
        if only in ("", "papers"):
            keys[paper.key] += number
    return counts, total


def _list_failed(paper: PaperCount, filters: Filters) -> list[str]:
    """List the facets whose filter a paper does not pass."""
    first, last, year = filters.first_year, filters.last_year, paper.year
    dated = (first is None and last is None) or (
        year is not None and (first is None or year >= first) and (last is None or year <= last)
    )
    passed = (
        not filters.fields or not set(filters.fields).isdisjoint(paper.fields),
        dated,
        not filters.languages or paper.lang in filters.languages,
        not filters.papers or paper.key in filters.papers,
    )
    return [facet for facet, good in zip(FACETS, passed, strict=True) if not good]


def add_facets(
    snapshot: Snapshot,
    query: QueryFeatures | None,
    options: SearchOptions,
    settings: RetrievalSettings,
    ranked: RankedCandidates,
    results: Results,
) -> Results:
    """Count the query's equations by field, year, language and paper, and find the best one of each field.

    Args:
        snapshot: The collection.
        query: The formula.
        options: How to search.
        settings: How many candidates are retrieved.
        ranked: The candidates that the search has ranked.
        results: What counts are added to.
    """
    filters = options.filters
    base = drop_facet_filters(filters)
    if filters != base:
        # Counts ignore the filter of their own facet, so they need candidates that pass none of these filters.
        without = replace(options, filters=base)
        candidates = retrieve(snapshot, query, without, settings)
        ranked = rank(snapshot, query, candidates, text=bool(options.text))
    pool = FacetPool.build(snapshot, ranked)
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
        found = []
        for value in counts.list_values(facet):
            hit = shown.get(pool.keys[best[value]]) if facet == "fields" and value in best else None
            title = papers[str(value)].title if facet == "papers" and value in papers else ""
            number = counts.same[facet][value] if counts.same is not None else None
            found.append(FacetCount(value=value, same=number, pool=counts.pool[facet][value], best=hit, title=title))
        return tuple(found)

    fields, years, languages, keys = map(build, FACETS)
    return replace(results, same=counts.total, fields=fields, years=years, languages=languages, papers=keys)


def _build_short_hits(
    snapshot: Snapshot, pool: FacetPool, places: Sequence[int], papers: Mapping[str, PaperRecord]
) -> dict[int, Hit]:
    """Build hits without the text around equations, which takes the longest to read, and without their relation."""
    keys = [pool.keys[place] for place in places]
    refs = snapshot.get_refs(keys)
    hits = {}
    for place, key, nodes in zip(places, keys, snapshot.get_nodes(keys), strict=True):
        if key not in refs or refs[key].paper not in papers:
            continue
        equation = EquationRecord(
            id=refs[key].name,
            tree=key,
            latex=refs[key].latex,
            mathml=to_mathml(nodes),
            label="",
            section="",
            before="",
            after="",
            paper=papers[refs[key].paper],
        )
        hits[key] = Hit(
            equation=equation,
            score=pool.score[place],
            similarity=pool.similarity[place],
            text_score=pool.text_score[place],
        )
    return hits
