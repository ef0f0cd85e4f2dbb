"""The weights of the ranking: what each similarity adds on judged and labelled sets, and what choosing them adds.

Similarities are computed once per set; then any weights can be measured. The measures are those of `research.sets`:
a set's score is the mean of its measures. Each set is also measured with weights that were chosen on the other sets,
by coordinate ascent from `WEIGHTS`. Sets whose names begin with the same word (`arqmath-dev`, `arqmath2-part`) are left
out together.

The bundled document frequencies, on which the similarities depend, are counted by `count_frequencies`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eqkin.encoder.encoder import Encoder
from eqkin.evaluation import JudgedSet, LabelledSet
from eqkin.evaluation.comparison import COMPLETE_DEPTH, TIE_SEED
from eqkin.evaluation.labelled import score_labels
from eqkin.evaluation.measures import MIN_RELEVANT_GRADE, Score
from eqkin.evaluation.systems import Float32s, FormulaSet, normalize_rows
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.operators import OperatorForest
from eqkin.formulas.terms import DocumentFrequencies, extract_norms
from eqkin.library.files import LibraryFiles
from eqkin.search.candidates import WEIGHTS, QueryTerms, compute_similarities, weigh_similarities
from research.sets import get_keys, make_search_task
from research.tables import Table, TableColumn, TableRow

Integers = npt.NDArray[np.int64]

# The ascent tries each weight times these factors.
FACTORS = (0, 0.5, 0.75, 1.35, 2)
# A weight changes only if the mean over sets gains this much.
MIN_GAIN = 1e-4
# Every third tree of a library is counted.
COUNTED_SHARE = 3
_TREES_PER_BLOCK = 4_000


@dataclass(frozen=True, eq=False)
class ComparedSet:
    """A set whose formulas were compared with its queries."""

    name: str
    # Keys of its measures.
    keys: Sequence[str]
    # For each query, (formulas, similarities).
    similarities: list[Float32s]
    # For each query; see `QueryTerms.known_similarities`.
    known: list[npt.NDArray[np.bool_]]
    # Grades of all formulas for each query that is a topic; -1 for those that are not in its list.
    topics: dict[int, Integers]
    # (formulas,) whether each could be read.
    readable: npt.NDArray[np.bool_]
    # Lists are measured to this depth.
    depth: int | None
    # Labels of a labelled set, whose equations are the queries and the first formulas.
    labels: Sequence[str] = ()

    @property
    def group(self) -> str:
        """The word its name begins with; sets of a group are left out together."""
        return (re.match("[A-Za-z]*", self.name) or [self.name])[0]

    def measure(self, weights: Mapping[str, float]) -> float:
        """Compute the mean of the set's measures."""
        pairs = zip(self.similarities, self.known, strict=True)
        scores = np.stack([weigh_similarities(rows, known, weights) for rows, known in pairs])
        scores[:, ~self.readable] = -np.inf
        order = np.random.default_rng(TIE_SEED).permutation(len(self.readable))
        values = []
        for query, grades in self.topics.items():
            listed = order[grades[order] >= 0]
            ranked = listed[np.argsort(-scores[query, listed], kind="stable")][: self.depth]
            measured = measure_topic(grades[ranked], np.sort(grades[listed])[::-1])
            values.append([measured[key] for key in self.keys])
        means = np.mean(values, axis=0).tolist()
        if self.labels:
            within = score_labels(scores[:, : len(self.labels)], self.labels, resamples=1)
            means += [within.accuracy.value, within.ranking.value]
        return float(np.mean(means))


def measure_topic(grades: Integers, ideal: Integers) -> dict[str, float]:
    """Compute the measures of a list of grades, best first; `ideal` are the topic's grades in descending order."""
    discounts = 1 / np.log2(np.arange(len(ideal)) + 2)
    gain, best = (float(some @ discounts[: len(some)]) for some in (grades, ideal))
    places = np.flatnonzero(grades >= MIN_RELEVANT_GRADE) + 1
    first, relevant = places.min(initial=len(ideal) + 11), max(int((ideal >= MIN_RELEVANT_GRADE).sum()), 1)
    return {
        "ndcg": gain / best if best else 0.0,
        "map": float((np.arange(1, len(places) + 1) / places).sum()) / relevant,
        "p10": float((places <= 10).sum()) / 10,
        "mrr": 1 / float(first) if len(places) else 0.0,
        "hit1": float(first <= 1),
        "hit10": float(first <= 10),
    }


