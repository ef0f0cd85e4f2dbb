"""`compare`: systems and judged sets as a researcher has them, in one call.

    from eqkin.evaluation import compare

    table = compare(["eqkin", "tfidf-latex", MySystem, "their-run.txt"], "arqmath")
    print(table)
    table.to_dataframe()

A list holds every formula, largest score first. Ties are broken by one random order of the formulas, the same for all
systems and topics, because the order of a file often gives away what was judged relevant. A system that reads trees
ranks formulas without a tree last, and has an empty list for a topic without a tree.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.judged import JudgedSet, read_run
from eqkin.evaluation.measures import RESAMPLES, Score, bootstrap_mean, compute_sign_flip_p, format_p, measure_lists
from eqkin.evaluation.systems import SYSTEMS, NamedFormulas, System, make_systems
from eqkin.files import make_folder, write_stream
from eqkin.search.results import make_dataframe

# Formulas by topic, best first.
RankedLists: TypeAlias = Mapping[str, Sequence[str]]

# Seed of the order of equal scores.
TIE_SEED = 0
# Where all relevant formulas are known, lists are measured to this depth.
COMPLETE_DEPTH = 1_000
_PRINTED_WIDTH = 200


@dataclass(frozen=True, kw_only=True)
class SystemScores:
    """The scores of one system on one set; all mappings are by the key of the measure."""

    name: str
    title: str
    # One for each topic.
    values: Mapping[str, Sequence[float]]
    # Means over topics.
    scores: dict[str, Score]
    # Mean differences from the baseline and p-values of the test against it; empty for the baseline itself.
    differences: dict[str, Score] = field(default_factory=dict)
    p: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SetComparison:
    """The scores of all systems on one set."""

    name: str
    topics: Sequence[str]
    formulas: int
    # Titles of the measures, by their keys.
    measures: dict[str, str]
    systems: list[SystemScores]
    # Warnings about the figures.
    notes: list[str]


@dataclass(frozen=True, repr=False)
class Comparison:
    """The scores of systems on one or more sets: prints as tables, and becomes records or a data frame."""

    sets: list[SetComparison]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one record per set, system and measure: mean, ends of the interval, and p against the baseline."""
        return [
            {
                "set": one.name, "system": system.name, "measure": key,
                "mean": score.value, "low": score.low, "high": score.high, "p": system.p.get(key),
            }
            for one in self.sets
            for system in one.systems
            for key, score in system.scores.items()
        ]  # fmt: skip

    def to_dataframe(self) -> Any:
        """Return `to_dicts` as a data frame of pandas, or of polars; raises `BadInput` if neither is installed."""
        return make_dataframe(self.to_dicts())

    def __repr__(self) -> str:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        text = io.StringIO()
        console = Console(file=text, width=_PRINTED_WIDTH)
        for one in self.sets:
            measures = list(one.measures.values())
            means = Table("", *measures, title=f"{one.name}: means over {len(one.topics)} topics", box=SIMPLE_HEAD)
            for system in one.systems:
                means.add_row(system.title, *map(str, system.scores.values()))
            console.print(means)
            compared = [system for system in one.systems if system.p]
            if compared:
                base = next(system.title for system in one.systems if not system.p)
                changes = Table("", *measures, title=f"{one.name}: differences from {base}", box=SIMPLE_HEAD)
                for system in compared:
                    cells = [f"{change}, p {format_p(system.p[key])}" for key, change in system.differences.items()]
                    changes.add_row(system.title, *cells)
                console.print(changes)
            for note in one.notes:
                console.print(note)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def compare(
    systems: Sequence[Any],
    *sets: JudgedSet | str | os.PathLike[str],
    baseline: str = "",
    runs_folder: str | os.PathLike[str] | None = None,
    resamples: int = RESAMPLES,
    log: Callable[[str], None] = lambda message: None,
) -> Comparison:
    """Compare systems on judged sets.

    Args:
        systems: Each is the name of a system ("eqkin", "eqkin-vector", "paper", "tfidf-latex"), the folder of a
            network, the file of a TREC run, a `System`, or anything that `CustomSystem` takes: an instance, a class or
            a function.
        sets: Each is a `JudgedSet`, or what `JudgedSet.read` takes.
        baseline: Name of the system or run that the others are tested against; by default the first.
        runs_folder: Where to write the lists of all systems as TREC runs, `SET/SYSTEM.txt`.
        resamples: Number of resamples of the intervals.
        log: Receives progress, one line at a time.

    Raises:
        BadInput: A system or a set cannot be read, there are none, or names are not distinct.
    """
    runs: dict[str, RankedLists] = {}
    others: list[Any] = []
    for one in systems:
        is_run = isinstance(one, str | os.PathLike) and os.fspath(one) not in SYSTEMS and Path(one).is_file()
        if is_run:
            runs[Path(one).stem] = read_run(Path(one))
        else:
            others.append(one)
    made = make_systems(others)
    names = [system.name for system in made] + list(runs)
    if not sets or not names or len(made) + len(runs) < len(systems):
        raise BadInput("nothing to compare: give at least one judged set, and systems and runs with distinct names")
    if len(set(names)) < len(names):
        raise BadInput(f"systems and runs need distinct names, got {', '.join(names)}")
    if baseline and baseline not in names:
        raise BadInput(f"the baseline {baseline} is not one of {', '.join(names)}")
    # All sets are read before anything is measured.
    judged_sets = [one if isinstance(one, JudgedSet) else JudgedSet.read(one) for one in sets]
    found = []
    for judged in judged_sets:
        folder = None if runs_folder is None else Path(runs_folder) / judged.name
        lists = {}
        for system in made:
            log(f"{system.title}: ranking {len(judged.formulas):,} formulas for {len(judged.topics):,} topics")
            lists[system.name] = rank_formulas(system, judged.topics, judged.formulas)
            if folder is not None:
                write_run(folder / f"{system.name}.txt", lists[system.name], system.name)
        titles = {system.name: system.title for system in made}
        scores = score_lists(judged, lists | runs, titles, baseline=baseline, resamples=resamples)
        notes = [warning for system in made for warning in system.list_warnings([judged.name])]
        notes += _describe_problems(judged)
        found.append(
            SetComparison(
                name=judged.name,
                topics=judged.topics.names,
                formulas=len(judged.formulas),
                measures={measure.key: measure.title for measure in judged.measures},
                systems=scores,
                notes=notes,
            )
        )
    return Comparison(found)


