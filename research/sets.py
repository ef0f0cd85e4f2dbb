"""All sets in one run: judged topics, named laws, labelled equations, and their search among other formulas.

Judged sets have nDCG', MAP' and P'@10, complete ones (see `eqkin.evaluation.judged`) MRR, hit@1 and hit@10. A labelled
set has the accuracy and the ranking of its labels, and a search: each equation is a query, the others of its label are
to be found among all equations of the set and formulas drawn from a library (MAP). Intervals and paired tests are over
topics, or over labels.

Notations of laws are also searched end to end: each is added as a paper to a copy of the library. A hit is another
notation of the same law among the first ten results, compared with a ranking of all equations of that library. The
first ten results should not depend on the number of results asked for.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.api import Library
from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.formulas import FormulaSet, NamedFormulas
from eqkin.evaluation.judged import JudgedSet
from eqkin.evaluation.labelled import LabelledSet, measure_labelled, read_labelled
from eqkin.evaluation.scores import score_systems
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.systems.networks import EngineSystem
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow, format_score
from eqkin.formulas import ForestBuilder
from eqkin.statistics import (
    Score,
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    format_p,
)
from research.keywords import read_library_formulas

NOTATION_FILES = ("notations.json", "notations-test.json")  # to develop with, and only to be reported
TEST_SETS = ("notations-test",)
DISTRACTOR_SEED = 0
_PAPER = re.compile(r"law([0-9]+)\.tex")  # of a notation that was added to a library


@dataclass(frozen=True)
class SetMeasure:
    """One measure of one set: the score of each system, and the difference of the first to each other one, with p."""

    name: str  # of the set
    title: str
    scores: dict[str, Score]
    differences: dict[str, tuple[Score, float]]


@cache
def read_notations() -> list[LabelledSet]:
    """Read both bundled sets of laws in several notations."""
    return [read_labelled(Path(__file__).with_name(name)) for name in NOTATION_FILES]


def run_sets(
    context: ExperimentContext,
    systems: Sequence[System],
    judged: Sequence[JudgedSet],
    labelled: Sequence[LabelledSet],
    distractors: FormulaSet,
) -> ExperimentResult:
    """Measure fitted systems on all sets; the first is compared with each of the others."""
    measures: list[SetMeasure] = []
    for task in judged:
        keys = ("mrr", "hit1", "hit10") if task.is_complete else ("ndcg", "map", "p10")
        measures += _measure_task(context, systems, task, keys)
    for labels in labelled:
        measures += _measure_task(context, systems, *make_search_task(labels, distractors))
        measures += _measure_labels(context, systems, labels)
    columns = [TableColumn(system.name, system.title, best="") for system in systems]
    rows = [TableRow(f"{one.name}, {one.title}", dict(one.scores)) for one in measures]
    means = {system.name: Score(compute_mean_over_sets(measures, system.name)) for system in systems}
    caption = (
        "95 % intervals by bootstrap over topics or labels. Accuracy and ranking: within the set; MAP of a labelled "
        f"set: among {len(distractors):,} other formulas. The mean weights each set equally, without "
        f"{', '.join(TEST_SETS)}."
    )
    tables = [Table("sets", "All sets", columns, [*rows, TableRow("mean over sets", dict(means))], caption)]
    if len(systems) > 1:
        columns = [TableColumn(system.name, system.title, "text", "") for system in systems[1:]]
        rows = []
        for one in measures:
            changes = one.differences.items()
            texts = {name: f"{format_score(change, 'share')}, {format_p(p)}" for name, (change, p) in changes}
            rows.append(TableRow(f"{one.name}, {one.title}", dict(texts)))
        caption = (
            "Mean differences, 95 % intervals, two-sided p-values of paired randomisation tests (ranking: bootstrap)."
        )
        title = f"{systems[0].title} minus each other system"
        tables.append(Table("sets-differences", title, columns, rows, caption))
    names = [one.name for one in judged] + [one.name for one in labelled]
    notes = [note for system in systems for note in system.list_warnings(names)]
    facts = {one.name: f"{len(one.topics):,} topics, digest {one.formulas.digest}" for one in judged}
    facts |= {one.name: f"{len(one):,} equations, {len(set(one.labels)):,} labels" for one in labelled}
    return ExperimentResult("sets", "All sets", tables, notes, facts | {"distractors": f"seed {DISTRACTOR_SEED}"})


def compute_mean_over_sets(measures: Sequence[SetMeasure], system: str, without: Collection[str] = TEST_SETS) -> float:
    """Compute the mean over sets of the mean of each set's measures."""
    by_set: dict[str, list[float]] = {}
    for one in measures:
        by_set.setdefault(one.name, []).append(one.scores[system].value)
    return float(np.mean([np.mean(values) for name, values in by_set.items() if name not in without]))


