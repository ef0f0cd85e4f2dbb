"""Objectives: what the recipes minimise, computed for one batch on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.architecture import Vocabulary
from eqkin.errors import BadInput
from eqkin.learning.batches import Augmentation, DeviceBatch, DeviceForest, Masking, NodeMask, Renaming
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import (
    MaskingHeads,
    WordLoss,
    compute_context_loss,
    compute_histogram_loss,
    compute_structure_loss,
    compute_triplet_loss,
)
from eqkin.learning.sampling import TripletSampler, find_structural_neighbours
from eqkin.learning.text import Teachers, TermTables, WordTables
from eqkin.learning.torch_network import build_network


@dataclass(frozen=True)
class TrainingData:
    """The data that a recipe needs on the device."""

    forest: DeviceForest
    sampler: TripletSampler
    teachers: Teachers | None = None  # only for the loss "kin"


def build_training_data(corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device) -> TrainingData:
    """Put a corpus on the device; raises `BadInput` if it is too small for the recipe."""
    teachers = neighbours = None
    if recipe.loss == "kin":
        if len(corpus.papers) < 2:
            raise BadInput("this recipe contrasts equations of different papers, but there is only one paper: add more")
        paper = torch.from_numpy(corpus.paper.astype(np.int32)).to(device)
        terms, words = TermTables(corpus.forest, device), None
        if recipe.words_weight and corpus.words is not None and len(corpus.words.word):
            words = WordTables(corpus.words, device)
        teachers = Teachers(paper, terms, words)
        # Random batches hardly contain two trees with much in common: a neighbour of each anchor joins them.
        neighbours = find_structural_neighbours(terms, paper)
    sampler = TripletSampler(
        corpus,
        kinds=recipe.contexts,
        seed=recipe.seed,
        device=device,
        balance=recipe.balance,
        shares={NOTATIONS: recipe.notations_share, NAMES: recipe.names_share},
        neighbours=neighbours,
    )
    return TrainingData(DeviceForest(corpus.forest, vocabulary, device), sampler, teachers)


class Objective(nn.Module):
    """A network and the losses of a recipe; `dtype` is the precision of the network's products."""

    parts: tuple[str, ...]  # names of the losses

    def __init__(self, recipe: Recipe, data: TrainingData, dtype: torch.dtype) -> None:
        super().__init__()
        self.recipe, self.data, self.dtype = recipe, data, dtype
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = build_network(recipe.architecture)
            self._build_losses()
        device = data.forest.device
        self.to(device)
        self._masking = Masking(recipe.masking, seed=recipe.seed) if recipe.masking else None
        self._augmentation = None
        if recipe.transpositions and recipe.renamed:
            self._augmentation = Augmentation(
                recipe.transpositions, seed=recipe.seed, device=device, share=recipe.renamed
            )

    def _build_losses(self) -> None:
        """Build what the losses learn; their parameters are drawn after those of the network."""
        raise NotImplementedError

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the losses in the order of `parts`.

        Args:
            trees: Anchors, partners and negatives, (3 x batch,).
            nodes: 0, 1, ..., at least as many as the trees have nodes.
            step: Number of the step, which determines the augmentation.
        """
        raise NotImplementedError

    def _encode_nodes(
        self, trees: Tensor, nodes: Tensor, step: Tensor
    ) -> tuple[Tensor, DeviceBatch, NodeMask | None, Renaming | None]:
        """Return the vectors of all nodes after augmentation, with the batch and its augmentation."""
        forest = self.data.forest
        batch = forest.collate(trees, nodes)
        renaming = self._augmentation.draw(step, len(trees)) if self._augmentation else None
        mask = self._masking.draw(step, nodes, batch.trees.node_count) if self._masking else None
        features = forest.build_features(batch, self.dtype, renaming=renaming, mask=mask)
        return self.network.encode_nodes(features, batch.trees), batch, mask, renaming


class PaperObjective(Objective):
    """The paper's objective: a loss of similarities plus the masking task."""

    parts = ("similarity", "masking")

    def _build_losses(self) -> None:
        self.heads = MaskingHeads(self.recipe.architecture.width)

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return both losses; see `Objective.forward`."""
        vectors, batch, mask, renaming = self._encode_nodes(trees, nodes, step)
        anchor, partner, negative = self.network.pool(vectors, batch.trees).chunk(3)
        compute_loss = compute_triplet_loss if self.recipe.loss == "triplet" else compute_histogram_loss
        similarity = compute_loss(anchor, partner, negative)
        if mask is None:
            return torch.stack([similarity, torch.zeros_like(similarity)])
        targets = self.data.forest.build_masking_targets(batch, mask.nodes, renaming)
        return torch.stack([similarity, self.heads(vectors, mask, targets)])


class EqkinObjective(Objective):
    """The objective of the recipe "eqkin": three teachers, structure, context and words.

    A batch has anchors, partners by context, and structural neighbours of the anchors. Equations of the same paper are
    never negatives of each other: they are near-duplicates, and contrasting them teaches authorship, not content.
    Masking, renaming and word dropout keep the network from memorising its equations, which takes about ten epochs.
    """

    parts = ("structure", "context", "words")

    def _build_losses(self) -> None:
        assert self.data.teachers is not None
        recipe, tables = self.recipe, self.data.teachers.words
        self.words = WordLoss(tables, recipe.architecture.dimensions, seed=recipe.seed) if tables else None

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the three losses times their weights; see `Objective.forward`."""
        recipe, teachers = self.recipe, self.data.teachers
        assert teachers is not None
        vectors, batch, _, _ = self._encode_nodes(trees, nodes, step)
        # Embeddings of "sum" have other lengths.
        embeddings = functional.normalize(self.network.pool(vectors, batch.trees), dim=1)
        paper = teachers.paper[trees]
        same_paper = paper[:, None] == paper
        structure, context, words = embeddings.new_zeros(3).unbind()
        if recipe.structure_weight:
            teacher = teachers.terms.to_dense(trees, self.dtype)
            structure = compute_structure_loss(embeddings, teacher, same_paper, recipe.temperature)
        if recipe.context_weight:
            anchor, partner, _ = embeddings.chunk(3)
            anchor_paper, partner_paper, _ = paper.chunk(3)
            context = compute_context_loss(anchor, partner, anchor_paper, partner_paper)
        if self.words is not None:
            words = self.words(embeddings, trees, same_paper, step)
        return torch.stack(
            [recipe.structure_weight * structure, recipe.context_weight * context, recipe.words_weight * words]
        )


def build_objective(recipe: Recipe, data: TrainingData, dtype: torch.dtype) -> Objective:
    """Build the objective of a recipe."""
    kind = PaperObjective if data.teachers is None else EqkinObjective
    return kind(recipe, data, dtype)