def score_systems(systems: Sequence[System], judged: JudgedSet, *, resamples: int = RESAMPLES) -> list[SystemScores]:
    """Rank a set's formulas by several systems and measure the lists; see `score_lists`."""
    lists = {system.name: rank_formulas(system, judged.topics, judged.formulas) for system in systems}
    titles = {system.name: system.title for system in systems}
    return score_lists(judged, lists, titles, resamples=resamples)


def rank_formulas(system: System, topics: NamedFormulas, formulas: NamedFormulas) -> dict[str, list[str]]:
    """Return the names of all formulas for each topic, best first."""
    scores = np.array(system.rank(topics.formulas, formulas.formulas), np.float64)
    shape = (len(topics), len(formulas))
    if scores.shape != shape or np.isnan(scores).any():
        raise BadInput(f"{system.title}: scores must be numbers of shape {shape}, got {scores.shape} or NaN")
    if not system.needs_latex:
        scores[:, ~formulas.readable] = -np.inf
    order = np.random.default_rng(TIE_SEED).permutation(len(formulas))
    lists: dict[str, list[str]] = {}
    for topic, row in zip(topics.names, scores, strict=True):
        ranked = order[np.argsort(-row[order], kind="stable")]
        is_readable = system.needs_latex or topic not in topics.problems
        lists[topic] = [formulas.names[index] for index in ranked.tolist()] if is_readable else []
    return lists


def write_run(path: Path, lists: RankedLists, tag: str) -> None:
    """Write lists as a TREC run; scores fall by 1 with each rank, so that every tool keeps the order."""

    def iter_lines() -> Iterator[bytes]:
        for topic, names in lists.items():
            for rank, name in enumerate(names, 1):
                yield f"{topic} Q0 {name} {rank} {len(names) + 1 - rank} {tag}\n".encode()

    make_folder(path.parent)
    write_stream(path, iter_lines())


def score_lists(
    judged: JudgedSet,
    lists: Mapping[str, RankedLists],
    titles: Mapping[str, str],
    *,
    baseline: str = "",
    resamples: int = RESAMPLES,
) -> list[SystemScores]:
    """Measure ranked lists on a judged set.

    Args:
        judged: The set.
        lists: Lists of systems by name; a missing topic counts as an empty list.
        titles: Titles of systems; others are called by their names.
        baseline: Name of the system that the others are tested against; by default the first.
        resamples: Number of resamples of the intervals.

    Raises:
        BadInput: A system has lists for none of the topics.
    """
    excluded = judged.find_excluded()
    depth = COMPLETE_DEPTH if judged.is_complete else None
    values = {}
    for name, by_topic in lists.items():
        if not by_topic.keys() & set(judged.topics.names):
            raise BadInput(f"the run {name} has results for none of the topics")
        kept = [
            [one for one in by_topic.get(topic, ()) if one not in excluded[topic]][:depth]
            for topic in judged.topics.names
        ]
        values[name] = measure_lists(judged.topics.names, kept, judged.qrels, judged.measures)
    return summarize(values, titles, baseline or next(iter(values)), resamples)


def summarize(
    values: Mapping[str, Mapping[str, Sequence[float]]], titles: Mapping[str, str], baseline: str, resamples: int
) -> list[SystemScores]:
    """Compute means with intervals, and differences from a baseline, from each system's measures of each topic."""
    base = values[baseline]
    found = []
    for name, own in values.items():
        differences: dict[str, Score] = {}
        p: dict[str, float] = {}
        if name != baseline:
            for key, numbers in own.items():
                differences[key] = bootstrap_mean(np.subtract(numbers, base[key]), resamples=resamples)
                p[key] = compute_sign_flip_p(numbers, base[key])
        scores = {key: bootstrap_mean(numbers, resamples=resamples) for key, numbers in own.items()}
        title = titles.get(name, name)
        found.append(SystemScores(name=name, title=title, values=own, scores=scores, differences=differences, p=p))
    return found


def _describe_problems(judged: JudgedSet) -> list[str]:
    notes = []
    if judged.formulas.problems:
        notes.append(f"{len(judged.formulas.problems)} formulas cannot be read: systems that read trees rank them last")
    if judged.topics.problems:
        names = ", ".join(judged.topics.problems)
        notes.append(f"the topics {names} cannot be read: lists of systems that read trees are empty")
    return notes
