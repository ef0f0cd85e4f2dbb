"""Labelled sets: equations with the name of what they say, and how well similarities agree with the labels.

Two scores (paper, section 6; formulas in `measures`): leave-one-out 1-NN accuracy, and the ranking of triples. Both
have intervals by a bootstrap over labels, each drawn with all of its equations.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.atlas import list_articles, load_equation_groups
from eqkin.encoder.encoder import Encoder
from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.evaluation.context import ExperimentContext, compute_digest
from eqkin.evaluation.formulas import (
    FormulaSet,
    NamedFormulas,
    compute_products,
    make_name,
    normalize_rows,
    read_formulas,
    read_json,
)
from eqkin.evaluation.measures import compute_ranking_scores, count_correct_triples, count_triples, score_nearest_labels
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.formulas import ForestBuilder
from eqkin.latex.outline import parse
from eqkin.library.parsing import convert_document
from eqkin.search.rerank import compare_within
from eqkin.statistics import (
    RESAMPLES,
    Score,
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    compute_two_sided_p,
    draw_bootstrap_weights,
    format_p,
)

Floats: TypeAlias = npt.NDArray[np.floating[Any]]

MAX_EQUATIONS = 5_000  # all pairs of one label are compared with all other equations
SEED = 0  # of the resamples, the same for all systems: differences are taken within a resample
_TIE_DECIMALS = 6  # of similarities; smaller differences are ties, whatever the order of a machine's additions
_FORM = 'a list of {"latex": ..., "label": ...}'
LABELLED_COLUMNS = [
    TableColumn("accuracy", "accuracy", "percent"),
    TableColumn("labelled_ranking", "ranking", "percent"),
    TableColumn("strict", "ranking, ties wrong", "percent"),
]
_P_COLUMNS = [TableColumn(f"p_{column.key}", f"p, {column.title}", "text", "") for column in LABELLED_COLUMNS[:2]]


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Equations, each with one label; all of them have a tree."""

    name: str
    equations: NamedFormulas
    labels: list[str]
    skipped: dict[str, str] = field(default_factory=dict)  # unreadable equations that were left out, and why

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def digest(self) -> str:
        """Digest of equations and labels."""
        return compute_digest([self.equations.digest, self.labels])

    @property
    def duplicates(self) -> int:
        """Number of equations whose LaTeX occurs before."""
        return sum(count - 1 for count in Counter(self.equations.formulas.latex or ()).values())


def read_labelled(path: Path, *, skip_unreadable: bool = False) -> LabelledSet:
    """Read a JSON file, `[{"latex": ..., "label": ...}, ...]`; labels are strings or whole numbers.

    Args:
        path: The file.
        skip_unreadable: Leave out formulas that cannot be read; the set lists them.

    Raises:
        BadInput: The file has another form or is empty, or a formula cannot be read.
        LimitReached: It has more than `MAX_EQUATIONS` equations.
    """
    data = read_json(path, f"{_FORM} is needed")
    if not isinstance(data, list):
        raise BadInput(f"{path}: {_FORM} is needed")
    if not data:
        raise BadInput(f"{path}: no equations; {_FORM} is needed")
    if len(data) > MAX_EQUATIONS:
        raise LimitReached(
            f"{path}: {len(data):,} equations, but at most {MAX_EQUATIONS:,} can be compared; give a part of them"
        )
    entries = [_parse_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(data, 1)]
    read = read_formulas([(str(number), latex) for number, (latex, _) in enumerate(entries, 1)])
    if read.problems and not skip_unreadable:
        problems = _describe_problems(read, entries)
        raise BadInput(f"{path}: {problems}; correct these formulas, or skip them (--skip-unreadable)")
    kept = np.flatnonzero(read.readable)
    if not len(kept):
        problems = _describe_problems(read, entries)
        raise BadInput(f"{path}: none of its {len(entries):,} formulas can be read; first {problems}")
    equations = NamedFormulas([read.names[index] for index in kept.tolist()], read.formulas.select(kept))
    labels = [entries[index][1] for index in kept.tolist()]
    return LabelledSet(make_name(path.resolve().stem), equations, labels, read.problems)


def _parse_entry(entry: Any, where: str) -> tuple[str, str]:
    latex, label = (entry.get("latex"), entry.get("label")) if isinstance(entry, dict) else (None, None)
    if not isinstance(latex, str):
        raise BadInput(f'{where}: "latex" must be a formula; {_FORM} is needed')
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise BadInput(f'{where}: "label" must be a name or a whole number; {_FORM} is needed')
    return latex, str(label).strip()


