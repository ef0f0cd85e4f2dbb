"""Equalities (paper, section 6.5): find the other side of an equality, without and with finetuning on others.

The pairs come from the half of the works that no network was trained on. Half of them, by work, are for finetuning, the
rest for testing: every side queries for its partner among all sides of the test half. Measurements are cached one by
one, so some may be taken on a machine with a GPU and others where fastText is installed.

The paper: finetuned, the graph network finds the other side among the first ten and hundred more often than the
transformer, a bag of words and fastText, in this order, on all three sets; at the first place all are close.

Differences from the paper: trees are split at relation signs, not LaTeX by regular expressions (`eqkin.evaluation.
equalities`). Pairs are split by work; the paper does not say how. Search is exact, by cosine; the query is not in the
list, ties count against it. Learning rates, epochs and dimensions are chosen for each system on a tenth of the training
half. Batch normalisation keeps the statistics of pretraining while the graph network is finetuned; the one without
pretraining learns them. The transformer normalises before attention and has no dropout; trees are truncated after 256
nodes. Batches of all sizes see the pairs equally often, so large ones take fewer steps. eqkin, which the paper does not
have, adds structural overlap and reranks (`reproduce.reranking`); it is finetuned with one learning rate for at most 12
epochs. Its idf weights were counted over all papers, including those of the pairs. The bag of words keeps a random
vector for labels that occur in no training pair.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.cache import compute_digest
from eqkin.evaluation.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext, drop_text
from eqkin.evaluation.equalities import Integers, NeighbouringSides, PairSet
from eqkin.evaluation.formulas import Float32s, FormulaSet, compute_forest_digest
from eqkin.evaluation.measures import compute_mrr, compute_partner_ranks, find_hits
from eqkin.evaluation.systems.base import EmbeddingSystem
from eqkin.evaluation.systems.networks import UntrainedNetwork, embed_forest
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.statistics import Score, bootstrap_mean
from eqkin.training.data import Corpus
from reproduce.ablation import EQKIN, EQKIN_SEED, FULL, make_recipe, pack_bits, train_variant, unpack_bits
from reproduce.plots import Plot
from reproduce.published import EQUALITIES_ROWS, EQUALITIES_SIZES
from reproduce.reranking import RERANK_DEPTH, EmbeddedSides, describe_structure_settings, rank_with_structure
from reproduce.systems import make_all_systems

if TYPE_CHECKING:
    from eqkin.training.finetuning import FinetuningConfig, Tower

NAME = "equalities"
TITLES = {"equalities": "Equalities", "relations": "Relations", "inequalities": "Inequalities"}  # in the paper's order
DEPTHS = (1, 10, 100)
MAIN_DEPTH = 10  # of differences and plots
BATCH_SIZE = 1_024
NETWORK_RATES = (3e-5, 1e-4, 3e-4, 1e-3)
MATRIX_RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # of a single matrix
EQKIN_RATES = (1e-3,)
EQKIN_EPOCHS = 12
SEED = 0  # of the finetuned network, of initial vectors, and of batches
SWEPT_ENTRIES = ("graph", "bag-of-words")  # whose batch sizes are varied, on the equalities
_COLUMNS = [TableColumn(f"r{depth}", f"R@{depth}") for depth in DEPTHS]


@dataclass(frozen=True)
class EqualitiesEntry:
    """A row of the tables."""

    title: str
    base: str  # name of the system that ranks or is finetuned; empty for one of the ablation's networks
    finetuned: bool


ENTRIES: dict[str, EqualitiesEntry] = {
    "eqkin": EqualitiesEntry("eqkin, reranked by structure", "", True),
    "graph": EqualitiesEntry("Graph network", "", True),
    "graph-fresh": EqualitiesEntry("Graph network, not pretrained", "untrained", True),
    "transformer": EqualitiesEntry("Transformer", "transformer", True),
    "bag-of-words": EqualitiesEntry("Bag of words", "", True),
    "fasttext": EqualitiesEntry("fastText", "fasttext", True),
    "eqkin-as-is": EqualitiesEntry("eqkin, reranked by structure", "", False),
    "graph-as-is": EqualitiesEntry("Graph network", "", False),
    "transformer-as-is": EqualitiesEntry("Transformer", "transformer", False),
    "bag-of-words-as-is": EqualitiesEntry("Bag of words, 256 features", "bag-of-words", False),
    "log-bag-of-words": EqualitiesEntry("Bag of words, log tf-idf", "log-bag-of-words", False),
    "fasttext-as-is": EqualitiesEntry("fastText", "fasttext", False),
    "tfidf-tree": EqualitiesEntry("TF-IDF, 1-3-grams of serialised trees", "tfidf-tree", False),
    "tree-pairs": EqualitiesEntry("Tree pairs, log tf-idf", "tree-pairs", False),
}
# Pairs of entries whose difference is shown: the paper's order, then finetuning and pretraining.
_COMPARISONS = (
    *pairwise(("graph", "transformer", "bag-of-words", "fasttext")),
    ("eqkin", "transformer"), ("eqkin", "eqkin-as-is"), ("graph", "graph-as-is"), ("graph", "graph-fresh"),
    ("transformer", "transformer-as-is"), ("graph", "log-bag-of-words"), ("graph", "tfidf-tree"),
    ("graph", "tree-pairs"),
)  # fmt: skip


class Contestants:
    """All systems of the experiment, fitted when first needed."""

    def __init__(self, context: ExperimentContext, corpus: Corpus) -> None:
        self.context, self._with_text = context, corpus
        self._corpus = drop_text(corpus)  # only eqkin's recipe reads text
        self._train, self.held_out = self._corpus.split(HELD_OUT_FRACTION, SPLIT_SEED)
        self._systems: dict[str, EmbeddingSystem] = {}

    def make_settings(self, batch: int, name: str) -> FinetuningConfig:
        """Make the finetuning settings of an entry."""
        from eqkin.training.finetuning import FinetuningConfig

        epochs = self.context.scale.epochs
        if name == "eqkin":
            return FinetuningConfig(batch=batch, epochs=min(epochs, EQKIN_EPOCHS), rates=EQKIN_RATES, seed=SEED)
        rates = MATRIX_RATES if name in ("bag-of-words", "fasttext") else NETWORK_RATES
        return FinetuningConfig(batch=batch, epochs=epochs, rates=rates, seed=SEED)

    def make_cache_key(self, name: str, batch: int) -> dict[str, Any]:
        """Describe what an entry's figures depend on besides the pairs."""
        entry = ENTRIES[name]
        before: dict[str, Any] = {}
        if name.startswith("eqkin"):
            recipe = make_recipe(EQKIN, EQKIN_SEED, self.context).to_dict()
            before = recipe | {"corpus": self._with_text.digest, "counted": describe_structure_settings()}
        elif name.startswith("graph") and not entry.base:
            before = make_recipe(FULL, SEED, self.context).to_dict() | {"corpus": self._corpus.digest}
        elif entry.base:
            before = self._get_system(entry.base).settings | {"corpus": self._train.digest}
        key = {"entry": name, "before": before}
        return key | {"finetuning": self.make_settings(batch, name).to_dict()} if entry.finetuned else key

    def measure(self, name: str, pairs: PairSet, batch: int) -> dict[str, Any]:
        """Measure which test sides find their partner, at each depth."""
        entry, forest = ENTRIES[name], pairs.pairs.forest
        details = f", batches of {batch:,}" if entry.finetuned else ", not finetuned"
        self.context.log(f"{pairs.name}: {entry.title}{details}")
        choice: dict[str, Any] = {}
        if entry.finetuned:
            from eqkin.training.finetuning import finetune

            tower, chosen = finetune(
                self._make_towers(name, pairs),
                pairs.get_sides(pairs.train),
                pairs.get_sides(pairs.validation),
                compute_mrr,
                self.make_settings(batch, name),
                lambda message: self.context.log(f"{pairs.name}: {entry.title}: {message}"),
            )
            choice = {"choice": chosen.to_dict()}
            encode: Callable[[Integers], Any] = tower.compute_vectors
        elif entry.base:
            system = self._fit_system(entry.base)
            encode = lambda sides: system.encode(FormulaSet(forest.select(sides)))  # noqa: E731
        else:
            model = self._eqkin_model if name == "eqkin-as-is" else self._paper_model
            encode = lambda sides: embed_forest(model, forest.select(sides), self.context.device)  # noqa: E731
        test = pairs.get_sides(pairs.test).T.ravel()
        if name.startswith("eqkin"):
            sides = pairs.get_sides(pairs.validation).T.ravel(), test
            ranks, weights = rank_with_structure(*(EmbeddedSides(forest.select(one), encode(one)) for one in sides))
            choice = {"choice": choice.get("choice", {}) | weights}
        else:
            ranks = compute_partner_ranks(encode(test))
        hits = {str(depth): pack_bits(find_hits(ranks, depth) > 0) for depth in DEPTHS}
        return {"queries": len(ranks), "hits": hits} | choice

    @cached_property
    def _paper_model(self) -> Model:
        return Model.load(train_variant(self.context, self._corpus, FULL, SEED))

    @cached_property
    def _eqkin_model(self) -> Model:
        return Model.load(train_variant(self.context, self._with_text, EQKIN, EQKIN_SEED))

    def _get_system(self, name: str) -> EmbeddingSystem:
        if name not in self._systems:
            made = make_all_systems([name], self.context)[0]
            assert isinstance(made, EmbeddingSystem)
            self._systems[name] = made
        return self._systems[name]

    def _fit_system(self, name: str) -> EmbeddingSystem:
        system = self._get_system(name)
        if system.settings and not system.learned_from:
            self.context.fit(system, self._train)
        return system

    def _make_towers(self, name: str, pairs: PairSet) -> Mapping[str, Callable[[], Tower]]:
        """Make the towers to choose from, before finetuning."""
        from eqkin.training.config import choose_device
        from eqkin.training.finetuning import GraphTower
        from reproduce.towers import DIMENSIONS, BagTower, LinearTower, TransformerTower
        from reproduce.transformer import Transformer

        device, forest, base = choose_device(self.context.device), pairs.pairs.forest, ENTRIES[name].base
        if name == "bag-of-words":
            return {f"{size} dimensions": partial(BagTower, forest, size, SEED, device) for size in DIMENSIONS}
        if not base:
            model = self._eqkin_model if name == "eqkin" else self._paper_model
            return {"network": lambda: GraphTower(forest, model, device)}
        system = self._fit_system(base)
        if isinstance(system, UntrainedNetwork):
            return {"network": lambda: GraphTower(forest, system.model, device, statistics=True)}
        if isinstance(system, Transformer):
            trees = system.prepare_trees(forest)
            return {"network": lambda: TransformerTower(trees, copy.deepcopy(system.network))}
        vectors: Float32s = np.asarray(system.encode(FormulaSet(forest)), np.float32)
        return {f"{size} dimensions": partial(LinearTower, vectors, size, SEED, device) for size in DIMENSIONS}


