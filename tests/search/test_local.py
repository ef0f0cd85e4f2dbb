"""A library as what a search asks: filters, text, equations and papers, damage and changes."""

import numpy as np
import pytest

from eqkin import Library
from eqkin.errors import BadInput
from eqkin.formulas.mathml import NodeColumns
from eqkin.index.update import update_index
from eqkin.library.queries import list_contents
from eqkin.search import Filters, SearchEngine
from eqkin.search.backend import NoSuchEquation

from .conftest import WAVE

BAYES = r"P(s|d) = \frac{P(d|s) P(s)}{P(d)}"
WAVES = {year: f"record:wave-{year}" for year in (1985, 1995, 2005)}


@pytest.fixture
def snapshot(engine):
    with engine.backend.snapshot() as opened:
        yield opened


def _list_all(snapshot):
    return snapshot.list_keys(sorted(list_contents(snapshot.library)))


def _papers(engine, **filters):
    hits = engine.search(WAVE, k=50, filters=Filters(**filters), group=False, fold=False).hits
    return {hit.equation.paper.key for hit in hits}


def test_filters_by_field_year_and_paper(engine):
    assert _papers(engine, fields=("waves",)) == set(WAVES.values())
    assert _papers(engine, fields=("decade-198", "decade-200")) == {WAVES[1985], WAVES[2005]}
    assert _papers(engine, first_year=1990) == {WAVES[1995], WAVES[2005]}
    assert _papers(engine, first_year=1990, last_year=2000) == {WAVES[1995]}
    assert _papers(engine, last_year=1985) == {WAVES[1985]}
    assert _papers(engine, first_year=2001, last_year=1999) == set()
    assert _papers(engine, fields=("nowhere",)) == _papers(engine, papers=("nothing",)) == set()
    assert _papers(engine, papers=("atlas:waves", WAVES[1985])) == {WAVES[1985]}
    assert _papers(engine, papers=tuple(WAVES.values()), without_papers=(WAVES[1985],)) == {WAVES[1995], WAVES[2005]}
    assert WAVES[1995] not in _papers(engine, without_papers=(WAVES[1995],))


def test_author_filter_matches_parts_of_names(engine):
    assert _papers(engine, authors=("SCHRODINGER",)) == set(WAVES.values())
    assert _papers(engine, authors=("schrödinger", "author1")) == {WAVES[1995]}
    assert _papers(engine, authors=("win schr", "Nobody")) == _papers(engine, authors=('%"_\\',)) == set()


def test_text_search_finds_words_and_phrases(engine):
    results = engine.search(text="quokka")
    assert {hit.equation.paper.fields[0] for hit in results.hits} == {"waves"}
    assert all(0 < hit.score <= 1 and hit.score == hit.text_score for hit in results.hits)
    later = engine.search(text="quokkas", filters=Filters(first_year=2000)).hits
    assert {hit.equation.paper.year for hit in later} == {2005}
    assert engine.search(text="zzzyx").hits == engine.search(text="the of").hits == ()
    assert engine.search(text='"quokka plays"').hits and not engine.search(text='"plays quokka"').hits
    better, worse = engine.search(text="quokka drum").hits[0], engine.search(text="quokka drum zzzyx").hits[0]
    assert better.text_score > worse.text_score > 0


@pytest.mark.parametrize(
    "text", ['"', "a AND (", "NEAR/3 *", "col:x", "'; DROP TABLE papers; --", "\0\ud800", "*" * 900, '"%_"']
)
def test_text_search_treats_hostile_text_as_words(engine, text):
    hits = engine.search(text=f"{text} quokka", k=50).hits
    assert "waves" in {hit.equation.paper.fields[0] for hit in hits}


@pytest.mark.parametrize("name", ["", "#", "atlas:probability#9999", "x" * 5_000, "a#" + "9" * 50])
def test_unknown_equations_and_papers_are_refused(engine, name):
    for ask in (engine.get_equation, engine.find_similar, engine.get_paper, engine.find_similar_papers):
        with pytest.raises(BadInput):
            ask(name)


def test_snapshot_returns_trees_vectors_and_refs_of_all_equations(snapshot, encoder):
    keys = _list_all(snapshot)
    assert len(keys) == len(snapshot) == len(set(keys.tolist())) == 1_410
    some = keys[::50]
    forest = snapshot.get_trees(some)
    vectors = encoder.embed(forest)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(snapshot.get_vectors(some), vectors, atol=5e-3)
    assert snapshot.get_nodes(some.tolist()) == [NodeColumns.read(forest, at) for at in range(len(forest))]
    assert list(snapshot.get_refs(some.tolist())) == some.tolist()


def test_search_vectors_returns_existing_hits_best_first(snapshot):
    vectors = snapshot.get_vectors(_list_all(snapshot)[[5, 700]])
    cosines, keys = snapshot.search_vectors(vectors, 12)
    assert cosines.shape == keys.shape == (2, 12)
    assert (np.diff(cosines) <= 0).all() and cosines[:, 0] == pytest.approx(1, abs=3e-3)  # vectors are rounded
    np.testing.assert_allclose(snapshot.get_vectors(keys[0]) @ vectors[0], cosines[0], atol=3e-3)
    few, few_keys = snapshot.search_vectors(vectors[1:], 20, Filters(papers=("record:wave-1995",)))
    assert (few_keys[0] >= 0).sum() == 1 and not few[0, 1:].any()
    nothing = snapshot.search_vectors(np.zeros((1, vectors.shape[1]), np.float32), 3)
    assert nothing[1].tolist() == [[-1, -1, -1]] and not nothing[0].any()
    assert snapshot.search_vectors(vectors[:0], 3)[1].shape == (0, 3)


def test_snapshot_leaves_out_or_reports_missing_equations(snapshot):
    known, unknown = int(_list_all(snapshot)[0]), 2**62 + 1
    assert set(snapshot.get_refs([known, unknown])) == set(snapshot.get_records([known, unknown])) == {known}
    assert set(snapshot.get_papers(["atlas:probability", "gone"])) == {"atlas:probability"}
    assert snapshot.list_keys(["gone"]).tolist() == []
    for ask in (snapshot.get_vectors, snapshot.get_trees, snapshot.get_nodes, snapshot.get_operators):
        assert len(ask(np.zeros(0, np.int64))) == 0
        with pytest.raises(NoSuchEquation):
            ask(np.array([known, unknown]))


def test_empty_library_has_no_hits(tmp_path, encoder):
    with Library.open(tmp_path / "empty", create=True) as library:
        update_index(library, encoder)
    with SearchEngine(tmp_path / "empty", encoder) as empty:
        assert empty.search(BAYES).hits == ()
        assert empty.count_facets() == ({}, {})
        for ask in (empty.find_similar_papers, empty.get_paper, empty.get_equation):
            with pytest.raises(BadInput):
                ask("x")
