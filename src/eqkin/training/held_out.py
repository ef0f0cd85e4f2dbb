"""The ranking score on papers that were kept apart (paper, sections 5 and 6).

Triples are drawn from the held-out papers as they are for learning. One is ranked right if the anchor is more similar
(inner product of the embeddings) to its partner than to the negative.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from eqkin.encoder.torch_network import TreeNetwork
from eqkin.errors import BadInput
from eqkin.statistics import RankingScore, score_ranking
from eqkin.training.corpus import Corpus
from eqkin.training.pairs import TripletSampler
from eqkin.training.recipes import Recipe
from eqkin.training.resident import DeviceBatch, DeviceForest
from eqkin.trees import Vocabulary

_NODES = {"cuda": 200_000, "cpu": 4_000}  # of a batch to embed


class HeldOutEvaluator:
    """Held-out papers on a device.

    Args:
        corpus: The papers.
        vocabulary: The one the network learned with.
        recipe: Which contexts count as related.
        device: Where to compute.

    Raises:
        BadInput: No triple can be drawn from the papers.
    """

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, recipe: Recipe, device: torch.device) -> None:
        self._paper = corpus.paper
        self._resident = DeviceForest(corpus.forest, vocabulary, device)
        try:
            self._sampler = TripletSampler(corpus, kinds=recipe.contexts, seed=recipe.seed, device=device)
        except BadInput as error:
            held = f"the {len(corpus.papers):,} held-out papers are too few to measure on"
            raise BadInput(f"{held} ({error}): hold out more, or others with another split_seed") from error

    def embed_all(self, network: TreeNetwork) -> Tensor:
        """Embeddings of all equations of these papers, in the order of the corpus."""
        return embed_trees(network, self._resident, torch.arange(len(self._resident), device=self._resident.device))

    def score(self, network: TreeNetwork, triples: int) -> RankingScore:
        """The ranking score on the first `triples` of a fixed sequence of triples, with its interval."""
        zero = torch.zeros(1, 1, dtype=torch.int64, device=self._resident.device)
        drawn = self._sampler.draw(zero, triples).concatenate().view(3, triples)
        trees, place = torch.unique(drawn, return_inverse=True)
        vectors = embed_trees(network, self._resident, trees)
        anchor, partner, negative = vectors[place]
        papers = self._paper[drawn.T.cpu().numpy()]
        return score_ranking(_compute_products(anchor, partner), _compute_products(anchor, negative), papers)


def _compute_products(one: Tensor, other: Tensor) -> npt.NDArray[np.float32]:
    products: npt.NDArray[np.float32] = (one * other).sum(1).cpu().numpy()
    return products


@torch.no_grad()
def embed_trees(network: TreeNetwork, resident: DeviceForest, trees: Tensor) -> Tensor:
    """Embeddings of some trees as a search would have them: running statistics, nothing hidden or renamed."""
    learning = network.training
    network.eval()
    try:
        parts = [
            network(resident.build_features(batch, torch.float32), batch.trees)
            for batch in iter_batches(resident, trees)
        ]
    finally:
        network.train(learning)
    return torch.cat([torch.zeros(0, network.architecture.dimensions, device=resident.device), *parts])


def iter_batches(resident: DeviceForest, trees: Tensor) -> Iterator[DeviceBatch]:
    """Some trees in order, in batches that suit the device."""
    ends = resident.get_sizes(trees).cumsum(0).cpu().numpy()
    room = _NODES[resident.device.type]
    first = done = 0
    while first < len(trees):
        last = max(int(np.searchsorted(ends, done + room, side="right")), first + 1)
        nodes = torch.arange(int(ends[last - 1]) - done, device=resident.device)
        yield resident.collate(trees[first:last], nodes)
        first, done = last, int(ends[last - 1])
