"""The networks of the ablation: the paper's recipe with one part left out, with several seeds, and eqkin's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eqkin.encoder.model import Model
from eqkin.evaluation.experiments.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext
from eqkin.evaluation.sets.triples import HeldOutTriples, pack_bits
from eqkin.evaluation.systems.embedding import embed_forest
from eqkin.training.config import RECIPES, Recipe
from eqkin.training.data import Corpus

FULL = "full"
VARIANTS = {  # title, and what is changed
    FULL: ("Full model", {}),
    "no-histogram": ("No histogram loss (triplet)", {"loss": "triplet"}),
    "no-masking": ("No masking", {"masking": "0"}),
    "no-augmentation": ("No augmentation", {"transpositions": "0"}),
}
EQKIN = "eqkin"  # not a variant of the paper's recipe: it also learns from words, where the corpus has any
EQKIN_TITLE = "eqkin's recipe"
EQKIN_SEED = 0  # the only one
_MIN_STEPS = 16  # of a small run, whose batches are smaller then


def make_recipe(variant: str, seed: int, context: ExperimentContext) -> Recipe:
    """The paper's recipe without one of its parts, or eqkin's own, at the context's scale."""
    if variant == EQKIN:
        own = RECIPES[EQKIN].override({"width": str(context.scale.width)})
        triplets = min(own.triplets, context.scale.triplets)
        batch = min(own.batch, max(2, triplets // _MIN_STEPS))
        return replace(
            own, triplets=triplets, batch=batch, held_out=HELD_OUT_FRACTION, split_seed=SPLIT_SEED, seed=seed
        )
    recipe = RECIPES["paper"].override(VARIANTS[variant][1] | {"width": str(context.scale.width)})
    return replace(
        recipe, triplets=context.scale.triplets, held_out=HELD_OUT_FRACTION, split_seed=SPLIT_SEED, seed=seed
    )


def train_variant(context: ExperimentContext, corpus: Corpus, variant: str, seed: int) -> Path:
    """The model's folder of a variant; it is learned if that has not been done."""
    recipe = make_recipe(variant, seed, context)
    name = variant if variant == EQKIN else f"{recipe.name}-{variant}"

    def learn(part: Path) -> None:
        from eqkin.training.config import LoggingConfig
        from eqkin.training.run import TrainingRun
        from eqkin.training.trainer import TrainingProgress

        def tell(progress: TrainingProgress) -> None:
            share, rate = progress.step / progress.steps, progress.triplets_per_second
            context.log(f"{name.replace('-', ' ', 1)}, seed {seed}: {share:.0%}, {rate:,.0f} triplets a second")

        pace = LoggingConfig(score_steps=recipe.steps + 1, final_triples=context.scale.triples)
        TrainingRun(corpus, recipe, part, context.device, logging=pace, on_progress=tell).train(resume=True)
        for path in part.glob("checkpoint*"):
            path.unlink()

    key = {"recipe": recipe.to_dict(), "corpus": corpus.digest}
    return context.cache.get_or_fit(name, key, learn) / "model"


def rank_triples(context: ExperimentContext, model: Path, triples: HeldOutTriples) -> str:
    """Which triples a network ranks right by the inner product, as the paper does; packed."""
    network = Model.load(model)

    def measure() -> dict[str, str]:
        vectors = embed_forest(network, triples.formulas.forest, context.device)
        return {"correct": pack_bits(triples.find_correct(vectors))}

    found: str = context.cache.get_or_measure("ranking", {"model": network.digest, **triples.key}, measure)["correct"]
    return found
