"""eqkin's engine as a system: the ranking of search and of `eqkin rank`, whatever the collection's size."""

import numpy as np
import pytest

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation.formulas import FormulaSet, normalize_rows
from eqkin.evaluation.systems.networks import EngineSystem
from eqkin.evaluation.systems.registry import make_systems
from eqkin.search import features, rerank
from eqkin.search.features import compute_relevance, extract_features
from tests.evaluation.formulas import formulas

KIN = (r"a^2 + b^2 = c^2", r"x^2 + y^2 = z^2", r"\sum_{k=1}^n k^2 = s", r"e^{i\pi} + 1 = 0", r"\int_0^1 f(x) \, dx")


@pytest.fixture(scope="module")
def some():
    return formulas(*KIN, r"p^2 + q^2 = r^2 + 1", r"f(x) = \sin x")


@pytest.fixture(scope="module")
def engine():
    return EngineSystem(device="cpu")


def test_engine_system_ranks_as_the_engine(engine, some):
    asked = formulas(r"u^2 + v^2 = w^2", r"\int_a^b g(t) \, dt")
    found = engine.rank(asked, some)
    vectors, theirs = (normalize_rows(Encoder.load().embed(given.forest)) for given in (asked, some))
    ours, others = extract_features(asked.forest), extract_features(some.forest)
    for at in range(2):
        expected = compute_relevance(ours.select(np.array([at])), others, theirs @ vectors[at])
        np.testing.assert_array_equal(found[at], expected)
    assert found[0].argmax() in (0, 1) and found[1].argmax() == 4
    assert found.min() >= 0 and found.max() <= 1


def test_engine_system_excludes_formula_itself_within_a_collection(engine, some):
    found = engine.rank(some, some)
    assert (np.diag(found) == 0).all()
    assert found[0].argmax() == 1
    vectors = np.asarray(normalize_rows(Encoder.load().embed(some.forest)), np.float32)
    np.testing.assert_array_equal(found, rerank.compare_within(some.forest, vectors))
    apart = engine.rank(some, FormulaSet(some.forest))  # a search in a collection that holds the query finds it
    assert (apart.argmax(axis=1) == np.arange(len(some))).all()


def test_engine_system_does_not_depend_on_block_size(engine, some, monkeypatch):
    asked = formulas(*KIN[:3])
    whole = engine.rank(asked, some)
    monkeypatch.setattr(rerank, "_BLOCK_FORMULAS", 3)
    np.testing.assert_allclose(engine.rank(asked, some), whole, atol=1e-6)


def test_engine_system_digest_depends_on_network_and_weights(engine, monkeypatch):
    assert engine.settings == {}
    assert engine.tuned_on == make_systems(["eqkin-vector"])[0].tuned_on
    paper = EngineSystem(folder="paper", device="cpu")
    monkeypatch.setattr(features, "WEIGHTS", features.WEIGHTS | {"form": 0.7})
    other = EngineSystem(device="cpu")
    monkeypatch.setattr(features, "SAME_STATEMENT", 0.25)
    same = EngineSystem(device="cpu")
    assert len({one.learned_from for one in (engine, paper, other, same)}) == 4
