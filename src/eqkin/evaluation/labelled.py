"""Labelled sets: equations with the name of what they say, and how well similarities agree with the labels.

Two scores (paper, section 6; formulas in `measures`): leave-one-out 1-NN accuracy, and the ranking of triples. Both
have intervals by a bootstrap over labels, each drawn with all of its equations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.atlas import list_articles, load_equation_groups
from eqkin.errors import BadInput, CorruptData, LimitReached
from eqkin.evaluation.measures import (
    RESAMPLES,
    Floats,
    Score,
    bootstrap_mean,
    compute_percentile_interval,
    compute_ranking_scores,
    compute_sign_flip_p,
    compute_two_sided_p,
    count_correct_triples,
    count_triples,
    draw_bootstrap_weights,
    score_nearest_labels,
)
from eqkin.evaluation.systems import (
    EngineSystem,
    FormulaSet,
    NamedFormulas,
    System,
    make_name,
    read_formulas,
    read_json,
)
from eqkin.formulas import Forest
from eqkin.latex.outline import parse
from eqkin.library.parsing import convert_document

# All pairs of one label are compared with all other equations.
MAX_EQUATIONS = 5_000
# The same resamples for all systems: differences are taken within a resample.
SEED = 0
# Smaller differences of similarities are ties, whatever the order of a machine's additions.
_TIE_DECIMALS = 6
_FORM = 'a list of {"latex": ..., "label": ...} is needed'


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Equations, each with one label; all of them have a tree."""

    name: str
    equations: NamedFormulas
    labels: list[str]

    def __len__(self) -> int:
        return len(self.labels)


def read_labelled(path: Path) -> LabelledSet:
    """Read a JSON file, `[{"latex": ..., "label": ...}, ...]`; labels are strings or whole numbers.

    Raises:
        BadInput: The file has another form or is empty, or a formula cannot be read.
        LimitReached: It has more than `MAX_EQUATIONS` equations.
    """
    data = read_json(path, _FORM)
    if not isinstance(data, list):
        raise BadInput(f"{path}: {_FORM}")
    if not data:
        raise BadInput(f"{path}: no equations; {_FORM}")
    if len(data) > MAX_EQUATIONS:
        raise LimitReached(
            f"{path}: {len(data):,} equations, but at most {MAX_EQUATIONS:,} can be compared; give a part of them"
        )
    entries = [_parse_entry(entry, f"{path}, entry {number}") for number, entry in enumerate(data, 1)]
    read = read_formulas([(str(number), latex) for number, (latex, _) in enumerate(entries, 1)])
    if read.problems:
        problems = [
            f"entry {number}, {entries[int(number) - 1][0][:100]!r}: {problem}"
            for number, problem in read.problems.items()
        ]
        more = f"; and {len(problems) - 3:,} more" if len(problems) > 3 else ""
        raise BadInput(f"{path}: {'; '.join(problems[:3])}{more}; correct these formulas")
    equations = NamedFormulas(read.names, read.formulas)
    return LabelledSet(make_name(path.resolve().stem), equations, [label for _, label in entries])


def _parse_entry(entry: Any, where: str) -> tuple[str, str]:
    fields = entry if isinstance(entry, dict) else {}
    latex = fields.get("latex")
    label = fields.get("label")
    if not isinstance(latex, str):
        raise BadInput(f'{where}: "latex" must be a formula; {_FORM}')
    # Python takes True for a whole number.
    if isinstance(label, bool) or not isinstance(label, str | int) or not str(label).strip():
        raise BadInput(f'{where}: "label" must be a name or a whole number; {_FORM}')
    return latex, str(label).strip()