def draw_distractors(library: Library, count: int | None, labelled: Sequence[LabelledSet]) -> FormulaSet:
    """Draw formulas of a library, or all, with distinct LaTeX other than that of the labelled sets."""
    formulas = read_library_formulas(library)[1]
    known = {"".join(text.split()) for one in labelled for text in one.equations.formulas.latex or ()}
    latex = ["".join(text.split()) for text in formulas.latex or ()]
    first = np.sort(np.unique(latex, return_index=True)[1])
    allowed = np.array([index for index in first.tolist() if latex[index] not in known], np.int64)
    return formulas.select(np.sort(np.random.default_rng(DISTRACTOR_SEED).permutation(allowed)[:count]))


def make_search_task(labelled: LabelledSet, distractors: FormulaSet) -> tuple[JudgedSet, tuple[str, ...], list[str]]:
    """Make each equation a topic: those of the same label are to be found among all others and the distractors.

    Returns:
        The set, complete and without topics that have nothing to find; the key of its measure; each topic's label.
    """
    own = labelled.equations.formulas
    builder = ForestBuilder()
    for forest in (own.forest, distractors.forest):
        builder.add_forest(forest)
    formulas = FormulaSet(builder.build(), [*(own.latex or ()), *(distractors.latex or ())])
    names = [f"s{number}" for number in range(len(own))] + [f"d{number}" for number in range(len(distractors))]
    labels, bare = labelled.labels, ["".join(text.split()) for text in own.latex or ()]
    qrels: dict[str, dict[str, int]] = {}
    for topic in range(len(own)):
        same = [one for one in range(len(own)) if labels[one] == labels[topic] and bare[one] != bare[topic]]
        if same:
            qrels[names[topic]] = {names[one]: 3 for one in same}
    kept = [index for index in range(len(own)) if names[index] in qrels]
    topics = NamedFormulas(list(qrels), own.select(np.array(kept, np.int64)))
    task = JudgedSet(labelled.name, topics, NamedFormulas(names, formulas), qrels)
    return task, ("map",), [labels[index] for index in kept]


def _measure_task(
    context: ExperimentContext,
    systems: Sequence[System],
    task: JudgedSet,
    keys: Sequence[str],
    groups: Sequence[str] | None = None,
) -> list[SetMeasure]:
    scores = score_systems(systems, task, context=context)
    found = []
    for measure in (one for one in task.measures if one.key in keys):
        values = {one.name: np.array(one.values[measure.key]) for one in scores}
        found.append(_compare_values(task.name, measure.title, values, groups, context.scale.resamples))
    return found


def _measure_labels(context: ExperimentContext, systems: Sequence[System], labelled: LabelledSet) -> list[SetMeasure]:
    measured = {system.name: measure_labelled(context, system, labelled) for system in systems}
    first = measured[systems[0].name]
    right = {name: np.array(one["right"]) for name, one in measured.items()}
    accuracy = _compare_values(labelled.name, "accuracy", right, first["groups"], context.scale.resamples)
    scores = {name: Score(*one["labelled_ranking"]) for name, one in measured.items()}
    differences = {}
    for name, one in list(measured.items())[1:]:
        gains = np.subtract(np.array(first["rankings"], float), np.array(one["rankings"], float))
        change = Score(first["labelled_ranking"][0] - one["labelled_ranking"][0], *compute_percentile_interval(gains))
        differences[name] = change, compute_two_sided_p(gains)
    return [accuracy, SetMeasure(labelled.name, "ranking", scores, differences)]


