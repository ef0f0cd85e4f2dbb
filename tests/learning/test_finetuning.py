"""Finetuning generalises to other pairs and keeps the best state."""

import numpy as np
import pytest
import torch

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, TrainingFailed
from eqkin.formulas import Vocabulary
from eqkin.learning.equalities import compute_mrr, compute_partner_ranks
from eqkin.learning.finetuning import FinetuningConfig, GraphTower, Tower, finetune
from tests.encoder.models import random_model
from tests.formulas.strategies import build
from tests.learning.corpora import some_trees

CPU = torch.device("cpu")
LATIN, GREEK = "abcdefghijkl", "αβγδεζηθικλμ"
PAIRS = 120


def sides(count=PAIRS):
    """Return left sides of Latin letters, then right sides of the corresponding Greek letters."""
    chosen = np.random.default_rng(0).permuted(np.tile(np.arange(12), (count, 1)), axis=1)[:, :4].tolist()

    def tree(letters, row):
        return ("mrow", "", "", [("mi", "", letters[number], []) for number in row])

    return build([tree(LATIN, row) for row in chosen] + [tree(GREEK, row) for row in chosen])


class BagTower(Tower):
    """A vector for each text, summed over the nodes of a tree."""

    def __init__(self, forest, dimensions):
        super().__init__()
        self._bags = torch.zeros(len(forest), len(forest.texts))
        tree = np.repeat(np.arange(len(forest)), forest.sizes)
        self._bags.index_put_((torch.from_numpy(tree), torch.from_numpy(forest.text.astype(np.int64))),
                              torch.ones(()), accumulate=True)  # fmt: skip
        first = torch.randn(len(forest.texts), dimensions, generator=torch.Generator().manual_seed(0))
        self.weight = torch.nn.Parameter(first / dimensions**0.5)

    def forward(self, formulas):
        return self._bags[torch.from_numpy(formulas)] @ self.weight


def numbered(first, last):
    left = np.arange(first, last)
    return np.stack([left, PAIRS + left], axis=1)


LEARN, CHECK, TEST = numbered(0, 80), numbered(80, 95), numbered(95, PAIRS)
SETTINGS = FinetuningConfig(batch=16, epochs=30, rates=(1e-4, 3e-2))


def reached(tower, pairs=TEST):
    return compute_mrr(tower.compute_vectors(pairs.T.ravel()))


def test_finetuning_learns_a_substitution():
    forest = sides()
    messages = []
    tower = BagTower(forest, 32)
    before = reached(tower)
    choice = finetune(tower, LEARN, CHECK, compute_mrr, SETTINGS, messages.append)
    assert reached(tower) > 3 * before
    assert choice.learning_rate == 3e-2
    assert choice.score == pytest.approx(reached(tower, CHECK))
    assert len(messages) == 2


def test_finetuning_is_deterministic():
    forest = sides()
    first, second = BagTower(forest, 8), BagTower(forest, 8)
    for tower in (first, second):
        finetune(tower, LEARN, CHECK, compute_mrr, SETTINGS)
    assert torch.equal(first.weight, second.weight)


def test_finetuning_keeps_the_initial_state_if_nothing_is_better():
    forest = sides()
    twice = forest.select(np.tile(np.arange(PAIRS), 2))  # both sides are equal: nothing can be better
    tower = BagTower(twice, 8)
    choice = finetune(tower, LEARN, CHECK, compute_mrr, FinetuningConfig(batch=16, epochs=2, rates=(50.0,)))
    assert choice.epochs == 0
    assert choice.learning_rate is None
    assert torch.equal(tower.weight, BagTower(twice, 8).weight)


class Falling(BagTower):
    """Returns NaN after a large step."""

    def forward(self, formulas):
        return super().forward(formulas) * torch.where(self.weight.abs().max() > 50, torch.nan, 1.0)


def test_finetuning_skips_failing_rates_unless_all_fail():
    forest, messages = sides(), []
    tower = Falling(forest, 8)
    settings = FinetuningConfig(batch=16, epochs=12, rates=(3e-2, 100.0))
    choice = finetune(tower, LEARN, CHECK, compute_mrr, settings, messages.append)
    assert choice.learning_rate == 3e-2
    assert "learning rate 100: training failed at step" in messages[-1]
    with pytest.raises(TrainingFailed):
        finetune(tower, LEARN, CHECK, compute_mrr, FinetuningConfig(batch=16, epochs=12, rates=(100.0,)))


def test_finetuning_uses_one_batch_for_few_pairs():
    forest = sides()
    settings = FinetuningConfig(batch=4_096, epochs=3, rates=(1e-2,))
    choice = finetune(BagTower(forest, 32), LEARN, CHECK, compute_mrr, settings)
    assert choice.epochs == 3


@pytest.mark.parametrize(("learn", "check"), [(LEARN[:1], CHECK), (LEARN, CHECK[:0])])
def test_finetuning_rejects_too_few_pairs(learn, check):
    with pytest.raises(BadInput, match="too few"):
        finetune(BagTower(sides(), 4), learn, check, compute_mrr, SETTINGS)


def test_graph_tower_gives_the_encoders_vectors():
    model, forest = random_model(), some_trees(30)
    wanted = Encoder(model).embed(forest)
    tower = GraphTower(forest, model, CPU)
    chosen = np.array([4, 29, 4, 0])
    np.testing.assert_allclose(tower.compute_vectors(chosen), wanted[chosen], atol=1e-4)


def test_graph_tower_keeps_its_statistics():
    forest = sides()
    model = random_model(vocabulary=Vocabulary.learn([forest]))
    settings = FinetuningConfig(batch=16, epochs=20, rates=(3e-3,))
    tower = GraphTower(forest, model, CPU)
    choice = finetune(tower, LEARN, CHECK, compute_mrr, settings)
    fresh = GraphTower(forest, model, CPU)
    assert choice.score > 1.5 * reached(fresh, CHECK)
    assert torch.equal(tower.network.layers[0].norm.mean, fresh.network.layers[0].norm.mean)


def test_partner_ranks_count_nearer_vectors_and_ties():
    left = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    right = np.array([[1.0, 0.0], [1.0, 0.2], [1.0, 0.1]])
    found = compute_partner_ranks(np.concatenate([left, right]).astype(np.float32))
    assert found.tolist() == [0, 0, 0, 0, 4, 0]
    both = np.array([[1.0, 0.0]] * 4, np.float32)
    assert compute_partner_ranks(both).tolist() == [2, 2, 2, 2]  # behind all that are equal to it


def test_nan_vectors_rank_last():
    vectors = np.full((6, 2), np.nan, np.float32)
    assert compute_partner_ranks(vectors).min() >= 4
    assert compute_mrr(vectors) < 0.25
