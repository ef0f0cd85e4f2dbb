"""The networks of the ablation: the paper's recipe with one part left out, with several seeds, and eqkin's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eqkin.evaluation.experiments.context import HELD_OUT, SPLIT, Context
from eqkin.evaluation.sets.triples import Triples, packed
from eqkin.evaluation.systems.embedding import embed
from eqkin.learning.corpus import Corpus
from eqkin.learning.recipes import RECIPES, Recipe
from eqkin.network.model_files import Model

FULL = "full"
VARIANTS = {  # title, and what is changed
    FULL: ("Full model", {}),
    "no-histogram": ("No histogram loss (triplet)", {"loss": "triplet"}),
    "no-masking": ("No masking", {"masking": "0"}),
    "no-augmentation": ("No augmentation", {"transpositions": "0"}),
}
OWN = "eqkin"  # not a variant of the paper's recipe: it also learns from words, where the corpus has any
OWN_TITLE = "eqkin's recipe"
OWN_SEED = 0  # the only one
_LEAST_STEPS = 16  # of a small run, whose batches are smaller then


def recipe_of(variant: str, seed: int, context: Context) -> Recipe:
    """The paper's recipe without one of its parts, or eqkin's own, at the context's scale."""
    if variant == OWN:
        own = RECIPES[OWN].changed({"width": str(context.scale.width)})
        triplets = min(own.triplets, context.scale.triplets)
        batch = min(own.batch, max(2, triplets // _LEAST_STEPS))
        return replace(own, triplets=triplets, batch=batch, held_out=HELD_OUT, split_seed=SPLIT, seed=seed)
    recipe = RECIPES["paper"].changed(VARIANTS[variant][1] | {"width": str(context.scale.width)})
    return replace(recipe, triplets=context.scale.triplets, held_out=HELD_OUT, split_seed=SPLIT, seed=seed)


def learned(context: Context, corpus: Corpus, variant: str, seed: int) -> Path:
    """The model's folder of a variant; it is learned if that has not been done."""
    recipe = recipe_of(variant, seed, context)
    name = variant if variant == OWN else f"{recipe.name}-{variant}"

    def learn(part: Path) -> None:
        from eqkin.learning.run import Pace, Progress, Run

        def tell(progress: Progress) -> None:
            share, rate = progress.step / progress.steps, progress.triplets_per_second
            context.tell(f"{name.replace('-', ' ', 1)}, seed {seed}: {share:.0%}, {rate:,.0f} triplets a second")

        pace = Pace(score_steps=recipe.steps + 1, final_triples=context.scale.triples)
        Run(corpus, recipe, part, context.device, pace=pace, on_progress=tell).start(resume=True)
        for path in part.glob("checkpoint*"):
            path.unlink()

    key = {"recipe": recipe.as_dict(), "corpus": corpus.digest}
    return context.store.fitted(name, key, learn) / "model"


def ranked(context: Context, model: Path, triples: Triples) -> str:
    """Which triples a network ranks right by the inner product, as the paper does; packed."""
    network = Model.load(model)

    def measure() -> dict[str, str]:
        vectors = embed(network, triples.formulas.forest, context.device)
        return {"correct": packed(triples.correct(vectors))}

    found: str = context.store.measured("ranking", {"model": network.digest, **triples.key}, measure)["correct"]
    return found
