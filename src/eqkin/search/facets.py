"""Facets: how many equations each field, year, language and paper has for a query, whatever of them is chosen.

A value is counted with all *other* filters applied: with the field `ml` and the year 2020 chosen, fields are counted
among equations of 2020, and years among those of `ml`. There are two counts. `same` is exact: equations of the whole
collection that have the query's form (same, renamed or rewritten). `pool` counts the best candidates of the query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from eqkin.library.queries import Filters
from eqkin.library.records import PaperCount
from eqkin.search.backend import Snapshot
from eqkin.search.candidates import QueryFeatures, RankedCandidates, RetrievalSettings, rank, retrieve
from eqkin.search.results import WEAK_SCORE, FacetCount, Hit, Results, SearchOptions

# Candidates beyond these have little to do with the query.
_COUNTED_CANDIDATES = 200
_MAX_PAPERS = 20  # in the facet of papers
_MAX_BEST_FIELDS = 10  # fields whose best hit is shown
FACETS = ("fields", "years", "languages", "papers")

Value: TypeAlias = str | int
Counts: TypeAlias = dict[str, Counter[Value]]  # by facet


def add_facets(
    snapshot: Snapshot,
    query: QueryFeatures | None,
    options: SearchOptions,
    *,
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
        candidates = retrieve(snapshot, query, without, settings=settings)
        ranked = rank(snapshot, query, candidates, text=bool(options.text))
    best = ranked.columns.select(np.arange(min(len(ranked.score), _COUNTED_CANDIDATES)))
    papers = snapshot.get_paper_facets(best)
    pool, _ = _count(papers.values(), filters)
    same: Counts | None = None
    total: int | None = None
    # A query with wildcards has no form of its own.
    if query is not None and query.pattern is None:
        counted = snapshot.count_same_form(query.operators, base, options.exclude)
        if counted is not None:
            same, total = _count(counted, filters)
    values = {facet: _list_values(facet, pool, same, filters) for facet in FACETS}
    rows = {key: row for row, key in enumerate(best.keys.tolist())}
    fields_with_hits = values["fields"][:_MAX_BEST_FIELDS]
    best_keys = _find_best_per_field(papers, ranked, rows, fields=fields_with_hits, filters=filters)
    hits = _build_hits(snapshot, ranked, rows, keys=set(best_keys.values()), results=results)
    titles = snapshot.get_papers(map(str, values["papers"]))

    def build(facet: str) -> tuple[FacetCount, ...]:
        counts = []
        for value in values[facet]:
            is_paper = facet == "papers" and value in titles
            count = FacetCount(
                value=value,
                same=same[facet][value] if same is not None else None,
                pool=pool[facet][value],
                best=hits.get(best_keys.get(value, -1)) if facet == "fields" else None,
                title=titles[str(value)].title if is_paper else "",
            )
            counts.append(count)
        return tuple(counts)

    fields, years, languages, keys = map(build, FACETS)
    return replace(results, same=total, fields=fields, years=years, languages=languages, papers=keys)


def drop_facet_filters(filters: Filters) -> Filters:
    """Return the filters that no facet offers."""
    return replace(filters, fields=(), first_year=None, last_year=None, languages=(), papers=())


def _count(papers: Iterable[PaperCount], filters: Filters) -> tuple[Counts, int]:
    """Count equations by facet, and those that pass all filters; filters that no facet offers are applied already."""
    counts: Counts = {facet: Counter() for facet in FACETS}
    total = 0
    for paper in papers:
        failed = _list_failed(paper, filters)
        if not failed:
            total += paper.equations
        values = {
            "fields": paper.fields,
            "years": () if paper.year is None else (paper.year,),
            "languages": (paper.lang,) if paper.lang else (),
            "papers": (paper.key,),
        }
        for facet in FACETS:
            # The filter of a facet itself does not count.
            if failed in ([], [facet]):
                for value in values[facet]:
                    counts[facet][value] += paper.equations
    return counts, total


def _list_failed(paper: PaperCount, filters: Filters) -> list[str]:
    """List the facets whose filter a paper does not pass."""
    first = filters.first_year
    last = filters.last_year
    is_undated = first is None and last is None
    is_between = paper.year is not None and (first or paper.year) <= paper.year <= (last or paper.year)
    passed = {
        "fields": not filters.fields or not set(filters.fields).isdisjoint(paper.fields),
        "years": is_undated or is_between,
        "languages": not filters.languages or paper.lang in filters.languages,
        "papers": not filters.papers or paper.key in filters.papers,
    }
    return [facet for facet in FACETS if not passed[facet]]


def _list_values(facet: str, pool: Counts, same: Counts | None, filters: Filters) -> list[Value]:
    """List the values of a facet, also those chosen that have no equations: years in order, others by counts."""
    exact = same[facet] if same is not None else Counter[Value]()
    values: set[Value] = {*exact, *pool[facet], *getattr(filters, facet, ())}
    if facet == "years":
        return sorted(values)
    ordered = sorted(values, key=lambda value: (-exact[value], -pool[facet][value], str(value)))
    return ordered[:_MAX_PAPERS] if facet == "papers" else ordered


def _find_best_per_field(
    papers: dict[int, PaperCount],
    ranked: RankedCandidates,
    rows: dict[int, int],
    *,
    fields: list[Value],
    filters: Filters,
) -> dict[Value, int]:
    """Return the key of the best candidate of each of some fields that is not weak and passes all other filters."""
    best: dict[Value, int] = {}
    for key, row in rows.items():
        if key in papers and ranked.score[row] >= WEAK_SCORE:
            paper = papers[key]
            new = set(fields).intersection(paper.fields) - best.keys()
            if new and _list_failed(paper, filters) in ([], ["fields"]):
                best |= dict.fromkeys(new, key)
    return best


def _build_hits(
    snapshot: Snapshot, ranked: RankedCandidates, rows: dict[int, int], *, keys: set[int], results: Results
) -> dict[int, Hit]:
    """Return hits by key: those of the list, and others without their relation."""
    hits = {hit.equation.tree: hit for hit in results.hits}
    records = snapshot.get_records(sorted(keys - hits.keys()))
    for key, record in records.items():
        row = rows[key]
        hits[key] = Hit(
            equation=record,
            score=float(ranked.score[row]),
            similarity=float(ranked.similarity[row]),
            text_score=float(ranked.text_score[row]),
        )
    return hits
