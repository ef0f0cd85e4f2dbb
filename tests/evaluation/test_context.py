"""The context of evaluations: systems are fitted through the cache, and small runs differ in amounts only."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from eqkin.evaluation.context import FULL_SCALE, SMALL_SCALE, ExperimentContext, ResultCache
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.systems.base import EmbeddingSystem
from tests.evaluation.small_systems import Characters, Sizes
from tests.learning.corpora import corpus_of

CORPUS, OTHER = corpus_of([[4], [3]]), corpus_of([[5], [3]])


class Mean(EmbeddingSystem):
    """Learns the mean size of a corpus' trees; a formula is its size less that."""

    name, title = "mean", "Mean size"
    learned = 0  # times, in all

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
        return (formulas.forest.sizes[:, None] - self.mean).astype(np.float32)


@pytest.fixture
def logged() -> list[str]:
    Mean.learned = 0
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


def test_small_scale_is_smaller_in_every_amount():
    small, full = asdict(SMALL_SCALE), asdict(FULL_SCALE)
    assert small.keys() == full.keys()
    for name, amount in small.items():
        assert np.max(amount) <= np.max(full[name]), name
        assert np.min(amount) > 0
    assert SMALL_SCALE != FULL_SCALE
