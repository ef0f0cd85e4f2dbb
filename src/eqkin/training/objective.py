"""What the paper's recipe minimises: loss on similarities + loss of the masking task, for one batch on the device."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eqkin.encoder.torch_network import build_network
from eqkin.training.augmentation import Augmentation
from eqkin.training.histogram import histogram_loss
from eqkin.training.masking import Masking, MaskingHeads
from eqkin.training.ranks import SINGLE_PROCESS, ProcessGroup
from eqkin.training.recipes import Recipe
from eqkin.training.resident import DeviceForest
from eqkin.training.share import LocalBatch
from eqkin.training.triplet import triplet_loss


class PaperObjective(nn.Module):
    """The network, its masking heads, and the losses of a recipe.

    Args:
        recipe: What to learn.
        resident: The trees to learn from.
        dtype: Precision of the network's products.
        ranks: The processes among which batches are dealt out.
    """

    parts = ("similarity", "masking")

    def __init__(
        self, recipe: Recipe, resident: DeviceForest, dtype: torch.dtype, ranks: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            self.network = build_network(recipe.architecture)
            self.heads = MaskingHeads(recipe.architecture.width)
        self.to(resident.device)
        if not ranks.is_single:
            self.network.share_statistics(ranks.all_reduce)
        self._resident, self._dtype, self._ranks, self._loss = resident, dtype, ranks, recipe.loss
        self._masking = Masking(recipe.masking, seed=recipe.seed) if recipe.masking else None
        self._augmentation = None
        if recipe.transpositions and recipe.renamed:
            self._augmentation = Augmentation(
                recipe.transpositions, seed=recipe.seed, device=resident.device, share=recipe.renamed
            )

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """The parts of the loss, in the order of `parts`; of several processes this one's, which sum to them.

        Args:
            trees: Anchors, partners and negatives of all processes one after the other, (3 x batch,).
            nodes: 0, 1, ..., at least as many as this process's trees have nodes.
            step: Number of the step, which decides what is renamed and hidden.
        """
        resident = self._resident
        share = LocalBatch.from_batch(trees, resident, self._ranks)
        batch = resident.collate(share.trees, nodes)
        places = share.compute_positions(nodes, batch.trees)
        renaming = self._augmentation.draw(step, len(share.trees), share.rows) if self._augmentation else None
        mask = self._masking.draw(step, nodes, batch.trees.node_count, places) if self._masking else None
        features = resident.build_features(batch, self._dtype, renaming=renaming, mask=mask)
        vectors = self.network.encode_nodes(features, batch.trees)
        similarity = self._compute_similarity_loss(*self.network.pool(vectors, batch.trees).chunk(3)) / self._ranks.size
        if mask is None:
            return torch.stack([similarity, torch.zeros_like(similarity)])
        answers = resident.build_masking_targets(batch, mask.nodes, renaming)
        return torch.stack([similarity, self.heads(vectors, mask, answers, self._ranks.all_reduce(mask.count))])

    def _compute_similarity_loss(self, anchor: Tensor, partner: Tensor, negative: Tensor) -> Tensor:
        """The loss on similarities, such that its mean over the processes is that of the whole batch."""
        if self._loss == "triplet":
            return triplet_loss(anchor, partner, negative)
        return histogram_loss(anchor, partner, self._ranks.all_gather(negative), mean=self._ranks.all_reduce_mean)

    def get_extra_weights(self) -> dict[str, Tensor]:
        """Weights to keep beside the network's: those of the masking heads, by name."""
        return {f"heads.{name}": tensor for name, tensor in self.heads.state_dict().items()}
