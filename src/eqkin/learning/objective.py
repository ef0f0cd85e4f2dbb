"""Objectives: what the recipes minimise, computed for one batch on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.errors import BadInput
from eqkin.formulas import Vocabulary
from eqkin.learning.augmentation import Augmentation, Masking, NodeMask, Renaming
from eqkin.learning.batches import DeviceBatch, DeviceForest
from eqkin.learning.config import NAMES, NOTATIONS, Recipe
from eqkin.learning.data import Corpus
from eqkin.learning.distributed import BATCH_GROUPS, SINGLE_PROCESS, LocalBatch, ProcessGroup, select_rows
from eqkin.learning.losses import (
    ContextLoss,
    HistogramLoss,
    MaskingHeads,
    StructureLoss,
    TermTables,
    TripletLoss,
    WordLoss,
    WordTables,
)
from eqkin.learning.sampling import TripletSampler, find_structural_neighbours
from eqkin.learning.torch_network import build_network


@dataclass(frozen=True)
class TrainingData:
    """The data that a recipe needs on the device."""

    forest: DeviceForest
    sampler: TripletSampler
    teachers: Teachers | None = None  # only for the loss "kin"


@dataclass(frozen=True)
class Teachers:
    """The targets with which the losses of `EqkinObjective` compare embeddings."""

    paper: Tensor  # (trees,) paper of each tree
    terms: TermTables
    words: WordTables | None  # None if the corpus has no words, or the recipe does not use them


def build_training_data(
    corpus: Corpus,
    vocabulary: Vocabulary,
    recipe: Recipe,
    device: torch.device,
    group: ProcessGroup = SINGLE_PROCESS,
) -> TrainingData:
    """Put a corpus on the device; raises `BadInput` if it is too small for the recipe."""
    sampler = TripletSampler(
        corpus,
        kinds=recipe.contexts,
        seed=recipe.seed,
        device=device,
        balance=recipe.balance,
        shares={NOTATIONS: recipe.notations_share, NAMES: recipe.names_share},
    )
    forest = DeviceForest(corpus.forest, vocabulary, device)
    if recipe.loss != "kin":
        return TrainingData(forest, sampler)
    if len(corpus.papers) < 2:
        raise BadInput("this recipe contrasts equations of different papers, but there is only one paper: add more")
    paper = torch.from_numpy(corpus.paper.astype(np.int32)).to(device)
    terms = TermTables(corpus.forest, device)
    words = None
    if recipe.words_weight and corpus.words is not None and len(corpus.words.word):
        words = WordTables(corpus.words, device)
    sampler.structural_neighbours = find_structural_neighbours(terms, paper, group)
    return TrainingData(forest, sampler, Teachers(paper, terms, words))


class Objective(nn.Module):
    """A network and the losses of a recipe.

    Args:
        dtype: Precision of the network's products.
        group: The processes among which batches are divided.
    """

    parts: tuple[str, ...]  # names of the losses

    def __init__(
        self, recipe: Recipe, data: TrainingData, dtype: torch.dtype, group: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        self.recipe, self.data, self.dtype, self.group = recipe, data, dtype, group
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = build_network(recipe.architecture)
            self._build_losses()
        self.to(data.forest.device)
        if not group.is_single:
            self.network.share_statistics(group.all_reduce)
        self._masking = Masking(recipe.masking, seed=recipe.seed) if recipe.masking else None
        self._augmentation = None
        if recipe.transpositions and recipe.renamed:
            self._augmentation = Augmentation(
                recipe.transpositions, seed=recipe.seed, device=data.forest.device, share=recipe.renamed
            )

    def _build_losses(self) -> None:
        """Build the losses; their parameters are drawn after those of the network."""
        raise NotImplementedError

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the losses in the order of `parts`; of several processes, their results sum to those of the batch.

        Args:
            trees: Anchors, partners and negatives of all processes, (3 x batch,).
            nodes: 0, 1, ..., at least as many as the trees of this process have nodes.
            step: Number of the step, which determines the augmentation.
        """
        raise NotImplementedError

    def _encode_nodes(
        self, local: LocalBatch, nodes: Tensor, step: Tensor
    ) -> tuple[Tensor, DeviceBatch, NodeMask | None, Renaming | None]:
        """Return the vectors of this process's nodes after augmentation, with the batch and its augmentation."""
        forest = self.data.forest
        batch = forest.collate(local.trees, nodes)
        positions = local.compute_positions(nodes, batch.trees)
        renaming = self._augmentation.draw(step, len(local.trees), local.rows) if self._augmentation else None
        mask = self._masking.draw(step, nodes, batch.trees.node_count, positions) if self._masking else None
        features = forest.build_features(batch, self.dtype, renaming=renaming, mask=mask)
        return self.network.encode_nodes(features, batch.trees), batch, mask, renaming

    def get_extra_weights(self) -> dict[str, Tensor]:
        """Return weights to store with those of the network."""
        return {}