def _describe_problems(read: NamedFormulas, entries: list[tuple[str, str]]) -> str:
    """Describe the first three problems, with their formulas."""
    described = []
    for name, problem in list(read.problems.items())[:3]:
        latex = entries[int(name) - 1][0]
        described.append(f"entry {name}, {latex if len(latex) <= 100 else latex[:100] + '...'!r}: {problem}")
    more = f"; and {len(read.problems) - 3:,} more" if len(read.problems) > 3 else ""
    return "; ".join(described) + more


@cache
def load_atlas_set() -> LabelledSet:
    """Load the groups of related equations of the bundled atlas, labelled with their group.

    Equations are read from the articles themselves, with the macros in force at their position; no library is needed.
    Equations in no group are left out: some of them are related to others all the same and would count as wrong.

    Raises:
        CorruptData: The groups name an equation twice, or an unknown one.
    """
    groups = {member: group.id for group in load_equation_groups() for member in group.equations}
    if len(groups) != sum(len(group.equations) for group in load_equation_groups()):
        raise CorruptData("the atlas has an equation in two groups; install eqkin again")
    names: list[str] = []
    latex: list[str] = []
    builder = ForestBuilder()
    for article in list_articles():
        subject = article.name.removesuffix(".tex")
        document = parse(article.read_text("utf-8"))
        wanted = [equation for equation in document.equations if f"{subject}:{equation.label}" in groups]
        records, forest = convert_document(dataclasses.replace(document, equations=wanted))
        builder.add_forest(forest)
        names += [f"{subject}:{record.label}" for record in records if record.tree >= 0]
        latex += [record.latex for record in records if record.tree >= 0]
    missing = sorted(groups.keys() - set(names))
    if missing or len(names) != len(groups):
        raise CorruptData(
            f"the atlas's groups and articles do not match ({', '.join(missing[:5])}); install eqkin again"
        )
    equations = NamedFormulas(names, FormulaSet(builder.build(), latex))
    return LabelledSet("atlas", equations, [groups[name] for name in names])


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """Scores of the agreement between similarities and labels, in [0, 1]."""

    accuracy: Score  # leave-one-out 1-NN
    ranking: Score  # of triples, ties correct: the paper's
    strict: Score  # of triples, ties wrong
    correct: npt.NDArray[np.float64]  # score of each query in the accuracy
    groups: npt.NDArray[np.int64]  # number of each query's label
    rankings: npt.NDArray[np.float64]  # the ranking in each resample; NaN if no triple was drawn


def score_labels(
    similarity: Floats, labels: Sequence[str], *, resamples: int = RESAMPLES, seed: int = SEED
) -> LabelledScores:
    """Compute 1-NN accuracy and ranking of equations from their similarities.

    Args:
        similarity: (n, n) how related each equation (row) is to each other one; rounded to six decimals. The accuracy
            uses rows; the ranking uses the mean of both directions, if they differ.
        labels: (n,) the labels. A label that occurs once makes its equation a distractor: it is not a query and in no
            pair, but can be a nearest neighbour or the third of a triple.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Raises:
        BadInput: Shapes differ, a similarity is not finite, no label occurs twice, or there is only one label.
    """
    names, groups = np.unique(np.asarray(labels, str), return_inverse=True)
    similarity = np.asarray(similarity)
    if similarity.shape != (len(groups), len(groups)):
        raise BadInput(f"{len(groups)} labels need as many rows and columns of similarities, got {similarity.shape}")
    if len(names) < 2:
        raise BadInput(f"there is only one label ({', '.join(names)}): add equations with others")
    if len(names) == len(groups):
        raise BadInput("no label occurs twice: no equation has a neighbour to find")
    if not np.isfinite(similarity).all():
        raise BadInput("a similarity is not finite")
    rounded = np.round(similarity.astype(np.float64), _TIE_DECIMALS)
    correct = score_nearest_labels(rounded, groups)
    drawn = np.concatenate((np.ones((1, len(names)), np.float32), draw_bootstrap_weights(len(names), resamples, seed)))
    total = count_triples(groups)
    loose, strict = (
        compute_ranking_scores(counts, total, drawn)
        for counts in count_correct_triples((rounded + rounded.T) / 2, groups)
    )
    is_query = ~np.isnan(correct)
    return LabelledScores(
        bootstrap_mean(correct[is_query], groups[is_query], resamples=resamples, seed=seed),
        Score(float(loose[0]), *compute_percentile_interval(loose[1:])),
        Score(float(strict[0]), *compute_percentile_interval(strict[1:])),
        correct[is_query],
        groups[is_query],
        loose[1:],
    )


