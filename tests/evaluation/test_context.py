"""The context of evaluations: systems are fitted through the cache, and small runs differ in amounts only."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from eqkin.evaluation.cache import ResultCache
from eqkin.evaluation.context import FULL_SCALE, SMALL_SCALE, ExperimentContext
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems import base
from eqkin.evaluation.systems.base import EmbeddingSystem
from tests.evaluation.small_systems import Characters, Sizes
from tests.training.corpora import corpus_of

CORPUS, OTHER = corpus_of([[4], [3]]), corpus_of([[5], [3]])


class Mean(EmbeddingSystem):
    """Learns the mean size of a corpus' trees; a formula is its size less that."""

    name, title, slow = "mean", "Mean size", True
    learned = encoded = 0  # times, in all

    def __init__(self, setting: int = 1) -> None:
        self.setting, self.mean = setting, np.nan

    @property
    def settings(self):
        return {"setting": self.setting}

    def fit(self, corpus, folder):
        if not (folder / "mean").exists():
            Mean.learned += 1
            (folder / "mean").write_text(str(corpus.forest.sizes.mean()))
        self.mean = float((folder / "mean").read_text())

    def encode(self, formulas: FormulaSet):
        Mean.encoded += 1
        return (formulas.forest.sizes[:, None] - self.mean).astype(np.float32)


@pytest.fixture
def logged() -> list[str]:
    Mean.learned = Mean.encoded = 0
    return []


@pytest.fixture
def context(tmp_path, logged) -> ExperimentContext:
    return ExperimentContext(ResultCache(tmp_path), SMALL_SCALE, "cpu", logged.append)


def test_context_fits_a_system_once_per_corpus_and_setting(context, logged):
    first, again = context.fit(Mean(), CORPUS), context.fit(Mean(), CORPUS)
    assert Mean.learned == 1
    assert first.mean == again.mean == CORPUS.forest.sizes.mean()
    assert first.learned_from == again.learned_from == CORPUS.digest
    assert context.fit(Mean(), OTHER).mean == OTHER.forest.sizes.mean()
    context.fit(Mean(2), CORPUS)
    assert Mean.learned == 3
    assert set(logged) == {"Mean size: fitting, or loading an earlier fit"}


def test_context_fits_nothing_without_settings(context, logged, tmp_path):
    for system in (Characters(), Sizes()):
        assert context.fit(system, CORPUS).learned_from == ""
    assert logged == [] and not list(tmp_path.iterdir())


def test_vectors_of_many_formulas_are_cached(context, monkeypatch):
    monkeypatch.setattr(base, "_MIN_CACHED_FORMULAS", 5)
    some, few = FormulaSet(CORPUS.forest), FormulaSet(CORPUS.forest.select(np.arange(3)))
    system = context.fit(Mean(), CORPUS)
    first = system.encode_cached(some)
    assert np.array_equal(context.fit(Mean(), CORPUS).encode_cached(some), first)
    assert Mean.encoded == 1
    system.encode_cached(few)
    system.encode_cached(few)
    assert Mean.encoded == 3


def test_cached_vectors_depend_on_corpus_settings_and_formulas(context, monkeypatch):
    monkeypatch.setattr(base, "_MIN_CACHED_FORMULAS", 5)
    some, others = FormulaSet(CORPUS.forest), FormulaSet(OTHER.forest)
    found = [
        context.fit(Mean(setting), corpus).encode_cached(formulas)
        for setting, corpus, formulas in ((1, CORPUS, some), (1, OTHER, some), (2, CORPUS, some), (1, CORPUS, others))
    ]
    assert Mean.encoded == 4
    assert not np.array_equal(found[0], found[1])


def test_context_attaches_its_cache_to_fitted_systems(context):
    system = Sizes()
    assert context.attach_cache(system) is system
    assert system.cache is context.cache


def test_small_scale_is_smaller_in_every_amount():
    small, full = asdict(SMALL_SCALE), asdict(FULL_SCALE)
    assert small.keys() == full.keys()
    for name, amount in small.items():
        assert np.max(amount) <= np.max(full[name]), name
        assert np.min(amount) > 0
    assert SMALL_SCALE != FULL_SCALE
