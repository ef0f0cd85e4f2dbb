"""Judged formulas: nDCG', MAP', P'@10 and bpref on topics that people judged, beside today's peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from eqkin.evaluation.compare import TIE_SEED, SystemScores, against, compare
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.metrics.grades import MIN_RELEVANT_GRADE
from eqkin.evaluation.metrics.measures import JUDGED_MEASURES
from eqkin.evaluation.results import Curve, ExperimentResult, Plot, Score, Table, TableColumn, TableRow
from eqkin.evaluation.sets.judged import JudgedSet, RankedLists, read_run
from eqkin.evaluation.systems.base import System
from eqkin.statistics import bootstrap_mean, format_p


def run_judged(
    context: ExperimentContext,
    systems: Sequence[System],
    given: JudgedSet | Path,
    *,
    runs: Mapping[str, RankedLists | Path] | None = None,
    published: Sequence[TableRow] = (),
    baseline: str = "",
) -> ExperimentResult:
    """Measure systems that have learned what they have to on a judged set.

    Args:
        context: The surroundings.
        systems: What is compared.
        given: The set, or its folder.
        runs: TREC runs of other systems, by their title.
        published: Figures others report for the set, beside those in its folder.
        baseline: Name of the system or run that the others are tested against; by default the first system.

    Raises:
        BadInput: the set or a run cannot be read, or nothing is compared.
    """
    data = JudgedSet.read(given) if isinstance(given, Path) else given
    lists = {title: read_run(run) if isinstance(run, Path) else run for title, run in (runs or {}).items()}
    lines = compare(
        systems, data.topics, data.formulas, data.qrels, JUDGED_MEASURES,
        context=context, baseline=baseline, runs=lists, experiment="judged",
    )  # fmt: skip
    base = next(line for line in lines if not line.p)
    tables = [_make_scores_table(data, lines, [*data.published, *published])]
    if len(lines) > 1:
        tables.append(_make_differences_table(data, lines, base, context.scale.resamples))
    tables.append(_make_topics_table(data, lines))
    return ExperimentResult(
        f"judged-{data.name}",
        f"Judged formulas: {data.name}",
        "The paper has no judged set; this one compares its method with today's peers by what people found related.",
        _findings(lines, base),
        tables,
        [_make_plot(data, lines)],
        differences=[warning for system in systems for warning in system.list_warnings([data.name])],
        facts=_describe_data(data, lists)
        | {"resamples": f"{context.scale.resamples:,}", "order of ties": f"seed {TIE_SEED}"},
    )


def _make_scores_table(data: JudgedSet, lines: Sequence[SystemScores], published: Sequence[TableRow]) -> Table:
    rows = [TableRow(line.title, dict(line.scores)) for line in lines]
    return Table(
        f"judged-{data.name}",
        f"Judged formulas: {data.name}",
        [TableColumn(measure.key, measure.title) for measure in JUDGED_MEASURES],
        rows + list(published),
        f"Means over {len(data.topics)} topics; all {len(data.formulas):,} formulas are ranked for each, and those not "
        f"judged for it are dropped (the prime). Grades from {MIN_RELEVANT_GRADE} on count as relevant, nDCG' is graded. "
        "Intervals: 95 %, bootstrap over topics. Published figures come without intervals.",
    )


def _make_differences_table(
    data: JudgedSet, lines: Sequence[SystemScores], base: SystemScores, resamples: int
) -> Table:
    columns, rows = [], []
    for measure in JUDGED_MEASURES:
        columns += [TableColumn(measure.key, measure.title, best=""), TableColumn(f"p_{measure.key}", "p", "text", "")]
    for line in lines:
        if line is base:
            continue
        cells: dict[str, Score | str] = {}
        for key, p in line.p.items():
            cells[key] = bootstrap_mean(np.subtract(line.values[key], base.values[key]), resamples=resamples)
            cells[f"p_{key}"] = format_p(p)
        rows.append(TableRow(line.title, cells))
    return Table(
        f"judged-{data.name}-differences",
        f"Differences to {base.title}: {data.name}",
        columns,
        rows,
        "Mean difference over the same topics, with its 95 % interval (bootstrap over topics), and the two-sided "
        "p-value of a paired randomisation test, not corrected for the number of comparisons.",
    )


def _make_topics_table(data: JudgedSet, lines: Sequence[SystemScores]) -> Table:
    measure = JUDGED_MEASURES[0]
    columns = [TableColumn("formula", "formula", "text", ""), TableColumn("related", "related", "number", "")]
    columns += [TableColumn(f"system-{number}", line.title, best="") for number, line in enumerate(lines)]
    rows = []
    for at, (topic, latex) in enumerate(zip(data.topics.names, data.topics.formulas.latex or (), strict=True)):
        cells: dict[str, Score | str] = {"formula": latex}
        cells["related"] = Score(float(sum(grade >= MIN_RELEVANT_GRADE for grade in data.qrels[topic].values())))
        cells |= {f"system-{number}": Score(line.values[measure.key][at]) for number, line in enumerate(lines)}
        rows.append(TableRow(topic, cells))
    return Table(
        f"judged-{data.name}-topics",
        f"{measure.title} by topic: {data.name}",
        columns,
        rows,
        f"Related: formulas with a grade from {MIN_RELEVANT_GRADE} on. One topic's figure has no interval; the means have.",
        quotes=True,
    )


def _make_plot(data: JudgedSet, lines: Sequence[SystemScores]) -> Plot:
    curves = []
    for line in lines:
        found = [line.scores[measure.key] for measure in JUDGED_MEASURES]
        known = all(score.low is not None for score in found)
        curves.append(
            Curve(
                line.title,
                [measure.title for measure in JUDGED_MEASURES],
                [score.value for score in found],
                [score.low or 0.0 for score in found] if known else [],
                [score.high or 0.0 for score in found] if known else [],
            )
        )
    return Plot(f"judged-{data.name}", f"Judged formulas: {data.name}", "", "mean over topics", curves, "bar")


def _findings(lines: Sequence[SystemScores], base: SystemScores) -> list[str]:
    found = []
    for measure in JUDGED_MEASURES:
        best = max(lines, key=lambda line: line.scores[measure.key].value)
        score = best.scores[measure.key]
        sentence = f"{best.title} has the best {measure.title}, {_share(score.value)}"
        sentence += f" [{_share(score.low)}, {_share(score.high)}]" if score.low is not None else ""
        if len(lines) > 1:
            usual = base.scores[measure.key].value
            others = [line for line in lines if line is not base]
            tests = [(line.title, line.scores[measure.key].value - usual, line.p[measure.key]) for line in others]
            sentence += f"; {against(base.title, tests)}"
        found.append(sentence + ".")
    return found


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".removeprefix("0")


def _describe_data(data: JudgedSet, runs: Mapping[str, RankedLists]) -> dict[str, str]:
    unreadable = len(data.formulas.problems)
    facts = {
        "topics": f"{len(data.topics):,}, digest {data.topics.digest}",
        "formulas": f"{len(data.formulas):,}, digest {data.formulas.digest}",
        "judgements": f"{data.judgements:,}",
    }
    if unreadable:
        facts["unreadable formulas"] = f"{unreadable}; ranked last by systems that read trees"
    if data.topics.problems:
        facts["unreadable topics"] = f"{', '.join(data.topics.problems)}; nothing found by systems that read trees"
    if data.missing_formulas:
        facts["judged formulas that are not there"] = f"{data.missing_formulas}, all of grade 0"
    for title, run in runs.items():
        absent = len(set(data.topics.names) - run.keys())
        if absent:
            facts[f"topics without results in {title}"] = f"{absent}; they count as 0"
    return facts
