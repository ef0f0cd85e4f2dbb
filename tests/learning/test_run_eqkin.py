"""Runs of the recipe "eqkin": results, exact resumption, averaging, corpora without words."""

# ruff: noqa: E402
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Model, Vocabulary
from eqkin.learning.batches import DeviceForest
from eqkin.learning.checkpoint import load_checkpoint, read_metrics
from eqkin.learning.config import Recipe, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import TrainingData, build_training_data
from eqkin.learning.run import MODEL_FOLDER
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import RecipeTrainer
from tests.learning.test_run import TINY, curve, run

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("fast_neighbours")


def tiny(**settings: str) -> Recipe:
    return get_recipe("eqkin").override(TINY | {"layers": "2", "renamed": "0.3", "notations": "0"} | settings)


@pytest.fixture(scope="module")
def whole(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory, fast_neighbours: None) -> Path:
    """The folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run(corpus, folder, tiny()).finished
    return folder


@pytest.mark.parametrize("stop_at", [1, 7, 11])
def test_resumed_run_has_the_same_metrics_and_weights(
    stop_at: int, whole: Path, corpus: Corpus, tmp_path: Path
) -> None:
    assert not run(corpus, tmp_path, tiny(), stop_at=stop_at).finished
    assert run(corpus, tmp_path, tiny(), resume=True).finished
    assert curve(tmp_path) == curve(whole)
    assert Model.load(tmp_path / MODEL_FOLDER).digest == Model.load(whole / MODEL_FOLDER).digest


def test_saved_model_has_the_averaged_weights(whole: Path, corpus: Corpus) -> None:
    model, saved = Model.load(whole / MODEL_FOLDER), load_checkpoint(whole)
    assert Recipe.from_dict(model.recipe) == tiny()
    assert saved is not None
    assert (
        model.weights.keys() == build_network(model.architecture).state_dict().keys()
    )  # no words, nothing to guess with
    for name, weight in model.weights.items():
        assert np.array_equal(weight, saved.arrays[f"average.{name}"])
    assert any((weight != saved.arrays[f"model.network.{name}"]).any() for name, weight in model.weights.items())
    assert model.training["words"] > 100
    _, held_out = corpus.split(0.25, 0)
    mine = Encoder.load(whole / MODEL_FOLDER).embed(held_out.forest)
    np.testing.assert_allclose(np.linalg.norm(mine, axis=1), 1, atol=1e-5)
    measured = DeviceForest(held_out.forest, model.vocabulary, CPU)
    theirs = measured.embed(build_network(model.architecture, model.weights)).numpy()
    np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_corpus_without_words_trains_without_the_word_loss(corpus: Corpus, tmp_path: Path) -> None:
    assert run(replace(corpus, words=None), tmp_path, tiny(triplets="16")).finished
    assert all(record["words"] == 0 for record in read_metrics(tmp_path) if "loss" in record)
    assert Model.load(tmp_path / MODEL_FOLDER).training["words"] == 0


@pytest.fixture(scope="module")
def training_data(corpus: Corpus, fast_neighbours: None) -> TrainingData:
    return build_training_data(corpus, Vocabulary.learn([corpus.forest]), tiny(), CPU)


def test_weights_are_averaged_over_the_last_steps(training_data: TrainingData) -> None:
    recipe = tiny(triplets="40", averaged="0.4")  # 10 steps, the last 4
    trainer = RecipeTrainer(recipe, training_data)
    seen = []
    for step in range(10):
        trainer.take_steps(1)
        seen.append({name: tensor.clone() for name, tensor in trainer.objective.network.state_dict().items()})
        averaged = seen[min(step, 6) :]
        for name, tensor in trainer.network.state_dict().items():
            mean = torch.stack([weights[name] for weights in averaged]).double().mean(0)
            np.testing.assert_allclose(tensor.numpy(), mean.numpy(), rtol=1e-4, atol=1e-6)
    assert not torch.equal(seen[-1]["output.weight"], trainer.network.state_dict()["output.weight"])
    plain = RecipeTrainer(recipe.override({"averaged": "0"}), training_data)
    assert plain.network is plain.objective.network
    assert not any(name.startswith("average") for name in plain.get_state())
