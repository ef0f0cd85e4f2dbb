"""The ablation (paper, section 6.1): the value of histogram loss, masking and augmentation, compared with baselines.

Every variant is trained on the same half of the works, with several seeds, and ranks the same triples of the other
half: an anchor, a partner of its section or paper or along a citation, and a negative. A triple is correct if the
anchor is more similar to its partner. Scores have the interval of an incomplete U-statistic, which holds for every such
score and is wide. The difference to the full model is taken triple by triple; its interval is a bootstrap over works,
and narrower.

The paper: without the histogram loss the ranking falls by 4.0 points, without masking by 1.3, without augmentation by
1.2; the retrained bitmap CNN is 6.5 points below. Differences from the paper: papers are split by work (repository or
book), so that no author's notation is in both halves; networks see each triplet once, not a fixed set in epochs;
labelled columns are of the atlas, not of the paper's 103 equations. eqkin's recipe is not part of the paper: another
network and other losses, one of them on the text around equations; its settings were chosen with a view to the atlas.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.encoder.model import Model
from eqkin.errors import BadInput
from eqkin.evaluation.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext, drop_text
from eqkin.evaluation.formulas import FormulaSet, Matrix, compute_row_products, normalize_rows
from eqkin.evaluation.labelled import LabelledSet, compute_labelled_difference, measure_labelled, to_scores
from eqkin.evaluation.systems.base import EmbeddingSystem, System
from eqkin.evaluation.systems.networks import NetworkSystem, embed_forest
from eqkin.evaluation.tables import PAPER, ExperimentResult, Table, TableColumn, TableRow
from eqkin.statistics import (
    Score,
    compute_incomplete_interval,
    compute_percentile_interval,
    count_colours,
    draw_bootstrap_weights,
)
from eqkin.training.config import RECIPES, Recipe
from eqkin.training.data import Corpus
from reproduce.plots import Plot
from reproduce.published import ABLATION_ROWS, LARGE_SCALE_ROWS

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating[Any]]

TRIPLE_SEED = 0
FULL = "full"
VARIANTS = {  # title, and what is changed
    FULL: ("Full model", {}),
    "no-histogram": ("No histogram loss (triplet)", {"loss": "triplet"}),
    "no-masking": ("No masking", {"masking": "0"}),
    "no-augmentation": ("No augmentation", {"transpositions": "0"}),
}
EQKIN = "eqkin"  # not a variant of the paper's recipe: it also learns from text, if the corpus has any
EQKIN_TITLE = "eqkin's recipe"
EQKIN_SEED = 0  # only one
_MIN_STEPS = 16  # of a small run, which has smaller batches
_COLUMNS = [
    TableColumn("ranking", "ranking, held out", "percent"),
    TableColumn("labelled_ranking", "ranking, labelled", "percent"),
    TableColumn("accuracy", "accuracy, labelled", "percent"),
]
_DIFFERENCE_COLUMNS = [
    TableColumn("ranking", "ranking, held out", "number", ""),
    TableColumn("seeds", "each seed", "text", ""),
    TableColumn("labelled_ranking", "ranking, labelled", "number", ""),
    TableColumn("accuracy", "accuracy, labelled", "number", ""),
]
_PAPER_TITLES = {"no-histogram": "No histogram loss", "no-masking": "No masking", "no-augmentation": "No augmentation"}


class HeldOutTriples:
    """`count` triples of the held-out papers, drawn as for training, always the same; raises `BadInput` without any."""

    def __init__(self, corpus: Corpus, count: int) -> None:
        import torch

        from eqkin.training.config import CONTEXT_KINDS
        from eqkin.training.sampling import TripletSampler

        if count < 1 or not len(corpus):
            raise BadInput("there are no held-out triples to rank: add more papers")
        sampler = TripletSampler(corpus, kinds=CONTEXT_KINDS, seed=TRIPLE_SEED, device=torch.device("cpu"))
        drawn = sampler.draw(torch.zeros(1, 1, dtype=torch.int64), count).concatenate().view(3, count).numpy()
        self.trees, index = np.unique(drawn, return_inverse=True)
        self._index = index.reshape(3, count)
        self.papers: npt.NDArray[np.int64] = corpus.paper[drawn].T.astype(np.int64)  # (count, 3)
        works = np.unique(np.array(corpus.works, object), return_inverse=True)[1][self.papers]
        self.works = np.unique(works, return_inverse=True)[1].reshape(count, 3)  # numbered without gaps
        self.work_count, self.paper_count = int(self.works.max()) + 1, len(np.unique(self.papers))
        self.formulas = FormulaSet(corpus.forest.select(self.trees))  # each once
        self.key = {"corpus": corpus.digest, "triples": count, "seed": TRIPLE_SEED}

    def __len__(self) -> int:
        return len(self.papers)

    @cached_property
    def colours(self) -> int:
        """Number of colours such that no two triples of one colour share a paper."""
        return count_colours(self.papers)

    def find_correct(self, vectors: Matrix) -> Flags:
        """Return which triples are ranked correctly by inner products of the formulas' vectors; ties are wrong."""
        anchor, partner, negative = (vectors[index] for index in self._index)
        return compute_row_products(anchor, partner) > compute_row_products(anchor, negative)

    def rank(self, context: ExperimentContext, key: dict[str, Any], encode: Callable[[], Matrix]) -> Flags:
        """Return which triples the vectors of a system, described by `key`, rank correctly; cached."""

        def measure() -> dict[str, str]:
            return {"correct": pack_bits(self.find_correct(encode()))}

        measured = context.cache.get_or_measure("ranking", key | self.key, measure)
        return unpack_bits(measured["correct"], len(self))

    def make_score(self, share: float) -> Score:
        """Give a share of correct triples the interval of an incomplete U-statistic."""
        interval = compute_incomplete_interval(share, self.colours, len(self))
        return Score(interval.score, interval.low, interval.high)

    def resample(self, values: npt.NDArray[np.float64], weights: Floats) -> npt.NDArray[np.float64]:
        """Compute means of values over the triples, one for each row of weights of works, (resamples, works).

        Papers of one work (a book, a repository) depend on each other, so works are drawn, not papers. A triple counts
        as often as its works were drawn together. NaN if no triple counts.
        """
        anchor, partner, negative = self.works.T
        is_cited = partner != anchor
        is_other = (negative != anchor) & (negative != partner)
        means = []
        for row in weights:
            weight = row[anchor] * np.where(is_cited, row[partner], 1) * np.where(is_other, row[negative], 1)
            total = float(weight.sum())
            means.append(float(weight @ values) / total if total else math.nan)
        return np.array(means)


