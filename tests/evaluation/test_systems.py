"""Systems to compare: the ranking of search, networks, and TF-IDF."""

import numpy as np
import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.systems import EngineSystem, FormulaSet, TfIdfLatex, make_systems, normalize_rows
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.terms import extract_norms
from eqkin.search import candidates
from eqkin.search.candidates import QueryTerms, compute_relevance
from tests.evaluation.formulas import formulas

KIN = (r"a^2 + b^2 = c^2", r"x^2 + y^2 = z^2", r"\sum_{k=1}^n k^2 = s", r"e^{i\pi} + 1 = 0", r"\int_0^1 f(x) \, dx")


@pytest.fixture(scope="module")
def some():
    return formulas(*KIN, r"p^2 + q^2 = r^2 + 1", r"f(x) = \sin x")


@pytest.fixture(scope="module")
def engine():
    return EngineSystem()


def test_engine_system_ranks_as_the_engine(engine, some):
    asked = formulas(r"u^2 + v^2 = w^2", r"\int_a^b g(t) \, dt")
    found = engine.rank(asked, some)
    vectors, theirs = (normalize_rows(Encoder.load().embed(given.forest)) for given in (asked, some))
    ours, others = parse_operators(asked.forest), parse_operators(some.forest)
    norms = extract_norms(others)
    for at in range(2):
        expected = compute_relevance(QueryTerms.extract(ours.select([at])), others, norms, theirs @ vectors[at])
        np.testing.assert_array_equal(found[at], expected)
    assert found[0].argmax() in (0, 1) and found[1].argmax() == 4
    assert found.min() >= 0 and found.max() <= 1


def test_engine_system_excludes_formula_itself_within_a_collection(engine, some):
    found = engine.rank(some, some)
    assert (np.diag(found) == 0).all()
    assert found[0].argmax() == 1
    vectors = np.asarray(normalize_rows(Encoder.load().embed(some.forest)), np.float32)
    np.testing.assert_array_equal(found, candidates.compare_within(some.forest, vectors))
    apart = engine.rank(some, FormulaSet(some.forest))  # a search in a collection that holds the query finds it
    assert (apart.argmax(axis=1) == np.arange(len(some))).all()


def test_engine_system_does_not_depend_on_block_size(engine, some, monkeypatch):
    asked = formulas(*KIN[:3])
    whole = engine.rank(asked, some)
    monkeypatch.setattr(candidates, "_BLOCK_FORMULAS", 3)
    np.testing.assert_allclose(engine.rank(asked, some), whole, atol=1e-6)


def test_tfidf_compares_ngrams_of_latex_tokens(some):
    found = TfIdfLatex().rank(formulas(r"u^{2} + v^2"), some)
    assert found.shape == (1, len(some))
    assert found[0].argmax() in (0, 1, 5)
    same = TfIdfLatex().rank(some, some)
    np.testing.assert_allclose(np.diag(same), 1, atol=1e-6)


def test_systems_are_made_by_name_or_folder(tmp_path):
    Encoder.load().model.save(tmp_path / "mine" / "model")
    names = [system.name for system in make_systems(["eqkin", "tfidf-latex", tmp_path / "mine"])]
    assert names == ["eqkin", "tfidf-latex", "mine"]
    for wrong in (["nothing"], ["paper", "paper"]):
        with pytest.raises(BadInput):
            make_systems(wrong)