@dataclass(frozen=True, eq=False)
class EntryHits:
    """Which sides found their partner."""

    entry: str
    batch: int
    found: dict[int, npt.NDArray[np.bool_]]  # by depth; left sides first
    choice: dict[str, Any] = field(default_factory=dict)  # chosen on the validation pairs


class _PairSetMeasurements:
    """Measurements on one set of pairs, and their scores."""

    def __init__(self, contestants: Contestants, pairs: PairSet) -> None:
        self.pairs, self._contestants = pairs, contestants
        self._context = contestants.context
        self._key = {
            "set": pairs.name,
            "sides": compute_forest_digest(pairs.pairs.forest),
            "parts": compute_digest([part.tolist() for part in (pairs.train, pairs.validation, pairs.test)]),
        }

    def measure_entry(self, entry: str, batch: int) -> EntryHits:
        """Measure a system, or return the cached measurement."""
        batch = min(batch, len(self.pairs.train))
        key = self._key | self._contestants.make_cache_key(entry, batch)
        measure = partial(self._contestants.measure, entry, self.pairs, batch)
        kept: dict[str, Any] = self._context.cache.get_or_measure(NAME, key, measure)
        found = {depth: unpack_bits(kept["hits"][str(depth)], kept["queries"]) for depth in DEPTHS}
        return EntryHits(entry, batch, found, kept.get("choice", {}))

    def compute_scores(self, one: EntryHits) -> dict[str, Score | str]:
        """Compute recall at all depths, with intervals over works."""
        return {f"r{depth}": self.compute_mean(one.found[depth]) for depth in DEPTHS}

    def compute_mean(self, values: npt.ArrayLike) -> Score:
        """Compute the mean over sides, with its interval over works."""
        return bootstrap_mean(values, self.pairs.clusters, resamples=self._context.scale.resamples)


