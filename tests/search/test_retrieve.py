"""What a search retrieves by vectors, terms, text and wildcards, and in which order."""

from collections import Counter

import numpy as np
import pytest

from eqkin import Library
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import NodeColumns
from eqkin.index.update import update_index
from eqkin.search import Filters, SearchEngine
from eqkin.search.candidates import (
    SETTINGS,
    QueryFeatures,
    QueryTerms,
    RetrievalSettings,
    compare_collections,
    rank,
    retrieve,
)
from eqkin.search.local import LocalSnapshot
from eqkin.search.results import SearchOptions

from .conftest import WAVE

PART = r"e^{-H(d,s)}"  # part of the posterior of information field theory
WHOLE = ("atlas:astrophysics", "information-field-posterior")


def _labels(results):
    return [(hit.equation.paper.key, hit.equation.label) for hit in results.hits]


@pytest.fixture
def narrow(folder, encoder):
    """An engine that retrieves one candidate by vector and one by terms."""
    few = RetrievalSettings(vector_candidates=1, term_candidates=1)
    with SearchEngine(folder, encoder, retrieval=few) as opened:
        yield opened


def _get_index(engine):
    """Return the index that a search uses."""
    with engine.backend.snapshot() as snapshot:
        return snapshot.view.index


@pytest.mark.parametrize("query", [WAVE, PART, r"\sqrt{b^2-4ac}", "x"])
def test_search_returns_candidates_by_relevance(engine, forest, units, query):
    tree = forest(query)
    (vector,) = units(tree)
    operators = parse_operators(tree)
    features = QueryFeatures(
        latex=query,
        mathml="",
        nodes=NodeColumns.read(tree, 0),
        vector=vector,
        terms=QueryTerms.extract(operators),
        operators=operators,
    )
    with engine.backend.snapshot() as snapshot:
        ranked = rank(snapshot, features, retrieve(snapshot, features, SearchOptions(k=20)), text=False)
        trees, scores = ranked.columns.keys, ranked.score
        formulas, vectors = snapshot.get_trees(trees), snapshot.get_vectors(trees)
    assert len(set(trees.tolist())) == len(trees) >= SETTINGS.vector_candidates
    expected = compare_collections(tree, vector[None], formulas, vectors)[0].tolist()
    assert scores.tolist() == pytest.approx(expected, abs=2e-5)
    hits = engine.search(query, k=20, group=False, fold=False).hits
    assert [hit.equation.tree for hit in hits] == trees[:20].tolist()
    assert [hit.score for hit in hits] == pytest.approx(sorted(expected, reverse=True)[:20], abs=2e-5)
    assert [hit.similarity for hit in hits] == pytest.approx((vectors @ vector)[:20].tolist(), abs=2e-3)
    assert all(0 <= hit.score <= 1 and -1 <= hit.similarity <= 1 and hit.text_score == 0 for hit in hits)


def test_search_reads_references_vectors_and_trees_once(engine, monkeypatch):
    calls = Counter()
    for name in ("get_features", "get_refs", "get_nodes", "get_records"):
        original = getattr(LocalSnapshot, name)

        def counted(self, *given, name=name, original=original, **options):
            calls[name] += 1
            return original(self, *given, **options)

        monkeypatch.setattr(LocalSnapshot, name, counted)
    assert len(engine.search(WAVE, text="quokka", explain=True).hits) == 10
    assert calls == dict.fromkeys(("get_features", "get_refs", "get_nodes", "get_records"), 1)


def test_search_puts_copies_first_whatever_their_spacing(engine):
    for name in ("probability#bayes", "astrophysics#friedmann", "algebra#quaternions", "geometry#heron"):
        equation = engine.get_equation(f"atlas:{name}")
        hit = engine.search(equation.latex.replace(" ", r"\; "), k=1).hits[0]
        assert hit.equation.id == equation.id and hit.score == pytest.approx(1, abs=1e-3)
    hits = engine.search(WAVE, k=3, fold=False).hits
    assert [hit.equation.paper.year for hit in hits] == [1985, 1995, 2005]  # the later two end with a colon
    assert hits[0].score > 0.999 > hits[1].score == hits[2].score > 0.8


