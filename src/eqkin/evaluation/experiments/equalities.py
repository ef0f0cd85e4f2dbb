"""Equalities (paper, section 6.5): find the other side of an equality, as it is and after finetuning on others.

The pairs come from the half of the works that nobody learned from. Half of them, by work, are finetuned on, the rest
are tested on: every side asks for its other one among all sides of the test half. The measurements are kept one by one,
so some may be taken where there is a GPU and others where fastText is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from eqkin.errors import BadInput
from eqkin.evaluation.experiments.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext, drop_text
from eqkin.evaluation.experiments.equalities_closely import RERANK_DEPTH
from eqkin.evaluation.experiments.equalities_findings import MAIN_DEPTH, EntryHits, PairSetResult, findings
from eqkin.evaluation.experiments.equalities_systems import BATCH_SIZE, DEPTHS, ENTRIES, EQKIN_EPOCHS, Contestants
from eqkin.evaluation.published import EQUALITIES_ROWS, EQUALITIES_SIZES
from eqkin.evaluation.results import Curve, ExperimentResult, Plot, Table, TableColumn, TableRow
from eqkin.evaluation.sets.equalities import MAX_SIZE_RATIO, MIN_SIDE_NODES, NeighbouringSides
from eqkin.evaluation.sets.pairs import PairSet
from eqkin.evaluation.sets.triples import unpack_bits
from eqkin.evaluation.store import compute_digest
from eqkin.evaluation.systems.base import compute_forest_digest
from eqkin.training.data import Corpus

NAME = "equalities"
TITLES = {"equalities": "Equalities", "relations": "Relations", "inequalities": "Inequalities"}  # in the paper's order
SWEPT_ENTRIES = ("graph", "bag-of-words")  # whose batches are varied, on the equalities
_COLUMNS = [TableColumn(f"r{depth}", f"R@{depth}") for depth in DEPTHS]


def run_equalities(
    context: ExperimentContext, corpus: Corpus, systems: Sequence[str] | None = None, sets: Sequence[str] | None = None
) -> ExperimentResult:
    """Measure systems on pairs of sides.

    Args:
        context: Where to keep what is learned and measured, and how much to do.
        corpus: All papers; one half is pretrained on, the pairs come from the other.
        systems: Some of `ENTRIES`, by default all. What was measured before is not measured again, so a call for some
            of them here and one for all of them elsewhere, with the same store, give the whole result.
        sets: Some of `TITLES`, by default all.

    Raises:
        BadInput: There is no such system or set, there are too few pairs, or what a system needs is not installed.
    """
    systems, sets = _check_names(systems, ENTRIES, "system"), _check_names(sets, TITLES, "set of pairs")
    alone = drop_text(corpus)
    learn, held_out = alone.split(HELD_OUT_FRACTION, SPLIT_SEED)
    field = Contestants(context, alone, learn, corpus)
    found, tables, facts = [], [], _describe_data(context, corpus, held_out)
    context.log("taking equations apart")
    neighbours = NeighbouringSides.read(held_out.forest)
    for name in sets:
        pairs = PairSet.split(held_out, name, context.scale.pairs, neighbours=neighbours)
        measured = _PairSetMeasurements(field, pairs)
        lines = {system: measured.measure_entry(system, BATCH_SIZE) for system in systems}
        swept = [system for system in SWEPT_ENTRIES if system in systems] if name == NAME else []
        sweep = [measured.measure_entry(system, batch) for system in swept for batch in measured.batches]
        found.append(PairSetResult(TITLES[name], lines, sweep, pairs.clusters, context.scale.resamples))
        tables.append(_make_table(name, found[-1], pairs))
        facts |= {name: _format_sizes(pairs)}
    swept_sets = [one for one in found if one.sweep]
    return ExperimentResult(
        NAME,
        "Finding the other side of an equality",
        "Finetuned, the graph network finds the other side among the first ten and hundred more often than the "
        "transformer, a bag of words and fastText, in this order, on all three sets, often by far; at the first place "
        "all are close.",
        findings(found),
        [*tables, *(_make_sweep_table(one) for one in swept_sets)],
        [_make_sweep_plot(one) for one in swept_sets],
        differences=_DIFFERENCES,
        facts=facts,
    )


class _PairSetMeasurements:
    """One set of pairs, and what is measured on it."""

    def __init__(self, field: Contestants, pairs: PairSet) -> None:
        self._field, self._pairs = field, pairs
        self._key = {
            "set": pairs.name,
            "sides": compute_forest_digest(pairs.pairs.forest),
            "parts": compute_digest([part.tolist() for part in (pairs.train, pairs.validation, pairs.test)]),
        }

    @property
    def batches(self) -> list[int]:
        """Those of the sweep that the pairs suffice for."""
        return [batch for batch in self._field.context.scale.batches if batch <= len(self._pairs.train)]

    def measure_entry(self, system: str, batch: int) -> EntryHits:
        """What a system found, measured now or before."""
        batch = min(batch, len(self._pairs.train))
        key = self._key | self._field.make_cache_key(system, batch)
        measure = partial(self._field.measure, system, self._pairs, batch)
        kept: dict[str, Any] = self._field.context.cache.get_or_measure(NAME, key, measure)
        found = {depth: unpack_bits(kept["hits"][str(depth)], kept["queries"]) for depth in DEPTHS}
        return EntryHits(system, batch, found, kept.get("choice", {}))


def _check_names(names: Sequence[str] | None, all_: dict[str, Any], what: str) -> list[str]:
    for name in names or ():
        if name not in all_:
            raise BadInput(f"there is no {what} {name!r}; there are {', '.join(all_)}")
    return [name for name in all_ if names is None or name in names]


def _make_table(name: str, found: PairSetResult, pairs: PairSet) -> Table:
    rows = []
    for entry, line in found.lines.items():
        how = "finetuned" if ENTRIES[entry].finetuned else "as it is"
        cells = {f"r{depth}": found.compute_score(line, depth) for depth in DEPTHS}
        rows.append(TableRow(f"{ENTRIES[entry].title}, {how}", dict(cells), note=_format_choice(line)))
    caption = (
        f"{2 * len(pairs.test):,} sides ask for their other side among {2 * len(pairs.test) - 1:,}; finetuned on "
        f"{len(pairs.train):,} other pairs with batches of {min(BATCH_SIZE, len(pairs.train)):,}. 95 % intervals by "
        f"bootstrap over the {len(set(pairs.clusters.tolist()))} works tested on. The paper's figures are of its own "
        f"{EQUALITIES_SIZES[name]:,} pairs."
    )
    return Table(f"{NAME}-{name}", TITLES[name], _COLUMNS, [*rows, *EQUALITIES_ROWS[name]], caption)


def _format_choice(line: EntryHits) -> str:
    """What was chosen on the validation part."""
    chosen = []
    if "candidate" in line.choice:
        rate, epochs, candidate = (line.choice[name] for name in ("learning_rate", "epochs", "candidate"))
        chosen += [] if candidate == "network" else [candidate]
        chosen += [f"learning rate {rate:g}, epochs {epochs}"] if rate else ["no epoch was better than none"]
    if "counted" in line.choice:
        chosen.append(f"counted structure weighs {line.choice['counted']:g}, the first {RERANK_DEPTH} compared closely")
    return ", ".join(chosen)


def _make_sweep_table(found: PairSetResult) -> Table:
    rows = [
        TableRow(
            f"{ENTRIES[line.entry].title}, {line.batch:,}",
            {f"r{depth}": found.compute_score(line, depth) for depth in DEPTHS},
            note=_format_choice(line),
        )
        for line in found.sweep
    ]
    caption = "Same epochs for all: twice the batch is half the steps. Learning rate and epochs are chosen for each."
    return Table(f"{NAME}-batches", f"{found.title}: batch size in finetuning", _COLUMNS, rows, caption)


def _make_sweep_plot(found: PairSetResult) -> Plot:
    curves = []
    for entry in dict.fromkeys(line.entry for line in found.sweep):
        lines = [line for line in found.sweep if line.entry == entry]
        scores = [found.compute_score(line, MAIN_DEPTH) for line in lines]
        curves.append(
            Curve(
                ENTRIES[entry].title,
                [float(line.batch) for line in lines],
                [score.value for score in scores],
                [score.value if score.low is None else score.low for score in scores],
                [score.value if score.high is None else score.high for score in scores],
            )
        )
    title = f"{found.title}: effect of the batch size"
    return Plot(f"{NAME}-batches", title, "pairs a batch", f"R@{MAIN_DEPTH}", curves, log_x=True)


def _format_sizes(pairs: PairSet) -> str:
    works = len(set(pairs.work.tolist()))
    return (
        f"{len(pairs.pairs):,} pairs from {works} works: {len(pairs.train):,} to learn from, {len(pairs.validation):,} to "
        f"choose on, {len(pairs.test):,} to test on"
    )


def _describe_data(context: ExperimentContext, corpus: Corpus, held_out: Corpus) -> dict[str, str]:
    return {
        "corpus": f"{len(corpus):,} equations, digest {corpus.digest[:16]}",
        "pairs from": f"{len(held_out):,} equations of {len(held_out.papers):,} papers",
        "epochs": f"at most {context.scale.epochs}",
        "resamples": f"{context.scale.resamples:,}",
    }


_DIFFERENCES = [
    "Trees are split at relation signs, not LaTeX by regular expressions; the rules (a side has at least "
    f"{MIN_SIDE_NODES} nodes, the larger at most {MAX_SIZE_RATIO:g} times those of the smaller, no side occurs twice) were fixed "
    "beforehand.",
    "Pairs are halved by work, so that no author's notation is on both sides; the paper does not say how.",
    "Search is exact, by cosine; the paper's is approximate. The query is not in the list, ties count against it, and "
    "the test half is used as it is; the original code counted the query itself and drew the test set anew.",
    "Learning rates, epochs and dimensions are chosen for every system on a tenth of the learning half; the paper "
    "reports the best result of a grid search for its bag of words and does not say on which pairs.",
    "Batch normalisation keeps the statistics of pretraining while the graph network is finetuned; the one that was "
    "not pretrained learns them.",
    "The transformer normalises before attention, not after it, and has no dropout; trees are cut after 256 nodes.",
    "Batches of all sizes see the pairs equally often, so large ones take fewer steps; the paper does not say how it "
    "compared them.",
    "eqkin, which the paper does not have, adds counted structure to the cosine, with a weight chosen on that tenth, "
    f"and puts the best {RERANK_DEPTH} in order by what boosted trees learn from that tenth. It also takes "
    "into account how close a candidate is to other sides of the list; the other systems compare two sides alone. "
    f"It is finetuned with one learning rate for at most {EQKIN_EPOCHS} epochs. What a term is worth to it was counted "
    "over all papers, those of the pairs among them, without a look at what belongs together.",
    "The bag of words keeps a random vector for labels that no pair to learn from has.",
]
