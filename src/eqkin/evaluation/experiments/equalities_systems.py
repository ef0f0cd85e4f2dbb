"""Who takes part in the experiment with equalities: what is finetuned, and what ranks as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.ablated import FULL, OWN, OWN_SEED, learned, recipe_of
from eqkin.evaluation.experiments.context import Context
from eqkin.evaluation.experiments.equalities_counted import Sides, found_by_both, how_counted
from eqkin.evaluation.metrics.other_sides import places, reciprocal_rank
from eqkin.evaluation.metrics.recall import hits
from eqkin.evaluation.sets.pairs import Integers, PairSet
from eqkin.evaluation.sets.triples import packed
from eqkin.evaluation.systems.base import Embedding, Floats, Formulas
from eqkin.evaluation.systems.embedding import embed
from eqkin.evaluation.systems.registry import systems
from eqkin.learning.corpus import Corpus
from eqkin.network.model_files import Model

if TYPE_CHECKING:
    from eqkin.learning.finetuning import Settings
    from eqkin.learning.towers import Tower

DEPTHS = (1, 10, 100)
BATCH = 1_024
NETWORK_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
MATRIX_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of one matrix that learns from nothing, or on top of what stays
OWN_RATES = (1e-3,)  # eqkin's network has nothing to choose from,
OWN_EPOCHS = 12  # and learns for fewer epochs
SEED = 0  # of the network that is finetuned, of first vectors, and of batches


@dataclass(frozen=True)
class Entry:
    """A line of the tables."""

    title: str
    base: str  # the name, in the registry, of what is finetuned or ranks; empty: one of the ablation's networks
    finetuned: bool
    paper: str = ""  # title of the paper's row


ENTRIES: dict[str, Entry] = {
    "eqkin": Entry("eqkin, re-ranked by structure", "", True),
    "graph": Entry("Graph network", "", True, "Graph-CNN"),
    "graph-fresh": Entry("Graph network, not pretrained", "untrained", True),
    "transformer": Entry("Transformer", "transformer", True, "Transformer"),
    "bag-of-words": Entry("Bag of words", "", True, "Bag of words"),
    "fasttext": Entry("fastText", "fasttext", True, "fastText"),
    "eqkin-as-is": Entry("eqkin, re-ranked by structure", "", False),
    "graph-as-is": Entry("Graph network", "", False),
    "transformer-as-is": Entry("Transformer", "transformer", False),
    "bag-of-words-as-is": Entry("Bag of words, 256 features", "bag-of-words", False),
    "log-bag-of-words": Entry("Bag of words, log tf-idf", "log-bag-of-words", False),
    "fasttext-as-is": Entry("fastText", "fasttext", False),
    "tfidf-tree": Entry("TF-IDF, 1-3-grams of serialised trees", "tfidf-tree", False),
    "tree-pairs": Entry("Tree pairs, log tf-idf", "tree-pairs", False),
}


def rates_of(name: str) -> tuple[float, ...]:
    """The learning rates an entry has to choose from, smallest first."""
    if name == "eqkin":
        return OWN_RATES
    return MATRIX_RATES if name in ("bag-of-words", "fasttext") else NETWORK_RATES


class Field:
    """Everyone who takes part, learning when first needed.

    Args:
        context: The surroundings.
        corpus: All papers; the ablation's networks part it in the same halves.
        learn: The half to learn from.
        words: All papers with the words around equations, for eqkin's recipe.
    """

    def __init__(self, context: Context, corpus: Corpus, learn: Corpus, words: Corpus) -> None:
        self.context, self._corpus, self._learn, self._words = context, corpus, learn, words
        self._systems: dict[str, Embedding] = {}

    def settings(self, batch: int, name: str) -> Settings:
        """How an entry is finetuned."""
        from eqkin.learning.finetuning import Settings

        epochs = min(self.context.scale.epochs, OWN_EPOCHS) if name == "eqkin" else self.context.scale.epochs
        return Settings(batch=batch, epochs=epochs, rates=rates_of(name), seed=SEED)

    def key(self, name: str, batch: int) -> dict[str, Any]:
        """What an entry's figures depend on beside the pairs."""
        entry = ENTRIES[name]
        if name.startswith("eqkin"):
            recipe = recipe_of(OWN, OWN_SEED, self.context).as_dict()
            before: dict[str, Any] = recipe | {"corpus": self._words.digest, "counted": how_counted()}
        elif name.startswith("graph") and not entry.base:
            before = recipe_of(FULL, SEED, self.context).as_dict() | {"corpus": self._corpus.digest}
        elif entry.base:
            before = self._system(entry.base).settings | {"corpus": self._learn.digest}
        else:
            before = {}
        own = {"entry": name, "before": before}
        return own | {"finetuning": self.settings(batch, name).as_dict()} if entry.finetuned else own

    def measure(self, name: str, pairs: PairSet, batch: int) -> dict[str, Any]:
        """Which sides to test on find their other side, at each depth."""
        entry = ENTRIES[name]
        self.context.tell(f"{pairs.name}: {entry.title}{f', batches of {batch:,}' if entry.finetuned else ' as it is'}")
        if entry.finetuned:
            from eqkin.learning.finetuning import finetune

            tower, choice = finetune(
                self._candidates(name, pairs),
                pairs.sides(pairs.learn),
                pairs.sides(pairs.check),
                reciprocal_rank,
                self.settings(batch, name),
                lambda message: self.context.tell(f"{pairs.name}: {entry.title}: {message}"),
            )
            if name == "eqkin":
                return _by_both(pairs, tower.vectors, choice.as_dict())
            found = places(tower.vectors(pairs.sides(pairs.test).T.ravel()))
            return _hits(found) | {"choice": choice.as_dict()}
        if name == "eqkin-as-is":
            forest = pairs.pairs.forest
            return _by_both(pairs, lambda sides: embed(self._own, forest.select(sides), self.context.device))
        formulas = Formulas(pairs.tested.forest)
        if entry.base:
            return _hits(places(self._fitted(entry.base).encode(formulas)))
        return _hits(places(embed(self._network, formulas.forest, self.context.device)))

    @cached_property
    def _network(self) -> Model:
        return Model.load(learned(self.context, self._corpus, FULL, SEED))

    @cached_property
    def _own(self) -> Model:
        return Model.load(learned(self.context, self._words, OWN, OWN_SEED))

    def _system(self, name: str) -> Embedding:
        if name not in self._systems:
            made = systems([name], self.context)[0]
            if not isinstance(made, Embedding):
                raise BadInput(f"{name} gives no vectors")
            self._systems[name] = made
        return self._systems[name]

    def _fitted(self, name: str) -> Embedding:
        system = self._system(name)
        if system.settings and not system.learned_from:
            self.context.fit(system, self._learn)
        return system

    def _candidates(self, name: str, pairs: PairSet) -> Mapping[str, Callable[[], Tower]]:
        """What there is to choose from: towers as they are before finetuning."""
        from eqkin.evaluation.systems.networks import Untrained
        from eqkin.evaluation.systems.towers import DIMENSIONS, BagTower, LinearTower, TransformerTower
        from eqkin.evaluation.systems.transformer import Transformer
        from eqkin.learning.run import chosen_device
        from eqkin.learning.towers import GraphTower

        device, forest, base = chosen_device(self.context.device), pairs.pairs.forest, ENTRIES[name].base
        if name == "bag-of-words":
            return {f"{d} dimensions": lambda d=d: BagTower(forest, d, SEED, device) for d in DIMENSIONS}  # type: ignore[misc]
        if not base:
            model = self._own if name == "eqkin" else self._network
            return {"network": lambda: GraphTower(forest, model, device)}
        system = self._fitted(base)
        if isinstance(system, Untrained):
            return {"network": lambda: GraphTower(forest, system.model, device, statistics=True)}
        if isinstance(system, Transformer):
            trees = system.trees(forest)
            return {"network": lambda: TransformerTower(trees, copy.deepcopy(system.network))}
        vectors = np.asarray(system.encode(Formulas(forest)), np.float32)
        return {f"{d} dimensions": lambda d=d: LinearTower(vectors, d, SEED, device) for d in DIMENSIONS}  # type: ignore[misc]


def _by_both(
    pairs: PairSet, vectors: Callable[[Integers], Floats], choice: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What vectors and counted structure find together; `vectors` are of sides by their numbers."""
    check, test = (
        Sides(pairs.pairs.forest.select(sides), vectors(sides))
        for sides in (pairs.sides(part).T.ravel() for part in (pairs.check, pairs.test))
    )
    found, chosen = found_by_both(check, test)
    return _hits(found) | {"choice": (choice or {}) | chosen}


def _hits(found: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
    return {"queries": len(found), "hits": {str(depth): packed(hits(found, depth) > 0) for depth in DEPTHS}}
