"""eqkin's search engine among what is compared: its whole ranking, by counted structure, runs and vectors."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import cast

from eqkin.evaluation.store import compute_digest
from eqkin.evaluation.systems.base import Floats, FormulaSet, System, normalize_rows
from eqkin.evaluation.systems.networks import NetworkSystem
from eqkin.search import features, rerank
from eqkin.search.rerank import Ranker
from eqkin.trees import idf

TUNED_ON = ("arqmath-dev", "atlas")  # the ranking learned from both, and the recipe of its vector was chosen by them


class EngineSystem(System):
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
        weights: Path = rerank.BUNDLED_RANKER,
        folder: Path | str | None = None,
        *,
        device: str = "auto",
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._ranker = Ranker.load(weights)
        self.vector = NetworkSystem("eqkin-vector", "eqkin, vector alone", folder, device=device, progress=progress)
        facts = [
            *(sha256(path.read_bytes()).hexdigest() for path in (weights, idf.BUNDLED_FREQUENCIES)),
            features.FEATURES, features.STANDARDISED_OVER, rerank.RERANK_DEPTH, rerank.FIRST_STAGE_VECTOR_WEIGHT, rerank.LINEAR_SCORE_WEIGHT,
            features.LINEAR_WEIGHTS,
        ]  # fmt: skip
        self.learned_from = f"{self.vector.learned_from}, ranking {compute_digest(facts)}"

    def rank(self, queries: FormulaSet, formulas: FormulaSet) -> Floats:
        """How related the engine finds each formula to each query; within a collection, none to itself."""
        if queries is formulas:
            return rerank.compute_relevance_within(formulas.forest, self._encode_unit(formulas), self._ranker)
        return rerank.compute_relevance(
            queries.forest, self._encode_unit(queries), formulas.forest, self._encode_unit(formulas), self._ranker
        )

    def _encode_unit(self, formulas: FormulaSet) -> Floats:
        self.vector.cache = self.cache
        return cast(Floats, normalize_rows(self.vector.encode_cached(formulas)))
