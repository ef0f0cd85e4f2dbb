"""Equalities (paper, section 6.4): find the other side of an equality, finetuned on others.

The pairs come from the half of the works that no network was trained on. Half of them, by work, are for finetuning, the
rest for testing: every side queries for its partner among all sides of the test half. Search is exact, by cosine; the
query is not in the list, ties count against it. All networks have the same pairs, batches, number of steps and learning
rates to choose from on a tenth of the training half.

The test of the paper's graph network, and only that one, drew the test pairs with replacement and dropped only the
first hit, so that a query could find its own copy. A system with recalls r prints about

    .264 + .368 r1,   .368 + .632 r10,   .368 + .632 r100

by that protocol: a query has c ~ Poisson(1) copies, it is first among them with probability 1 / (c + 1), and otherwise
it is counted as found.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from eqkin.evaluation.context import FULL_SCALE, compute_digest
from eqkin.evaluation.equalities import PairSet
from torch import Tensor, nn
from torch.nn import functional

from eqkin.evaluation.measures import compute_mrr, compute_partner_ranks, find_hits
from eqkin.formulas import Forest
from eqkin.formulas.normal import label_nodes
from eqkin.learning.config import get_recipe
from eqkin.learning.finetuning import FinetuningConfig, GraphTower, Integers, Tower, finetune
from eqkin.learning.tree_ops import TreeBatch, average_trees
from research.bitmaps import compute_forest_digest
from research.networks import NETWORKS, NetworkRunner, TrainedNetwork
from research.transformer import TransformerNetwork, TreeSequences
from research.triples import pack_bits

DEPTHS = (1, 10, 100)
SETS = {"equalities": "Equalities", "relations": "Relations", "inequalities": "Inequalities"}  # in the paper's order
BATCH_SIZE = 1_024
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
TRANSFORMER_RATES = RATES[:3]  # slower to finetune; larger ones were never chosen
BAG_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of a single matrix
STEPS, SWEEP_STEPS = 300, 1_000
BAG_DIMENSIONS = 256  # the best of the paper's three for its bag of words
OUTPUTS = {"head": "{} numbers", "wide": "256 numbers, new", "mean": "mean of nodes"}
WIDE_DIMENSIONS = 256
BAG = "bag-of-words"
SWEPT_BATCHES = (128, 256, 512, 1_024, 2_048, 4_096)
SEED = 0


@dataclass(frozen=True)
class Finetuning:
    """What is finetuned, and how."""

    network: str  # of `NETWORKS`, or BAG
    output: str = "head"
    batch: int = BATCH_SIZE
    steps: int = STEPS
    rates: tuple[float, ...] = RATES

    @property
    def title(self) -> str:
        """For tables."""
        if self.network == BAG:
            return "Bag of words"
        settings = NETWORKS[self.network]
        dimensions = get_recipe(settings.recipe).architecture.dimensions
        return f"{settings.title}, {OUTPUTS[self.output].format(dimensions)}"


def _choose_rates(network: str) -> tuple[float, ...]:
    return TRANSFORMER_RATES if NETWORKS[network].kind == "transformer" else RATES


def _scale_rates(batch: int) -> tuple[float, ...]:
    """Scale learning rates with the square root of the batch."""
    return tuple(float(f"{rate * math.sqrt(batch / BATCH_SIZE):.2g}") for rate in (3e-4, 1e-3, 3e-3))


FINETUNINGS: dict[str, Finetuning] = {
    **{
        f"{network}-{output}": Finetuning(network, output, rates=_choose_rates(network))
        for network in ("base", "base-no-augmentation", "graph", "transformer")
        for output in OUTPUTS
    },
    **{
        f"{network}-head": Finetuning(network, rates=_choose_rates(network))
        for network in (
            "graph-renamed", "graph-wide", "graph-10", "graph-30",
            "transformer-renamed", "transformer-10", "transformer-30", "eqkin",
        )
    },
    BAG: Finetuning(BAG, rates=BAG_RATES),
    **{
        f"base-batch-{batch}": Finetuning("base", batch=batch, steps=SWEEP_STEPS, rates=_scale_rates(batch))
        for batch in SWEPT_BATCHES
    },
}  # fmt: skip
ON_ALL_SETS = ("graph-head", "transformer-head", BAG)


class BagTower(Tower):
    """A vector for each label, summed over the nodes of a tree: one matrix times a bag of words.

    All labels count. Labels that occur in no training pair keep their random vectors, which still separate formulas.
    """

    def __init__(self, forest: Forest, dimensions: int, seed: int, device: torch.device) -> None:
        super().__init__()
        names, label = label_nodes(forest)
        self._label, self._offsets, self._sizes = label.astype(np.int64), forest.offsets, forest.sizes
        first = torch.randn(len(names), dimensions, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter((first / dimensions**0.5).to(device))

    def forward(self, formulas: Integers) -> Tensor:
        """Compute vectors of some formulas, (formulas, dimensions)."""
        sizes = self._sizes[formulas]
        starts = np.cumsum(sizes) - sizes
        nodes = np.repeat(self._offsets[formulas] - starts, sizes) + np.arange(sizes.sum())
        words, bags = (torch.from_numpy(x).to(self.weight.device) for x in (self._label[nodes], starts))
        return functional.embedding_bag(words, self.weight, bags, mode="sum")


class NodesTower(GraphTower):
    """The mean of the graph network's nodes, or a new linear map of it."""

    def __init__(self, forest: Forest, trained: TrainedNetwork, device: torch.device, output: nn.Module) -> None:
        assert trained.model is not None
        super().__init__(forest, trained.model, device)
        self.output = output.to(device)

    def pool(self, nodes: Tensor, trees: TreeBatch) -> Tensor:
        """Return the vectors of formulas, given those of their nodes."""
        vectors: Tensor = self.output(average_trees(nodes, trees))
        return vectors


