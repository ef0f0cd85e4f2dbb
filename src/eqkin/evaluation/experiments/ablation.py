"""The ablation (paper, section 6.1): what histogram loss, masking and augmentation are worth, beside all baselines.

Every variant is learned from the same half of the works, with several seeds, and ranks the same triples of the other
half. Scores carry the interval of an incomplete U-statistic, which holds for every score of that kind and is wide. The
difference to the full model is taken triple by triple; its interval is of a bootstrap over papers, and narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.bootstrap import middle, weights
from eqkin.evaluation.experiments.ablated import FULL, VARIANTS, learned, ranked
from eqkin.evaluation.experiments.context import HELD_OUT, SPLIT, Context
from eqkin.evaluation.experiments.labelled import measured_scores
from eqkin.evaluation.labelled_sets import LabelledSet
from eqkin.evaluation.published import ABLATION_ROWS
from eqkin.evaluation.results import Column, Curve, Plot, Result, Row, Score, Table
from eqkin.evaluation.systems.base import Embedding, unit
from eqkin.evaluation.systems.networks import Network
from eqkin.evaluation.triples import Triples, packed, unpacked
from eqkin.learning.corpus import Corpus

_COLUMNS = [
    Column("ranking", "ranking, held out", "percent"),
    Column("labelled_ranking", "ranking, labelled", "percent"),
    Column("accuracy", "accuracy, labelled", "percent"),
]
_DIFFERENCES = [
    Column("difference", "difference to the full model, points", "number"),
    Column("paper", "the paper's", "number", ""),
    Column("seeds", "each seed", "text", ""),
]
_PAPER_TITLES = {"no-histogram": "No histogram loss", "no-masking": "No masking", "no-augmentation": "No augmentation"}


@dataclass(frozen=True, eq=False)
class _Measured:
    """One line of the table: what was ranked right (mean over seeds), and the labelled scores of the first seed."""

    title: str
    right: list[npt.NDArray[np.bool_]]  # which triples, a seed each
    labelled: dict[str, Score]

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """How often each triple was ranked right, over the seeds."""
        return np.asarray(np.mean(np.array(self.right, np.float64), axis=0), np.float64)


def learn(context: Context, corpus: Corpus) -> Triples:
    """Learn all networks of the ablation and rank the held-out triples with them; needs trees alone, no converter."""
    triples = Triples(corpus.split(HELD_OUT, SPLIT)[1], context.scale.triples)
    for seed in range(context.scale.seeds):
        for variant in VARIANTS:
            ranked(context, learned(context, corpus, variant, seed), triples)
    return triples


def ablation(
    context: Context, corpus: Corpus, systems: Sequence[Embedding] = (), labelled: LabelledSet | None = None
) -> Result:
    """The ablation's tables.

    Args:
        context: Where to keep what is learned, and how much to do.
        corpus: All papers; one half is learned from, the other ranked.
        systems: Baselines to put beside the networks; they learn from the same half.
        labelled: A labelled set for the other two columns.
    """
    triples = learn(context, corpus)
    half = corpus.split(HELD_OUT, SPLIT)[0]
    networks = {variant: _network(context, corpus, variant, triples, labelled) for variant in VARIANTS}
    others = [_baseline(context, half, system, triples, labelled) for system in systems]
    table = Table(
        "ablation",
        "Ablation",
        _COLUMNS if labelled else _COLUMNS[:1],
        [_row(triples, one) for one in (*networks.values(), *others)] + ABLATION_ROWS,
        f"Ranking, held out: share of {len(triples):,} triples of {triples.count_of_papers:,} papers nobody learned "
        f"from, mean of {context.scale.seeds} seeds, 95 % interval of an incomplete U-statistic "
        f"({triples.colours} colours). The paper's rows are on its own papers and its own labelled set.",
    )
    drawn = weights(triples.count_of_papers, context.scale.resamples, 0)
    differences = {
        variant: _difference(triples, one, networks[FULL], drawn)
        for variant, one in networks.items()
        if variant != FULL
    }
    return Result(
        "ablation",
        "Ablation",
        "Every part of the recipe helps on held-out papers: without the histogram loss the ranking falls by 4.0 "
        "points, without masking by 1.3, without augmentation by 1.2; the bitmap CNN learned anew is 6.5 below.",
        _findings(networks, others, differences),
        [table, _differences_table(networks, differences)],
        [_plot(differences)],
        differences=[
            "Papers are split by work (repository or book), so that no author's notation is on both sides.",
            f"Networks learn from {context.scale.triplets:,} triplets, each seen once, not from a fixed set in epochs.",
            "Labelled columns are of the atlas' groups of kin equations, not of the paper's 103 equations.",
        ],
        facts={
            "corpus": f"{len(corpus):,} equations, digest {corpus.digest[:16]}",
            "learned from": f"{len(half):,} equations of {len(half.papers):,} papers",
            "ranked": f"{len(triples):,} triples of {triples.count_of_papers:,} papers, {triples.colours} colours",
            "triplets": f"{context.scale.triplets:,} a network",
            "seeds": str(context.scale.seeds),
        },
    )


def _network(
    context: Context, corpus: Corpus, variant: str, triples: Triples, labelled: LabelledSet | None
) -> _Measured:
    models = [learned(context, corpus, variant, seed) for seed in range(context.scale.seeds)]
    right = [unpacked(ranked(context, model, triples), len(triples)) for model in models]
    scores = [_labelled(context, _system(variant, model), labelled) for model in models]
    return _Measured(VARIANTS[variant][0], right, _mean_of(scores))


def _system(variant: str, model: Path) -> Network:
    return Network(f"paper-{variant}", VARIANTS[variant][0], model)


def _baseline(
    context: Context, half: Corpus, system: Embedding, triples: Triples, labelled: LabelledSet | None
) -> _Measured:
    context.fit(system, half)
    context.tell(f"{system.title}: ranking {len(triples):,} triples")
    key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from, **triples.key}

    def measure() -> dict[str, Any]:
        return {"correct": packed(triples.correct(unit(system.vectors(triples.formulas))))}

    right = unpacked(context.store.measured("ranking", key, measure)["correct"], len(triples))
    return _Measured(system.title, [right], _labelled(context, system, labelled))


def _labelled(context: Context, system: Embedding, labelled: LabelledSet | None) -> dict[str, Score]:
    return measured_scores(context, system, labelled) if labelled else {}


def _mean_of(scores: Sequence[dict[str, Score]]) -> dict[str, Score]:
    """Means over seeds; the interval is the mean of theirs, since they share what is measured on."""
    return {
        key: Score(*(float(np.mean([getattr(one[key], part) for one in scores])) for part in ("value", "low", "high")))
        for key in scores[0]
    }


def _row(triples: Triples, one: _Measured) -> Row:
    spread = [float(right.mean()) for right in one.right]
    note = f"seeds: {', '.join(f'{100 * share:.1f}' for share in spread)}" if len(spread) > 1 else ""
    return Row(one.title, {"ranking": triples.score_of(float(one.mean.mean())), **one.labelled}, note=note)


def _difference(triples: Triples, one: _Measured, full: _Measured, drawn: npt.NDArray[np.floating[Any]]) -> Score:
    values = 100 * (one.mean - full.mean)
    low, high = middle(triples.resampled(values, drawn))
    return Score(float(values.mean()), low, high)


def _differences_table(networks: dict[str, _Measured], differences: dict[str, Score]) -> Table:
    paper = {row.title: row.cells["ranking"] for row in ABLATION_ROWS}
    rows = []
    for variant, score in differences.items():
        pairs = zip(networks[variant].right, networks[FULL].right, strict=True)
        seeds = ", ".join(f"{100 * (float(a.mean()) - float(b.mean())):+.1f}" for a, b in pairs)
        other, best = paper[_PAPER_TITLES[variant]], paper["Full model"]
        assert isinstance(other, Score) and isinstance(best, Score)
        cells: dict[str, Score | str] = {
            "difference": score, "paper": Score(round(100 * (other.value - best.value), 1)), "seeds": seeds,
        }  # fmt: skip
        rows.append(Row(networks[variant].title, cells))
    caption = "On the same held-out triples, mean over seeds; 95 % intervals by bootstrap over papers."
    return Table("ablation-differences", "What each part is worth, held out", _DIFFERENCES, rows, caption)


def _plot(differences: dict[str, Score]) -> Plot:
    paper = {row.title: row.cells["ranking"] for row in ABLATION_ROWS}
    best = paper["Full model"]
    assert isinstance(best, Score)
    others = [score.value for v in differences if isinstance(score := paper[_PAPER_TITLES[v]], Score)]
    titles: list[float | str] = [VARIANTS[variant][0] for variant in differences]
    ours = list(differences.values())
    return Plot(
        "ablation-differences",
        "Left out: change of the held-out ranking",
        "",
        "points",
        [
            Curve("here", titles, [s.value for s in ours], [s.low or 0 for s in ours], [s.high or 0 for s in ours]),
            Curve("the paper", titles, [round(100 * (value - best.value), 1) for value in others]),
        ],
        kind="bar",
    )


def _holds(score: Score) -> str:
    """Whether a difference says that the part which was left out helps."""
    if score.low is None or score.high is None or score.low <= 0 <= score.high:
        return "not decided"
    return "confirmed" if score.high < 0 else "contradicted"


def _findings(networks: dict[str, _Measured], others: Sequence[_Measured], differences: dict[str, Score]) -> list[str]:
    verdicts = {variant: _holds(score) for variant, score in differences.items()}
    order = sorted(differences, key=lambda variant: differences[variant].value)
    same = order == ["no-histogram", "no-masking", "no-augmentation"]
    whole = set(verdicts.values())
    opening = "Holds" if whole == {"confirmed"} else "Holds in part" if "confirmed" in whole else "Does not hold"
    found = [
        f"{opening}: from the most to the least important part, leaving it out gives "
        + ", ".join(f"{VARIANTS[v][0].lower()} {differences[v].value:+.1f}" for v in order)
        + " points; the paper's order of effects (histogram loss, masking, augmentation) is "
        + ("the same." if same else "another.")
    ]
    for variant, score in differences.items():
        found.append(
            f"{VARIANTS[variant][0]}: {score.value:+.1f} points [{score.low:+.1f}, {score.high:+.1f}] on held-out "
            f"triples; that this part helps there is {verdicts[variant]}."
        )
    if others:
        full = float(networks[FULL].mean.mean())
        ranks = ", ".join(f"{one.title} {100 * float(one.mean.mean()):.1f} %" for one in others)
        found.append(f"Beside the full model's {100 * full:.1f} %: {ranks}.")
    return found
