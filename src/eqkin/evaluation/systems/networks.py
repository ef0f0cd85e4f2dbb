"""eqkin's own systems: trained networks, an untrained one, and the whole search engine."""

from __future__ import annotations

import importlib.util
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from eqkin.encoder.architecture import Architecture
from eqkin.encoder.encoder import Encoder
from eqkin.encoder.model import DESCRIPTION_FILE, Model
from eqkin.errors import BadInput
from eqkin.evaluation.context import compute_digest
from eqkin.evaluation.formulas import Float32s, FormulaSet, import_optional, normalize_rows
from eqkin.evaluation.systems.base import EmbeddingSystem, System
from eqkin.formulas import Forest, Vocabulary, idf
from eqkin.search import features, rerank

if TYPE_CHECKING:
    from eqkin.learning.data import Corpus

_UNTRAINED_SEED = 0


def embed_forest(model: Model, forest: Forest, device: str = "auto") -> Float32s:
    """Embed many trees with a network: on a GPU if there is one, otherwise with numpy.

    Args:
        model: The network.
        forest: The trees.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.

    Raises:
        BadInput: The device does not exist.
    """
    has_torch = importlib.util.find_spec("torch") is not None
    if device not in ("cpu", "auto") and not has_torch:
        raise BadInput(f"{device} needs torch: pip install 'eqkin[train]'")
    if device == "cpu" or not has_torch:
        return Encoder(model).embed(forest)
    from eqkin.learning.batches import DeviceNetwork
    from eqkin.learning.config import choose_device

    chosen = choose_device(device)
    network = DeviceNetwork(model, chosen) if chosen.type == "cuda" else None
    return Encoder(model, network).embed(forest)


class NetworkSystem(EmbeddingSystem):
    """A trained network.

    Args:
        name: Name for options and files.
        title: Name for tables.
        folder: Folder of the model, or the name of a bundled one; see `Encoder.load`.
        device: Where to embed: "cpu", "cuda", or "auto" for a GPU if there is one.

    Raises:
        BadInput: The folder has no model.
        CorruptData: The model is damaged.
    """

    def __init__(self, name: str, title: str, folder: Path | str | None = None, *, device: str = "auto") -> None:
        self.name: str = name
        self.title: str = title
        self._device = device
        self.model: Model | None = Encoder.load(folder).model
        self.learned_from: str = self.model.digest

    def encode(self, formulas: FormulaSet) -> Float32s:
        """Compute vectors, (formulas, dimensions)."""
        if self.model is None:
            raise BadInput(f"{self.title}: it has no vocabulary yet, call fit first")
        return embed_forest(self.model, formulas.forest, self._device)


class UntrainedNetwork(NetworkSystem):
    """A network with random weights: the value of the architecture alone. Only its vocabulary is learned.

    Args:
        architecture: By default the paper's.
        device: Where to embed.
    """

    name = "untrained"
    title = "Untrained network"

    def __init__(self, architecture: Architecture | None = None, *, device: str = "auto") -> None:
        self._architecture, self._device, self.model = architecture or Architecture(), device, None

    @property
    def settings(self) -> dict[str, Any]:
        """Architecture and seed."""
        return {"architecture": self._architecture.to_dict(), "seed": _UNTRAINED_SEED}

    def fit(self, corpus: Corpus, folder: Path) -> None:
        """Learn the vocabulary and draw the weights, or load both."""
        if not (folder / DESCRIPTION_FILE).is_file():
            torch = import_optional("torch")
            from eqkin.learning.torch_network import build_network

            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_UNTRAINED_SEED)
                network = build_network(self._architecture)
            weights = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
            Model(self._architecture, Vocabulary.learn([corpus.forest]), weights).save(folder)
        self.model = Model.load(folder)


class EngineSystem(System):
    """The ranking of `eqkin search` and `eqkin rank`: common terms of both kinds of trees, and vectors.

    Args:
        folder: Folder of the network, or the name of a bundled one; see `Encoder.load`.
        device: Where to embed.
    """

    name = "eqkin"
    title = "eqkin"
    tuned_on: tuple[str, ...] = (  # its weights and its network were chosen by these
        "arqmath-dev", "arqmath2-part", "arqmath3-part", "laws-dev", "named", "wikidata-multi", "atlas", "notations",
    )  # fmt: skip

    def __init__(self, folder: Path | str | None = None, *, device: str = "auto") -> None:
        self.vector: NetworkSystem = NetworkSystem("eqkin-vector", "eqkin, vector alone", folder, device=device)
        self.vector.tuned_on = self.tuned_on
        frequencies = sha256(idf.BUNDLED_FREQUENCIES.read_bytes()).hexdigest()
        facts = [frequencies, features.WEIGHTS, features.SAME_STATEMENT]
        self.learned_from: str = f"{self.vector.learned_from}, ranking {compute_digest(facts)}"

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Float32s:
        """Score formulas as the engine does; within one collection, a formula is not a candidate for itself."""
        if queries is formulas:
            return rerank.compare_within(formulas.forest, self._encode_unit(formulas))
        return rerank.compare_collections(
            queries.forest, self._encode_unit(queries), formulas.forest, self._encode_unit(formulas)
        )

    def _encode_unit(self, formulas: FormulaSet) -> Float32s:
        return cast(Float32s, normalize_rows(self.vector.encode(formulas)))