def compare_set(one: JudgedSet | LabelledSet, distractors: FormulaSet, encoder: Encoder) -> ComparedSet:
    """Compare the formulas of a set, and distractors if it is labelled, with each query."""
    if isinstance(one, LabelledSet):
        task, _ = make_search_task(one, distractors)
        keys: Sequence[str] = ("map",)
        queries = one.equations.formulas.forest
        labels = one.labels
        rows = [task.formulas.names.index(name) for name in task.topics.names]
    else:
        task = one
        labels = []
        keys = get_keys(one)
        queries = one.topics.formulas.forest
        rows = list(range(len(one.topics)))
    formulas = task.formulas.formulas.forest
    asked, others = parse_operators(queries), parse_operators(formulas)
    norms = extract_norms(others)
    vectors, theirs = (np.asarray(normalize_rows(encoder.embed(some)), np.float32) for some in (queries, formulas))
    chosen = [QueryTerms.extract(asked.select([query])) for query in range(len(asked))]
    found = [
        compute_similarities(one, others, norms, theirs @ vector) for one, vector in zip(chosen, vectors, strict=True)
    ]
    names = np.array(task.formulas.names)
    excluded = task.find_excluded()
    topics = {}
    for row, name, readable in zip(rows, task.topics.names, task.topics.readable.tolist(), strict=True):
        rest = 0 if task.is_complete else -1
        grades = np.array([task.qrels[name].get(formula, rest) for formula in names.tolist()], np.int64)
        # Without a tree of the topic its list is empty.
        is_listed = ~np.isin(names, list(excluded[name])) & readable
        topics[row] = np.where(is_listed, grades, -1)
    known = [query.known_similarities for query in chosen]
    depth = COMPLETE_DEPTH if task.is_complete else None
    return ComparedSet(task.name, keys, found, known, topics, task.formulas.readable, depth, labels)


def choose_weights(sets: Sequence[ComparedSet]) -> dict[str, float]:
    """Choose weights by coordinate ascent: multiply each of `WEIGHTS` in turn, keep what raises the mean over sets."""
    best = dict(WEIGHTS)
    reached = np.mean([one.measure(best) for one in sets])
    for name, weight in WEIGHTS.items():
        for factor in FACTORS:
            changed = best | {name: factor * weight}
            mean = np.mean([one.measure(changed) for one in sets])
            if mean > reached + MIN_GAIN:
                best, reached = changed, mean
    return best


def make_weights_table(sets: Sequence[ComparedSet], log: Callable[[str], None] = lambda message: None) -> Table:
    """Measure `WEIGHTS`, `WEIGHTS` without each similarity, and weights chosen on the other sets."""
    found = {"all similarities": {one.name: one.measure(WEIGHTS) for one in sets}}
    for name in WEIGHTS:
        found[f"without {name}"] = {one.name: one.measure(WEIGHTS | {name: 0.0}) for one in sets}
    left_out: dict[str, float] = {}
    for group in dict.fromkeys(one.group for one in sets):
        others = [one for one in sets if one.group != group]
        chosen = choose_weights(others) if others else WEIGHTS
        log(f"chosen without {group}: " + ", ".join(f"{name} {weight:g}" for name, weight in chosen.items()))
        left_out |= {one.name: one.measure(chosen) for one in sets if one.group == group}
    found["chosen on the other sets"] = left_out
    columns = [TableColumn("mean", "mean", best="")] + [TableColumn(one.name, one.name, best="") for one in sets]
    rows = []
    for title, scores in found.items():
        cells = {"mean": float(np.mean(list(scores.values())))} | scores
        rows.append(TableRow(title, {name: Score(value) for name, value in cells.items()}))
    return Table("weights", "Weights", columns, rows, "Mean of each set's measures, as in `research sets`.")


def count_frequencies(library: Path) -> DocumentFrequencies:
    """Count the terms of every third tree of a library, as for the bundled table."""
    operators = []
    with LibraryFiles.open(library) as files:
        for trees, forest, _ in files.iter_trees(files.list_tree_keys()):
            counted = np.flatnonzero(trees % COUNTED_SHARE == 0)
            for start in range(0, len(counted), _TREES_PER_BLOCK):
                operators.append(parse_operators(forest.select(counted[start : start + _TREES_PER_BLOCK])))
    return DocumentFrequencies.count(OperatorForest.concatenate(operators))
