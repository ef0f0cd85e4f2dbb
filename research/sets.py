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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.api import Library
from eqkin.evaluation import JudgedSet, LabelledSet, System
from eqkin.evaluation.comparison import score_systems
from eqkin.evaluation.labelled import read_labelled, score_labelled
from eqkin.evaluation.measures import (
    Score,
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    format_p,
)
from eqkin.evaluation.systems import EngineSystem, FormulaSet, NamedFormulas
from eqkin.formulas import Forest
from research.experiment import Experiment
from research.keywords import read_library_formulas
from research.tables import ExperimentResult, Table, TableColumn, TableRow

# To develop with, and only to be reported.
NOTATION_FILES = ("notations.json", "notations-test.json")
TEST_SETS = ("notations-test",)
DISTRACTOR_SEED = 0
# Of a notation that was added to a library.
_PAPER = re.compile(r"law([0-9]+)\.tex")


@dataclass(frozen=True)
class SetMeasure:
    """One measure of one set: the score of each system, and the difference of the first to each other one, with p."""

    # Of the set, and of the measure.
    name: str
    title: str
    scores: dict[str, Score]
    differences: dict[str, tuple[Score, float]]


def read_notations() -> list[LabelledSet]:
    """Read both bundled sets of laws in several notations."""
    return [read_labelled(Path(__file__).with_name(name)) for name in NOTATION_FILES]


def run_sets(
    experiment: Experiment,
    systems: Sequence[System],
    judged: Sequence[JudgedSet],
    labelled: Sequence[LabelledSet],
    distractors: FormulaSet,
) -> ExperimentResult:
    """Measure fitted systems on all sets; the first is compared with each of the others."""
    resamples = experiment.scale.resamples
    measures: list[SetMeasure] = []
    for task in judged:
        experiment.log(task.name)
        measures += _measure_task(systems, task, get_keys(task), None, resamples)
    for known in labelled:
        experiment.log(known.name)
        task, labels = make_search_task(known, distractors)
        measures += _measure_task(systems, task, ["map"], labels, resamples)
        measures += _measure_labels(systems, known, resamples)
    columns = [TableColumn(system.name, system.title, best="") for system in systems]
    rows = [TableRow(f"{one.name}, {one.title}", dict(one.scores)) for one in measures]
    means: dict[str, Score | str] = {
        system.name: Score(compute_mean_over_sets(measures, system.name)) for system in systems
    }
    caption = (
        "95 % intervals by bootstrap over topics or labels. Accuracy and ranking: within the set; MAP of a labelled "
        f"set: among {len(distractors):,} other formulas. The mean weights each set equally, without "
        f"{', '.join(TEST_SETS)}."
    )
    tables = [Table("sets", "All sets", columns, [*rows, TableRow("mean over sets", means)], caption)]
    if len(systems) > 1:
        columns = [TableColumn(system.name, system.title, "text", "") for system in systems[1:]]
        rows = []
        for one in measures:
            texts = {name: f"{change}, {format_p(p)}" for name, (change, p) in one.differences.items()}
            rows.append(TableRow(f"{one.name}, {one.title}", dict(texts)))
        title = f"{systems[0].title} minus each other system"
        caption = "Mean differences, 95 % intervals, two-sided p-values of paired tests."
        tables.append(Table("sets-differences", title, columns, rows, caption))
    names = [task.name for task in judged] + [known.name for known in labelled]
    notes = [note for system in systems for note in system.list_warnings(names)]
    facts = {task.name: f"{len(task.topics):,} topics, {len(task.formulas):,} formulas" for task in judged}
    facts |= {known.name: f"{len(known):,} equations, {len(set(known.labels)):,} labels" for known in labelled}
    return ExperimentResult("sets", "All sets", tables, notes, facts | {"distractors": f"seed {DISTRACTOR_SEED}"})


def get_keys(task: JudgedSet) -> Sequence[str]:
    """Return the measures of a judged set that count."""
    return ("mrr", "hit1", "hit10") if task.is_complete else ("ndcg", "map", "p10")


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


def make_search_task(labelled: LabelledSet, distractors: FormulaSet) -> tuple[JudgedSet, list[str]]:
    """Make each equation a topic: those of the same label are to be found among all others and the distractors.

    Returns:
        The set, complete and without topics that have nothing to find; and each topic's label.
    """
    own = labelled.equations.formulas
    forests: list[Forest] = []
    for forest in (own.forest, distractors.forest):
        forests.append(forest)
    formulas = FormulaSet(Forest.concatenate(forests), [*(own.latex or ()), *(distractors.latex or ())])
    names = [f"s{number}" for number in range(len(own))] + [f"d{number}" for number in range(len(distractors))]
    labels = labelled.labels
    bare = ["".join(text.split()) for text in own.latex or ()]
    qrels: dict[str, dict[str, int]] = {}
    kept = []
    for topic in range(len(own)):
        same = [one for one in range(len(own)) if labels[one] == labels[topic] and bare[one] != bare[topic]]
        if same:
            qrels[names[topic]] = {names[one]: 3 for one in same}
            kept.append(topic)
    topics = NamedFormulas(list(qrels), own.select(np.array(kept, np.int64)))
    task = JudgedSet(labelled.name, topics, NamedFormulas(names, formulas), qrels)
    return task, [labels[topic] for topic in kept]


