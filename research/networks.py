"""All trained networks of the experiments: a table of settings, one function that trains, one that measures.

Every network is trained on one half of the works, or a share of it, and measured on the other half: held-out triples
with negatives of any field, of the anchor's field, and of machine learning alone, and labelled equations.

Settings that the paper's text and its authors' code see differently are explicit. In the formulas, similarities are of
complete trees and the negative histogram has one pair per anchor; in the authors' code, and in eqkin, similarities are
of the masked trees and all anchors meet all negatives. "Fixed" triplets are seen once per epoch, as in the paper.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from eqkin.evaluation.context import FULL_SCALE, HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext, drop_text
from eqkin.evaluation.equalities import NeighbouringSides, PairSet
from torch import Tensor, nn
from torch.nn import functional

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.formulas import Float32s, normalize_rows
from eqkin.evaluation.labelled import LabelledSet, score_labels
from eqkin.formulas import Forest, Vocabulary
from eqkin.learning.batches import DeviceForest
from eqkin.learning.checkpoint import load_checkpoint, save_checkpoint
from eqkin.learning.config import Recipe, choose_device, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.losses import compute_histogram, compute_histogram_loss, compute_triplet_loss
from eqkin.learning.notations import add_related
from eqkin.learning.objective import PaperObjective, TrainingData, build_training_data
from eqkin.learning.sampling import TripletSampler
from eqkin.learning.torch_network import build_network
from eqkin.learning.trainer import RecipeTrainer, RunSettings
from eqkin.storage.files import make_folder
from research.training import train_module
from research.transformer import (
    TransformerNetwork,
    TransformerObjective,
    TransformerShape,
    TreeSequences,
    embed_sequences,
)
from research.triples import FieldSampler, FixedSampler, HeldOutTriples, Integers, pack_bits

ML = "ml"  # the field of machine learning, as in the paper's subset
TRIPLE_SETS = {
    "any": "negatives of any field", "field": "negatives of the same field", ML: "machine learning only",
}  # fmt: skip
CONTEXTS = "section,paper"  # citations are an experiment of their own
_MIN_STEPS = 16  # of a small run, which has smaller batches
_SHARE_SEED = 1


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is trained: the changes to a recipe, the data, and what the formulas leave open."""

    title: str
    changes: dict[str, str] = field(default_factory=dict)
    recipe: str = "paper"
    kind: str = "graph"  # or "transformer"
    triplets: int = 5_000_000  # presentations
    fixed: int = 0  # distinct triplets, seen in epochs; 0: every triplet is new
    negatives: str = "any"  # or "field"
    subset: str = ""  # only papers of this field
    share: float = 1.0  # of the works
    masked: bool = True  # whether similarities are of the masked trees
    all_pairs: bool = True  # whether all anchors meet all negatives in the histogram
    unit: bool = False  # whether embeddings have length 1 in training, instead of the soft norm
    seed: int = 0

    def make_recipe(self, context: ExperimentContext) -> Recipe:
        """Make the recipe at the context's scale."""
        scale = context.scale.triplets / FULL_SCALE.triplets
        changes = {"contexts": CONTEXTS} | self.changes
        if scale < 1:
            changes |= {"width": str(context.scale.width)}
        recipe = get_recipe(self.recipe).override(changes)
        triplets = max(round(self.triplets * scale), 2)
        return replace(
            recipe, triplets=triplets, batch=min(recipe.batch, max(2, triplets // _MIN_STEPS)), seed=self.seed
        )


def _vary(title: str, settings: Mapping[str, Any], **changes: str) -> NetworkSettings:
    return NetworkSettings(title, changes, **settings)


_PAPER: dict[str, Any] = {"triplets": 10_000_000, "fixed": 1_000_000, "negatives": "field"}
_LONG = _PAPER | {"triplets": 20_000_000}  # 20 epochs, as in the paper
_FRESH = _LONG | {"fixed": 0}
_SEED = _PAPER | {"seed": 1}
_SUBSET = _PAPER | {"subset": ML, "triplets": 2_500_000, "fixed": 250_000}
_EQUAL = {"contexts": "paper", "batch": "256", "learning_rate": "3e-4", "transpositions": "0"}
_EQUAL_DATA: dict[str, Any] = {"triplets": 1_500_000, "unit": True}
_OWN: dict[str, Any] = {"recipe": "eqkin", "triplets": 3_000_000}
_OWN_CHANGES = {"width": "512", "notations_share": "0.5", "names_share": "0"}  # as it was when this was run
NETWORKS: dict[str, NetworkSettings] = {
    "full": _vary("Full model", _PAPER),
    "no-histogram": _vary("No histogram loss (triplet)", _PAPER, loss="triplet"),
    "no-masking": _vary("No masking", _PAPER, masking="0"),
    "no-augmentation": _vary("No augmentation", _PAPER, transpositions="0"),
    "full-fresh": _vary("Full model", _FRESH),
    "no-augmentation-fresh": _vary("No augmentation", _FRESH, transpositions="0"),
    "full-seed": _vary("Full model", _SEED),
    "no-augmentation-seed": _vary("No augmentation", _SEED, transpositions="0"),
    "ml": _vary("Full model", _SUBSET),
    "ml-no-augmentation": _vary("No augmentation", _SUBSET, transpositions="0"),
    "full-20": _vary("Full model", _LONG),
    "no-augmentation-20": _vary("No augmentation", _LONG, transpositions="0"),
    "base": _vary("As trained by eqkin", {}),
    "base-no-augmentation": _vary("No augmentation", {}, transpositions="0"),
    "complete-trees": _vary("Similarities of complete trees", {"masked": False}),
    "own-negatives": _vary("One negative per anchor", {"all_pairs": False}),
    "citations": _vary("With citations", {}, contexts="section,paper,citation"),
    "paper-10": _vary("Paper's recipe, 10 %", {"share": 0.1}),
    "paper-30": _vary("Paper's recipe, 30 %", {"share": 0.3}),
    "eqkin-10": _vary("eqkin's recipe, width 512, 10 %", _OWN | {"share": 0.1}, **_OWN_CHANGES),
    "eqkin-30": _vary("eqkin's recipe, width 512, 30 %", _OWN | {"share": 0.3}, **_OWN_CHANGES),
    "eqkin": _vary("eqkin's recipe, width 512", _OWN, **_OWN_CHANGES),
    "graph": _vary("Graph network", _EQUAL_DATA, **_EQUAL),
    "graph-renamed": _vary("Graph network, renamed", _EQUAL_DATA, **_EQUAL | {"transpositions": "32"}),
    "graph-wide": _vary("Graph network, width 1,280", _EQUAL_DATA, **_EQUAL | {"width": "1280"}),
    "graph-10": _vary("Graph network, 10 %", _EQUAL_DATA | {"share": 0.1}, **_EQUAL),
    "graph-30": _vary("Graph network, 30 %", _EQUAL_DATA | {"share": 0.3}, **_EQUAL),
    "transformer": _vary("Transformer", _EQUAL_DATA | {"kind": "transformer"}, **_EQUAL),
    "transformer-renamed": _vary(
        "Transformer, renamed", _EQUAL_DATA | {"kind": "transformer"}, **_EQUAL | {"transpositions": "32"}
    ),
    "transformer-10": _vary("Transformer, 10 %", _EQUAL_DATA | {"kind": "transformer", "share": 0.1}, **_EQUAL),
    "transformer-30": _vary("Transformer, 30 %", _EQUAL_DATA | {"kind": "transformer", "share": 0.3}, **_EQUAL),
}


@dataclass(frozen=True, eq=False)
class ExperimentData:
    """What the networks are trained and measured on."""

    train: Corpus  # with words; only eqkin's recipe reads them
    held_out: Corpus
    fields: dict[str, str]  # field of each paper
    labelled: list[LabelledSet]
    notations: Corpus | None  # rewritten equations of the training half, for eqkin's recipe
    triples: dict[str, HeldOutTriples]
    pairs: dict[str, PairSet]

    @classmethod
    def build(
        cls,
        corpus: Corpus,
        fields: dict[str, str],
        labelled: list[LabelledSet],
        context: ExperimentContext,
        notations: Corpus | None = None,
    ) -> ExperimentData:
        """Split a corpus by work, draw the held-out triples and read the equalities."""
        train, held_out = corpus.split(HELD_OUT_FRACTION, SPLIT_SEED)
        held_out = drop_text(held_out)
        triples = draw_triples(held_out, fields, context.scale.triples)
        neighbours = NeighbouringSides.read(held_out.forest)
        pairs = {}
        for name in ("equalities", "relations", "inequalities"):
            try:
                pairs[name] = PairSet.split(held_out, name, context.scale.pairs, neighbours=neighbours)
            except BadInput as error:
                context.log(str(error))
        if notations is not None:
            own = set(train.papers)
            inside = [paper.split(":", 1)[1].rpartition("#")[0] in own for paper in notations.papers]
            notations = notations.select(np.flatnonzero(inside))
        return cls(train, held_out, fields, labelled, notations, triples, pairs)

    def select(self, settings: NetworkSettings) -> Corpus:
        """Return the papers a network is trained on."""
        corpus = self.train if settings.recipe == "eqkin" else drop_text(self.train)
        if settings.share < 1:
            corpus = corpus.split(settings.share, _SHARE_SEED)[1]
        if settings.subset:
            corpus = corpus.select(np.flatnonzero([self.fields.get(one) == settings.subset for one in corpus.papers]))
        if settings.recipe == "eqkin" and self.notations is not None:
            kept = set(corpus.papers)
            inside = [paper.split(":", 1)[1].rpartition("#")[0] in kept for paper in self.notations.papers]
            corpus = corpus.concatenate(self.notations.select(np.flatnonzero(inside)))
        return corpus


def draw_triples(held_out: Corpus, fields: Mapping[str, str], count: int) -> dict[str, HeldOutTriples]:
    """Draw the held-out triples of all sets."""
    contexts, numbers = tuple(CONTEXTS.split(",")), number_fields(held_out, fields)
    triples = {
        "any": HeldOutTriples(held_out, count, contexts=contexts),
        "field": HeldOutTriples(held_out, count, numbers, contexts),
    }
    subset = np.array([fields.get(paper) == ML for paper in held_out.papers], bool)
    if subset.any():
        triples[ML] = HeldOutTriples(held_out, count, numbers, contexts, papers=subset)
    if len(held_out.citations):
        triples["citation"] = HeldOutTriples(held_out, count, contexts=("citation",))
    return triples


def number_fields(corpus: Corpus, fields: Mapping[str, str]) -> Integers:
    """Return the number of each paper's field."""
    names = np.array([fields.get(paper, "") for paper in corpus.papers])
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


class VariantObjective(PaperObjective):
    """The paper's objective with the choices of `NetworkSettings`."""

    def __init__(self, recipe: Recipe, data: TrainingData, dtype: torch.dtype, settings: NetworkSettings) -> None:
        super().__init__(recipe, data, dtype)
        self._masked, self._all_pairs, self._unit = settings.masked, settings.all_pairs, settings.unit

    def forward(self, trees: Tensor, nodes: Tensor, step: Tensor) -> Tensor:
        """Return the similarity loss and the masking loss."""
        vectors, batch, mask, renaming = self._encode_nodes(trees, nodes, step)
        seen = vectors
        if mask is not None and not self._masked:
            features = self.data.forest.build_features(batch, self.dtype, renaming=renaming)
            seen = self.network.encode_nodes(features, batch.trees)
        embeddings = self.network.pool(seen, batch.trees)
        if self._unit:
            embeddings = functional.normalize(embeddings, dim=1)
        anchor, partner, negative = embeddings.chunk(3)
        if self.recipe.loss == "triplet":
            similarity = compute_triplet_loss(anchor, partner, negative)
        elif self._all_pairs:
            similarity = compute_histogram_loss(anchor, partner, negative)
        else:
            positive, against = (compute_histogram((anchor * other).sum(1)) for other in (partner, negative))
            similarity = (against * positive.cumsum(0)).sum()
        if mask is None:
            return torch.stack([similarity, torch.zeros_like(similarity)])
        targets = self.data.forest.build_masking_targets(batch, mask.nodes, renaming)
        return torch.stack([similarity, self.heads(vectors, mask, targets)])


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network with what it needs to embed formulas."""

    network: nn.Module
    vocabulary: Vocabulary
    settings: NetworkSettings
    facts: dict[str, Any]
    model: Model | None = None  # of a graph network

    def embed(self, forest: Forest, device: torch.device) -> Float32s:
        """Embed trees as the network was trained: with the soft norm, or with length 1."""
        if isinstance(self.network, TransformerNetwork):
            trees = TreeSequences(forest, self.vocabulary, self.network.shape.longest, device)
            vectors = embed_sequences(self.network, trees)
        else:
            vectors = DeviceForest(forest, self.vocabulary, device).embed(self.network).cpu().numpy()  # type: ignore[arg-type]
        return np.asarray(normalize_rows(vectors) if self.settings.unit else vectors, np.float32)


class NetworkRunner:
    """Trains and measures networks; what was measured is kept in the context's cache."""

    def __init__(
        self,
        context: ExperimentContext,
        data: ExperimentData,
        *,
        training: bool = True,
        networks: Mapping[str, NetworkSettings] = NETWORKS,
    ) -> None:
        self.context, self.data, self._training, self._networks = context, data, training, networks
        self.device = choose_device(context.device)
        self._shape = replace(TransformerShape(), layers=context.scale.transformer_layers)

    def make_key(self, name: str) -> dict[str, Any]:
        """Describe everything that a network depends on."""
        settings, notations = self._networks[name], self.data.notations
        recipe = settings.make_recipe(self.context).to_dict()
        key: dict[str, Any] = {"settings": asdict(settings), "recipe": recipe}
        if settings.kind == "transformer":
            key["layers"] = self.context.scale.transformer_layers
        if settings.recipe == "eqkin":
            key["notations"] = notations.digest if notations else None
        return key | {"corpus": drop_text(self.data.train).digest}

    def get_network(self, name: str) -> TrainedNetwork:
        """Return a trained network from the cache, or train it."""
        self.check_training(name)
        is_graph = self._networks[name].kind == "graph"
        train, load = (
            (self._train_graph, self._load_graph) if is_graph else (self._train_transformer, self._load_transformer)
        )
        return load(name, self.context.cache.get_or_fit(name, self.make_key(name), partial(train, name)))

    def check_training(self, name: str) -> None:
        """Raise `BadInput` if this runner only reads what was measured before."""
        if not self._training:
            raise BadInput(f"{name} is not measured yet")

    def _select(self, name: str) -> tuple[Corpus, Recipe, Vocabulary, dict[str, Any]]:
        settings = self._networks[name]
        corpus, recipe = self.data.select(settings), settings.make_recipe(self.context)
        if not len(corpus):
            raise BadInput(f"{name}: no paper is of the field {settings.subset!r}")
        if settings.recipe == "eqkin" and self.data.notations is None:
            corpus = add_related(corpus, recipe, make_folder(self.context.cache.folder))
        counts = corpus.compute_statistics()
        self.context.log(f"{name}: training on {counts['trees']:,} equations of {counts['papers']:,} papers")
        return corpus, recipe, Vocabulary.learn([corpus.forest]), {"learned_from": counts, "triplets": recipe.triplets}

    def _make_sampler(self, settings: NetworkSettings, corpus: Corpus, recipe: Recipe) -> TripletSampler | FixedSampler:
        options: dict[str, Any] = {"kinds": recipe.contexts, "seed": recipe.seed, "device": self.device}
        if settings.negatives == "field":
            sampler: TripletSampler = FieldSampler(corpus, number_fields(corpus, self.data.fields), **options)
        else:
            sampler = TripletSampler(corpus, **options)
        if not settings.fixed:
            return sampler
        count = max(round(settings.fixed * recipe.triplets / settings.triplets), recipe.batch)
        return FixedSampler(sampler, count, -(-recipe.triplets // count) + 1, recipe.seed)

    def _train_graph(self, name: str, folder: Path) -> None:
        settings, device = self._networks[name], self.device
        corpus, recipe, vocabulary, facts = self._select(name)
        prepared, objective = build_training_data(corpus, vocabulary, recipe, device), None
        if settings.recipe == "paper":
            sampler: Any = self._make_sampler(settings, corpus, recipe)
            prepared = replace(prepared, sampler=sampler)
            dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
            objective = VariantObjective(recipe, prepared, dtype, settings)
        run = RunSettings(on_progress=lambda state: self._log(name, state.step, state.steps, state.losses["loss"]))
        trainer = RecipeTrainer(recipe, prepared, fast=True, objective=objective, settings=run)
        trainer.train()
        facts |= {"losses": trainer.last_losses, "seconds": trainer.seconds, "contexts": prepared.sampler.shares}
        weights = {key: tensor.float().cpu().numpy() for key, tensor in trainer.network.state_dict().items()}
        Model(recipe.architecture, vocabulary, weights, recipe.to_dict(), facts).save(folder / "model")

    def _load_graph(self, name: str, folder: Path) -> TrainedNetwork:
        model = Model.load(folder / "model")
        network = build_network(model.architecture, model.weights).eval().to(self.device)
        return TrainedNetwork(network, model.vocabulary, self._networks[name], model.training, model)

    def _train_transformer(self, name: str, folder: Path) -> None:
        corpus, recipe, vocabulary, facts = self._select(name)
        trees = TreeSequences(corpus.forest, vocabulary, self._shape.longest, self.device)
        sampler: Any = self._make_sampler(self._networks[name], corpus, recipe)
        objective = TransformerObjective(recipe, self._shape, trees, sampler)
        unfinished = make_folder(folder / "unfinished")
        loss = train_module(
            objective, objective.compute_loss, recipe.optimizer, unfinished, progress=partial(self._log, name)
        )
        weights = {key: tensor.cpu().numpy() for key, tensor in objective.network.state_dict().items()}
        facts |= {"losses": {"loss": loss}, "contexts": sampler.shares, "step": recipe.steps}
        save_checkpoint(make_folder(folder / "network"), weights, facts)
        shutil.rmtree(unfinished)

    def _load_transformer(self, name: str, folder: Path) -> TrainedNetwork:
        saved = load_checkpoint(folder / "network")
        assert saved is not None
        network = TransformerNetwork(self._shape)
        network.load_state_dict({key: torch.from_numpy(array) for key, array in saved.arrays.items()})
        vocabulary = Vocabulary.learn([self.data.select(self._networks[name]).forest])
        return TrainedNetwork(network.eval().to(self.device), vocabulary, self._networks[name], saved.facts)

    def _log(self, name: str, step: int, steps: int, loss: float) -> None:
        self.context.log(f"{name}: step {step:,} of {steps:,}, loss {loss:.3f}")

    def measure(self, name: str) -> dict[str, Any]:
        """Measure a network on held-out triples and labelled equations, or return the cached measurement."""
        triples, labelled = self.data.triples, self.data.labelled
        key = self.make_key(name) | {
            "triples": {kind: one.key for kind, one in triples.items()}, "labelled": [one.digest for one in labelled],
            "resamples": self.context.scale.resamples,
        }  # fmt: skip
        return self.context.cache.get_or_measure("networks", key, lambda: self._measure(name))

    def _measure(self, name: str) -> dict[str, Any]:
        network, resamples = self.get_network(name), self.context.scale.resamples
        vectors = network.embed(self.data.held_out.forest, self.device)
        found = {}
        for kind, triples in self.data.triples.items():
            kernel = triples.compute_histogram_kernel(vectors)
            found[kind] = {
                "correct": pack_bits(triples.find_correct(vectors)),
                "histogram": list(asdict(triples.compute_score(kernel, resamples)).values()),
            }
        labelled = {}
        for one in self.data.labelled:
            embedded = network.embed(one.equations.formulas.forest, self.device)
            labelled[one.name] = measure_labels(embedded, one.labels, resamples)
        return {"network": name, "facts": network.facts, "triples": found, "labelled": labelled}


def measure_labels(vectors: Float32s, labels: Sequence[str], resamples: int) -> dict[str, list[float | None]]:
    """Measure accuracy and ranking by cosine, and by the authors' protocol.

    Theirs: the nearest neighbour by Euclidean distance, the ranking by inner products of vectors as they are.
    """
    unit = normalize_rows(vectors)
    cosines = score_labels(unit @ unit.T, labels, resamples=resamples)
    products = np.asarray(vectors, np.float64) @ vectors.T.astype(np.float64)
    squares = np.diag(products)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0))
    nearest, ranked = (score_labels(one, labels, resamples=resamples) for one in (-distances, products))
    scores = {
        "accuracy": cosines.accuracy, "labelled_ranking": cosines.ranking,
        "accuracy_authors": nearest.accuracy, "ranking_authors": ranked.ranking,
    }  # fmt: skip
    return {name: [score.value, score.low, score.high] for name, score in scores.items()}
