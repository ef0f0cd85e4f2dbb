"""What experiments are given: systems learn through the store, and small runs differ in amounts alone."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.scale import FULL_SCALE, SMALL_SCALE
from eqkin.evaluation.store import ResultCache
from eqkin.evaluation.systems import base
from eqkin.evaluation.systems.base import EmbeddingSystem, FormulaSet
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
def told() -> list[str]:
    Mean.learned = Mean.encoded = 0
    return []


@pytest.fixture
def context(tmp_path, told) -> ExperimentContext:
    return ExperimentContext(ResultCache(tmp_path), SMALL_SCALE, "cpu", told.append)


def test_a_system_learns_once_from_each_corpus_with_each_setting(context, told):
    first, again = context.fit(Mean(), CORPUS), context.fit(Mean(), CORPUS)
    assert Mean.learned == 1
    assert first.mean == again.mean == CORPUS.forest.sizes.mean()
    assert first.learned_from == again.learned_from == CORPUS.digest
    assert context.fit(Mean(), OTHER).mean == OTHER.forest.sizes.mean()
    context.fit(Mean(2), CORPUS)
    assert Mean.learned == 3
    assert set(told) == {"Mean size: learning, or loading what was learned"}


def test_what_has_no_settings_learns_nothing(context, told, tmp_path):
    for system in (Characters(), Sizes()):
        assert context.fit(system, CORPUS).learned_from == ""
    assert told == [] and not list(tmp_path.iterdir())


def test_vectors_of_many_formulas_are_encoded_once(context, monkeypatch):
    monkeypatch.setattr(base, "_MIN_CACHED_FORMULAS", 5)
    some, few = FormulaSet(CORPUS.forest), FormulaSet(CORPUS.forest.select(np.arange(3)))
    system = context.fit(Mean(), CORPUS)
    first = system.vectors(some)
    assert np.array_equal(context.fit(Mean(), CORPUS).vectors(some), first)
    assert Mean.encoded == 1
    system.vectors(few)
    system.vectors(few)
    assert Mean.encoded == 3


def test_vectors_depend_on_what_was_learned_how_and_on_the_formulas(context, monkeypatch):
    monkeypatch.setattr(base, "_MIN_CACHED_FORMULAS", 5)
    some, others = FormulaSet(CORPUS.forest), FormulaSet(OTHER.forest)
    found = [
        context.fit(Mean(setting), corpus).vectors(formulas)
        for setting, corpus, formulas in ((1, CORPUS, some), (1, OTHER, some), (2, CORPUS, some), (1, CORPUS, others))
    ]
    assert Mean.encoded == 4
    assert not np.array_equal(found[0], found[1])


def test_a_system_that_learned_before_has_its_vectors_kept_too(context):
    system = Sizes()
    assert context.keep(system) is system
    assert system.cache is context.store
    context.keep(Characters())


def test_a_small_run_does_less_of_everything_and_nothing_else():
    small, full = asdict(SMALL_SCALE), asdict(FULL_SCALE)
    assert small.keys() == full.keys()
    for name, amount in small.items():
        assert np.max(amount) <= np.max(full[name]), name
        assert np.min(amount) > 0
    assert SMALL_SCALE != FULL_SCALE
