"""The paper's transformer baseline: learned by guessing hidden nodes and telling equations of one paper from others.

The same features, vocabulary, masking and histogram loss as the graph network's, on embeddings of length 1; related is
what stands in the same paper (no sections, no citations, no renamed symbols: the paper names these two tasks alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet
from eqkin.evaluation.systems.transformer_batches import Integers, TreeSet
from eqkin.evaluation.systems.transformer_files import DESCRIPTION_FILE, load_transformer, save_transformer
from eqkin.evaluation.systems.transformer_network import TransformerNetwork, TransformerShape
from eqkin.training.augmentation import Masking
from eqkin.training.checkpoint import remove_checkpoint
from eqkin.training.config import OptimizerConfig, choose_device
from eqkin.training.data import Corpus
from eqkin.training.losses import HistogramLoss, MaskingHeads
from eqkin.training.randomness import make_step_column
from eqkin.training.sampling import TripletSampler
from eqkin.training.trainer import train_module
from eqkin.trees import Forest, Vocabulary

_STEPS_PER_DRAW = 256  # steps drawn at once
_MAX_BATCH_NODES = {"cuda": 400_000, "cpu": 16_000}  # of a batch to embed, padding included


@dataclass(frozen=True)
class TransformerTraining:
    """How a transformer learns; chosen beforehand, nothing of it was tried out on held-out data."""

    triplets: int = 3_000_000
    batch: int = 256  # triplets a step
    learning_rate: float = 3e-4  # at its peak
    warm_up: int = 1_000  # steps until the peak, at most a tenth of all
    masking: float = 0.15  # share of nodes to hide and guess
    seed: int = 0

    @property
    def steps(self) -> int:
        """How many there are in all."""
        return -(-self.triplets // self.batch)


class Transformer(EmbeddingSystem):
    """Vectors by attention among a tree's nodes.

    Args:
        shape: Of the network, by default the paper's.
        lesson: How to learn it.
        device: Where: "cpu", "cuda", or "auto" for a GPU where there is one.
        progress: Called now and then with the steps taken, all steps, and the loss.
    """

    name = "transformer"
    title = "Transformer"
    slow = True

    def __init__(
        self,
        shape: TransformerShape | None = None,
        lesson: TransformerTraining | None = None,
        *,
        device: str = "auto",
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.shape, self.lesson = shape or TransformerShape(), lesson or TransformerTraining()
        self._device, self._progress = device, progress
        self._network: TransformerNetwork | None = None
        self._vocabulary: Vocabulary | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Shape and lesson."""
        return {"shape": asdict(self.shape), "lesson": asdict(self.lesson)}

    @property
    def network(self) -> TransformerNetwork:
        """What was learned; raises `BadInput` if nothing was."""
        if self._network is None:
            raise BadInput("the transformer has not learned anything yet: call fit first")
        return self._network

    @property
    def vocabulary(self) -> Vocabulary:
        """What it learned with; raises `BadInput` if it did not."""
        if self._vocabulary is None:
            raise BadInput("the transformer has not learned anything yet: call fit first")
        return self._vocabulary

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn, going on where an earlier try stopped, or load what was learned.

        Raises:
            BadInput: No equation has another one in its paper, or the folder holds something else.
            CorruptData: What was learned is damaged.
            LearningFailed: The loss is no number any more.
        """
        device = choose_device(self._device)
        if not (folder / DESCRIPTION_FILE).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            vocabulary = Vocabulary.learn([corpus.forest])
            learner = _TransformerObjective(corpus, vocabulary, self.shape, self.lesson, device)
            descent = OptimizerConfig(self.lesson.steps, self.lesson.learning_rate, self.lesson.warm_up)
            facts = self.settings | {"corpus": corpus.digest}
            train_module(learner, learner.compute_loss, descent, folder, settings=facts, progress=self._progress)
            save_transformer(folder, learner.network, vocabulary, facts)
            remove_checkpoint(folder)
        network, self._vocabulary = load_transformer(folder, self.shape)
        self._network = network.to(device)

    def encode(self, formulas: FormulaSet) -> Floats:
        """Vectors, (formulas, dimensions)."""
        return embed_trees(self.network, self.prepare_trees(formulas.forest))

    def prepare_trees(self, forest: Forest) -> TreeSet:
        """Trees ready for the network."""
        return TreeSet(forest, self.vocabulary, self.shape.longest, self.network.output.weight.device)


class _TransformerObjective(nn.Module):
    """The network, its masking heads, and the loss of a step."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        shape: TransformerShape,
        lesson: TransformerTraining,
        device: torch.device,
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(lesson.seed)
            self.network = TransformerNetwork(shape)
            self.heads = MaskingHeads(shape.width)
        self.to(device)
        self._lesson, self._device = lesson, device
        self._trees = TreeSet(corpus.forest, vocabulary, shape.longest, device)
        self._sampler = TripletSampler(corpus, kinds=("paper",), seed=lesson.seed, device=device)
        self._masking = Masking(lesson.masking, seed=lesson.seed)
        self._first, self._drawn = -_STEPS_PER_DRAW, np.zeros((0, 3 * lesson.batch), np.int64)

    def compute_loss(self, step: int) -> Tensor:
        """Similarity and masking, added."""
        trees = self._trees.make_batch(self._draw_triplets(step))
        nodes = torch.arange(len(trees.rank), device=self._device)
        now = torch.full((), step, dtype=torch.int64, device=self._device)
        mask = self._masking.draw(now, nodes, trees.batch.trees.node_count)
        features = self._trees.resident.build_features(trees.batch, self.network.precision, mask=mask)
        vectors = self.network.encode_nodes(features, trees)
        anchor, partner, negative = functional.normalize(self.network.pool(vectors, trees)).chunk(3)
        similarity: Tensor = HistogramLoss()(anchor, partner, negative)
        hidden: Tensor = self.heads(vectors, mask, self._trees.resident.build_masking_targets(trees.batch, mask.nodes))
        return similarity + hidden

    def _draw_triplets(self, step: int) -> Integers:
        """Anchors, partners and negatives of a step; drawn for many steps at once, so that the device rarely waits."""
        if not self._first <= step < self._first + _STEPS_PER_DRAW:
            self._first = step - step % _STEPS_PER_DRAW
            drawn = self._sampler.draw(make_step_column(self._first, _STEPS_PER_DRAW, self._device), self._lesson.batch)
            self._drawn = drawn.concatenate().cpu().numpy()
        triplets: Integers = self._drawn[step - self._first]
        return triplets


@torch.no_grad()
def embed_trees(network: TransformerNetwork, trees: TreeSet) -> Floats:
    """Vectors of all trees, some at a time."""
    learning = network.training
    network.eval()
    vectors = np.empty((len(trees), network.shape.dimensions), np.float32)
    try:
        for part in trees.split_batches(_MAX_BATCH_NODES[trees.device.type]):
            some = trees.make_batch(part)
            vectors[part] = network(trees.resident.build_features(some.batch, network.precision), some).cpu().numpy()
    finally:
        network.train(learning)
    return vectors
