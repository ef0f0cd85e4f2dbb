"""A whole comparison in one call: systems rank all formulas for each topic; means, intervals, and a paired test.

    lines = compare(systems, topics, formulas, qrels, [NDCG, MAP], baseline="tf-idf", context=context)

A list holds every formula, largest score first. Ties are broken by one random order of the formulas, the same for all
systems and topics: the order of a file often says who was judged relevant. Formulas that have no tree come last for a
system that reads trees, and a topic without a tree has an empty list there. What each system reached for each topic is
kept in the store, so that a comparison that was stopped, or gets another system, goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.metrics.grades import UNJUDGED, Grades, as_grades
from eqkin.evaluation.metrics.measures import Measure
from eqkin.evaluation.results import Score
from eqkin.evaluation.sets.judged import Qrels, RankedLists
from eqkin.evaluation.sets.named_formulas import NamedFormulas
from eqkin.evaluation.store import compute_digest
from eqkin.evaluation.systems.base import System
from eqkin.statistics import bootstrap_mean, compute_sign_flip_p

Values: TypeAlias = dict[str, list[float]]  # a number for each topic, by the key of the measure

SIGNIFICANCE_LEVEL = 0.05  # p-values below are called a difference
TIE_SEED = 0  # seed of the order in which equal scores stand


@dataclass(frozen=True)
class SystemScores:
    """What one system reached."""

    name: str
    title: str
    values: Values  # of each topic
    scores: dict[str, Score]  # the means, by the key of the measure
    p: dict[str, float] = field(default_factory=dict)  # of the paired test against the baseline; empty for that itself


def compare(
    systems: Sequence[System],
    topics: NamedFormulas,
    formulas: NamedFormulas,
    qrels: Qrels,
    metrics: Sequence[Measure],
    *,
    context: ExperimentContext,
    baseline: str = "",
    runs: Mapping[str, RankedLists] | None = None,
    experiment: str = "compare",
) -> list[SystemScores]:
    """Measure systems that have learned what they have to, and other people's runs, on judged topics.

    Args:
        systems: What is compared; names differ.
        topics: The queries.
        formulas: What is ranked.
        qrels: The judgements; topics without any are an error.
        metrics: What is measured on each list.
        context: Where measurements are kept, and how many resamples intervals have.
        baseline: Name of the system or run that the others are tested against; by default the first.
        runs: Lists of other systems by their name; a topic that one does not have counts as an empty list.
        experiment: Where in the store measurements are kept.

    Returns:
        A line for each system, then for each run, in the order given.

    Raises:
        BadInput: names are not distinct, the baseline is none of them, a topic has no judgements, a system gives scores
            of the wrong shape or NaN, or a run has none of the topics.
    """
    runs = runs or {}
    names = [system.name for system in systems] + list(runs)
    _check_comparison(names, baseline, topics, qrels)
    values: list[Values] = []
    data = [topics.digest, formulas.digest, compute_digest(qrels), [measure.key for measure in metrics], TIE_SEED]
    for system in systems:
        key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from, "data": data}
        context.log(f"{system.title}: ranking {len(formulas):,} formulas for {len(topics):,} topics")
        measure = partial(_measure_system, system, topics, formulas, qrels, metrics)
        values.append(context.cache.get_or_measure(experiment, key, measure)["values"])
    for name, run in runs.items():
        if not run.keys() & set(topics.names):
            raise BadInput(f"the run {name} has results for none of the topics")
        lists = [run.get(topic, []) for topic in topics.names]
        values.append(_measure_lists(lists, topics.names, qrels, metrics))
    titles = [system.title for system in systems] + list(runs)
    return _summarize(names, titles, values, names.index(baseline or names[0]), context.scale.resamples)


def against(baseline: str, found: Iterable[tuple[str, float, float]]) -> str:
    """Who is better and who is worse than the baseline, in words; given title, difference and p-value of each."""
    known = [(title, difference) for title, difference, p in found if p < SIGNIFICANCE_LEVEL]
    if not known:
        return f"no other differs from {baseline} (p < .05)"
    better = ", ".join(title for title, difference in known if difference > 0) or "none"
    worse = ", ".join(title for title, difference in known if difference < 0) or "none"
    return f"better than {baseline} (p < .05): {better}; worse: {worse}"


def _measure_system(
    system: System, topics: NamedFormulas, formulas: NamedFormulas, qrels: Qrels, metrics: Sequence[Measure]
) -> dict[str, Values]:
    return {"values": _measure_lists(rank_formulas(system, topics, formulas), topics.names, qrels, metrics)}


def rank_formulas(system: System, topics: NamedFormulas, formulas: NamedFormulas) -> list[list[str]]:
    """The names of all formulas for each topic, best first."""
    scores = np.array(system.rank(topics.formulas, formulas.formulas), np.float64)
    if scores.shape != (len(topics), len(formulas)) or np.isnan(scores).any():
        raise BadInput(f"{system.title}: scores are numbers of shape {len(topics), len(formulas)}, not {scores.shape}")
    if not system.needs_latex:
        scores[:, ~formulas.readable] = -np.inf
    asked = np.ones(len(topics), bool) if system.needs_latex else topics.readable
    order = np.random.default_rng(TIE_SEED).permutation(len(formulas))
    return [
        [formulas.names[place] for place in order[np.argsort(-row[order], kind="stable")].tolist()] if read else []
        for row, read in zip(scores, asked.tolist(), strict=True)
    ]


def _measure_lists(
    lists: Sequence[Sequence[str]], topics: Sequence[str], qrels: Qrels, metrics: Sequence[Measure]
) -> Values:
    """Each measure of each topic's list."""
    graded: list[tuple[Grades, Grades]] = [
        (as_grades([qrels[topic].get(name, UNJUDGED) for name in names]), as_grades(list(qrels[topic].values())))
        for topic, names in zip(topics, lists, strict=True)
    ]
    return {measure.key: [measure.compute(ranked, judged) for ranked, judged in graded] for measure in metrics}


def _summarize(
    names: Sequence[str], titles: Sequence[str], values: Sequence[Values], base: int, resamples: int
) -> list[SystemScores]:
    lines = []
    for at, (name, title, own) in enumerate(zip(names, titles, values, strict=True)):
        scores = {key: bootstrap_mean(numbers, resamples=resamples) for key, numbers in own.items()}
        tests = {} if at == base else {key: compute_sign_flip_p(own[key], values[base][key]) for key in own}
        lines.append(SystemScores(name, title, own, scores, tests))
    return lines


def _check_comparison(names: Sequence[str], baseline: str, topics: NamedFormulas, qrels: Qrels) -> None:
    if not names:
        raise BadInput("there is nothing to compare: give a system or a run")
    if len(set(names)) < len(names):
        raise BadInput(f"systems and runs need names of their own: {', '.join(names)}")
    if baseline and baseline not in names:
        raise BadInput(f"the baseline {baseline} is none of {', '.join(names)}")
    without = [name for name in topics.names if not qrels.get(name)]
    if without:
        raise BadInput(f"topics without judgements: {', '.join(without[:5])}; leave them out")