@pytest.mark.parametrize(
    ("query", "label"),
    [
        (r"P(u \mid v) = \frac{P(v \mid u) P(u)}{P(v)}", "bayes"),
        (r"y = \frac{-q \pm \sqrt{q^2 - 4pr}}{2p}", "quadratic-formula"),
        (r"z^2 = x^2 + y^2 - 2xy\cos\varphi", "law-of-cosines"),
        (r"\Box \Psi_{\nu} = k \Psi_{\nu}", ""),
    ],
)
def test_search_puts_renamed_copies_before_unrelated_formulas(engine, query, label):
    hits = engine.search(query, k=3).hits
    assert hits[0].equation.label == label
    if not label:
        assert hits[0].equation.paper.fields[0] == "waves"
    assert hits[0].score > 1.2 * hits[2].score


@pytest.mark.parametrize(
    ("query", "whole"),
    [
        (r"\sqrt{b^2-4ac}", ("atlas:algebra", "quadratic-formula")),
        (PART, WHOLE),
        (r"a^2 + b^2 - 2ab\cos\gamma", ("atlas:geometry", "law-of-cosines")),
        (r"\frac{8\pi G}{3}\rho", ("atlas:astrophysics", "friedmann")),
    ],
)
def test_search_finds_the_whole_of_a_part(engine, query, whole):
    assert whole in _labels(engine.search(query, k=3))


def test_terms_find_what_vectors_do_not(narrow, monkeypatch):
    part, whole = r"\sum_j J_{ij}s_j", ("atlas:statistical-physics", "metropolis-spin")
    assert _labels(narrow.search(part, k=3))[0] == whole
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
    monkeypatch.setattr(_get_index(narrow), "search_terms", lambda *_, **__: nothing)
    found = _labels(narrow.search(part, k=4))  # another query than the one that is cached
    assert len(found) == 1 and found != [whole]


def test_vectors_find_what_terms_do_not(engine, monkeypatch):
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
    monkeypatch.setattr(_get_index(engine), "search_terms", lambda *_, **__: nothing)
    assert len(engine.search(PART, k=20, group=False, fold=False).hits) == 20


def test_filters_apply_to_terms(engine):
    there = engine.search(PART, k=50, filters=Filters(papers=(WHOLE[0],)))
    assert _labels(there)[0] == WHOLE and {key for key, _ in _labels(there)} == {WHOLE[0]}
    assert len(there.hits) > 5
    elsewhere = engine.search(PART, k=50, filters=Filters(without_papers=(WHOLE[0],)))
    assert len(elsewhere.hits) > 20 and WHOLE[0] not in {key for key, _ in _labels(elsewhere)}
    dated = engine.search(WAVE, k=50, filters=Filters(first_year=1990), fold=False, group=False).hits
    assert {hit.equation.paper.year for hit in dated} == {1995, 2005}


def test_text_finds_what_neither_vectors_nor_terms_do(narrow):
    hits = narrow.search(PART, text="quokka", k=200, group=False, fold=False).hits
    drums = [hit for hit in hits if hit.text_score > 0]
    assert {hit.equation.paper.year for hit in drums} == {1985, 1995, 2005}
    assert (hits[0].equation.paper.key, hits[0].equation.label) == WHOLE


def test_of_many_candidates_by_text_the_best_are_kept(folder, encoder, narrow):
    options = {"text": "energy", "k": 1_000, "group": False, "fold": False}
    by_formula = {hit.equation.id for hit in narrow.search(PART, k=9).hits}
    every = [hit for hit in narrow.search(PART, **options).hits if hit.equation.id not in by_formula]
    every.sort(key=lambda hit: -0.75 * hit.similarity - 0.25 * hit.text_score)
    few = RetrievalSettings(vector_candidates=1, term_candidates=1, text_candidates=3)
    with SearchEngine(folder, encoder, retrieval=few) as engine:
        kept = {hit.equation.id for hit in engine.search(PART, **options).hits}
    assert len(every) > 9 and kept == by_formula | {hit.equation.id for hit in every[:3]}


def test_terms_of_a_query_with_wildcards_find_more_candidates(narrow):
    options = {"k": 9, "group": False, "fold": False}
    assert len(narrow.search("a^2 + b^2 = c^2", **options).hits) <= 2
    assert len(narrow.search("?a^2 + ?b^2 = ?c^2", **options).hits) >= 3


def test_search_ignores_equations_removed_since_indexing(tmp_path, encoder):
    (tmp_path / "a.md").write_text("# A\n\n$$ a = b $$\n")
    (tmp_path / "b.md").write_text("# B\n\n$$ c = d^2 $$\n\n$$ c = e^2 $$\n\n$$ c = f^2 $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md", tmp_path / "b.md")
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            assert len(engine.search("c = d^2", text="B").hits) == 4
            library.remove(str(tmp_path / "b.md"))
            for _ in range(2):  # before and after the index is updated
                for results in (engine.search("c = d^2"), engine.search("c", text="B", explain=True)):
                    assert [hit.equation.latex.strip() for hit in results.hits] == ["a = b"]
                assert update_index(library, encoder).indexed == 0


