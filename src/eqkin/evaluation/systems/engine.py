"""eqkin's search engine among what is compared: its whole ranking, by counted structure, runs and vectors."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import cast

from eqkin.evaluation.store import digest
from eqkin.evaluation.systems.base import Floats, Formulas, System, unit
from eqkin.evaluation.systems.networks import Network
from eqkin.search import kinship, ranker
from eqkin.search.ranker import Ranker
from eqkin.structure import frequencies

TUNED_ON = ("arqmath-dev", "atlas")  # the ranking learned from both, and the recipe of its vector was chosen by them


class Engine(System):
    """The ranking that `eqkin search` and `eqkin rank` rank with.

    Args:
        weights: Of the ranking, a file; by default those that come with eqkin.
        folder: Of the network, or the name of one that comes with eqkin; see `Encoder.load`.
        device: Where to embed.
        progress: Told now and then how many formulas are embedded.
    """

    name = "eqkin"
    title = "eqkin"
    tuned_on = TUNED_ON

    def __init__(
        self,
        weights: Path = ranker.BUNDLED,
        folder: Path | str | None = None,
        *,
        device: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._ranker = Ranker.load(weights)
        self.vector = Network("eqkin-vector", "eqkin, vector alone", folder, device=device, progress=progress)
        facts = [
            *(sha256(path.read_bytes()).hexdigest() for path in (weights, frequencies.BUNDLED)),
            kinship.FEATURES, kinship.BEST, ranker.CLOSELY, ranker.VECTOR_WEIGHT, ranker.PLAIN_WEIGHT,
            kinship.PLAIN,
        ]  # fmt: skip
        self.learned_from = f"{self.vector.learned_from}, ranking {digest(facts)}"

    def rank(self, queries: Formulas, formulas: Formulas) -> Floats:
        """How related the engine finds each formula to each query; within a collection, none to itself."""
        if queries is formulas:
            return ranker.similarity_within(formulas.forest, self._vectors(formulas), self._ranker)
        return ranker.similarity(
            queries.forest, self._vectors(queries), formulas.forest, self._vectors(formulas), self._ranker
        )

    def _vectors(self, formulas: Formulas) -> Floats:
        self.vector.store = self.store
        return cast(Floats, unit(self.vector.vectors(formulas)))
