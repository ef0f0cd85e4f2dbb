"""eqkin's own systems: trained networks, an untrained one, and the whole search engine."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eqkin.encoder.architecture import Architecture
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput
from eqkin.evaluation.cache import compute_digest
from eqkin.evaluation.formulas import Float32s, FormulaSet, compute_products, import_optional, normalize_rows
from eqkin.evaluation.systems.base import EmbeddingSystem, System
from eqkin.search import features, rerank
from eqkin.trees import Forest, Vocabulary, idf

if TYPE_CHECKING:
    from eqkin.training.data import Corpus

SIMILARITIES = ("cosine", "inner product")
# sets by which its weights and its network were chosen
ENGINE_TUNED_ON = (
    "arqmath-dev", "arqmath2-part", "arqmath3-part", "laws-dev", "named", "wikidata-multi", "atlas", "notations",
)  # fmt: skip


def embed_forest(
    model: Model, forest: Forest, device: str = "auto", progress: Callable[[int], None] | None = None
) -> Float32s:
    """Embed many trees with a network: on a GPU if there is one, otherwise with numpy.

    Args:
        model: The network.
        forest: The trees.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        progress: Called now and then with the number of finished trees.

    Raises:
        BadInput: The device does not exist.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    if device not in ("cpu", "auto") and not has_torch:
        raise BadInput(f"{device} needs torch: pip install 'eqkin[train]'")
    if device == "cpu" or not has_torch:
        return Encoder(model).embed(forest, progress)
    from eqkin.training.batches import DeviceNetwork
    from eqkin.training.config import choose_device

    chosen = choose_device(device)
    network = DeviceNetwork(model, chosen) if chosen.type == "cuda" else None
    return Encoder(model, network).embed(forest, progress)


class GraphSystem(EmbeddingSystem):
    """A system that embeds formulas with one of eqkin's networks.

    Args:
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        progress: Called now and then with the number of embedded formulas.
    """

    slow = True

    def __init__(self, device: str = "auto", progress: Callable[[int], None] | None = None) -> None:
        self._device, self._progress = device, progress

    @property
    @abstractmethod
    def model(self) -> Model:
        """The network with its vocabulary."""

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Compute vectors, (formulas, dimensions)."""
        return embed_forest(self.model, formulas.forest, self._device, self._progress)


class NetworkSystem(GraphSystem):
    """A trained network.

    Args:
        name: Name for options and files.
        title: Name for tables.
        folder: Folder of the model, or the name of a bundled one; see `Encoder.load`.
        similarity: "cosine", or "inner product", which the paper's network is trained with.
        device: Where to embed.
        progress: Called now and then with the number of embedded formulas.

    Raises:
        BadInput: The folder has no model, or the similarity is unknown.
        CorruptData: The model is damaged.
    """

    def __init__(
        self,
        name: str,
        title: str,
        folder: Path | str | None = None,
        *,
        similarity: str = "cosine",
        device: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(device, progress)
        if similarity not in SIMILARITIES:
            raise BadInput(f"unknown similarity {similarity!r}; choose one of {', '.join(SIMILARITIES)}")
        self.name: str = name
        self.title: str = title
        self._similarity = similarity
        self._model = Encoder.load(folder).model
        self.learned_from: str = self._model.digest + ("" if similarity == "cosine" else f", {similarity}")

    @property
    def model(self) -> Model:
        """The network with its vocabulary."""
        return self._model

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Compute the similarity of each query's vector and each formula's."""
        if self._similarity == "cosine":
            return super().rank(queries, formulas)
        return compute_products(self.encode_cached(queries), self.encode_cached(formulas))


class UntrainedNetwork(GraphSystem):
    """A network with random weights: the value of the architecture alone. Only its vocabulary is learned.

    Args:
        architecture: By default the paper's.
        seed: Seed of the weights.
        device: Where to embed.
        progress: Called now and then with the number of embedded formulas.
    """

    name = "untrained"
    title = "Untrained network"

    def __init__(
        self,
        architecture: Architecture | None = None,
        seed: int = 0,
        *,
        device: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(device, progress)
        self._architecture, self._seed = architecture or Architecture(), seed
        self._model: Model | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Architecture and seed."""
        return {"architecture": self._architecture.to_dict(), "seed": self._seed}

    @property
    def model(self) -> Model:
        """The network with its vocabulary; raises `BadInput` before `fit`."""
        if self._model is None:
            raise BadInput("the untrained network has no vocabulary yet: call fit first")
        return self._model

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn the vocabulary and draw the weights, or load both."""
        if not (folder / DESCRIPTION_FILE).is_file():
            torch = import_optional("torch")
            from eqkin.encoder.torch_network import build_network

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._seed)
                network = build_network(self._architecture)
            weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
            Model(self._architecture, Vocabulary.learn([corpus.forest]), weights).save(folder)
        self._model = Model.load(folder)


class EngineSystem(System):
    """The ranking of `eqkin search` and `eqkin rank`: common terms of both kinds of trees, and vectors.

    Args:
        folder: Folder of the network, or the name of a bundled one; see `Encoder.load`.
        device: Where to embed.
        progress: Called now and then with the number of embedded formulas.
    """

    name = "eqkin"
    title = "eqkin"
    tuned_on: tuple[str, ...] = ENGINE_TUNED_ON

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        device: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        title = "eqkin, vector alone"
        self.vector: NetworkSystem = NetworkSystem("eqkin-vector", title, folder, device=device, progress=progress)
        facts = [sha256(idf.BUNDLED_FREQUENCIES.read_bytes()).hexdigest(), features.WEIGHTS]
        self.learned_from: str = f"{self.vector.learned_from}, ranking {compute_digest(facts)}"

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score formulas as the engine does; within one collection, a formula is not a candidate for itself."""
        if queries is formulas:
            return rerank.compare_within(formulas.forest, self._encode_unit(formulas))
        return rerank.compare_collections(
            queries.forest, self._encode_unit(queries), formulas.forest, self._encode_unit(formulas)
        )

    def _encode_unit(self, formulas: FormulaSet) -> Float32s:
        self.vector.cache = self.cache
        return cast(Float32s, normalize_rows(self.vector.encode_cached(formulas)))
