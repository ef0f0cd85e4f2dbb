"""Labelled equations: has the nearest neighbour the same label, are pairs of one label nearest (paper, section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput
from eqkin.evaluation.compare import against
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.metrics.label_triples import compute_ranking_scores, count_correct_triples, count_triples
from eqkin.evaluation.metrics.nearest import score_nearest_labels
from eqkin.evaluation.published import LARGE_SCALE_ROWS
from eqkin.evaluation.results import ExperimentResult, Score, Table, TableColumn, TableRow
from eqkin.evaluation.sets.labelled import LabelledSet
from eqkin.evaluation.systems.base import FormulaSet, System, compute_products, normalize_rows
from eqkin.search.rerank import compute_relevance_within
from eqkin.statistics import (
    RESAMPLES,
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    draw_bootstrap_weights,
    format_p,
)

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

SEED = 0  # of the resamples, the same for all systems: differences are taken within a resample
_TIE_DECIMALS = 6  # of similarities: what differs by less is a tie, in whatever order a machine adds
_COLUMNS = [
    TableColumn("accuracy", "accuracy", "percent"),
    TableColumn("labelled_ranking", "ranking", "percent"),
    TableColumn("strict", "ranking, ties wrong", "percent"),
]
_TESTS = [TableColumn(f"p_{column.key}", f"p, {column.title}", "text", "") for column in _COLUMNS[:2]]


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """How well similarities agree with labels, in [0, 1], with intervals by drawing the labels again."""

    accuracy: Score  # leave-one-out 1-NN
    ranking: Score  # of triples, ties right: the paper's
    strict: Score  # of triples, ties wrong
    correct: npt.NDArray[np.float64]  # each query's part in the accuracy
    groups: npt.NDArray[np.int64]  # the number of each query's label
    rankings: npt.NDArray[np.float64]  # the ranking in each resample; NaN where no triple was drawn


def score_labels(
    similarity: Floats, labels: Sequence[str], *, resamples: int = RESAMPLES, seed: int = SEED
) -> LabelledScores:
    """Leave-one-out 1-NN accuracy and ranking of equations by their similarities.

    Args:
        similarity: (n, n) how related each equation (row) finds each other one; it is rounded to six decimals. The
            accuracy goes by rows; the ranking takes the mean of both directions, should they differ.
        labels: (n,) their labels. One that stands there once makes its equation a distractor: it is no query, and in no
            pair, but can be the nearest neighbour or the third of a triple.
        resamples: How many an interval has.
        seed: Of the resamples.

    Raises:
        BadInput: shapes differ, a similarity is no number, no label stands there twice, or there is only one label.
    """
    names, groups = np.unique(np.asarray(labels, str), return_inverse=True)
    similarity = np.asarray(similarity)
    if similarity.shape != (len(groups), len(groups)):
        raise BadInput(f"{len(groups)} labels need as many similarities each way, not {similarity.shape}")
    if len(names) < 2:
        raise BadInput(f"there is only one label ({', '.join(names)}): nothing to tell it from; add others")
    if len(names) == len(groups):
        raise BadInput("no label stands there twice: no equation has a neighbour to find")
    if not np.isfinite(similarity).all():
        raise BadInput("a similarity is no number")
    near = np.round(similarity.astype(np.float64), _TIE_DECIMALS)
    right = score_nearest_labels(near, groups)
    drawn = np.concatenate((np.ones((1, len(names)), np.float32), draw_bootstrap_weights(len(names), resamples, seed)))
    total = count_triples(groups)
    loose, strict = (
        compute_ranking_scores(counts, total, drawn) for counts in count_correct_triples((near + near.T) / 2, groups)
    )
    asked = ~np.isnan(right)
    return LabelledScores(
        bootstrap_mean(right[asked], groups[asked], resamples=resamples, seed=seed),
        Score(float(loose[0]), *compute_percentile_interval(loose[1:])),
        Score(float(strict[0]), *compute_percentile_interval(strict[1:])),
        right[asked],
        groups[asked],
        loose[1:],
    )


def compute_embedding_similarity(formulas: FormulaSet, encoder: Encoder) -> Floats:
    """The cosine of all pairs' vectors; for vectors of length 1 it orders as their Euclidean distance does."""
    vectors = normalize_rows(encoder.embed(formulas.forest))
    return compute_products(vectors, vectors)


