"""The search engine over a library: what it finds, what it refuses, and that threads can share it."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from eqkin import Library
from eqkin.errors import BadInput, LimitReached
from eqkin.index.update import update_index
from eqkin.limits import LIMITS
from eqkin.search import Filters, SearchEngine, SearchOptions, UnreadableFormula

from ..cancelling import CountingScope
from .conftest import WAVE, dated_papers

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"


def _ids(results):
    return [hit.equation.id for hit in results.hits]


def test_search_finds_bayes_law_under_other_names_in_other_fields(engine):
    labels = [(hit.equation.paper.key, hit.equation.label) for hit in engine.search(BAYES).hits]
    assert set(labels[:2]) == {("atlas:probability", "bayes"), ("atlas:astrophysics", "information-field-posterior")}
    assert ("atlas:signals", "bayesian-detection") in labels
    assert ("atlas:machine-learning", "naive-bayes") in labels


def test_search_finds_the_ising_model_in_other_fields(engine):
    hits = engine.search(r"E = -\sum_{i<j} J_{ij} s_i s_j").hits
    assert ("atlas:neuroscience", "hopfield") in [(hit.equation.paper.key, hit.equation.label) for hit in hits]


def test_results_contain_the_query_as_understood_and_times(engine):
    results = engine.search(f"$ {BAYES} $", text="belief", explain=True, facets=True)
    assert results.latex == BAYES
    assert results.mathml.startswith("<math")
    assert results.text == "belief"
    assert {"conversion", "embedding", "ranking", "records", "facets"} <= set(results.seconds)
    assert all(seconds >= 0 for seconds in results.seconds.values())
    assert results.missing == 0


def test_search_uses_one_thread_of_numeric_libraries_and_restores_their_number(engine, monkeypatch):
    def count_threads():
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    embed, during = engine.encoder.embed, []

    def count_and_embed(forest):
        during.append(count_threads())
        return embed(forest)

    monkeypatch.setattr(engine.encoder, "embed", count_and_embed)
    formulas = [rf"\frac{{a_{number}}}{{b}} = c" for number in range(9)]
    with threadpool_limits(2), ThreadPoolExecutor(4) as pool:
        assert engine.search(formulas[0]).hits  # in this thread, then in others
        assert count_threads() == {2}
        assert all(results.hits for results in pool.map(engine.search, formulas[1:]))
        assert count_threads() == {2}
    assert during == [{1}] * len(formulas)


def test_hit_contains_section_and_context(engine):
    (hit,) = engine.search(WAVE, k=1, filters=Filters(first_year=1995, last_year=1995)).hits
    equation = hit.equation
    assert equation.section == "Membranes"
    assert equation.before.endswith("A quokka plays a drum.")
    assert equation.after == "That is all."
    assert equation.paper.authors[0] == "Erwin Schrödinger"
    assert engine.get_equation(equation.id) == equation


def test_search_by_text_alone(engine):
    results = engine.search(text="quokka")
    assert {hit.equation.paper.fields[0] for hit in results.hits} == {"waves"}
    assert all(0 < hit.score <= 1 and hit.score == hit.text_score for hit in results.hits)
    assert results.latex == results.mathml == ""
    assert engine.search(text="zzzyx").hits == ()


def test_text_reorders_but_does_not_replace_the_formula(engine):
    formula = r"E = \frac12 m v^2"
    plain = engine.search(formula, k=300, group=False, fold=False).hits
    both = engine.search(formula, text="quokka drum", k=300, group=False, fold=False).hits
    drums = [hit for hit in both if hit.text_score > 0]
    assert drums and all(hit.equation.paper.fields[0] == "waves" for hit in drums)
    similar = {hit.equation.id: hit.similarity for hit in plain}
    for hit in both:
        assert 0.25 * hit.text_score <= hit.score <= 0.75 + 0.25 * hit.text_score
        if hit.equation.id in similar:
            assert hit.similarity == pytest.approx(similar[hit.equation.id], abs=1e-4)
    assert both[0].equation == plain[0].equation
    place = {hit.equation.id: at for at, hit in enumerate(plain)}
    assert all(at < place.get(hit.equation.id, 300) for at, hit in enumerate(both) if hit.text_score > 0.5)


def test_text_decides_between_identical_formulas(tmp_path, encoder):
    for word in ("strings", "membranes"):
        (tmp_path / f"{word}.md").write_text(f"# Note\n\nWaves of {word} are\n\n$$ u_{{tt}} = c^2 \\Delta u $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(*(tmp_path / f"{word}.md" for word in ("strings", "membranes")))
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            for word in ("strings", "membranes"):
                first, second = engine.search(r"u_{tt} = c^2 \Delta u", text=word, fold=False).hits
                assert word in first.equation.before and word not in second.equation.before
                assert (first.score, second.score) == pytest.approx((0.75 + 0.25 * first.text_score, 0.75), abs=1e-5)


def test_same_statement_comes_before_a_similar_one_whose_text_matches_better(tmp_path, encoder):
    same, similar = r"\Box \Phi_{\mu} = \kappa \Phi_{\mu}", r"\Box \Phi_{\mu} = \kappa_{1} \Phi_{\mu}"
    for word, latex in (("strings", same), ("membranes", similar)):
        (tmp_path / f"{word}.md").write_text(f"# Note on {word}\n\nWaves of {word} are\n\n$$ {latex} $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(*(tmp_path / f"{word}.md" for word in ("strings", "membranes")))
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            first, second = engine.search(same, text="membranes").hits
    assert first.equation.latex.strip() == same and first.relation == "same"
    assert second.score > first.score


def test_search_refuses_too_long_text(engine):
    with pytest.raises(LimitReached):
        engine.search(text="word " * 1_000)


def test_text_search_finds_common_words_in_one_paper_among_many(folder, encoder, monkeypatch):
    # Fewer than the sections that have the word.
    monkeypatch.setattr("eqkin.search.local.MAX_SECTIONS", 3)
    with SearchEngine(folder, encoder) as engine:
        for key in ("atlas:algebra", "atlas:analysis", "atlas:probability", "atlas:statistics"):
            hits = engine.search(text="function", filters=Filters(papers=(key,))).hits
            assert hits and {hit.equation.paper.key for hit in hits} == {key}


@pytest.mark.parametrize("year", [math.nan, 1995.5, True, "1995", 10**12])
def test_search_refuses_invalid_years(engine, year):
    with pytest.raises(BadInput):
        engine.search(BAYES, filters=Filters(first_year=year))


def test_search_limits_hits_per_paper(engine):
    grouped = engine.search(WAVE, k=5, fold=False).hits
    papers = [hit.equation.paper.key for hit in grouped]
    assert len(grouped) == 5
    assert max(papers.count(key) for key in papers) <= 2
    assert sum(hit.hidden for hit in grouped) >= 3
    assert [hit.score for hit in grouped] == sorted((hit.score for hit in grouped), reverse=True)
    ungrouped = engine.search(WAVE, k=5, fold=False, group=False).hits
    assert all(hit.hidden == 0 for hit in ungrouped)


def test_one_paper_fills_the_list_if_there_is_no_other(engine):
    hits = engine.search(WAVE, k=7, fold=False, filters=Filters(first_year=1985, last_year=1985)).hits
    assert len(hits) == 7


def test_search_shows_formulas_that_differ_in_spacing_once(engine):
    folded = engine.search(WAVE, k=20)
    first = folded.hits[0]
    assert len({first.equation.id.partition("#")[0], *(name.partition("#")[0] for name in first.duplicates)}) == 3
    assert len(engine.search(WAVE, k=20, fold=False).hits[0].duplicates) == 0
    shown = set(_ids(folded))
    assert not shown & {name for hit in folded.hits for name in hit.duplicates}


def test_search_takes_options_and_changes_of_them(engine):
    options = SearchOptions(k=3, text="  many \n words ", filters=Filters(fields=["waves"]))
    assert (options.text, options.filters) == ("many words", Filters(fields=("waves",)))
    assert options == SearchOptions(k=3, text="many words", filters=Filters(fields="waves"))
    assert len(engine.search(WAVE, options, text="", k=2, group=False, fold=False).hits) == 2
    assert engine.search(WAVE, options, text="").hits == engine.search(WAVE, k=3, filters=Filters(("waves",))).hits
    with pytest.raises(TypeError):
        engine.search(WAVE, nonsense=1)


@pytest.mark.parametrize("k", [0, -1, math.nan, 1.5, True, "3"])
def test_search_refuses_invalid_k(engine, k):
    with pytest.raises(BadInput):
        engine.search(BAYES, k=k)


def test_search_refuses_too_large_k_and_returns_all_for_a_large_one(engine, tmp_path, encoder):
    with pytest.raises(LimitReached):
        engine.search(BAYES, k=10**9)
    (tmp_path / "note.md").write_text("# Note\n\n$$ a = b $$\n\n$$ c^2 = d $$\n")
    with Library.open(tmp_path / "small", create=True) as library:
        library.add(tmp_path / "note.md")
        assert len(library.search("x", k=LIMITS.results).hits) == 2


@pytest.mark.parametrize("query", ["", "   "])
def test_search_rejects_empty_query(engine, query):
    with pytest.raises(BadInput, match="nothing to search for"):
        engine.search(query, text=" ")


def test_search_refuses_unreadable_formula_with_its_position(engine):
    with pytest.raises(UnreadableFormula) as caught:
        engine.search(r"x + \begin{nope}")
    assert caught.value.problem.position > 0


def test_empty_library_has_no_hits_or_facets(tmp_path, encoder):
    Library.open(tmp_path / "empty", create=True).close()
    with SearchEngine(tmp_path / "empty", encoder) as engine:
        assert engine.search(BAYES, text="word").hits == ()
        assert engine.count_facets() == ({}, {})
        with pytest.raises(BadInput):
            engine.find_similar_papers("x")


def test_search_without_vectors_names_the_command_to_run(tmp_path, encoder):
    (tmp_path / "note.md").write_text("# Note\n\n$$ a = b $$\n")
    with Library.open(tmp_path / "new", create=True) as library:
        library.add(tmp_path / "note.md")
    with SearchEngine(tmp_path / "new", encoder) as engine:
        with pytest.raises(BadInput, match="eqkin index"):
            engine.search("x")
        assert engine.get_paper(next(iter(_keys(tmp_path / "new")))).sections  # what needs no vectors works


def _keys(folder):
    with Library.open(folder, create=True) as library:
        return [paper["key"] for paper in library.list_papers()]


def test_search_follows_added_and_removed_equations(tmp_path, encoder):
    first, second = tmp_path / "a.md", tmp_path / "b.md"
    first.write_text("# Note\n\n$$ a = b $$\n")
    second.write_text("# Note\n\n$$ \\oint_C f = 2\\pi i $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(first)
        update_index(library, encoder)
        with SearchEngine(library, encoder) as engine:
            assert len(engine.search("x", text="note").hits) == 1
            library.add(second)
            assert len(engine.search("x").hits) == 1
            update_index(library, encoder)
            assert len(engine.search("x", text="note").hits) == 2
            library.remove(str(first))
            assert [hit.equation.latex.strip() for hit in engine.search("x").hits] == [r"\oint_C f = 2\pi i"]
            assert engine.search("x", text="note").hits[0].text_score > 0


def test_library_search_embeds_new_equations_first(tmp_path):
    (tmp_path / "a.md").write_text("# Note\n\n$$ \\oint_C f = 2\\pi i $$\n\n$$ a = b $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md")
        assert library.search(r"\oint_C f = 2\pi i", k=1).hits[0].similarity == pytest.approx(1, abs=2e-3)


def test_library_search_rebuilds_a_damaged_index(tmp_path):
    (tmp_path / "a.md").write_text("# Note\n\n$$ a = b $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md")
        assert library.search(BAYES, k=1).hits
    (tmp_path / "library" / "index" / "index.json").write_text("{}")
    with Library.open(tmp_path / "library", create=True) as library:
        assert library.search(BAYES, k=1).hits


def test_library_search_rebuilds_missing_vectors(tmp_path):
    (tmp_path / "a.md").write_text("$$ a = b $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md")
        assert len(library.search("x").hits) == 1
    for vectors in (tmp_path / "library" / "index").glob("vectors-*"):
        vectors.unlink()
    with Library.open(tmp_path / "library", create=True) as library:
        assert len(library.search("x").hits) == 1


def test_find_similar_explains_hits_and_leaves_the_equation_out(engine):
    results = engine.find_similar("atlas:probability#bayes", k=20, explain=True)
    own = engine.get_equation("atlas:probability#bayes")
    assert own.id not in _ids(results)
    assert results.latex == own.latex
    assert results.hits[0].pairings
    with pytest.raises(BadInput, match="no equation"):
        engine.find_similar("atlas:probability#nothing")


def test_get_paper_lists_equations_by_section(engine):
    page = engine.get_paper("atlas:probability")
    assert page.paper.fields == ("probability",)
    names = [equation.label for _, equations in page.sections for equation in equations]
    assert len(names) == len(set(names)) > 40
    assert all(heading for heading, _ in page.sections)
    with pytest.raises(BadInput):
        engine.get_paper("atlas:nothing")


def test_get_paper_contains_equations_that_could_not_be_read(tmp_path, encoder):
    (tmp_path / "a.md").write_text("# Note\n\n$$ a = b $$\n\n$$ \\begin{nope} x \\end{nope} $$\n")
    with Library.open(tmp_path / "library", create=True) as library:
        library.add(tmp_path / "a.md")
        (key,) = (paper["key"] for paper in library.list_papers())
        with SearchEngine(library, encoder) as engine:
            ((_, equations),) = engine.get_paper(key).sections
            assert [(equation.tree >= 0, bool(equation.mathml)) for equation in equations] == [
                (True, True),
                (False, False),
            ]
            update_index(library, encoder)
            with pytest.raises(BadInput, match="could not be read"):
                engine.find_similar(f"{key}#1")


def test_facets_count_all_equations(engine):
    fields, years = engine.count_facets()
    assert fields["waves"] == sum(years.values()) == 9
    assert list(years) == [1985, 1995, 2005]
    assert sum(count for name, count in fields.items() if not name.startswith(("waves", "decade"))) == 1401


def test_facets_follow_added_papers(tmp_path, encoder):
    with Library.open(tmp_path / "library", create=True) as library, SearchEngine(library, encoder) as engine:
        assert engine.count_facets() == ({}, {})
        library.add(dated_papers(tmp_path))
        assert "waves" in engine.count_facets()[0]


def test_threads_share_an_engine(engine):
    queries = [BAYES, WAVE, r"\nabla \cdot E = \rho", r"x^2 + y^2 = z^2"] * 6
    alone = {query: _ids(engine.search(query, text="law", explain=True)) for query in set(queries)}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda query: _ids(engine.search(query, text="law", explain=True)), queries))
    assert answers == [alone[query] for query in queries]


def test_engine_opens_a_path_and_refuses_a_missing_one(folder, encoder, tmp_path):
    with SearchEngine(str(folder), encoder) as engine:
        assert engine.search("x", k=1).hits
    with pytest.raises(BadInput, match="no library"):
        SearchEngine(tmp_path / "none", encoder)
    assert not Path(tmp_path / "none").exists()


def test_repeated_query_gets_the_same_answer_object(engine):
    first = engine.search(BAYES, k=3)
    assert engine.search(BAYES, k=3) is first
    assert _ids(engine.search(BAYES, k=2)) == _ids(first)[:2]


@pytest.mark.parametrize("query", [BAYES, r"\frac{?a}{?b}", "quokka"])
def test_search_stops_when_it_is_cancelled(engine, query):
    scope = CountingScope(1_000_000)
    scope.run(engine.search, query, k=5, explain=True)
    checks = 1_000_000 - scope.left
    assert checks > 4
    for spaces, cancelled_at in enumerate({1, checks // 2, checks - 1}, 1):
        with pytest.raises(LimitReached, match="given up"):  # spaces: an answer that is cached is never given up
            CountingScope(cancelled_at).run(engine.search, query + " " * spaces, k=5, explain=True)


def test_an_unknown_option_of_a_search_is_a_type_error(atlas_library):
    with SearchEngine(atlas_library) as engine, pytest.raises(TypeError, match="kk"):
        engine.search("x", kk=3)
