"""eqkin's own network among what is compared: learned ones, given as a folder, and one that has learned nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqkin.encoder.architecture import Architecture
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput
from eqkin.evaluation.systems.base import EmbeddingSystem, Floats, FormulaSet, compute_products
from eqkin.evaluation.systems.embedding import embed_forest
from eqkin.evaluation.systems.terms import import_optional
from eqkin.trees import Vocabulary

if TYPE_CHECKING:
    from eqkin.training.data import Corpus

SIMILARITIES = ("cosine", "inner product")


class GraphSystem(EmbeddingSystem):
    """A system that embeds with a model.

    Args:
        device: Where: "cpu", or "auto" for a GPU where there is one.
        progress: Told now and then how many formulas are embedded.
    """

    slow = True

    def __init__(self, device: str = "auto", progress: Callable[[int], None] | None = None) -> None:
        self._device, self._progress = device, progress

    @property
    @abstractmethod
    def model(self) -> Model:
        """The network with its vocabulary."""

    def encode(self, formulas: FormulaSet) -> Floats:
        """Vectors, (formulas, dimensions)."""
        return embed_forest(self.model, formulas.forest, self._device, self._progress)


class NetworkSystem(GraphSystem):
    """A network that was learned before.

    Args:
        name: For options and file names.
        title: For tables.
        folder: Of the model, or the name of one that comes with eqkin; see `Encoder.load`.
        similarity: "cosine", or "inner product", which the network was learned with.
        device: Where to embed.
        progress: Told now and then how many formulas are embedded.

    Raises:
        BadInput: There is no model in the folder, or no such similarity.
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
            raise BadInput(f"there is no similarity {similarity!r}; there are {', '.join(SIMILARITIES)}")
        self.name, self.title, self._similarity = name, title, similarity
        self._model = Encoder.load(folder).model
        self.learned_from = self._model.digest + ("" if similarity == "cosine" else f", {similarity}")

    @property
    def model(self) -> Model:
        """The network with its vocabulary."""
        return self._model

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Floats:
        """Similarities of each query's vector and each formula's."""
        if self._similarity == "cosine":
            return super().rank(queries, formulas)
        return compute_products(self.encode_cached(queries), self.encode_cached(formulas))


class UntrainedNetwork(GraphSystem):
    """A network with random weights: what the architecture is worth before it learns; only its vocabulary is learned.

    Args:
        architecture: By default the paper's.
        seed: Of the weights.
        device: Where to embed.
        progress: Told now and then how many formulas are embedded.
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
            raise BadInput("the untrained network has no vocabulary yet: fit it first")
        return self._model

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn the vocabulary and draw the weights, or load both."""
        if not (folder / DESCRIPTION_FILE).is_file():
            vocabulary = Vocabulary.learn([corpus.forest])
            Model(self._architecture, vocabulary, _draw_weights(self._architecture, self._seed)).save(folder)
        self._model = Model.load(folder)


def _draw_weights(architecture: Architecture, seed: int) -> dict[str, Any]:
    """Random weights, drawn as they are before learning."""
    torch = import_optional("torch")
    from eqkin.encoder.torch_network import build_network

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(architecture)
    return {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