@pytest.fixture(scope="module")
def squares(tmp_path_factory, encoder):
    """A search over equations of one form, equations that contain it, and others."""
    place = tmp_path_factory.mktemp("squares")
    formulas = (
        "x^2 + y^2 = z^2",
        r"\alpha^2 + (k + 1)^2 = r_0^2",
        r"u = v, \qquad p^2 + q^2 = r^2",
        "x^2 + y^2 = z^3",
        "a^2 - b^2 = c^2",
        r"\frac{x}{x + y}",
        r"\frac{x}{y + z}",
        r"w = 1 - \frac{n + 1}{(n + 1) + m}",
        r"\int_0^1 g(t) dt",
    )
    (place / "note.md").write_text("# Note\n\n" + "\n\n".join(f"$$ {latex} $$" for latex in formulas) + "\n")
    with Library.open(place / "library", create=True) as library:
        library.add(place / "note.md")
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            yield lambda query, **options: [
                (hit.equation.latex.strip(), hit) for hit in engine.search(query, k=9, **options).hits
            ]


@pytest.mark.parametrize("query", ["?a^2 + ?b^2 = ?c^2", r"\qvar{a}^2+\qvar{b}^2=\qvar{c}^2"])
def test_wildcard_query_ranks_whole_matches_then_partial_ones_then_the_rest(squares, query):
    found = squares(query)
    assert {latex for latex, _ in found[:2]} == {"x^2 + y^2 = z^2", r"\alpha^2 + (k + 1)^2 = r_0^2"}
    assert found[2][0] == r"u = v, \qquad p^2 + q^2 = r^2"
    scores = [hit.score for _, hit in found]
    assert len(scores) == 9 and scores == sorted(scores, reverse=True)
    assert 1 >= scores[0] and scores[1] >= 2 / 3 > scores[2] >= 1 / 3 > scores[3]


def test_wildcard_matches_the_same_everywhere(squares):
    found = squares(r"\frac{?a}{?a + ?b}")
    assert [latex for latex, _ in found[:2]] == [r"\frac{x}{x + y}", r"w = 1 - \frac{n + 1}{(n + 1) + m}"]
    assert found[0][1].score > 2 / 3 > found[1][1].score > 1 / 3 > found[2][1].score
    assert max(hit.score for _, hit in squares("?a^2 + ?a^2 = ?c^2")) < 1 / 3


def test_explained_hits_contain_bindings_of_wildcards(squares):
    (_, hit), *_ = squares(r"\frac{?a}{?a + ?b}", explain=True)
    assert [name for name, _ in hit.bindings] == ["?a", "?b"]
    assert [">x<" in mathml for _, mathml in hit.bindings] == [True, False]
    assert squares("x^2", explain=True)[0][1].bindings == ()


def test_names_of_wildcards_do_not_change_results(squares):
    queries = ("?a^2 + ?b^2 = ?c^2", "?d^2 + ?f^2 = ?x^2", r"\qvar{e}^2 + \qvar{e1}^2 = \qvar{t}^2", "?^2 + ?^2 = ?^2")
    first, *others = ([(latex, hit.score, hit.relation) for latex, hit in squares(query)] for query in queries)
    assert [relation for _, _, relation in first[:3]] == ["same", "same", "contains"]
    assert others == [first] * 3


def test_text_adds_to_the_score_of_wildcard_matches(squares):
    for latex, hit in squares("?a^2 + ?b^2 = ?c^2", text="note"):
        assert hit.text_score > 0, latex
        assert hit.score > 0.25 * hit.text_score


def test_find_similar_ranks_like_a_search_for_the_formula(engine):
    bayes = engine.get_equation("atlas:probability#bayes")
    like = engine.find_similar(bayes.id, k=10).hits
    assert bayes.id not in {hit.equation.id for hit in like}
    searched = [hit for hit in engine.search(bayes.latex, k=11).hits if hit.equation.id != bayes.id]
    assert len({hit.equation.id for hit in like} & {hit.equation.id for hit in searched}) >= 8
    assert [hit.score for hit in like] == sorted((hit.score for hit in like), reverse=True)