def run_equalities(
    context: ExperimentContext, corpus: Corpus, systems: Sequence[str] | None = None, sets: Sequence[str] | None = None
) -> tuple[ExperimentResult, list[Plot]]:
    """Measure some of `ENTRIES` on some of the sets (`TITLES`), by default all.

    One half of the papers is for pretraining, the pairs come from the other. Cached measurements are not repeated: a
    call for some systems on one machine and for all on another, with the same cache, gives the whole result. Raises
    `BadInput` if a name is unknown, there are too few pairs, or what a system needs is not installed.
    """
    for names, known, kind in ((systems, ENTRIES, "system"), (sets, TITLES, "set of pairs")):
        for name in names or ():
            if name not in known:
                raise BadInput(f"unknown {kind} {name!r}; choose from {', '.join(known)}")
    entries = [name for name in ENTRIES if systems is None or name in systems]
    contestants = Contestants(context, corpus)
    held_out = contestants.held_out
    context.log("splitting equations into sides")
    neighbours = NeighbouringSides.read(held_out.forest)
    facts = {
        "corpus": f"{len(corpus):,} equations, digest {corpus.digest[:16]}",
        "pairs from": f"{len(held_out):,} equations of {len(held_out.papers):,} papers",
        "epochs": f"at most {context.scale.epochs}",
        "resamples": f"{context.scale.resamples:,}",
    }
    tables: list[Table] = []
    plots: list[Plot] = []
    for name in TITLES:
        if sets is not None and name not in sets:
            continue
        pairs = PairSet.split(held_out, name, context.scale.pairs, neighbours=neighbours)
        measured = _PairSetMeasurements(contestants, pairs)
        hits = {entry: measured.measure_entry(entry, BATCH_SIZE) for entry in entries}
        tables.append(_make_table(measured, hits))
        comparisons = [(hits[one], hits[other]) for one, other in _COMPARISONS if one in hits and other in hits]
        if comparisons:
            tables.append(_make_differences_table(measured, comparisons))
        facts[name] = (
            f"{len(pairs.pairs):,} pairs from {len(set(pairs.work.tolist()))} works: {len(pairs.train):,} for "
            f"training, {len(pairs.validation):,} for validation, {len(pairs.test):,} for testing"
        )
        batches = [batch for batch in context.scale.batches if batch <= len(pairs.train)]
        swept = [entry for entry in SWEPT_ENTRIES if entry in entries] if name == NAME else []
        sweep = [measured.measure_entry(entry, batch) for entry in swept for batch in batches]
        if sweep:
            table, plot = _make_sweep(measured, sweep)
            tables.append(table)
            plots.append(plot)
    return ExperimentResult(NAME, "Finding the other side of an equality", tables, facts=facts), plots