class TransformerTower(Tower):
    """The transformer, with its own output, the mean of its nodes, or a new linear map of it."""

    def __init__(self, trees: TreeSequences, network: TransformerNetwork, output: nn.Module | None) -> None:
        super().__init__()
        self.network = network
        self.output = None if output is None else output.to(trees.device)
        self._trees = trees

    def forward(self, formulas: Integers) -> Tensor:
        """Compute vectors of some formulas, (formulas, dimensions)."""
        some = self._trees.make_batch(formulas)
        features = self._trees.trees.build_features(some.batch, self.network.precision)
        nodes = self.network.encode_nodes(features, some)
        if self.output is None:
            return self.network.pool(nodes, some)
        vectors: Tensor = self.output(self.network.average_nodes(nodes, some))
        return vectors


def make_tower(runner: NetworkRunner, setting: Finetuning, forest: Forest) -> Tower:
    """Return the tower before finetuning."""
    device = runner.device
    if setting.network == BAG:
        return BagTower(forest, BAG_DIMENSIONS, SEED, device)
    trained = runner.get_network(setting.network)

    def make_output(width: int) -> nn.Module | None:
        if setting.output == "head":
            return None
        if setting.output == "mean":
            return nn.Identity()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return nn.Linear(width, WIDE_DIMENSIONS)

    if isinstance(trained.network, TransformerNetwork):
        network = trained.network
        trees = TreeSequences(forest, trained.vocabulary, network.shape.longest, device)
        return TransformerTower(trees, copy.deepcopy(network), make_output(network.shape.width))
    model = trained.model
    assert model is not None
    if setting.output == "head":
        return GraphTower(forest, model, device)
    width = model.architecture.pooled_width
    return NodesTower(forest, trained, device, make_output(width) or nn.Identity())


def _describe(runner: NetworkRunner, name: str, pairs: PairSet) -> tuple[dict[str, Any], FinetuningConfig]:
    """Return the cache key and the settings of a finetuning."""
    setting = FINETUNINGS[name]
    steps = max(round(setting.steps * runner.context.scale.epochs / FULL_SCALE.epochs), 1)
    rates = setting.rates if steps == setting.steps else setting.rates[-2:]  # of a small run
    config = FinetuningConfig(min(setting.batch, len(pairs.train)), steps=steps, rates=rates, seed=SEED)
    parts = compute_digest([part.tolist() for part in (pairs.train, pairs.validation, pairs.test)])
    key = {"set": pairs.name, "sides": compute_forest_digest(pairs.pairs.forest), "parts": parts}
    network = None if setting.network == BAG else runner.make_key(setting.network)
    return key | {"setting": asdict(setting), "config": config.to_dict(), "network": network}, config


def measure_finetuning(runner: NetworkRunner, name: str, pair_set: str = "equalities") -> dict[str, Any]:
    """Finetune one of `FINETUNINGS` on a set of pairs and measure it, or return the cached measurement."""
    setting, pairs, context = FINETUNINGS[name], runner.data.pairs[pair_set], runner.context
    key, config = _describe(runner, name, pairs)

    def measure() -> dict[str, Any]:
        runner.check_training(name)
        tower = make_tower(runner, setting, pairs.pairs.forest)
        choice = finetune(
            tower, pairs.get_sides(pairs.train), pairs.get_sides(pairs.validation), compute_mrr, config,
            lambda message: context.log(f"{pair_set}: {name}: {message}"),
        )  # fmt: skip
        vectors = tower.compute_vectors(pairs.get_sides(pairs.test).T.ravel())
        weights = sum(parameter.numel() for parameter in tower.parameters())
        ranks = compute_partner_ranks(vectors)
        hits = {str(depth): pack_bits(find_hits(ranks, depth) > 0) for depth in DEPTHS}
        facts = {"finetuning": name, "set": pair_set, "choice": choice.to_dict(), "weights": weights}
        return facts | {"queries": len(ranks), "hits": hits}

    return context.cache.get_or_measure("equalities", key, measure)


def list_finetunings(network: str) -> list[tuple[str, str]]:
    """List the finetunings of a network, each with its set of pairs, the most important ones first."""
    names = [name for name, setting in FINETUNINGS.items() if setting.network == network]
    more = [(name, pair_set) for pair_set in list(SETS)[1:] for name in names if name in ON_ALL_SETS]
    return [(name, "equalities") for name in names] + more


def print_as_authors(recalls: Mapping[int, float]) -> dict[int, float]:
    """Return what the test code of the paper's graph network would print for a system with these recalls."""
    lost = math.exp(-1)  # a query with no copy
    first = 1 - 2 * lost  # with copies, and second among them
    return {k: first + lost * recall if k == 1 else lost + (1 - lost) * recall for k, recall in recalls.items()}
