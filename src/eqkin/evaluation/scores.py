"""The scores of a comparison: systems rank all formulas for each topic; means, intervals and paired tests.

    scores = score_systems(systems, JudgedSet.read("arqmath"), baseline="tfidf-latex", context=context)

`eqkin.evaluation.compare` is the same in one call, for systems and sets as a user has them.
A list holds every formula, largest score first. Ties are broken by one random order of the formulas, the same for all
systems and topics, because the order of a file often gives away what was judged relevant. A system that reads trees
ranks formulas without a tree last, and has an empty list for a topic without a tree. The measures of each system and
topic are cached, so an interrupted comparison, or one with another system, continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.context import ExperimentContext, compute_digest
from eqkin.evaluation.formulas import NamedFormulas
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.measures import measure_lists
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.tables import Table, TableColumn, TableRow
from eqkin.statistics import Score, bootstrap_mean, compute_sign_flip_p, format_p
from eqkin.storage.files import make_folder, write_stream

RankedLists: TypeAlias = Mapping[str, Sequence[str]]  # formulas by topic, best first

TIE_SEED = 0  # of the order of equal scores
COMPLETE_DEPTH = 1_000  # of lists that are measured where all relevant formulas are known


@dataclass(frozen=True)
class SystemScores:
    """The scores of one system."""

    name: str
    title: str
    values: Mapping[str, Sequence[float]]  # of each topic, by the key of the measure
    scores: dict[str, Score]  # means over topics, by the key of the measure
    p: dict[str, float] = field(default_factory=dict)  # of the test against the baseline; empty for the baseline


def score_systems(
    systems: Sequence[System],
    judged: JudgedSet,
    *,
    context: ExperimentContext,
    baseline: str = "",
    runs: Mapping[str, RankedLists] | None = None,
    runs_folder: Path | None = None,
) -> list[SystemScores]:
    """Compare fitted systems, and runs of other systems, on a judged set.

    Args:
        systems: The systems, with distinct names.
        judged: The set. If all of its relevant formulas are known, lists are measured to a depth of `COMPLETE_DEPTH`.
        context: The cache, and the number of resamples of the intervals.
        baseline: Name of the system or run that the others are tested against; by default the first.
        runs: Ranked lists of other systems by their names; a missing topic counts as an empty list.
        runs_folder: Where to write the list of each system as a TREC run, `NAME.txt`.

    Returns:
        The scores of each system, then of each run, in the given order.

    Raises:
        BadInput: Names are not distinct, the baseline is unknown, a topic has no judgements, a system returns scores
            of the wrong shape or NaN, or a run has none of the topics.
    """
    runs, topics, excluded = runs or {}, judged.topics, judged.excluded
    names = [system.name for system in systems] + list(runs)
    titles = [system.title for system in systems] + list(runs)
    _check_comparison(names, baseline, judged)
    values: list[Mapping[str, Sequence[float]]] = []

    def count(lists: Sequence[Sequence[str]]) -> dict[str, list[float]]:
        if excluded is not None:
            pairs = zip(topics.names, lists, strict=True)
            lists = [[one for one in names if one not in excluded[topic]][:COMPLETE_DEPTH] for topic, names in pairs]
        return measure_lists(topics.names, lists, judged.qrels, judged.measures)

    measures = [measure.key for measure in judged.measures]
    data = [topics.digest, judged.formulas.digest, compute_digest(judged.qrels), measures, TIE_SEED]
    for system in systems:
        key = {"system": system.name, "settings": system.settings, "learned_from": system.learned_from, "data": data}
        context.log(f"{system.title}: ranking {len(judged.formulas):,} formulas for {len(topics):,} topics")

        def measure(system: System = system) -> dict[str, Any]:
            lists = rank_formulas(system, topics, judged.formulas)
            if runs_folder is not None:
                lines = format_run(dict(zip(topics.names, lists, strict=True)), system.name)
                write_stream(make_folder(runs_folder) / f"{system.name}.txt", (line.encode() for line in lines))
            return {"values": count(lists)}

        if not system.is_reproducible or runs_folder is not None:
            values.append(measure()["values"])
        else:
            values.append(context.cache.get_or_measure("judged", key, measure)["values"])
    for name, run in runs.items():
        if not run.keys() & set(topics.names):
            raise BadInput(f"the run {name} has results for none of the topics")
        values.append(count([run.get(topic, []) for topic in topics.names]))
    return summarize(names, titles, values, baseline or names[0], context.scale.resamples)


def summarize(
    names: Sequence[str],
    titles: Sequence[str],
    values: Sequence[Mapping[str, Sequence[float]]],
    baseline: str,
    resamples: int,
) -> list[SystemScores]:
    """Compute means with intervals, and p-values against a baseline, from the measures of each system and topic.

    Without the baseline among the names, there are no p-values.
    """
    base = values[names.index(baseline)] if baseline in names else None
    found = []
    for name, title, own in zip(names, titles, values, strict=True):
        scores = {key: bootstrap_mean(numbers, resamples=resamples) for key, numbers in own.items()}
        tests = {} if base is None or own is base else {key: compute_sign_flip_p(own[key], base[key]) for key in own}
        found.append(SystemScores(name, title, own, scores, tests))
    return found


def make_differences_table(
    name: str, title: str, columns: Sequence[TableColumn], scores: Sequence[SystemScores], baseline: str, resamples: int
) -> Table:
    """Make a table of the differences to the baseline, with intervals and p-values; `columns` are the measures."""
    base = next(one for one in scores if one.name == baseline)
    doubled = []
    for column in columns:
        doubled += [
            TableColumn(column.key, column.title, column.form, ""),
            TableColumn(f"p_{column.key}", "p", "text", ""),
        ]
    rows = []
    for one in scores:
        if one is not base:
            cells: dict[str, Score | str] = {}
            for key, p in one.p.items():
                cells[key] = bootstrap_mean(np.subtract(one.values[key], base.values[key]), resamples=resamples)
                cells[f"p_{key}"] = format_p(p)
            rows.append(TableRow(one.title, cells))
    caption = (
        f"Mean difference from {base.title} over the same topics, with its 95 % interval (bootstrap over topics), "
        "and the "
        "two-sided p-value of a paired randomisation test, not corrected for the number of comparisons."
    )
    return Table(name, title, doubled, rows, caption)


def rank_formulas(system: System, topics: NamedFormulas, formulas: NamedFormulas) -> list[list[str]]:
    """Return the names of all formulas for each topic, best first."""
    scores = np.array(system.rank(topics.formulas, formulas.formulas), np.float64)
    if scores.shape != (len(topics), len(formulas)) or np.isnan(scores).any():
        shape = len(topics), len(formulas)
        raise BadInput(f"{system.title}: scores must be numbers of shape {shape}, got {scores.shape} or NaN")
    if not system.needs_latex:
        scores[:, ~formulas.readable] = -np.inf
    is_readable = np.ones(len(topics), bool) if system.needs_latex else topics.readable
    order = np.random.default_rng(TIE_SEED).permutation(len(formulas))
    return [
        [formulas.names[index] for index in order[np.argsort(-row[order], kind="stable")].tolist()] if readable else []
        for row, readable in zip(scores, is_readable.tolist(), strict=True)
    ]


def format_run(lists: RankedLists, tag: str) -> Iterator[str]:
    """Yield the lines of a TREC run; scores fall by 1 with each rank, so that every tool keeps the order."""
    for topic, names in lists.items():
        for rank, name in enumerate(names, 1):
            yield f"{topic} Q0 {name} {rank} {len(names) + 1 - rank} {tag}\n"


def _check_comparison(names: Sequence[str], baseline: str, judged: JudgedSet) -> None:
    if not names:
        raise BadInput("there is nothing to compare: give a system or a run")
    if len(set(names)) < len(names):
        raise BadInput(f"systems and runs need distinct names, got {', '.join(names)}")
    if baseline and baseline not in names:
        raise BadInput(f"the baseline {baseline} is not one of {', '.join(names)}")
    without = [name for name in judged.topics.names if not judged.qrels.get(name)]
    if without:
        raise BadInput(f"topics without judgements: {', '.join(without[:5])}; leave them out")
