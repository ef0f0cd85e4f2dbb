"""The ranking score on held-out papers."""

# ruff: noqa: E402
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import Vocabulary
from eqkin.errors import BadInput
from eqkin.learning import batches
from eqkin.learning.batches import DeviceForest
from eqkin.learning.config import Recipe
from eqkin.learning.run import HeldOutEvaluator
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.torch_network import SumNetwork
from tests.encoder.models import SMALL, random_model
from tests.learning.corpora import corpus_of

CPU = torch.device("cpu")
CORPUS = corpus_of([[3, 2], [4], [1, 1]], ((0, 1),))
VOCABULARY = Vocabulary.learn([CORPUS.forest])
MODEL = random_model(vocabulary=VOCABULARY)
RECIPE = Recipe(architecture=SMALL, seed=3)


def network() -> SumNetwork:
    return SumNetwork.from_weights(SMALL, MODEL.weights)


@pytest.mark.parametrize("room", [1, 7, 4_000])
def test_embed_agrees_with_the_encoder_for_any_batch_size(room, monkeypatch):
    monkeypatch.setattr(batches, "EMBEDDING_NODES", {"cpu": room})
    trees = torch.tensor([3, 0, 3, 10, 7, 4])
    vectors = DeviceForest(CORPUS.forest, VOCABULARY, CPU).embed(network(), trees)
    expected = Encoder(MODEL).embed(CORPUS.forest.select(trees.tolist()))
    assert vectors.numpy() == pytest.approx(expected, abs=1e-5)


def test_ranking_score_is_the_fraction_of_correct_triples():
    score = HeldOutEvaluator(CORPUS, VOCABULARY, RECIPE, CPU).score(network(), 500)
    drawn = TripletSampler(CORPUS, seed=3, device=CPU).draw(torch.zeros(1, 1, dtype=torch.int64), 500)
    vectors = Encoder(MODEL).embed(CORPUS.forest).astype(np.float64)
    anchor, partner, negative = (vectors[t[0].numpy()] for t in (drawn.anchor, drawn.partner, drawn.negative))
    assert score.score == pytest.approx(((anchor * partner).sum(1) > (anchor * negative).sum(1)).mean(), abs=0.005)
    assert score.triples == 500
    assert score.papers == 3
    assert score.low < score.score < score.high


def test_evaluator_rejects_papers_without_pairs():
    with pytest.raises(BadInput, match="2 held-out papers"):
        HeldOutEvaluator(corpus_of([[1], [1]]), VOCABULARY, RECIPE, CPU)