def _make_table(measured: _PairSetMeasurements, hits: Mapping[str, EntryHits]) -> Table:
    pairs = measured.pairs
    rows = [
        TableRow(_get_title(name), measured.compute_scores(one), note=_format_choice(one)) for name, one in hits.items()
    ]
    caption = (
        f"{2 * len(pairs.test):,} sides query for their partner among {2 * len(pairs.test) - 1:,}; finetuned on "
        f"{len(pairs.train):,} other pairs with batches of {min(BATCH_SIZE, len(pairs.train)):,}. 95 % intervals by "
        f"bootstrap over the {len(set(pairs.clusters.tolist()))} works of the test pairs. The paper's figures are of "
        f"its own {EQUALITIES_SIZES[pairs.name]:,} pairs."
    )
    return Table(f"{NAME}-{pairs.name}", TITLES[pairs.name], _COLUMNS, [*rows, *EQUALITIES_ROWS[pairs.name]], caption)


def _make_differences_table(
    measured: _PairSetMeasurements, comparisons: Sequence[tuple[EntryHits, EntryHits]]
) -> Table:
    rows = []
    for one, other in comparisons:
        points = measured.compute_mean(100.0 * (one.found[MAIN_DEPTH].astype(float) - other.found[MAIN_DEPTH]))
        title = f"{_get_title(one.entry)} − {_get_title(other.entry)}"  # noqa: RUF001
        rows.append(TableRow(title, {"points": points}))
    column = TableColumn("points", f"R@{MAIN_DEPTH}, points", "number", "")
    title = f"{TITLES[measured.pairs.name]}: differences"
    caption = "On the same sides; 95 % intervals by bootstrap over works."
    return Table(f"{NAME}-{measured.pairs.name}-differences", title, [column], rows, caption)


def _make_sweep(measured: _PairSetMeasurements, sweep: Sequence[EntryHits]) -> tuple[Table, Plot]:
    title = f"{TITLES[measured.pairs.name]}: batch size in finetuning"
    rows, series = [], dict[str, dict[float, Score]]()
    for one in sweep:
        scores = measured.compute_scores(one)
        name = ENTRIES[one.entry].title
        rows.append(TableRow(f"{name}, {one.batch:,}", scores, note=_format_choice(one)))
        score = scores[f"r{MAIN_DEPTH}"]
        if isinstance(score, Score):
            series.setdefault(name, {})[float(one.batch)] = score
    caption = "Equal epochs: twice the batch is half the steps. Learning rate and epochs are chosen for each."
    plot = Plot(f"{NAME}-batches", title, f"R@{MAIN_DEPTH}", series, "pairs per batch", log_x=True)
    return Table(f"{NAME}-batches", title, _COLUMNS, rows, caption), plot


def _get_title(name: str) -> str:
    return ENTRIES[name].title + (", finetuned" if ENTRIES[name].finetuned else ", not finetuned")


def _format_choice(one: EntryHits) -> str:
    """Describe what was chosen on the validation pairs."""
    chosen = []
    if "candidate" in one.choice:
        rate, epochs, candidate = (one.choice[name] for name in ("learning_rate", "epochs", "candidate"))
        chosen += [] if candidate == "network" else [candidate]
        chosen += [f"learning rate {rate:g}, epochs {epochs}"] if rate else ["no epoch was better than none"]
    if "counted" in one.choice:
        chosen.append(f"weight of structural overlap {one.choice['counted']:g}, first {RERANK_DEPTH} reranked")
    return ", ".join(chosen)
