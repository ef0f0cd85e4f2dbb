"""Baselines and peers find formulas that are written alike; fits are loaded instead of repeated."""

from importlib.util import find_spec

import numpy as np
import pytest

from eqkin.errors import BadInput
from eqkin.evaluation.systems import make_systems
from research.experiment import SMALL_SCALE, Experiment, fit_systems
from research.systems import ALL_SYSTEMS, BagOfWords, serialize
from tests.evaluation.formulas import formulas
from tests.learning.corpora import corpus_of

KIN = (r"\frac{a}{b} + c", r"\frac{x}{y} + z", r"\sum_{i=1}^n a_i", r"\sum_{k=1}^m b_k", r"\sqrt{t}")
LIBRARIES = {"fasttext": "fasttext", "approach0": "pya0", "untrained": "torch"}


@pytest.mark.parametrize("name", [name for name in ALL_SYSTEMS if name not in ("eqkin", "eqkin-vector", "paper")])
def test_system_finds_formulas_written_alike(name, tmp_path):
    if name in LIBRARIES and find_spec(LIBRARIES[name]) is None:
        pytest.skip(f"{LIBRARIES[name]} is not installed")
    some = formulas(*KIN)
    (system,) = make_systems([name], ALL_SYSTEMS)
    fit_systems(Experiment(tmp_path, SMALL_SCALE), [system], lambda: corpus_of([[9]] * 6))
    scores = system.rank(some, some)
    assert scores.shape == (len(KIN), len(KIN)) and np.isfinite(scores).all()
    if name not in ("fasttext", "untrained", "bag-of-words"):
        assert scores[0].argmax() == 0 and (scores[0, 1] > scores[0, 2:]).all()


def test_fits_are_kept_by_corpus(tmp_path):
    experiment = Experiment(tmp_path)
    corpora = [corpus_of([[size]] * 4) for size in (4, 9)]
    for corpus in (corpora[0], corpora[0], corpora[1]):
        fit_systems(experiment, [BagOfWords()], lambda corpus=corpus: corpus)
    assert len(list((tmp_path / "fitted").iterdir())) == 2

    def fail():
        raise BadInput("there is no library")

    with pytest.raises(BadInput, match="cannot be fitted: there is no library"):
        fit_systems(experiment, [BagOfWords()], fail)


def test_trees_are_serialised_in_the_order_of_writing():
    (words,) = serialize(formulas("x + y").forest)
    assert words == ["mrow", "mi:x", "mo:+", "mi:y"]
