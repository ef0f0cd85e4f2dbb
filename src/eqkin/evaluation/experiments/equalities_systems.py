"""Who takes part in the experiment with equalities: what is finetuned, and what ranks as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.experiments.ablated import EQKIN, EQKIN_SEED, FULL, make_recipe, train_variant
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.equalities_counted import (
    EmbeddedSides,
    describe_structure_settings,
    rank_with_structure,
)
from eqkin.evaluation.metrics.other_sides import compute_mrr, compute_partner_ranks
from eqkin.evaluation.metrics.recall import find_hits
from eqkin.evaluation.sets.pairs import Integers, PairSet
from eqkin.evaluation.sets.triples import pack_bits
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet
from eqkin.evaluation.systems.embedding import embed_forest
from eqkin.evaluation.systems.registry import make_systems
from eqkin.training.data import Corpus

if TYPE_CHECKING:
    from eqkin.training.finetuning import FinetuningConfig, Tower

DEPTHS = (1, 10, 100)
BATCH_SIZE = 1_024
NETWORK_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
MATRIX_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of one matrix that learns from nothing, or on top of what stays
EQKIN_RATES = (1e-3,)  # eqkin's network has nothing to choose from,
EQKIN_EPOCHS = 12  # and learns for fewer epochs
SEED = 0  # of the network that is finetuned, of first vectors, and of batches


@dataclass(frozen=True)
class EqualitiesEntry:
    """A line of the tables."""

    title: str
    base: str  # the name, in the registry, of what is finetuned or ranks; empty: one of the ablation's networks
    finetuned: bool
    paper: str = ""  # title of the paper's row


ENTRIES: dict[str, EqualitiesEntry] = {
    "eqkin": EqualitiesEntry("eqkin, re-ranked by structure", "", True),
    "graph": EqualitiesEntry("Graph network", "", True, "Graph-CNN"),
    "graph-fresh": EqualitiesEntry("Graph network, not pretrained", "untrained", True),
    "transformer": EqualitiesEntry("Transformer", "transformer", True, "Transformer"),
    "bag-of-words": EqualitiesEntry("Bag of words", "", True, "Bag of words"),
    "fasttext": EqualitiesEntry("fastText", "fasttext", True, "fastText"),
    "eqkin-as-is": EqualitiesEntry("eqkin, re-ranked by structure", "", False),
    "graph-as-is": EqualitiesEntry("Graph network", "", False),
    "transformer-as-is": EqualitiesEntry("Transformer", "transformer", False),
    "bag-of-words-as-is": EqualitiesEntry("Bag of words, 256 features", "bag-of-words", False),
    "log-bag-of-words": EqualitiesEntry("Bag of words, log tf-idf", "log-bag-of-words", False),
    "fasttext-as-is": EqualitiesEntry("fastText", "fasttext", False),
    "tfidf-tree": EqualitiesEntry("TF-IDF, 1-3-grams of serialised trees", "tfidf-tree", False),
    "tree-pairs": EqualitiesEntry("Tree pairs, log tf-idf", "tree-pairs", False),
}


def get_learning_rates(name: str) -> tuple[float, ...]:
    """The learning rates an entry has to choose from, smallest first."""
    if name == "eqkin":
        return EQKIN_RATES
    return MATRIX_RATES if name in ("bag-of-words", "fasttext") else NETWORK_RATES


class Contestants:
    """Everyone who takes part, learning when first needed.

    Args:
        context: The surroundings.
        corpus: All papers; the ablation's networks part it in the same halves.
        learn: The half to learn from.
        words: All papers with the words around equations, for eqkin's recipe.
    """

    def __init__(self, context: ExperimentContext, corpus: Corpus, learn: Corpus, words: Corpus) -> None:
        self.context, self._corpus, self._learn, self._words = context, corpus, learn, words
        self._systems: dict[str, EmbeddingSystem] = {}

    def make_settings(self, batch: int, name: str) -> FinetuningConfig:
        """How an entry is finetuned."""
        from eqkin.training.finetuning import FinetuningConfig

        epochs = min(self.context.scale.epochs, EQKIN_EPOCHS) if name == "eqkin" else self.context.scale.epochs
        return FinetuningConfig(batch=batch, epochs=epochs, rates=get_learning_rates(name), seed=SEED)

    def make_cache_key(self, name: str, batch: int) -> dict[str, Any]:
        """What an entry's figures depend on beside the pairs."""
        entry = ENTRIES[name]
        if name.startswith("eqkin"):
            recipe = make_recipe(EQKIN, EQKIN_SEED, self.context).to_dict()
            before: dict[str, Any] = recipe | {"corpus": self._words.digest, "counted": describe_structure_settings()}
        elif name.startswith("graph") and not entry.base:
            before = make_recipe(FULL, SEED, self.context).to_dict() | {"corpus": self._corpus.digest}
        elif entry.base:
            before = self._get_system(entry.base).settings | {"corpus": self._learn.digest}
        else:
            before = {}
        own = {"entry": name, "before": before}
        return own | {"finetuning": self.make_settings(batch, name).to_dict()} if entry.finetuned else own

    def measure(self, name: str, pairs: PairSet, batch: int) -> dict[str, Any]:
        """Which sides to test on find their other side, at each depth."""
        entry = ENTRIES[name]
        self.context.log(f"{pairs.name}: {entry.title}{f', batches of {batch:,}' if entry.finetuned else ' as it is'}")
        if entry.finetuned:
            from eqkin.training.finetuning import finetune

            tower, choice = finetune(
                self._make_towers(name, pairs),
                pairs.get_sides(pairs.train),
                pairs.get_sides(pairs.validation),
                compute_mrr,
                self.make_settings(batch, name),
                lambda message: self.context.log(f"{pairs.name}: {entry.title}: {message}"),
            )
            if name == "eqkin":
                return _measure_with_structure(pairs, tower.compute_vectors, choice.to_dict())
            found = compute_partner_ranks(tower.compute_vectors(pairs.get_sides(pairs.test).T.ravel()))
            return _pack_hits(found) | {"choice": choice.to_dict()}
        if name == "eqkin-as-is":
            forest = pairs.pairs.forest
            return _measure_with_structure(
                pairs, lambda sides: embed_forest(self._eqkin_model, forest.select(sides), self.context.device)
            )
        formulas = FormulaSet(pairs.test_pairs.forest)
        if entry.base:
            return _pack_hits(compute_partner_ranks(self._fit_system(entry.base).encode(formulas)))
        return _pack_hits(compute_partner_ranks(embed_forest(self._paper_model, formulas.forest, self.context.device)))

    @cached_property
    def _paper_model(self) -> Model:
        return Model.load(train_variant(self.context, self._corpus, FULL, SEED))

    @cached_property
    def _eqkin_model(self) -> Model:
        return Model.load(train_variant(self.context, self._words, EQKIN, EQKIN_SEED))

    def _get_system(self, name: str) -> EmbeddingSystem:
        if name not in self._systems:
            made = make_systems([name], self.context)[0]
            if not isinstance(made, EmbeddingSystem):
                raise BadInput(f"{name} gives no vectors")
            self._systems[name] = made
        return self._systems[name]

    def _fit_system(self, name: str) -> EmbeddingSystem:
        system = self._get_system(name)
        if system.settings and not system.learned_from:
            self.context.fit(system, self._learn)
        return system

    def _make_towers(self, name: str, pairs: PairSet) -> Mapping[str, Callable[[], Tower]]:
        """What there is to choose from: towers as they are before finetuning."""
        from eqkin.evaluation.systems.networks import UntrainedNetwork
        from eqkin.evaluation.systems.towers import DIMENSIONS, BagTower, LinearTower, TransformerTower
        from eqkin.evaluation.systems.transformer import Transformer
        from eqkin.training.config import choose_device
        from eqkin.training.finetuning import GraphTower

        device, forest, base = choose_device(self.context.device), pairs.pairs.forest, ENTRIES[name].base
        if name == "bag-of-words":
            return {f"{d} dimensions": lambda d=d: BagTower(forest, d, SEED, device) for d in DIMENSIONS}  # type: ignore[misc]
        if not base:
            model = self._eqkin_model if name == "eqkin" else self._paper_model
            return {"network": lambda: GraphTower(forest, model, device)}
        system = self._fit_system(base)
        if isinstance(system, UntrainedNetwork):
            return {"network": lambda: GraphTower(forest, system.model, device, statistics=True)}
        if isinstance(system, Transformer):
            trees = system.prepare_trees(forest)
            return {"network": lambda: TransformerTower(trees, copy.deepcopy(system.network))}
        vectors = np.asarray(system.encode(FormulaSet(forest)), np.float32)
        return {f"{d} dimensions": lambda d=d: LinearTower(vectors, d, SEED, device) for d in DIMENSIONS}  # type: ignore[misc]


def _measure_with_structure(
    pairs: PairSet, vectors: Callable[[Integers], Floats], choice: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What vectors and counted structure find together; `vectors` are of sides by their numbers."""
    check, test = (
        EmbeddedSides(pairs.pairs.forest.select(sides), vectors(sides))
        for sides in (pairs.get_sides(part).T.ravel() for part in (pairs.validation, pairs.test))
    )
    found, chosen = rank_with_structure(check, test)
    return _pack_hits(found) | {"choice": (choice or {}) | chosen}


def _pack_hits(found: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
    return {"queries": len(found), "hits": {str(depth): pack_bits(find_hits(found, depth) > 0) for depth in DEPTHS}}