class PaperObjective(Objective):
    """The paper's objective: a loss of similarities plus the masking task."""

    parts = ("similarity", "masking")

    def _build_losses(self) -> None:
        self.heads = MaskingHeads(self.recipe.architecture.width)
        self._histogram_loss = HistogramLoss(mean=None if self.group.is_single else self.group.all_reduce_mean)
        self._triplet_loss = TripletLoss()

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return both losses; see `Objective.forward`."""
        local = LocalBatch.from_batch(trees, self.data.forest.get_sizes, self.group)
        vectors, batch, mask, renaming = self._encode_nodes(local, nodes, step)
        anchor, partner, negative = self.network.pool(vectors, batch.trees).chunk(BATCH_GROUPS)
        if self.recipe.loss == "triplet":
            similarity = self._triplet_loss(anchor, partner, negative)
        else:
            similarity = self._histogram_loss(anchor, partner, self.group.all_gather(negative))
        similarity = similarity / self.group.size
        if mask is None:
            return torch.stack([similarity, torch.zeros_like(similarity)])
        targets = self.data.forest.build_masking_targets(batch, mask.nodes, renaming)
        return torch.stack([similarity, self.heads(vectors, mask, targets, self.group.all_reduce(mask.count))])

    def get_extra_weights(self) -> dict[str, Tensor]:
        """Return the weights of the masking heads."""
        return {f"heads.{name}": tensor for name, tensor in self.heads.state_dict().items()}


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
        self.words = None
        if tables is not None:
            self.words = WordLoss(tables, recipe.architecture.dimensions, seed=recipe.seed)
        self._structure_loss, self._context_loss = StructureLoss(recipe.temperature), ContextLoss()

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the three losses times their weights; see `Objective.forward`."""
        recipe, teachers, group = self.recipe, self.data.teachers, self.group
        assert teachers is not None
        local = LocalBatch.from_batch(trees, self.data.forest.get_sizes, group)
        vectors, batch, _, _ = self._encode_nodes(local, nodes, step)
        own = functional.normalize(self.network.pool(vectors, batch.trees), dim=1)  # "sum" has other lengths
        embeddings = group.all_gather(own, BATCH_GROUPS)
        paper = teachers.paper[trees]
        same_paper = paper[:, None] == paper
        losses = [embeddings.new_zeros(()) for _ in self.parts]
        if recipe.structure_weight:
            teacher = teachers.terms.to_dense(trees, self.dtype)
            structure = self._structure_loss(embeddings, teacher, select_rows(same_paper, local.rows), local.rows)
            losses[0] = recipe.structure_weight * structure / group.size
        if recipe.context_weight:
            anchor, partner, _ = embeddings.chunk(BATCH_GROUPS)
            anchor_paper, partner_paper, _ = paper.chunk(BATCH_GROUPS)
            context = self._context_loss(anchor, partner, anchor_paper, partner_paper)
            losses[1] = recipe.context_weight * context / group.size
        if self.words is not None:
            losses[2] = recipe.words_weight * self.words(embeddings, trees, same_paper, step) / group.size
        return torch.stack(losses)


def build_objective(
    recipe: Recipe, data: TrainingData, dtype: torch.dtype, group: ProcessGroup = SINGLE_PROCESS
) -> Objective:
    """Build the objective of a recipe."""
    kind = EqkinObjective if data.teachers is not None else PaperObjective
    return kind(recipe, data, dtype, group)