def _measure_task(
    systems: Sequence[System], task: JudgedSet, keys: Sequence[str], groups: Sequence[str] | None, resamples: int
) -> list[SetMeasure]:
    scores = score_systems(systems, task, resamples=1)
    found = []
    for measure in task.measures:
        if measure.key in keys:
            values = {one.name: np.array(one.values[measure.key]) for one in scores}
            found.append(_compare_values(task.name, measure.title, values, groups, resamples))
    return found


def _measure_labels(systems: Sequence[System], labelled: LabelledSet, resamples: int) -> list[SetMeasure]:
    measured = {system.name: score_labelled(system, labelled, resamples) for system in systems}
    first = measured[systems[0].name]
    correct = {name: one.correct for name, one in measured.items()}
    accuracy = _compare_values(labelled.name, "accuracy", correct, first.groups, resamples)
    differences = {}
    for name, one in list(measured.items())[1:]:
        gains = first.rankings - one.rankings
        change = Score(first.ranking.value - one.ranking.value, *compute_percentile_interval(gains))
        differences[name] = (change, compute_two_sided_p(gains))
    scores = {name: one.ranking for name, one in measured.items()}
    return [accuracy, SetMeasure(labelled.name, "ranking", scores, differences)]


def _compare_values(
    name: str, title: str, values: Mapping[str, npt.NDArray[Any]], groups: Sequence[Any] | Any, resamples: int
) -> SetMeasure:
    """Compute means and paired differences of the values of each topic; topics of one group are drawn together."""
    first = next(iter(values))
    units = np.unique(groups if groups is not None else np.arange(len(values[first])), return_inverse=True)[1]
    scores = {key: bootstrap_mean(one, units, resamples=resamples) for key, one in values.items()}
    sums = {key: np.bincount(units, one) for key, one in values.items()}
    differences = {}
    for key in list(values)[1:]:
        change = bootstrap_mean(values[first] - values[key], units, resamples=resamples)
        differences[key] = (change, compute_sign_flip_p(sums[first], sums[key]))
    return SetMeasure(name, title, scores, differences)


def run_end_to_end(experiment: Experiment, library: Library, sets: Sequence[LabelledSet]) -> Table:
    """Search for notations in copies of a library to which they are added, one paper each."""
    everything = draw_distractors(library, None, sets)
    titles = {
        "search": "hit@10 by search", "all": "hit@10, all ranked", "same": "same first ten for k = 11 and 100",
        "overlap": "overlap of both",
    }  # fmt: skip
    rows = []
    for notations in sets:
        found = np.array(_search_notations(experiment, library.folder, notations), np.float64)
        task, labels = make_search_task(notations, everything)
        ranked = _measure_task([EngineSystem()], task, ["hit10"], labels, experiment.scale.resamples)[0]
        groups = np.unique(notations.labels, return_inverse=True)[1][: len(found)]
        cells: dict[str, Score | str] = {"all": ranked.scores["eqkin"]}
        for key, column in zip(("search", "same", "overlap"), found.T, strict=True):
            cells[key] = bootstrap_mean(column, groups, resamples=experiment.scale.resamples)
        rows.append(TableRow(notations.name, cells))
    caption = f"Among {len(everything):,} other equations with distinct LaTeX; the query itself does not count."
    columns = [TableColumn(key, title, best="") for key, title in titles.items()]
    return Table("sets-end-to-end", "Search in a library", columns, rows, caption)


def _search_notations(experiment: Experiment, library: Path, notations: LabelledSet) -> list[tuple[bool, bool, float]]:
    """Add notations to a copy of a library and search for each.

    Returns:
        For each, whether another notation of its law is among the first ten results, whether a longer list begins with
        the same ten, and which share of them it has. Folded formulas count with the hit that stands for them.
    """
    latex = (notations.equations.formulas.latex or ())[: experiment.scale.searches]
    labels = notations.labels
    found = []
    with tempfile.TemporaryDirectory(prefix="eqkin-sets-") as name:
        copy = Path(name) / "library"
        papers = Path(name) / "papers"
        experiment.log(f"end to end: adding {len(latex):,} papers to a copy of {library}")
        shutil.copytree(library, copy)
        papers.mkdir()
        for number, text in enumerate(latex):
            (papers / f"law{number}.tex").write_text(f"\\[ {text} \\]\n", "utf-8")
        with Library.open(copy) as opened:
            opened.add(papers)
            for number, text in enumerate(latex):
                short, long = (opened.search(text, k=k).hits for k in (11, 100))
                # The laws that each hit stands for, without the query itself.
                laws = []
                for hit in short:
                    members = [_PAPER.search(one) for one in (hit.equation.id, *hit.same)]
                    others = {int(paper[1]) for paper in members if paper} - {number}
                    if others or not all(members):
                        laws.append(others)
                is_found = any(labels[one] == labels[number] for others in laws[:10] for one in others)
                ten, begin = ([hit.equation.id for hit in hits[:10]] for hits in (short, long))
                found.append((is_found, ten == begin, len({*ten} & {*begin}) / max(len(begin), 1)))
    return found
