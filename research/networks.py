"""Networks of the ablation (paper, table 1) and of data sizes (table 2): changes to a recipe, each a run of its own.

A run is what `eqkin train` does: it holds out half of the works, and is resumed when it was interrupted. The paper's
table has fixed triplets with negatives of the anchor's field; here every triplet is new and its negative is of any
field. Experiments with the paper's own sampling, with the printed formulas, with a transformer and with a bitmap CNN
are in the log; their results are in `research/results`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from eqkin.evaluation.labelled import LabelledSet, score_labelled
from eqkin.evaluation.measures import Score
from eqkin.evaluation.systems import NetworkSystem
from eqkin.learning.config import LoggingConfig, get_recipe
from eqkin.learning.data import Corpus
from eqkin.learning.run import train
from research.experiment import FULL_SCALE, HELD_OUT_FRACTION, Experiment
from research.published import ABLATION_ROWS, LARGE_SCALE_ROWS
from research.report import list_columns
from research.tables import ExperimentResult, Table, TableRow

_SHARE_SEED = 1
_MIN_STEPS = 16


@dataclass(frozen=True)
class NetworkSettings:
    """How a network is trained."""

    title: str
    recipe: str = "paper"
    # Changes of the recipe, as `eqkin train --set` takes them.
    changes: dict[str, str] = field(default_factory=dict)
    # Of the works.
    share: float = 1.0
    # In proportion to the paper's recipe.
    triplets: float = 1.0


ABLATION = {
    "full": NetworkSettings("Full model"),
    "no-histogram": NetworkSettings("No histogram loss (triplet)", changes={"loss": "triplet"}),
    "no-masking": NetworkSettings("No masking", changes={"masking": "0"}),
    "no-augmentation": NetworkSettings("No augmentation", changes={"transpositions": "0"}),
}
SIZES = {
    "paper-10": NetworkSettings("Paper's recipe, 10 %", share=0.1),
    "paper-30": NetworkSettings("Paper's recipe, 30 %", share=0.3),
    "full": NetworkSettings("Paper's recipe, 100 %"),
    "eqkin-10": NetworkSettings("eqkin's recipe, 10 %", "eqkin", share=0.1, triplets=0.6),
    "eqkin-30": NetworkSettings("eqkin's recipe, 30 %", "eqkin", share=0.3, triplets=0.6),
    "eqkin": NetworkSettings("eqkin's recipe, 100 %", "eqkin", triplets=0.6),
}


def run_networks(
    experiment: Experiment, corpus: Corpus, labelled: list[LabelledSet], names: list[str]
) -> list[ExperimentResult]:
    """Train and measure networks; without names, all of them. Returns the tables of both experiments."""
    results = []
    published = {"ablation": ABLATION_ROWS, "size": LARGE_SCALE_ROWS}
    for title, networks in {"ablation": ABLATION, "size": SIZES}.items():
        rows = [
            measure_network(experiment, corpus, labelled, name, settings)
            for name, settings in networks.items()
            if not names or name in names
        ]
        columns = list_columns({"ranking": "held-out triples"})
        for one in labelled:
            columns += list_columns({f"{one.name}-accuracy": f"accuracy, {one.name}"})
            columns += list_columns({f"{one.name}-ranking": f"ranking, {one.name}"})
        columns += list_columns({"accuracy": "accuracy, paper's set", "labelled_ranking": "ranking, paper's set"})
        caption = "One seed each; held-out triples have the interval of an incomplete U-statistic, labels a bootstrap."
        table = Table(title, title.capitalize(), columns, rows + published[title], caption)
        results.append(ExperimentResult(title, title.capitalize(), [table], facts={"corpus": corpus.digest[:16]}))
    return results


def measure_network(
    experiment: Experiment, corpus: Corpus, labelled: list[LabelledSet], name: str, settings: NetworkSettings
) -> TableRow:
    """Train a network, or continue its run, and measure it on held-out triples and labelled sets."""
    scale = experiment.scale
    recipe = get_recipe(settings.recipe)
    changes = settings.changes | dict(one.split("=") for one in scale.network) | {"held_out": str(HELD_OUT_FRACTION)}
    recipe = recipe.override(changes)
    triplets = max(2, round(scale.triplets * settings.triplets))
    # A small run has small batches, so that it has some steps.
    recipe = dataclasses.replace(recipe, triplets=triplets, batch=min(recipe.batch, max(2, triplets // _MIN_STEPS)))
    if settings.share < 1:
        corpus = corpus.split(settings.share, _SHARE_SEED)[1]
    folder = experiment.folder / "networks" / name
    experiment.log(f"{settings.title}: training on {len(corpus):,} equations")
    logging = LoggingConfig() if scale == FULL_SCALE else LoggingConfig(final_triples=1_000, score_triples=1_000)
    outcome = train(corpus, recipe, folder, device=experiment.device, resume=True, logging=logging)
    cells: dict[str, Score | str] = {}
    if outcome.ranking is not None:
        cells["ranking"] = Score(outcome.ranking.score, outcome.ranking.low, outcome.ranking.high)
    system = NetworkSystem(name, settings.title, outcome.model)
    for one in labelled:
        found = score_labelled(system, one, scale.resamples)
        cells[f"{one.name}-accuracy"] = found.accuracy
        cells[f"{one.name}-ranking"] = found.ranking
    assert all(np.isfinite(score.value) for score in cells.values() if isinstance(score, Score))
    return TableRow(settings.title, cells)
