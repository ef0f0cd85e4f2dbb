"""What eqkin's own recipe minimises: three teachers, structure, context and words, for one batch on the device.

A batch holds anchors, partners by context, and kin of the anchors by structure. Pairs of one paper are never told
apart: its equations repeat each other, and whoever tells them apart learns the style of authors. Hidden nodes, renamed
letters and left out words keep the network from learning its equations by heart, which it could in some ten epochs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.torch_network import build_network
from eqkin.training.augmentation import Augmentation
from eqkin.training.context_loss import context_loss
from eqkin.training.masking import Masking
from eqkin.training.material import EqkinTrainingData
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup, select_rows
from eqkin.training.recipes import Recipe
from eqkin.training.share import BATCH_GROUPS, LocalBatch
from eqkin.training.structure_teacher import structure_loss
from eqkin.training.word_loss import WordLoss


class EqkinObjective(nn.Module):
    """The network, vectors of words, and the losses of a recipe.

    Args:
        recipe: What to learn.
        material: The trees to learn from, and what is known of them.
        dtype: Precision of the network's products.
        ranks: The processes among which batches are dealt out.
    """

    parts = ("structure", "context", "words")

    def __init__(
        self, recipe: Recipe, material: EqkinTrainingData, dtype: torch.dtype, ranks: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = build_network(recipe.architecture)
            self.words = None
            if material.words:
                self.words = WordLoss(material.words, recipe.architecture.dimensions, seed=recipe.seed, ranks=ranks)
        self.to(material.forest.device)
        if not ranks.is_single:
            self.network.share_statistics(ranks.all_reduce)
        self._recipe, self._material, self._dtype, self._ranks = recipe, material, dtype, ranks
        self._masking = Masking(recipe.masking, seed=recipe.seed) if recipe.masking else None
        self._augmentation = None
        if recipe.transpositions and recipe.renamed:
            self._augmentation = Augmentation(
                recipe.transpositions, seed=recipe.seed, device=material.forest.device, share=recipe.renamed
            )

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """The parts of the loss times their weights, in the order of `parts`.

        Of several processes this one's, which sum to them: each answers for its own rows of the whole batch.

        Args:
            trees: Anchors, partners and kin of all processes one after the other, (3 x batch,).
            nodes: 0, 1, ..., at least as many as this process's trees have nodes.
            step: Number of the step, which decides what is renamed and hidden.
        """
        recipe, material, ranks = self._recipe, self._material, self._ranks
        share = LocalBatch.from_batch(trees, material.forest, ranks)
        embeddings = ranks.all_gather(self._embed(share, nodes, step), BATCH_GROUPS)
        paper = material.paper[trees]
        same = select_rows(paper, share.rows)[:, None] == paper
        parts = [embeddings.new_zeros(()) for _ in self.parts]
        if recipe.structure_weight:
            teacher = material.structure.to_dense(trees, self._dtype)
            taught = structure_loss(embeddings, teacher, same, recipe.temperature, share.rows)
            parts[0] = recipe.structure_weight * taught / ranks.size
        if recipe.context_weight:
            anchor, partner, _ = embeddings.chunk(BATCH_GROUPS)
            anchor_paper, partner_paper, _ = paper.chunk(BATCH_GROUPS)
            found = context_loss(anchor, partner, anchor_paper, partner_paper, share.anchors)
            parts[1] = recipe.context_weight * found / ranks.size
        if self.words is not None:
            parts[2] = recipe.words_weight * self.words(embeddings, share.trees, same, step, share.rows)
        return torch.stack(parts)

    def _embed(self, share: LocalBatch, nodes: Tensor, step: Tensor) -> Tensor:
        """Of this process's trees, with nodes hidden and letters renamed; of length 1."""
        resident = self._material.forest
        batch = resident.collate(share.trees, nodes)
        places = share.compute_positions(nodes, batch.trees)
        renaming = self._augmentation.draw(step, len(share.trees), share.rows) if self._augmentation else None
        mask = self._masking.draw(step, nodes, batch.trees.node_count, places) if self._masking else None
        features = resident.build_features(batch, self._dtype, renaming=renaming, mask=mask)
        pooled = self.network.pool(self.network.encode_nodes(features, batch.trees), batch.trees)
        return functional.normalize(pooled, dim=1)  # networks of another kind have other lengths

    def get_extra_weights(self) -> dict[str, Tensor]:
        """Weights to keep beside the network's: none."""
        return {}
