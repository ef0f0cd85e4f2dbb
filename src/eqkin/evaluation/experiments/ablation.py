"""The ablation (paper, section 6.1): what histogram loss, masking and augmentation are worth, beside all baselines.

Every variant is learned from the same half of the works, with several seeds, and ranks the same triples of the other
half. Scores carry the interval of an incomplete U-statistic, which holds for every score of that kind and is wide. The
difference to the full model is taken triple by triple; its interval is of a bootstrap over works, and narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.experiments.ablated import (
    EQKIN,
    EQKIN_SEED,
    EQKIN_TITLE,
    FULL,
    VARIANTS,
    rank_triples,
    train_variant,
)
from eqkin.evaluation.experiments.ablation_measured import (
    AblationScores,
    check_tree_embedding,
    measure_baseline,
    measure_eqkin,
    measure_variant,
)
from eqkin.evaluation.experiments.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext, drop_text
from eqkin.evaluation.experiments.labelled import compute_difference, measure_system, to_scores
from eqkin.evaluation.published import ABLATION_ROWS, LARGE_SCALE_ROWS
from eqkin.evaluation.results import PAPER, Curve, ExperimentResult, Plot, Score, Table, TableColumn, TableRow
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.sets.triples import HeldOutTriples
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.networks import NetworkSystem
from eqkin.statistics import compute_percentile_interval, draw_bootstrap_weights
from eqkin.training.data import Corpus

_COLUMNS = [
    TableColumn("ranking", "ranking, held out", "percent"),
    TableColumn("labelled_ranking", "ranking, labelled", "percent"),
    TableColumn("accuracy", "accuracy, labelled", "percent"),
]
_DIFFERENCES = [
    TableColumn("ranking", "ranking, held out", "number", ""),
    TableColumn("seeds", "each seed", "text", ""),
    TableColumn("labelled_ranking", "ranking, labelled", "number", ""),
    TableColumn("accuracy", "accuracy, labelled", "number", ""),
]
_WHERE = {"ranking": "held out", "labelled_ranking": "labelled ranking", "accuracy": "labelled accuracy"}
_PAPER_TITLES = {"no-histogram": "No histogram loss", "no-masking": "No masking", "no-augmentation": "No augmentation"}


def train_networks(context: ExperimentContext, corpus: Corpus) -> HeldOutTriples:
    """Learn all networks of the ablation and rank the held-out triples with them; needs trees alone, no converter."""
    alone = drop_text(corpus)
    triples = HeldOutTriples(alone.split(HELD_OUT_FRACTION, SPLIT_SEED)[1], context.scale.triples)
    for seed in range(context.scale.seeds):
        for variant in VARIANTS:
            rank_triples(context, train_variant(context, alone, variant, seed), triples)
    rank_triples(context, train_variant(context, corpus, EQKIN, EQKIN_SEED), triples)
    return triples


def run_ablation(
    context: ExperimentContext, corpus: Corpus, systems: Sequence[System] = (), labelled: LabelledSet | None = None
) -> ExperimentResult:
    """The ablation's tables.

    Args:
        context: Where to keep what is learned, and how much to do.
        corpus: All papers; one half is learned from, the other ranked.
        systems: Baselines to put beside the networks; they learn from the same half.
        labelled: A labelled set for the other two columns.

    Raises:
        BadInput: A baseline gives no vectors of trees or may have seen the held-out half, or there are too few papers.
    """
    baselines = [check_tree_embedding(system) for system in systems]
    triples = train_networks(context, corpus)
    alone = drop_text(corpus)
    half = alone.split(HELD_OUT_FRACTION, SPLIT_SEED)[0]
    networks = {variant: measure_variant(context, alone, variant, triples, labelled) for variant in VARIANTS}
    own = measure_eqkin(context, corpus, triples, labelled)
    others = [measure_baseline(context, half, system, triples, labelled) for system in baselines]
    table = Table(
        "ablation",
        "Ablation",
        _COLUMNS if labelled else _COLUMNS[:1],
        [_make_row(triples, one) for one in (*networks.values(), own, *others)] + ABLATION_ROWS,
        f"Ranking, held out: share of {len(triples):,} triples of {triples.paper_count:,} papers nobody learned "
        f"from, mean of {context.scale.seeds} seeds ({EQKIN_TITLE}: one), 95 % interval of an incomplete U-statistic "
        f"({triples.colours} colours). The paper's rows are on its own papers and its own labelled set.",
    )
    drawn = draw_bootstrap_weights(triples.work_count, context.scale.resamples, 0)
    differences = {
        variant: _compute_difference(triples, one, networks[FULL], drawn)
        for variant, one in networks.items()
        if variant != FULL
    }
    gain = _compute_difference(triples, own, networks[FULL], drawn)
    return ExperimentResult(
        "ablation",
        "Ablation",
        "Every part of the recipe helps on held-out papers: without the histogram loss the ranking falls by 4.0 "
        "points, without masking by 1.3, without augmentation by 1.2; the bitmap CNN learned anew is 6.5 below.",
        [*_findings(networks, others, differences), _own_finding(own, gain)],
        [
            table,
            _make_differences_table(networks, differences),
            _make_eqkin_table(own, gain),
            *_make_scale_tables(context, networks[FULL], labelled),
        ],
        [_make_plot(differences)],
        differences=[
            "Papers are split by work (repository or book), so that no author's notation is on both sides.",
            f"Networks learn from {context.scale.triplets:,} triplets, each seen once, not from a fixed set in epochs.",
            "Labelled columns are of the atlas' groups of kin equations, not of the paper's 103 equations.",
            f"{EQKIN_TITLE} is no part of the paper: another network and other teachers, among them the words around "
            "equations. Its settings were chosen with an eye on the atlas.",
        ],
        facts={
            "corpus": f"{len(corpus):,} equations, digest {corpus.digest[:16]}",
            "learned from": f"{len(half):,} equations of {len(half.papers):,} papers",
            "ranked": f"{len(triples):,} triples of {triples.paper_count:,} papers, {triples.colours} colours",
            "triplets": f"{context.scale.triplets:,} a network",
            "seeds": str(context.scale.seeds),
        },
    )


def _average_scores(scores: Sequence[dict[str, Score]]) -> dict[str, Score]:
    """Means over seeds; the interval is the mean of theirs, since they share what is measured on."""
    return {
        key: Score(*(float(np.mean([getattr(one[key], part) for one in scores])) for part in ("value", "low", "high")))
        for key in (scores[0] if scores else ())
    }


def _make_row(triples: HeldOutTriples, one: AblationScores) -> TableRow:
    spread = [float(right.mean()) for right in one.correct]
    note = f"seeds: {', '.join(f'{100 * share:.1f}' for share in spread)}" if len(spread) > 1 else ""
    cells = {"ranking": triples.make_score(float(one.mean.mean())), **_average_labelled_scores(one)}
    return TableRow(one.title, cells, note=note)


def _compute_difference(
    triples: HeldOutTriples, one: AblationScores, full: AblationScores, drawn: npt.NDArray[np.floating[Any]]
) -> dict[str, Score]:
    """What a network has less than the full one, in points, by the column's key."""
    values = one.mean - full.mean
    ends = (
        compute_percentile_interval(triples.resample(values, drawn)) if triples.work_count > 1 else ()
    )  # one says nothing of others
    found = {"ranking": Score(float(values.mean()), *ends)}
    if one.labelled:
        found |= compute_difference(one.labelled, full.labelled)
    return {key: _to_points(score) for key, score in found.items()}


