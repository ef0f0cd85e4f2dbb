"""What the figures of the experiment with equalities say, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.experiments.equalities_systems import ENTRIES, get_learning_rates
from eqkin.evaluation.results import Score
from eqkin.statistics import bootstrap_mean

PAPER_ORDER = ("graph", "transformer", "bag-of-words", "fasttext")  # the paper's, by R@10 on every set
MAIN_DEPTH = 10  # which the order is of


@dataclass(frozen=True, eq=False)
class EntryHits:
    """Which sides found their other side."""

    entry: str
    batch: int
    found: dict[int, npt.NDArray[np.bool_]]  # by depth; left sides first
    choice: dict[str, Any] = field(default_factory=dict)  # what was chosen on the validation part


@dataclass(frozen=True, eq=False)
class PairSetResult:
    """All that was measured on one set."""

    title: str
    lines: Mapping[str, EntryHits]
    sweep: Sequence[EntryHits]  # with batches of several sizes
    clusters: npt.NDArray[np.int64]  # the work of each side
    resamples: int

    def compute_score(self, one: EntryHits, depth: int) -> Score:
        """The share that found it, with its interval."""
        return bootstrap_mean(one.found[depth], self.clusters, resamples=self.resamples)

    def compute_difference(self, one: str, other: str, depth: int = MAIN_DEPTH) -> Score:
        """How much larger the first share is, in points."""
        values = 100.0 * (self.lines[one].found[depth].astype(float) - self.lines[other].found[depth])
        return bootstrap_mean(values, self.clusters, resamples=self.resamples)


def findings(found: Sequence[PairSetResult]) -> list[str]:
    """Sentences; the first says whether the paper's order holds."""
    said = [_verdict(found)]
    said += [text for one in found for text in (_order(one), _worth(one), _edges(one)) if text]
    return said + [text for one in found for text in _batches(one)]


def _verdict(found: Sequence[PairSetResult]) -> str:
    steps = [one.compute_difference(*step) for one in found for step in _steps(one)]
    for_it, against = sum(_above(step) for step in steps), sum(_below(step) for step in steps)
    open_ = len(steps) - for_it - against
    counted = (
        f"of {len(steps)} pairs of neighbours in the paper's order (graph network, transformer, bag of words, "
        f"fastText; R@{MAIN_DEPTH} on each set, finetuned) {for_it} stand as there, {against} the other way round, and "
        f"{open_} cannot be told apart"
    )
    if not steps:
        return (
            "Undecided: of the paper's order (graph network, transformer, bag of words, fastText) nothing was measured."
        )
    if for_it == len(steps):
        return f"Holds: {counted}."
    if not for_it and not against:
        return f"Undecided: {counted}."
    return f"{'Holds in part' if for_it else 'Does not hold'}: {counted}."


def _steps(one: PairSetResult) -> list[tuple[str, str]]:
    return list(pairwise([entry for entry in PAPER_ORDER if entry in one.lines]))


def _order(one: PairSetResult) -> str:
    present = [entry for entry in PAPER_ORDER if entry in one.lines]
    if not present:
        return ""
    scores = {entry: one.compute_score(one.lines[entry], MAIN_DEPTH) for entry in present}
    ours = sorted(present, key=lambda entry: -scores[entry].value)
    shares = ", ".join(f"{ENTRIES[entry].title} {_share(scores[entry])}" for entry in ours)
    steps = "; ".join(
        f"{ENTRIES[a].title} over {ENTRIES[b].title}: {_points(one.compute_difference(a, b))}" for a, b in _steps(one)
    )
    return f"{one.title}, finetuned, R@{MAIN_DEPTH}: {shares}." + (f" Differences in points: {steps}." if steps else "")


def _worth(one: PairSetResult) -> str:
    """What finetuning and pretraining are worth."""
    asked = {
        "eqkin over the finetuned transformer": ("eqkin", "transformer"),
        "finetuning eqkin": ("eqkin", "eqkin-as-is"),
        "finetuning the graph network": ("graph", "graph-as-is"),
        "pretraining it": ("graph", "graph-fresh"),
        "finetuning the transformer": ("transformer", "transformer-as-is"),
        "the finetuned graph network over the best that learns nothing": ("graph", _best(one)),
    }
    said = [
        f"{what}: {_points(one.compute_difference(a, b))}"
        for what, (a, b) in asked.items()
        if a in one.lines and b in one.lines
    ]
    return f"{one.title}, R@{MAIN_DEPTH}, worth in points: {'; '.join(said)}." if said else ""


def _edges(one: PairSetResult) -> str:
    """Who chose the largest rate on offer, and so may gain from a larger one or from more steps."""
    names = [
        ENTRIES[entry].title
        for entry, line in one.lines.items()
        if len(get_learning_rates(entry)) > 1 and line.choice.get("learning_rate") == get_learning_rates(entry)[-1]
    ]
    if not names:
        return ""
    return f"{one.title}: {', '.join(names)} chose the largest learning rate on offer, and may gain from more steps."


def _best(one: PairSetResult) -> str:
    """The best entry that learns nothing at all, or an empty name."""
    names = [
        name for name in ("bag-of-words-as-is", "log-bag-of-words", "tfidf-tree", "tree-pairs") if name in one.lines
    ]
    return max(names, key=lambda name: one.lines[name].found[MAIN_DEPTH].mean(), default="")


def _batches(one: PairSetResult) -> list[str]:
    said = []
    for entry in dict.fromkeys(line.entry for line in one.sweep):
        lines = sorted((line for line in one.sweep if line.entry == entry), key=lambda line: line.batch)
        if len(lines) < 2:
            continue
        shares = ", ".join(f"{line.batch:,}: {line.found[MAIN_DEPTH].mean():.3f}" for line in lines)
        values = 100.0 * (lines[-1].found[MAIN_DEPTH].astype(float) - lines[0].found[MAIN_DEPTH])
        change = bootstrap_mean(values, one.clusters, resamples=one.resamples)
        said.append(
            f"{one.title}, {ENTRIES[entry].title}, R@{MAIN_DEPTH} by batch size: {shares}. From the smallest to the largest "
            f"it changes by {_points(change)} points; with as many epochs, so fewer steps, larger batches are "
            + (
                "better"
                if _above(change)
                else "worse"
                if _below(change)
                else "neither better nor worse, as far as can be told"
            )
            + "."
        )
    return said


def _above(score: Score) -> bool:
    return score.low is not None and score.low > 0


def _below(score: Score) -> bool:
    return score.high is not None and score.high < 0


def _share(score: Score) -> str:
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]" if score.low is not None else f"{score.value:.3f}"


def _points(score: Score) -> str:
    interval = f" [{score.low:+.1f}, {score.high:+.1f}]" if score.low is not None else ""
    return f"{score.value:+.1f}{interval}"
