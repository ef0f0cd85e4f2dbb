"""Finetuning generalises to other pairs and keeps the best state."""

import numpy as np
import pytest
import torch

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Vocabulary
from eqkin.errors import BadInput, TrainingFailed
from eqkin.learning.finetuning import FinetuningConfig, SideEncoder, compute_mrr, finetune, finetune_model
from tests.encoder.models import random_model
from tests.formulas.strategies import build
from tests.learning.corpora import some_trees
from tests.learning.pairs import corpus_of_equalities

CPU = torch.device("cpu")
LATIN, GREEK = "abcdefghijkl", "αβγδεζηθικλμ"
PAIRS = 120


def sides(count=PAIRS):
    """Return left sides of Latin letters, then right sides of the corresponding Greek letters."""
    chosen = np.random.default_rng(0).permuted(np.tile(np.arange(12), (count, 1)), axis=1)[:, :4].tolist()

    def tree(letters, row):
        return ("mrow", "", "", [("mi", "", letters[number], []) for number in row])

    return build([tree(LATIN, row) for row in chosen] + [tree(GREEK, row) for row in chosen])


def numbered(first, last):
    left = np.arange(first, last)
    return np.stack([left, PAIRS + left], axis=1)


LEARN, CHECK, TEST = numbered(0, 80), numbered(80, 95), numbered(95, PAIRS)
FOREST = sides()
MODEL = random_model(vocabulary=Vocabulary.learn([FOREST]))
SETTINGS = FinetuningConfig(batch=16, epochs=20, rates=(1e-4, 3e-3))


def make_encoder(forest=FOREST):
    return SideEncoder(forest, MODEL, CPU)


def reached(encoder, pairs=TEST):
    return compute_mrr(encoder.embed(pairs.T.ravel()))


def test_finetuning_learns_a_substitution():
    messages = []
    encoder, fresh = make_encoder(), make_encoder()
    choice = finetune(encoder, LEARN, CHECK, SETTINGS, messages.append)
    assert reached(encoder) > 1.5 * reached(fresh)
    assert choice.learning_rate == 3e-3
    assert choice.score == pytest.approx(reached(encoder, CHECK))
    assert len(messages) == 2
    # Running statistics stay as they were.
    assert torch.equal(encoder.network.layers[0].norm.mean, fresh.network.layers[0].norm.mean)


def test_finetuning_is_deterministic():
    first, second = make_encoder(), make_encoder()
    for encoder in (first, second):
        finetune(encoder, LEARN, CHECK, FinetuningConfig(batch=16, epochs=2, rates=(3e-3,)))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_finetuning_keeps_the_initial_state_if_nothing_is_better():
    # Both sides are equal: nothing can be better.
    encoder = make_encoder(FOREST.select(np.tile(np.arange(PAIRS), 2)))
    choice = finetune(encoder, LEARN, CHECK, FinetuningConfig(batch=16, epochs=2, rates=(3e-3,)))
    assert (choice.epochs, choice.learning_rate) == (0, None)
    assert torch.equal(encoder.network.output.weight, make_encoder().network.output.weight)


class Falling(SideEncoder):
    """Returns NaN after a large step."""

    def forward(self, trees):
        return super().forward(trees) * torch.where(self.network.output.weight.abs().max() > 50, torch.nan, 1.0)


def test_finetuning_skips_failing_rates_unless_all_fail():
    messages = []
    encoder = Falling(FOREST, MODEL, CPU)
    settings = FinetuningConfig(batch=16, epochs=12, rates=(3e-3, 100.0))
    assert finetune(encoder, LEARN, CHECK, settings, messages.append).learning_rate == 3e-3
    assert "learning rate 100: training failed at step" in messages[-1]
    with pytest.raises(TrainingFailed):
        finetune(encoder, LEARN, CHECK, FinetuningConfig(batch=16, epochs=12, rates=(100.0,)))


def test_finetuning_uses_one_batch_for_few_pairs():
    settings = FinetuningConfig(batch=4_096, epochs=3, rates=(3e-3,))
    assert finetune(make_encoder(), LEARN, CHECK, settings).epochs <= 3


@pytest.mark.parametrize(("learn", "check"), [(LEARN[:1], CHECK), (LEARN, CHECK[:0])])
def test_finetuning_rejects_too_few_pairs(learn, check):
    with pytest.raises(BadInput, match="too few"):
        finetune(make_encoder(), learn, check, SETTINGS)


def test_side_encoder_gives_the_encoders_vectors():
    model, forest = random_model(), some_trees(30)
    chosen = np.array([4, 29, 4, 0])
    wanted = Encoder(model).embed(forest)[chosen]
    np.testing.assert_allclose(SideEncoder(forest, model, CPU).embed(chosen), wanted, atol=1e-4)


def test_finetune_model_improves_recall_and_can_be_loaded(tmp_path):
    corpus = corpus_of_equalities()
    random_model(vocabulary=Vocabulary.learn([corpus.forest])).save(tmp_path / "first")
    settings = FinetuningConfig(batch=16, epochs=10, rates=(3e-3,))
    done = finetune_model(corpus, tmp_path / "second", model=tmp_path / "first", settings=settings, device="cpu")
    assert done.after["r10"] > done.before["r10"]
    assert done.learned + done.checked + done.tested == 24 * 8
    first, second = Encoder.load(tmp_path / "first"), Encoder.load(tmp_path / "second")
    assert first.digest != second.digest
    assert second.model.recipe["finetuned"]["batch"] == 16
    lengths = np.linalg.norm(second.embed(corpus.forest), axis=1)
    assert lengths.mean() == pytest.approx(1 - lengths.std(), abs=0.01)
    with pytest.raises(BadInput, match="already holds a model"):
        finetune_model(corpus, tmp_path / "second", device="cpu")