def _to_points(share: Score) -> Score:
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return Score(100 * share.value, low, high)


def _compute_paper_difference(variant: str) -> dict[str, Score]:
    """The same in the paper."""
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
        pairs = zip(networks[variant].correct, networks[FULL].correct, strict=True)
        seeds = ", ".join(f"{100 * (float(a.mean()) - float(b.mean())):+.1f}" for a, b in pairs)
        rows.append(TableRow(networks[variant].title, {**scores, "seeds": seeds}))
    rows += [
        TableRow(_PAPER_TITLES[variant], dict(_compute_paper_difference(variant)), PAPER) for variant in differences
    ]
    caption = (
        "Points more (+) or less (-) than the full model's, on the same triples and labelled equations, mean over "
        "seeds; 95 % intervals by bootstrap over works, and over labels. How much the seeds differ is not "
        "in them, but stands beside."
    )
    columns = [column for column in _DIFFERENCES if any(column.key in row.cells for row in rows)]
    return Table("ablation-differences", "What is lost when a part is left out", columns, rows, caption)


def _make_eqkin_table(own: AblationScores, gain: dict[str, Score]) -> Table:
    caption = (
        "Points more (+) or less (-) than the paper's full recipe, mean of its seeds, on the same triples and labelled "
        "equations; 95 % intervals by bootstrap over works, and over labels. One seed of eqkin's recipe."
    )
    columns = [column for column in _DIFFERENCES if column.key in gain]
    return Table(
        "ablation-eqkin", "eqkin's recipe instead of the paper's", columns, [TableRow(own.title, dict(gain))], caption
    )