def load_atlas_set() -> LabelledSet:
    """Load the groups of related equations of the bundled atlas, labelled with their group.

    Equations are read from the articles themselves, with the macros in force at their position; no library is needed.
    Equations in no group are left out: some of them are related to others all the same and would count as wrong.

    Raises:
        CorruptData: The articles lack an equation of a group.
    """
    groups = {member: group.id for group in load_equation_groups() for member in group.equations}
    names: list[str] = []
    latex: list[str] = []
    forests: list[Forest] = []
    for article in list_articles():
        subject = article.name.removesuffix(".tex")
        document = parse(article.read_text("utf-8"))
        wanted = [equation for equation in document.equations if f"{subject}:{equation.label}" in groups]
        records, forest, _ = convert_document(dataclasses.replace(document, equations=wanted))
        forests.append(forest)
        for record in records:
            if record.tree >= 0:
                names.append(f"{subject}:{record.label}")
                latex.append(record.latex)
    if sorted(names) != sorted(groups):
        raise CorruptData("the atlas's groups and articles do not match; install eqkin again")
    equations = NamedFormulas(names, FormulaSet(Forest.concatenate(forests), latex))
    return LabelledSet("atlas", equations, [groups[name] for name in names])


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """Scores of the agreement between similarities and labels, in [0, 1]."""

    # Leave-one-out 1-NN, and the ranking of triples.
    accuracy: Score
    ranking: Score
    # Score of each query in the accuracy, and the number of its label.
    correct: npt.NDArray[np.float64]
    groups: npt.NDArray[np.int64]
    # The ranking in each resample; NaN if no triple was drawn.
    rankings: npt.NDArray[np.float64]

    def to_percent(self) -> tuple[dict[str, float], dict[str, list[float | None]]]:
        """Return both scores, and their intervals, in percent."""
        scores = {"accuracy": self.accuracy, "ranking": self.ranking}
        values = {key: round(100 * score.value, 4) for key, score in scores.items()}
        intervals = {
            key: [None if end is None else round(100 * end, 4) for end in (score.low, score.high)]
            for key, score in scores.items()
        }
        return values, intervals


def score_labels(similarity: Floats, labels: Sequence[str], *, resamples: int = RESAMPLES) -> LabelledScores:
    """Compute 1-NN accuracy and ranking of equations from their similarities.

    Args:
        similarity: (n, n) how related each equation (row) is to each other one; rounded to six decimals. The accuracy
            uses rows; the ranking uses the mean of both directions, if they differ.
        labels: (n,) the labels. A label that occurs once makes its equation a distractor: it is not a query and in no
            pair, but can be a nearest neighbour or the third of a triple.
        resamples: Number of resamples of the intervals.

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
    is_query = ~np.isnan(correct)
    accuracy = bootstrap_mean(correct[is_query], groups[is_query], resamples=resamples, seed=SEED)
    # The first row of weights counts each label once: it gives the score itself.
    once = np.ones((1, len(names)), np.float32)
    weights = np.concatenate((once, draw_bootstrap_weights(len(names), resamples, SEED)))
    counts = count_correct_triples((rounded + rounded.T) / 2, groups)
    rankings = compute_ranking_scores(counts, count_triples(groups), weights)
    low, high = compute_percentile_interval(rankings[1:])
    ranking = Score(float(rankings[0]), low, high)
    return LabelledScores(accuracy, ranking, correct[is_query], groups[is_query], rankings[1:])


def score_labelled(system: System, labelled: LabelledSet, resamples: int = RESAMPLES) -> LabelledScores:
    """Score how well the similarities of a system agree with the labels of a set."""
    formulas = labelled.equations.formulas
    return score_labels(system.rank(formulas, formulas), labelled.labels, resamples=resamples)


def summarize_labelled(labelled: LabelledSet, model: Path | None = None, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Compute both scores of the search engine and of its vectors alone, in percent (`eqkin evaluate labelled`)."""
    engine = EngineSystem(model)
    values, intervals = score_labelled(engine, labelled, resamples).to_percent()
    embedding, embedding_intervals = score_labelled(engine.vector, labelled, resamples).to_percent()
    return {
        **values,
        "embedding": embedding,
        "intervals": {**intervals, "embedding": embedding_intervals},
        "equations": len(labelled),
        "labels": len(set(labelled.labels)),
    }


def compare_labelled(
    systems: Sequence[System], labelled: LabelledSet, resamples: int = RESAMPLES
) -> list[dict[str, Any]]:
    """Compute both scores of several systems in percent, and p-values of the tests against the first one."""
    measured = [score_labelled(system, labelled, resamples) for system in systems]
    first = measured[0]
    rows = []
    for system, scores in zip(systems, measured, strict=True):
        values, intervals = scores.to_percent()
        row: dict[str, Any] = {"system": system.name, **values, "intervals": intervals}
        if scores is not first:
            p_accuracy = compute_sign_flip_p(*(np.bincount(one.groups, one.correct) for one in (scores, first)))
            row["p"] = {"accuracy": p_accuracy, "ranking": compute_two_sided_p(scores.rankings - first.rankings)}
        row["warnings"] = system.list_warnings([labelled.name])
        rows.append(row)
    return rows