def summarize_labelled(
    labelled: LabelledSet, encoder: Encoder | None = None, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Compute both scores of the search engine and of its vectors alone, in percent (`eqkin evaluate labelled`)."""
    encoder = encoder or Encoder.load()
    forest = labelled.equations.formulas.forest
    vectors = np.asarray(normalize_rows(encoder.embed(forest)), np.float32)
    engine = score_labels(compare_within(forest, vectors), labelled.labels, resamples=resamples)
    alone = score_labels(compute_products(vectors, vectors), labelled.labels, resamples=resamples)

    def to_percent(share: float | None) -> float | None:
        return None if share is None else round(100 * share, 4)

    def describe(scores: LabelledScores) -> tuple[dict[str, Any], dict[str, Any]]:
        both = {"accuracy": scores.accuracy, "ranking": scores.ranking}
        values = {key: to_percent(score.value) for key, score in both.items()}
        return values, {key: [to_percent(score.low), to_percent(score.high)] for key, score in both.items()}

    values, intervals = describe(engine)
    embedding, embedding_intervals = describe(alone)
    return {
        **values,
        "embedding": embedding,
        "intervals": intervals | {"embedding": embedding_intervals},
        "equations": len(labelled),
        "labels": len(set(labelled.labels)),
    }


def measure_labelled(context: ExperimentContext, system: System, labelled: LabelledSet) -> dict[str, Any]:
    """Measure a system on a set, or return the cached measurement."""
    context.log(f"{system.title}: {len(labelled):,} labelled equations of {labelled.name}")
    resamples = context.scale.resamples
    key = {
        "system": system.name, "settings": system.settings, "learned_from": system.learned_from,
        "set": labelled.digest, "resamples": resamples, "seed": SEED, "drawn": "labels",
    }  # fmt: skip

    def measure() -> dict[str, Any]:
        formulas = labelled.equations.formulas
        found = score_labels(system.rank(formulas, formulas), labelled.labels, resamples=resamples)
        scores = {"accuracy": found.accuracy, "labelled_ranking": found.ranking, "strict": found.strict}
        return {
            **{name: [score.value, score.low, score.high] for name, score in scores.items()},
            "right": found.correct.tolist(),
            "groups": found.groups.tolist(),
            "rankings": found.rankings.tolist(),
        }

    return context.cache.get_or_measure("labelled", key, measure)


def run_labelled(
    context: ExperimentContext, systems: Sequence[System], sets: Sequence[LabelledSet]
) -> ExperimentResult:
    """Compare fitted systems on labelled sets; the others are tested against the first system.

    Raises:
        BadInput: There is no system or no set, two sets have one name, or a set has too few labels.
    """
    if not systems or not sets:
        raise BadInput("there is nothing to measure: give a system and a labelled set")
    names = [one.name for one in sets]
    if len(set(names)) < len(names):
        raise BadInput(f"labelled sets need distinct names, got {', '.join(names)}")
    facts = {"resamples": f"{context.scale.resamples:,}", "seed": str(SEED)}
    tables = []
    for one in sets:
        tables.append(_make_table(one, systems, [measure_labelled(context, system, one) for system in systems]))
        facts[one.name] = _describe_set(one)
    notes = [warning for system in systems for warning in system.list_warnings(names)]
    return ExperimentResult("labelled", "Labelled equations", tables, notes, facts)


def _make_table(labelled: LabelledSet, systems: Sequence[System], measured: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for system, found in zip(systems, measured, strict=True):
        cells: dict[str, Score | str] = {column.key: Score(*found[column.key]) for column in LABELLED_COLUMNS}
        if found is not measured[0]:
            by_label = (np.bincount(one["groups"], one["right"]) for one in (found, measured[0]))
            rankings = [np.array(one["rankings"], np.float64) for one in (found, measured[0])]  # None becomes NaN
            cells["p_accuracy"] = format_p(compute_sign_flip_p(*by_label))
            cells["p_labelled_ranking"] = format_p(compute_two_sided_p(rankings[0] - rankings[1]))
        rows.append(TableRow(system.title, cells))
    columns = LABELLED_COLUMNS + (_P_COLUMNS if len(systems) > 1 else [])
    caption = (
        f"{len(labelled):,} equations with {len(set(labelled.labels)):,} labels. Accuracy: the nearest other equation "
        "has the same label. Ranking: two equations of one label are at least as similar as either is to a third of "
        "another label. Intervals: 95 %, bootstrap over labels; p: two-sided, against "
        f"{systems[0].title}, not corrected for the number of comparisons (accuracy: paired randomisation test by "
        "label; ranking: bootstrap of the difference)."
    )
    return Table(f"labelled-{labelled.name}", f"Labelled equations: {labelled.name}", columns, rows, caption)


def _describe_set(labelled: LabelledSet) -> str:
    text = f"{len(labelled):,} equations, {len(set(labelled.labels)):,} labels, digest {labelled.digest}"
    if alone := sum(count == 1 for count in Counter(labelled.labels).values()):
        text += f"; {alone} with a label of their own"
    if labelled.duplicates:
        text += f"; {labelled.duplicates} with the LaTeX of another"
    return text + (f"; {len(labelled.skipped)} unreadable, left out" if labelled.skipped else "")
