"""What the ablation measures: which held-out triples a network or a baseline ranks right, and its labelled scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.ablated import EQKIN, EQKIN_SEED, EQKIN_TITLE, VARIANTS, rank_triples, train_variant
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.labelled import measure_system
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.sets.triples import HeldOutTriples, pack_bits, unpack_bits
from eqkin.evaluation.systems.base import EmbeddingSystem, System, normalize_rows
from eqkin.evaluation.systems.networks import NetworkSystem
from eqkin.training.data import Corpus


@dataclass(frozen=True, eq=False)
class AblationScores:
    """One line of the table: which triples were ranked right, and the labelled scores, a seed each."""

    title: str
    correct: list[npt.NDArray[np.bool_]]
    labelled: list[dict[str, Any]]  # empty: there is no such set

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """How often each triple was ranked right, over the seeds."""
        return np.asarray(np.mean(np.array(self.correct, np.float64), axis=0), np.float64)


def check_tree_embedding(system: System) -> EmbeddingSystem:
    """The system, if it can rank held-out triples; raises `BadInput` before anything is learned."""
    if not isinstance(system, EmbeddingSystem) or system.needs_latex:
        what = "reads LaTeX" if system.needs_latex else "gives no vectors"
        raise BadInput(f"{system.name} {what}, and the ablation compares vectors of trees: leave it out")
    if isinstance(system, NetworkSystem):
        raise BadInput(f"{system.name} has learned before, maybe from the papers that are held out: leave it out")
    return system


def measure_variant(
    context: ExperimentContext, corpus: Corpus, variant: str, triples: HeldOutTriples, labelled: LabelledSet | None
) -> AblationScores:
    """The networks of a variant, one a seed."""
    models = [train_variant(context, corpus, variant, seed) for seed in range(context.scale.seeds)]
    right = [unpack_bits(rank_triples(context, model, triples), len(triples)) for model in models]
    scores = [
        one for model in models for one in _measure_labelled(context, _load_system(context, variant, model), labelled)
    ]
    return AblationScores(VARIANTS[variant][0], right, scores)


def measure_eqkin(
    context: ExperimentContext, corpus: Corpus, triples: HeldOutTriples, labelled: LabelledSet | None
) -> AblationScores:
    """The network of eqkin's recipe; its vectors have length 1, so the inner product is the cosine."""
    model = train_variant(context, corpus, EQKIN, EQKIN_SEED)
    right = unpack_bits(rank_triples(context, model, triples), len(triples))
    system = NetworkSystem("eqkin-recipe", EQKIN_TITLE, model, device=context.device)
    return AblationScores(EQKIN_TITLE, [right], _measure_labelled(context, system, labelled))


def _load_system(context: ExperimentContext, variant: str, model: Path) -> NetworkSystem:
    return NetworkSystem(f"paper-{variant}", VARIANTS[variant][0], model, device=context.device)


def measure_baseline(
    context: ExperimentContext,
    half: Corpus,
    system: EmbeddingSystem,
    triples: HeldOutTriples,
    labelled: LabelledSet | None,
) -> AblationScores:
    """A baseline that learns from the same half."""
    context.fit(system, half)
    context.log(f"{system.title}: ranking {len(triples):,} triples")
    key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from, **triples.key}

    def measure() -> dict[str, Any]:
        return {"correct": pack_bits(triples.find_correct(normalize_rows(system.encode_cached(triples.formulas))))}

    right = unpack_bits(context.cache.get_or_measure("ranking", key, measure)["correct"], len(triples))
    return AblationScores(system.title, [right], _measure_labelled(context, system, labelled))


def _measure_labelled(
    context: ExperimentContext, system: EmbeddingSystem, labelled: LabelledSet | None
) -> list[dict[str, Any]]:
    return [measure_system(context, system, labelled)] if labelled else []