def _compare_values(
    name: str, title: str, values: Mapping[str, npt.NDArray[Any]], groups: Sequence[Any] | None, resamples: int
) -> SetMeasure:
    """Compute means and paired differences of the values of each topic; topics of one group are drawn together."""
    first = next(iter(values))
    units = np.unique(groups if groups is not None else np.arange(len(values[first])), return_inverse=True)[1]
    scores = {key: bootstrap_mean(one, units, resamples=resamples) for key, one in values.items()}
    sums = {key: np.bincount(units, one) for key, one in values.items()}
    differences = {}
    for key in list(values)[1:]:
        change = bootstrap_mean(values[first] - values[key], units, resamples=resamples)
        differences[key] = change, compute_sign_flip_p(sums[first], sums[key])
    return SetMeasure(name, title, scores, differences)


def run_end_to_end(context: ExperimentContext, library: Library, sets: Sequence[LabelledSet]) -> Table:
    """Search for notations in copies of a library to which they are added, one paper each."""
    everything = draw_distractors(library, None, sets)
    titles = {
        "search": "hit@10 by search", "all": "hit@10, all ranked", "same": "same first ten for k = 11 and 100",
        "overlap": "overlap of both",
    }  # fmt: skip
    rows = []
    for notations in sets:
        found = np.array(_search_notations(context, library.folder, notations), np.float64)
        task, _, labels = make_search_task(notations, everything)
        engine = EngineSystem(device=context.device)
        ranked = _measure_task(context, [engine], task, ["hit10"], labels)[0].scores[engine.name]
        groups = np.unique(notations.labels, return_inverse=True)[1][: len(found)]
        columns_found = zip(("search", "same", "overlap"), found.T, strict=True)
        scores = {key: bootstrap_mean(one, groups, resamples=context.scale.resamples) for key, one in columns_found}
        rows.append(TableRow(notations.name, {**scores, "all": ranked}))
    caption = f"Among {len(everything):,} other equations with distinct LaTeX; the query itself does not count."
    columns = [TableColumn(key, title, best="") for key, title in titles.items()]
    return Table("sets-end-to-end", "Search in a library", columns, rows, caption)


def _search_notations(
    context: ExperimentContext, library: Path, notations: LabelledSet
) -> list[tuple[bool, bool, float]]:
    """Add notations to a copy of a library and search for each.

    Returns:
        For each, whether another notation of its law is among the first ten results, whether a longer list begins with
        the same ten, and which share of them it has. Folded formulas count with the hit that stands for them.
    """
    latex = (notations.equations.formulas.latex or ())[: context.scale.searches]
    labels, found = notations.labels, []
    with tempfile.TemporaryDirectory(prefix="eqkin-sets-") as name:
        copy, papers = Path(name) / "library", Path(name) / "papers"
        context.log(f"end to end: adding {len(latex):,} papers to a copy of {library}")
        shutil.copytree(library, copy)
        papers.mkdir()
        for number, text in enumerate(latex):
            (papers / f"law{number}.tex").write_text(f"\\[ {text} \\]\n", "utf-8")
        with Library.open(copy) as opened:
            opened.add(papers)
            for number, text in enumerate(latex):
                short, long = (opened.search(text, k=k).hits for k in (11, 100))
                hits = [[_PAPER.search(one) for one in (hit.equation.id, *hit.same)] for hit in short]
                members = [{int(paper[1]) if paper else -1 for paper in one} - {number} for one in hits]
                first = set.union(set(), *[one for one in members if one][:10]) - {-1}
                is_found = any(labels[one] == labels[number] for one in first)
                ten, begin = ([hit.equation.id for hit in many[:10]] for many in (short, long))
                found.append((is_found, ten == begin, len({*ten} & {*begin}) / max(len(begin), 1)))
    return found
