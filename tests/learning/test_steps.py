"""Twelve steps of both recipes have the losses that they always had: a refactoring must not change what is learned.

Whoever changes it on purpose prints the losses (`take_steps`) and records them here.
"""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch: pip install 'eqkin[train]'")

from eqkin.encoder.model import Vocabulary  # noqa: E402
from eqkin.learning.config import get_recipe  # noqa: E402
from eqkin.learning.losses import build_training_data  # noqa: E402
from eqkin.learning.text import ContextWords  # noqa: E402
from eqkin.learning.trainer import RecipeTrainer  # noqa: E402
from tests.learning.corpora import corpus_of  # noqa: E402

# The sum of each loss over the twelve steps.
RECORDED = {
    "paper": (6.20003, 51.1434),
    "eqkin": (8.75709, 30.5149, 15.2986),
}


@pytest.mark.parametrize("name", RECORDED)
def test_twelve_steps_have_the_recorded_losses(name: str) -> None:
    corpus = corpus_of([[3, 4], [5], [2, 2], [6], [4, 3]], ((0, 1), (2, 4)))
    words = [number * step % 7 for number in range(len(corpus)) for step in (1, 2)]
    rows = [sorted(set(words[2 * tree : 2 * tree + 2])) for tree in range(len(corpus))]
    flat = np.array([word for row in rows for word in row], np.uint16)
    corpus = replace(corpus, words=ContextWords(list("abcdefg"), np.cumsum([0, *map(len, rows)]), flat))
    changes = {"batch": "8", "triplets": "96", "width": "16", "dimensions": "8", "warm_up": "2", "renamed": "0.5"}
    recipe = get_recipe(name).override(changes | {"notations": "0", "learning_rate": "1e-3"})
    data = build_training_data(corpus, Vocabulary.learn([corpus.forest]), recipe, torch.device("cpu"))
    trainer = RecipeTrainer(recipe, data)
    trainer.module.train()
    losses = np.concatenate([trainer.take_steps(1) for _ in range(12)])
    assert losses.sum(axis=0).tolist() == pytest.approx(RECORDED[name], rel=1e-4)