def compute_engine_similarity(formulas: FormulaSet, encoder: Encoder) -> Floats:
    """How related the search engine finds each formula to each other one; none is a candidate for itself."""
    vectors = np.asarray(normalize_rows(encoder.embed(formulas.forest)), np.float32)
    return compute_relevance_within(formulas.forest, vectors)


def summarize(labelled_set: LabelledSet, encoder: Encoder | None = None, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Both scores of the search engine and of its vectors alone, in percent: what `eqkin evaluate labelled` gives."""
    encoder = encoder or Encoder.load()
    formulas, labels = labelled_set.equations.formulas, labelled_set.labels
    ranked, embedded = compute_engine_similarity(formulas, encoder), compute_embedding_similarity(formulas, encoder)
    found = score_labels(ranked, labels, resamples=resamples)
    alone = found if np.array_equal(ranked, embedded) else score_labels(embedded, labels, resamples=resamples)
    return {
        "accuracy": _to_percent(found.accuracy.value),
        "ranking": _to_percent(found.ranking.value),
        "embedding": {"accuracy": _to_percent(alone.accuracy.value), "ranking": _to_percent(alone.ranking.value)},
        "intervals": _to_percent_intervals(found) | {"embedding": _to_percent_intervals(alone)},
        "equations": len(labels),
        "labels": len(set(labels)),
    }


def _to_percent_intervals(found: LabelledScores) -> dict[str, Any]:
    return {
        "accuracy": [_to_percent(found.accuracy.low), _to_percent(found.accuracy.high)],
        "ranking": [_to_percent(found.ranking.low), _to_percent(found.ranking.high)],
    }


def _to_percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def run_labelled(
    context: ExperimentContext, systems: Sequence[System], sets: Sequence[LabelledSet]
) -> ExperimentResult:
    """Both scores of systems that have learned what they have to, on labelled sets; tested against the first system.

    Raises:
        BadInput: there is no system or no set, two sets have one name, or a set has too few labels.
    """
    if not systems or not sets:
        raise BadInput("there is nothing to measure: give a system and a labelled set")
    if len({given.name for given in sets}) < len(sets):
        raise BadInput(f"labelled sets need names of their own: {', '.join(given.name for given in sets)}")
    tables, findings = [], []
    facts = {"resamples": f"{context.scale.resamples:,}", "seed": str(SEED)}
    for given in sets:
        measured = [measure_system(context, system, given) for system in systems]
        tests = [_compute_p_values(one, measured[0]) for one in measured[1:]]
        tables.append(_make_table(given, systems, measured, tests))
        findings += _findings(given, systems, measured, tests)
        facts[given.name] = _describe_set(given)
    return ExperimentResult(
        "labelled",
        "Labelled equations",
        "On 103 equations in 13 categories the paper's best networks reach 84.0 % accuracy of the nearest neighbour "
        "and a ranking of 76.2 %, more than the bitmap CNN before them (68.3 %, 71.9 %).",
        findings,
        [*tables, _make_paper_table()],
        differences=[
            "Scores have intervals, by drawing labels again with their equations (bootstrap); the paper gives none.",
            "Equally near neighbours count with the share of them that is right; equations whose label nobody shares "
            "are no queries, but may stand in others' way.",
            "A ranking with ties counted as wrong stands beside the paper's: there, similarities that are all the same "
            "would be perfect.",
            *(warning for system in systems for warning in system.list_warnings([given.name for given in sets])),
        ],
        facts=facts,
    )


def to_scores(found: dict[str, Any]) -> dict[str, Score]:
    """Accuracy and ranking of what was measured, by the keys of the columns."""
    return {column.key: Score(*found[column.key]) for column in _COLUMNS[:2]}


def compute_difference(found: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> dict[str, Score]:
    """Means of what was measured on one set, less those of others, with intervals of the paired differences."""
    accuracy = np.mean([one["right"] for one in found], axis=0) - np.mean([one["right"] for one in other], axis=0)
    mine, theirs = (np.mean([np.array(one["rankings"], np.float64) for one in many], axis=0) for many in (found, other))
    ranking = np.mean([one["labelled_ranking"][0] for one in found]) - np.mean(
        [one["labelled_ranking"][0] for one in other]
    )
    return {
        "accuracy": bootstrap_mean(accuracy, np.array(found[0]["groups"]), resamples=max(len(mine), 1), seed=SEED),
        "labelled_ranking": Score(float(ranking), *compute_percentile_interval(mine - theirs)),
    }


def measure_system(context: ExperimentContext, system: System, given: LabelledSet) -> dict[str, Any]:
    """What a system reaches on a set, from the store if it was measured before."""
    context.log(f"{system.title}: {len(given):,} labelled equations of {given.name}")
    resamples = context.scale.resamples
    key = {
        "system": system.name, "settings": system.settings, "learned_from": system.learned_from,
        "set": given.digest, "resamples": resamples, "seed": SEED, "drawn": "labels",
    }  # fmt: skip

    def measure() -> dict[str, Any]:
        formulas = given.equations.formulas
        found = score_labels(system.rank(formulas, formulas), given.labels, resamples=resamples)
        return {
            "accuracy": _to_list(found.accuracy), "labelled_ranking": _to_list(found.ranking),
            "strict": _to_list(found.strict), "right": found.correct.tolist(),
            "groups": found.groups.tolist(), "rankings": found.rankings.tolist(),
        }  # fmt: skip

    return context.cache.get_or_measure("labelled", key, measure)


def _to_list(score: Score) -> list[float | None]:
    return [score.value, score.low, score.high]


def _compute_p_values(measured: dict[str, Any], baseline: dict[str, Any]) -> dict[str, float]:
    """The p-values of the differences in accuracy and in ranking."""
    one, other = (np.array(found["rankings"], np.float64) for found in (measured, baseline))  # None becomes NaN
    return {
        "accuracy": compute_sign_flip_p(
            *(np.bincount(found["groups"], found["right"]) for found in (measured, baseline))
        ),
        "labelled_ranking": compute_two_sided_p(one - other),
    }


def _make_table(
    given: LabelledSet, systems: Sequence[System], measured: Sequence[dict[str, Any]], tests: Sequence[dict[str, float]]
) -> Table:
    rows = []
    for system, found, p in zip(systems, measured, [{}, *tests], strict=True):
        cells: dict[str, Score | str] = {column.key: Score(*found[column.key]) for column in _COLUMNS}
        rows.append(TableRow(system.title, cells | {f"p_{key}": format_p(value) for key, value in p.items()}))
    return Table(
        f"labelled-{given.name}",
        f"Labelled equations: {given.name}",
        _COLUMNS + (_TESTS if tests else []),
        rows,
        f"{len(given):,} equations with {len(set(given.labels)):,} labels. Accuracy: the nearest other equation has "
        "the same label. Ranking: two equations of one label are at least as similar as either is to a third of "
        f"another label. Intervals: 95 %, bootstrap over labels; p: two-sided, against {systems[0].title}, not "
        "corrected for the number of comparisons (accuracy: paired randomisation test by label; ranking: bootstrap of "
        "the difference).",
    )


def _make_paper_table() -> Table:
    caption = "On the paper's own 103 equations in 13 categories, so not comparable with other sets."
    return Table("labelled-paper", "The paper's figures", _COLUMNS[:2], LARGE_SCALE_ROWS, caption)


def _findings(
    given: LabelledSet, systems: Sequence[System], measured: Sequence[dict[str, Any]], tests: Sequence[dict[str, float]]
) -> list[str]:
    """Which system is best by each score, and which differ from the first."""
    sentences = []
    for column in _COLUMNS[:2]:
        best = max(range(len(systems)), key=lambda at: float(measured[at][column.key][0]))
        value, low, high = measured[best][column.key]
        sentence = f"{given.name}: {systems[best].title} has the best {column.title}, {100 * value:.1f} %"
        sentence += "" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
        if tests:
            usual = measured[0][column.key][0]
            others = zip(systems[1:], measured[1:], tests, strict=True)
            compared = [(system.title, one[column.key][0] - usual, p[column.key]) for system, one, p in others]
            sentence += f"; {against(systems[0].title, compared)}"
        sentences.append(sentence + ".")
    return sentences


def _describe_set(given: LabelledSet) -> str:
    alone = sum(count == 1 for count in Counter(given.labels).values())
    text = f"{len(given):,} equations, {len(set(given.labels)):,} labels, digest {given.digest}"
    text += f"; {alone} with a label of their own" if alone else ""
    text += f"; {given.duplicates} written the same as another" if given.duplicates else ""
    return text + (f"; {len(given.skipped)} unreadable ones left out" if given.skipped else "")