def pack_bits(flags: Flags) -> str:
    """Pack booleans into text."""
    return base64.b85encode(np.packbits(flags).tobytes()).decode()


def unpack_bits(text: str, count: int) -> Flags:
    """Unpack the text of `pack_bits`."""
    return np.unpackbits(np.frombuffer(base64.b85decode(text), np.uint8), count=count).astype(bool)


def make_recipe(variant: str, seed: int, context: ExperimentContext) -> Recipe:
    """Make the paper's recipe without one of its parts, or eqkin's own, at the context's scale."""
    changes = {} if variant == EQKIN else VARIANTS[variant][1]
    recipe = RECIPES[EQKIN if variant == EQKIN else "paper"].override(changes | {"width": str(context.scale.width)})
    triplets, batch = context.scale.triplets, recipe.batch
    if variant == EQKIN:
        triplets = min(recipe.triplets, triplets)
        batch = min(batch, max(2, triplets // _MIN_STEPS))
    return replace(recipe, triplets=triplets, batch=batch, held_out=HELD_OUT_FRACTION, split_seed=SPLIT_SEED, seed=seed)


def train_variant(context: ExperimentContext, corpus: Corpus, variant: str, seed: int) -> Path:
    """Train a variant, or find the trained one; return the folder of its model."""
    recipe = make_recipe(variant, seed, context)
    name = variant if variant == EQKIN else f"{recipe.name}-{variant}"

    def train(part: Path) -> None:
        from eqkin.training.config import LoggingConfig
        from eqkin.training.run import TrainingRun
        from eqkin.training.trainer import TrainingProgress

        def log(progress: TrainingProgress) -> None:
            share, rate = progress.step / progress.steps, progress.triplets_per_second
            context.log(f"{name.replace('-', ' ', 1)}, seed {seed}: {share:.0%}, {rate:,.0f} triplets per second")

        logging = LoggingConfig(score_steps=recipe.steps + 1, final_triples=context.scale.triples)
        TrainingRun(corpus, recipe, part, context.device, logging=logging, on_progress=log).train(resume=True)
        for path in part.glob("checkpoint*"):
            path.unlink()

    key = {"recipe": recipe.to_dict(), "corpus": corpus.digest}
    return context.cache.get_or_fit(name, key, train) / "model"


def rank_triples(context: ExperimentContext, model: Path, triples: HeldOutTriples) -> Flags:
    """Return which triples a network ranks correctly by the inner product, as in the paper."""
    network = Model.load(model)
    forest = triples.formulas.forest
    return triples.rank(context, {"model": network.digest}, lambda: embed_forest(network, forest, context.device))


def train_networks(context: ExperimentContext, corpus: Corpus) -> HeldOutTriples:
    """Train all networks of the ablation and rank the held-out triples with them; needs no converter."""
    trees_only = drop_text(corpus)
    triples = HeldOutTriples(trees_only.split(HELD_OUT_FRACTION, SPLIT_SEED)[1], context.scale.triples)
    for seed in range(context.scale.seeds):
        for variant in VARIANTS:
            rank_triples(context, train_variant(context, trees_only, variant, seed), triples)
    rank_triples(context, train_variant(context, corpus, EQKIN, EQKIN_SEED), triples)
    return triples


@dataclass(frozen=True, eq=False)
class AblationScores:
    """The scores of a system: correct triples and labelled measurements, one of each per seed."""

    title: str
    correct: list[Flags]
    labelled: list[dict[str, Any]]  # empty without a labelled set

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """How often each triple is ranked correctly, over the seeds."""
        return np.asarray(np.mean(np.array(self.correct, np.float64), axis=0), np.float64)

    def compute_labelled_scores(self) -> dict[str, Score | str]:
        """Average the labelled scores over seeds; the interval is the mean of theirs, since they share the set."""
        scores = [to_scores(measured) for measured in self.labelled]
        return {
            key: Score(
                *(float(np.mean([getattr(one[key], part) for one in scores])) for part in ("value", "low", "high"))
            )
            for key in (scores[0] if scores else ())
        }


def check_tree_embedding(system: System) -> EmbeddingSystem:
    """Return the system if it can rank held-out triples; raises `BadInput` before anything is fitted."""
    if not isinstance(system, EmbeddingSystem) or system.needs_latex:
        reason = "reads LaTeX" if system.needs_latex else "gives no vectors"
        raise BadInput(f"{system.name} {reason}, but the ablation compares vectors of trees: leave it out")
    if isinstance(system, NetworkSystem):
        raise BadInput(f"{system.name} is already trained, maybe on held-out papers: leave it out")
    return system


def run_ablation(
    context: ExperimentContext, corpus: Corpus, systems: Sequence[System] = (), labelled: LabelledSet | None = None
) -> tuple[ExperimentResult, list[Plot]]:
    """Train the variants and baselines (`systems`) on one half of the papers and rank triples of the other.

    The labelled set is for the other two columns. Raises `BadInput` if a baseline has no vectors of trees or may have
    seen the held-out half, or if there are too few papers.
    """
    baselines = [check_tree_embedding(system) for system in systems]
    triples = train_networks(context, corpus)
    trees_only = drop_text(corpus)
    half = trees_only.split(HELD_OUT_FRACTION, SPLIT_SEED)[0]

    def measure_networks(name: str, title: str, models: Sequence[Path]) -> AblationScores:
        """Measure the networks of a variant, one per seed."""
        systems = [NetworkSystem(name, title, model, device=context.device) for model in models if labelled]
        measured = [measure_labelled(context, system, labelled) for system in systems if labelled]
        return AblationScores(title, [rank_triples(context, model, triples) for model in models], measured)

    networks = {}
    for variant, (title, _) in VARIANTS.items():
        models = [train_variant(context, trees_only, variant, seed) for seed in range(context.scale.seeds)]
        networks[variant] = measure_networks(f"paper-{variant}", title, models)
    own = measure_networks("eqkin-recipe", EQKIN_TITLE, [train_variant(context, corpus, EQKIN, EQKIN_SEED)])
    others = [_measure_baseline(context, half, system, triples, labelled) for system in baselines]
    table = Table(
        "ablation",
        "Ablation",
        _COLUMNS if labelled else _COLUMNS[:1],
        [_make_row(triples, one) for one in (*networks.values(), own, *others)] + ABLATION_ROWS,
        f"Ranking, held out: share of {len(triples):,} triples of {triples.paper_count:,} held-out papers, mean "
        f"over seeds ({context.scale.seeds}; {EQKIN_TITLE}: 1), 95 % interval of an incomplete U-statistic "
        f"({triples.colours} colours). The paper's rows are on its own papers and its own labelled set.",
    )
    weights = draw_bootstrap_weights(triples.work_count, context.scale.resamples, 0)
    differences = {
        variant: _compute_difference(triples, one, networks[FULL], weights)
        for variant, one in networks.items()
        if variant != FULL
    }
    gain = {EQKIN: _compute_difference(triples, own, networks[FULL], weights)}
    tables = [table, _make_differences_table(networks | {EQKIN: own}, differences | gain)]
    if labelled is not None:
        tables.append(_make_scale_table(context, networks[FULL], labelled))
    facts = {
        "corpus": f"{len(corpus):,} equations, digest {corpus.digest[:16]}",
        "trained on": f"{len(half):,} equations of {len(half.papers):,} papers",
        "ranked": f"{len(triples):,} triples of {triples.paper_count:,} papers, {triples.colours} colours",
        "triplets": f"{context.scale.triplets:,} per network",
        "seeds": str(context.scale.seeds),
    }
    series = {
        "here": {VARIANTS[variant][0]: scores["ranking"] for variant, scores in differences.items()},
        "the paper": {VARIANTS[variant][0]: _compute_paper_difference(variant)["ranking"] for variant in differences},
    }
    plot = Plot("ablation-differences", "Change of the held-out ranking without a part", "points", series)
    return ExperimentResult("ablation", "Ablation", tables, facts=facts), [plot]


def _measure_baseline(
    context: ExperimentContext,
    half: Corpus,
    system: EmbeddingSystem,
    triples: HeldOutTriples,
    labelled: LabelledSet | None,
) -> AblationScores:
    """Fit a baseline on the same half and measure it."""
    context.fit(system, half)
    context.log(f"{system.title}: ranking {len(triples):,} triples")
    key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from}
    correct = triples.rank(context, key, lambda: normalize_rows(system.encode_cached(triples.formulas)))
    return AblationScores(system.title, [correct], [measure_labelled(context, system, labelled)] if labelled else [])


def _make_row(triples: HeldOutTriples, one: AblationScores) -> TableRow:
    shares = [float(correct.mean()) for correct in one.correct]
    note = f"seeds: {', '.join(f'{100 * share:.1f}' for share in shares)}" if len(shares) > 1 else ""
    cells = {"ranking": triples.make_score(float(one.mean.mean())), **one.compute_labelled_scores()}
    return TableRow(one.title, cells, note=note)


def _compute_difference(
    triples: HeldOutTriples, one: AblationScores, full: AblationScores, weights: Floats
) -> dict[str, Score]:
    """Compute the difference of a network to the full one, in points, by the key of the column."""
    values = one.mean - full.mean
    bounds = compute_percentile_interval(triples.resample(values, weights)) if triples.work_count > 1 else ()
    found = {"ranking": Score(float(values.mean()), *bounds)}
    if one.labelled:
        found |= compute_labelled_difference(one.labelled, full.labelled)
    return {
        key: Score(100 * score.value, *(None if end is None else 100 * end for end in (score.low, score.high)))
        for key, score in found.items()
    }


def _compute_paper_difference(variant: str) -> dict[str, Score]:
    """Compute the same difference in the paper."""
    rows = {row.title: row.cells for row in ABLATION_ROWS}
    mine, full = rows[_PAPER_TITLES[variant]], rows["Full model"]
    return {
        key: Score(round(100 * (score.value - best.value), 1))
        for key, score in mine.items()
        if isinstance(score, Score) and isinstance(best := full[key], Score)
    }


def _make_differences_table(networks: dict[str, AblationScores], differences: dict[str, dict[str, Score]]) -> Table:
    rows = []
    for variant, scores in differences.items():
        pairs = zip(networks[variant].correct, networks[FULL].correct, strict=variant != EQKIN)
        seeds = ", ".join(f"{100 * (float(a.mean()) - float(b.mean())):+.1f}" for a, b in pairs)
        rows.append(TableRow(networks[variant].title, {**scores, **({} if variant == EQKIN else {"seeds": seeds})}))
    rows += [TableRow(_PAPER_TITLES[one], dict(_compute_paper_difference(one)), PAPER) for one in _PAPER_TITLES]
    caption = (
        "Points more (+) or less (-) than the full model, on the same triples and labelled equations, mean over seeds; "
        "95 % intervals by bootstrap over works, and over labels. They do not include the variation of seeds, which is "
        "shown next to them."
    )
    columns = [column for column in _DIFFERENCE_COLUMNS if any(column.key in row.cells for row in rows)]
    return Table("ablation-differences", "Without a part, and by eqkin's recipe", columns, rows, caption)


def _make_scale_table(context: ExperimentContext, full: AblationScores, labelled: LabelledSet) -> Table:
    """Show the value of more papers and triplets on labelled equations (the paper's second table)."""
    bundled = NetworkSystem("paper", "Bundled network", "paper", device=context.device)
    papers = bundled.model.training.get("learned_from", {}).get("papers", 0)

    def format_count(count: int) -> str:
        return f"{count / 1e6:.0f} M" if count >= 1_000_000 else f"{count:,}"

    bundled_title = f"{format_count(bundled.model.recipe.get('triplets', 0))} triplets of {papers:,} papers (bundled)"
    rows = [
        TableRow(f"{format_count(context.scale.triplets)} triplets, half of the works", full.compute_labelled_scores()),
        TableRow(bundled_title, dict(to_scores(measure_labelled(context, bundled, labelled)))),
    ]
    caption = "Equations of the atlas, 95 % intervals by bootstrap over labels; the paper's rows are on its own 103."
    return Table("ablation-scale", "More papers, more triplets", _COLUMNS[1:], rows + LARGE_SCALE_ROWS, caption)
