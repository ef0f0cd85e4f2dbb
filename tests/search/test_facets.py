"""Lists: bands, parts of one stable list, and counts by field, year, language and paper."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from eqkin import Encoder, Library
from eqkin.errors import BadInput, LimitReached
from eqkin.index.update import update_index
from eqkin.search import Filters, SearchEngine, SearchOptions
from eqkin.search.facets import drop_facet_filters
from eqkin.search.results import HIT_RELATIONS
from tests.search.conftest import WAVE

BAYES = r"P(a|b) = \frac{P(b|a) P(a)}{P(b)}"
EVERYTHING = {"k": 1_000, "group": False, "fold": False, "facets": True}
# documents with one equation each: of the same form (S), or another
DOCUMENTS = [
    ("S", "E = m c^2", 2001, "en", ["physics"]),
    ("S", "F = k a^2", 2001, "de", ["physics", "mechanics"]),
    ("S", r"\frac{E}{c^2} = m", 2002, "en", ["history"]),
    ("S", "c^2 m = E", 2003, "en", ["physics"]),
    ("", "E = m c^2 + p c", 2001, "en", ["physics"]),
    ("", "E = m c^3", 2002, "de", ["mechanics"]),
    ("", "x = y, E = m c^2", 2003, "en", ["physics"]),
    ("", r"\int_0^1 f(x) dx = 1", 2001, "en", ["analysis"]),
]


@pytest.fixture(scope="module")
def energy(tmp_path_factory, encoder: Encoder):
    """An engine over documents of which some have the form of E = mc²."""
    folder = tmp_path_factory.mktemp("energy")
    records = [
        {"doc_id": f"d{at}", "title": f"T{at}", "year": year, "lang": lang, "fields": fields, "latex": rf"\[{latex}\]"}
        for at, (_, latex, year, lang, fields) in enumerate(DOCUMENTS)
    ]
    (folder / "papers.jsonl").write_text("\n".join(map(json.dumps, records)))
    with Library.open(folder / "library", create=True) as library:
        library.add(folder / "papers.jsonl")
        update_index(library, encoder)
    with SearchEngine(folder / "library", encoder) as engine:
        yield engine


def _count_same(facets):
    return {facet.value: facet.same for facet in facets if facet.same}


def _list_ids(results):
    return [hit.equation.id for hit in results.hits]


def test_same_counts_all_equations_of_the_form_and_no_others(energy):
    results = energy.search("E = mc^2", k=1, facets=True)
    assert results.same == 4
    assert _count_same(results.fields) == {"physics": 3, "mechanics": 1, "history": 1}
    assert _count_same(results.years) == {2001: 2, 2002: 1, 2003: 1}
    assert _count_same(results.languages) == {"en": 3, "de": 1}
    assert {facet.title for facet in results.papers if facet.same} == {"T0", "T1", "T2", "T3"}


def test_facets_are_counted_with_all_other_filters(energy):
    results = energy.search(
        "E = mc^2", filters=Filters(fields=("physics", "history"), first_year=2001, last_year=2002), facets=True
    )
    assert results.same == 3
    assert _count_same(results.fields) == {"physics": 2, "mechanics": 1, "history": 1}  # of 2001 and 2002
    assert _count_same(results.years) == {2001: 2, 2002: 1, 2003: 1}  # of physics and history
    assert _count_same(results.languages) == {"en": 2, "de": 1}  # of both


def test_same_leaves_out_the_equation_itself(energy):
    (first,) = energy.search("E = mc^2", k=1).hits
    assert energy.find_similar(first.equation.id, facets=True).same == 3


def test_best_hit_of_each_field_is_the_first_in_the_list(energy):
    results = energy.search("E = mc^2", **EVERYTHING)
    for facet in results.fields:
        first = next(hit for hit in results.hits if facet.value in hit.equation.paper.fields)
        if facet.best is not None:
            assert (facet.best.equation, facet.best.relation) == (first.equation, first.relation)
    assert sum(facet.best is not None for facet in results.fields) >= 3


def test_same_statement_comes_before_what_only_looks_similar(energy):
    hits = energy.search("E = mc^2", **EVERYTHING).hits
    assert [hit.equation.latex for hit in hits[:2]] == ["E = m c^2", "c^2 m = E"]
    scores = [hit.score for hit in hits[2:]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", [BAYES, "x", "?a^2 + ?b^2 = ?c^2", ""])
@pytest.mark.parametrize("options", [{}, {"fold": False}, {"group": False, "text": "quokka energy"}])
def test_parts_of_a_list_agree_with_the_whole(engine, query, options):
    options = {"text": "" if query else "quokka energy"} | options
    whole = engine.search(query, k=1_000, **options)
    ids = _list_ids(whole)
    assert not whole.more and len(ids) == len(set(ids))
    scores = [hit.score for hit in whole.hits]
    for offset, k in ((0, 1), (0, 10), (7, 5), (10, 90), (195, 20), (len(ids) - 2, 2), (990, 10)):
        part = engine.search(query, k=k, offset=offset, **options)
        assert _list_ids(part) == ids[offset : offset + k]
        assert [hit.score for hit in part.hits] == scores[offset : offset + k]
        assert (part.offset, part.more) == (offset, offset + k < len(ids))


@pytest.mark.parametrize("query", [BAYES, WAVE])
@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(fields=("probability", "waves")),
        Filters(first_year=1990, last_year=2005),
        Filters(fields=("waves",), first_year=1990, papers=("record:wave-1995", "atlas:probability")),
        Filters(papers=("atlas:statistics",), without_papers=("atlas:probability",)),
    ],
)
def test_facet_counts_equal_what_filtering_the_pool_gives(engine, query, filters):
    results = engine.search(query, filters=filters, facets=True)
    pool = [hit.equation.paper for hit in engine.search(query, filters=drop_facet_filters(filters), **EVERYTHING).hits]
    pool = pool[:200]  # those that are ranked by all features

    def count(drop, values):
        f = replace(filters, **drop)
        passed = [
            paper
            for paper in pool
            if (not f.fields or set(f.fields) & set(paper.fields))
            and (not f.papers or paper.key in f.papers)
            and (f.first_year is None or (paper.year or 0) >= f.first_year)
            and (f.last_year is None or (paper.year or 9_999) <= f.last_year)
        ]
        return Counter(value for paper in passed for value in values(paper))

    fields, years = ({facet.value: facet.pool for facet in x if facet.pool} for x in (results.fields, results.years))
    assert fields == count({"fields": ()}, lambda paper: paper.fields)
    assert years == count({"first_year": None, "last_year": None}, lambda paper: [paper.year] if paper.year else [])
    papers = count({"papers": ()}, lambda paper: [paper.key])
    assert all(papers[facet.value] == facet.pool for facet in results.papers)


def test_choosing_a_facet_shows_at_least_what_it_counts(engine):
    for facet in engine.search(BAYES, facets=True).fields:
        chosen = engine.search(BAYES, filters=Filters(fields=(facet.value,)), **EVERYTHING)
        assert len(chosen.hits) >= facet.pool > 0
        again = {other.value: other.pool for other in chosen.fields}
        assert again[facet.value] == facet.pool  # and it is still offered, as are the others
        assert len(again) > 10


def test_bands_have_all_hits_in_the_order_of_relations(engine):
    results = engine.search(BAYES, k=50)
    relations = [relation for relation, _ in results.bands]
    assert relations == [relation for relation in HIT_RELATIONS if relation in relations]
    assert len(relations) >= 4 and sum(len(hits) for _, hits in results.bands) == 50
    assert all(hit.relation == relation for relation, hits in results.bands for hit in hits)
    assert [relation for relation, _ in engine.search(text="energy").bands] == [""]


def test_results_say_that_nothing_is_close(engine):
    odd = r"\aleph \bowtie \Join_{\wp}^{\hslash} \mho \vDash \beth"
    far, near = engine.search(odd, k=5), engine.search(BAYES, k=5)
    assert {hit.relation for hit in far.hits} == {"weak"}
    assert (far.nothing_close, near.nothing_close) == (True, False)
    assert not engine.search(BAYES, k=5, offset=150).nothing_close
    assert engine.search(odd, k=5, offset=150).nothing_close


def test_options_reject_offsets_that_no_list_has():
    for offset in (-1, 1.5, "2", True):
        with pytest.raises(BadInput):
            SearchOptions(offset=offset)
    with pytest.raises(LimitReached):
        SearchOptions(k=10, offset=991)


def test_filters_take_several_languages_and_papers(energy):
    found = energy.search("E = mc^2", filters=Filters(languages=("de", "fr")), **EVERYTHING)
    assert {hit.equation.paper.key for hit in found.hits} == {"record:d1", "record:d5"}
    found = energy.search("E = mc^2", filters=Filters(papers=("record:d1", "record:d7")), **EVERYTHING)
    assert {hit.equation.paper.key for hit in found.hits} == {"record:d1", "record:d7"}