def _own_finding(own: AblationScores, gain: dict[str, Score]) -> str:
    words = ", ".join(f"{where} {_signed(gain[key])}" for key, where in _WHERE.items() if key in gain)
    share = 100 * float(own.mean.mean())
    return f"{EQKIN_TITLE} ranks {share:.1f} % of the held-out triples right; points over the paper's: {words}."


def _make_scale_tables(context: ExperimentContext, full: AblationScores, labelled: LabelledSet | None) -> list[Table]:
    """What more papers and triplets are worth on labelled equations (the paper's second table)."""
    if labelled is None:
        return []
    bundled = NetworkSystem("paper", "Bundled network", "paper", device=context.device)
    training, recipe = bundled.model.training, bundled.model.recipe
    papers = training.get("learned_from", {}).get("papers", 0)
    rows = [
        TableRow(
            f"{_format_count(context.scale.triplets)} triplets, half of the works", _average_labelled_scores(full)
        ),
        TableRow(
            f"{_format_count(recipe.get('triplets', 0))} triplets of {papers:,} papers (bundled)",
            dict(to_scores(measure_system(context, bundled, labelled))),
        ),
    ]
    caption = (
        "Labelled equations of the atlas, 95 % intervals by bootstrap over labels; the paper's rows are on its own 103."
    )
    return [Table("ablation-scale", "More papers, more triplets", _COLUMNS[1:], rows + LARGE_SCALE_ROWS, caption)]


def _format_count(count: int) -> str:
    return f"{count / 1e6:.0f} M" if count >= 1_000_000 else f"{count:,}"


def _average_labelled_scores(one: AblationScores) -> dict[str, Score | str]:
    return dict(_average_scores([to_scores(found) for found in one.labelled]))


def _make_plot(differences: dict[str, dict[str, Score]]) -> Plot:
    titles: list[float | str] = [VARIANTS[variant][0] for variant in differences]
    ours = [scores["ranking"] for scores in differences.values()]
    theirs = [_compute_paper_difference(variant)["ranking"].value for variant in differences]
    return Plot(
        "ablation-differences",
        "Left out: change of the held-out ranking",
        "",
        "points",
        [
            Curve("here", titles, [s.value for s in ours], *_ends(ours)),
            Curve("the paper", titles, theirs),
        ],
        kind="bar",
    )


def _ends(scores: Sequence[Score]) -> tuple[list[float], list[float]]:
    """The intervals' ends, as curves have them; none where one is missing."""
    low = [score.low for score in scores if score.low is not None]
    high = [score.high for score in scores if score.high is not None]
    return (low, high) if len(low) == len(high) == len(scores) else ([], [])


def _signed(score: Score) -> str:
    interval = "" if score.low is None else f" [{score.low:+.1f}, {score.high:+.1f}]"
    return f"{score.value:+.1f}{interval}"


def _holds(score: Score) -> str:
    """Whether a difference says that the part which was left out helps."""
    if score.low is None or score.high is None or score.low <= 0 <= score.high:
        return "not decided"
    return "confirmed" if score.high < 0 else "contradicted"


def _verdict(found: set[str]) -> str:
    """Whether all parts help, in the report's words."""
    if found == {"confirmed"}:
        return "Holds"
    if "confirmed" in found:
        return "Holds in part"
    return "Does not hold" if "contradicted" in found else "Undecided"


def _findings(
    networks: dict[str, AblationScores], others: Sequence[AblationScores], differences: dict[str, dict[str, Score]]
) -> list[str]:
    held_out = {variant: scores["ranking"] for variant, scores in differences.items()}
    verdicts = {variant: _holds(score) for variant, score in held_out.items()}
    order = sorted(held_out, key=lambda variant: held_out[variant].value)
    same = order == list(_PAPER_TITLES)
    found = [
        f"{_verdict(set(verdicts.values()))}: left out one by one, the parts change the "
        "held-out ranking by "
        + ", ".join(f"{held_out[v].value:+.1f} ({VARIANTS[v][0].lower()})" for v in order)
        + f" points; the paper's order of effects (histogram loss, masking, augmentation) is "
        f"{'the same' if same else 'another'}."
    ]
    for variant, scores in differences.items():
        words = ", ".join(
            f"{where} {_signed(score)}, {_holds(score)}" for key, where in _WHERE.items() if (score := scores.get(key))
        )
        found.append(f"{VARIANTS[variant][0]}, and that this part helps: {words}.")
    if others:
        full = float(networks[FULL].mean.mean())
        ranks = ", ".join(f"{one.title} {100 * float(one.mean.mean()):.1f} %" for one in others)
        found.append(f"Beside the full model's {100 * full:.1f} % on held-out triples: {ranks}.")
    return found
