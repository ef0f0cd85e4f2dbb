"""What a recipe learns from, on the device: the trees, what draws them, and what else is known of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eqkin.errors import BadInput
from eqkin.training.corpus import Corpus
from eqkin.training.kin import NeighbourSampler, find_structural_neighbours
from eqkin.training.pairs import TripletSampler
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup
from eqkin.training.recipes import Recipe
from eqkin.training.resident import DeviceForest
from eqkin.training.structure_teacher import StructureTables
from eqkin.training.word_loss import WordTables
from eqkin.trees import Vocabulary


@dataclass(frozen=True)
class TrainingData:
    """What every recipe needs."""

    forest: DeviceForest
    sampler: TripletSampler | NeighbourSampler

    @property
    def bytes(self) -> int:
        """Bytes on the device."""
        return self.forest.bytes + self.sampler.bytes


@dataclass(frozen=True)
class EqkinTrainingData(TrainingData):
    """What the loss "kin" needs."""

    paper: Tensor  # (trees,) paper of each tree
    structure: StructureTables
    words: WordTables | None  # None where no words are known, or none are asked for

    @property
    def bytes(self) -> int:
        """Bytes on the device."""
        known = super().bytes + self.structure.bytes + self.paper.numel() * self.paper.element_size()
        return known + (self.words.bytes if self.words else 0)


def build_training_data(
    corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device, ranks: ProcessGroup = SINGLE_PROCESS
) -> TrainingData:
    """What a recipe needs of a corpus; raises `BadInput` if nothing can be learned from it."""
    sampler = TripletSampler(corpus, kinds=recipe.contexts, seed=recipe.seed, device=device, balance=recipe.balance)
    resident = DeviceForest(corpus.forest, vocabulary, device)
    if recipe.loss != "kin":
        return TrainingData(resident, sampler)
    if len(corpus.papers) < 2:
        raise BadInput(
            "this recipe tells equations of different papers apart, and there is one to learn from: add more"
        )
    paper = torch.from_numpy(corpus.paper.astype(np.int32)).to(device)
    structure = StructureTables(corpus.forest, device)
    words = None
    if recipe.words_weight and corpus.words is not None and len(corpus.words.word):
        words = WordTables(corpus.words, device)
    kin = NeighbourSampler(sampler, find_structural_neighbours(structure, paper, ranks), seed=recipe.seed)
    return EqkinTrainingData(resident, kin, paper, structure, words)
