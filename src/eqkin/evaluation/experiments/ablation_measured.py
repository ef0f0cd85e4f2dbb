"""What the ablation measures: which held-out triples a network or a baseline ranks right, and its labelled scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.ablated import OWN, OWN_SEED, OWN_TITLE, VARIANTS, learned, ranked
from eqkin.evaluation.experiments.context import Context
from eqkin.evaluation.experiments.labelled import measured_on
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.sets.triples import Triples, packed, unpacked
from eqkin.evaluation.systems.base import Embedding, System, unit
from eqkin.evaluation.systems.networks import Network
from eqkin.learning.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Measured:
    """One line of the table: which triples were ranked right, and the labelled scores, a seed each."""

    title: str
    right: list[npt.NDArray[np.bool_]]
    labelled: list[dict[str, Any]]  # empty: there is no such set

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """How often each triple was ranked right, over the seeds."""
        return np.asarray(np.mean(np.array(self.right, np.float64), axis=0), np.float64)


def vectors_of_trees(system: System) -> Embedding:
    """The system, if it can rank held-out triples; raises `BadInput` before anything is learned."""
    if not isinstance(system, Embedding) or system.needs_latex:
        what = "reads LaTeX" if system.needs_latex else "gives no vectors"
        raise BadInput(f"{system.name} {what}, and the ablation compares vectors of trees: leave it out")
    if isinstance(system, Network):
        raise BadInput(f"{system.name} has learned before, maybe from the papers that are held out: leave it out")
    return system


def measured_network(
    context: Context, corpus: Corpus, variant: str, triples: Triples, labelled: LabelledSet | None
) -> Measured:
    """The networks of a variant, one a seed."""
    models = [learned(context, corpus, variant, seed) for seed in range(context.scale.seeds)]
    right = [unpacked(ranked(context, model, triples), len(triples)) for model in models]
    scores = [one for model in models for one in _labelled(context, _system(context, variant, model), labelled)]
    return Measured(VARIANTS[variant][0], right, scores)


def measured_own(context: Context, corpus: Corpus, triples: Triples, labelled: LabelledSet | None) -> Measured:
    """The network of eqkin's recipe; its vectors have length 1, so the inner product is the cosine."""
    model = learned(context, corpus, OWN, OWN_SEED)
    right = unpacked(ranked(context, model, triples), len(triples))
    system = Network("eqkin-recipe", OWN_TITLE, model, device=context.device)
    return Measured(OWN_TITLE, [right], _labelled(context, system, labelled))


def _system(context: Context, variant: str, model: Path) -> Network:
    return Network(f"paper-{variant}", VARIANTS[variant][0], model, device=context.device)


def measured_baseline(
    context: Context, half: Corpus, system: Embedding, triples: Triples, labelled: LabelledSet | None
) -> Measured:
    """A baseline that learns from the same half."""
    context.fit(system, half)
    context.tell(f"{system.title}: ranking {len(triples):,} triples")
    key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from, **triples.key}

    def measure() -> dict[str, Any]:
        return {"correct": packed(triples.correct(unit(system.vectors(triples.formulas))))}

    right = unpacked(context.store.measured("ranking", key, measure)["correct"], len(triples))
    return Measured(system.title, [right], _labelled(context, system, labelled))


def _labelled(context: Context, system: Embedding, labelled: LabelledSet | None) -> list[dict[str, Any]]:
    return [measured_on(context, system, labelled)] if labelled else []
