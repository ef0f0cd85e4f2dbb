"""Tables of the experiments with networks; rows that are not measured yet are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation.context import ExperimentContext
from eqkin.evaluation.formulas import Float32s
from eqkin.evaluation.tables import PAPER, ExperimentResult, Table, TableRow
from eqkin.learning.config import CONTEXT_KINDS
from eqkin.statistics import Score, bootstrap_mean
from research.bitmap_cnn import BITMAP_NETWORKS, PEER, BitmapData, measure_bitmaps, measure_peer
from research.bitmaps import HEIGHT
from research.equalities import (
    BAG,
    DEPTHS,
    FINETUNINGS,
    SETS,
    STEPS,
    SWEEP_STEPS,
    SWEPT_BATCHES,
    measure_finetuning,
    print_as_authors,
)
from research.networks import ML, NETWORKS, TRIPLE_SETS, NetworkRunner
from research.published import ABLATION_ROWS, EQUALITIES_ROWS, LARGE_SCALE_ROWS
from research.report import list_columns
from research.triples import Flags, unpack_bits

Row = dict[str, Any]
Cells = dict[str, Score | str]

ATLAS = "atlas"
VARIANTS = ("full", "no-histogram", "no-masking", "no-augmentation")
REGIMES = {  # how the full model is trained: networks with and without augmentation
    "1 M triplets in 10 epochs, negatives of the field": ("full", "no-augmentation"),
    "the same, another seed": ("full-seed", "no-augmentation-seed"),
    "1 M triplets in 20 epochs, negatives of the field": ("full-20", "no-augmentation-20"),
    "20 M fresh triplets, negatives of the field": ("full-fresh", "no-augmentation-fresh"),
    "5 M fresh triplets, negatives of any field": ("base", "base-no-augmentation"),
    "machine learning only, 250,000 triplets in 10 epochs": ("ml", "ml-no-augmentation"),
}
FORMULAS = ("base", "complete-trees", "own-negatives", "citations")
EQUAL = (  # trained on the same pairs
    "graph", "graph-renamed", "graph-wide", "graph-10", "graph-30",
    "transformer", "transformer-renamed", "transformer-10", "transformer-30",
)  # fmt: skip
COMPARED = {  # networks that are compared triple by triple
    "20 epochs instead of 10": ("full-20", "full"),
    "20 epochs instead of 10, no augmentation": ("no-augmentation-20", "no-augmentation"),
    "20 M fresh triplets instead of 20 epochs": ("full-fresh", "full-20"),
    "20 M fresh triplets instead of 20 epochs, no augmentation": ("no-augmentation-fresh", "no-augmentation-20"),
    "another seed": ("full-seed", "full"),
    "another seed, no augmentation": ("no-augmentation-seed", "no-augmentation"),
    "no histogram loss": ("no-histogram", "full"),
    "no masking": ("no-masking", "full"),
    "transformer instead of graph network": ("transformer", "graph"),
    "transformer instead of graph network, 10 % of the works": ("transformer-10", "graph-10"),
    "transformer instead of graph network, 30 % of the works": ("transformer-30", "graph-30"),
}
COMPARED_FINETUNINGS = (
    ("transformer-head", "graph-head"), ("transformer-mean", "graph-mean"),
    ("transformer-renamed-head", "graph-renamed-head"), ("transformer-head", "graph-wide-head"),
    ("transformer-10-head", "graph-10-head"), ("transformer-30-head", "graph-30-head"),
    ("transformer-10-head", "graph-head"), ("transformer-head", "transformer-10-head"),
    ("graph-head", "graph-10-head"), ("graph-head", "graph-renamed-head"), ("graph-wide-head", "graph-head"),
    ("base-head", BAG), ("base-no-augmentation-mean", BAG),
)  # fmt: skip
SIZES = ("paper-10", "paper-30", "base", "eqkin-10", "eqkin-30", "eqkin")
_LABELLED = list_columns({"accuracy": "accuracy, atlas", "labelled_ranking": "ranking, atlas"})
_AUTHORS = list_columns(
    {"accuracy_authors": "accuracy, authors' protocol", "ranking_authors": "ranking, authors' protocol"}
)
_TRIPLES = list_columns(TRIPLE_SETS)
_RECALLS = list_columns({f"r{depth}": f"R@{depth}" for depth in DEPTHS}, "share")
_PRINTED = list_columns({f"p{depth}": f"R@{depth}, authors' test" for depth in DEPTHS}, "share")


class PaperTables:
    """Makes the tables from measurements."""

    def __init__(self, runner: NetworkRunner) -> None:
        self.runner, self.data = runner, runner.data
        self.resamples = runner.context.scale.resamples

    def measure(self, name: str) -> Row | None:
        """Return the measurement of a network, None if there is none and none can be made."""
        return try_to(lambda: self.runner.measure(name))

    def get_correct(self, name: str, kind: str) -> Flags | None:
        """Return which triples of a set a network ranks correctly."""
        row = self.measure(name)
        if row is None or kind not in row["triples"]:
            return None
        return unpack_bits(row["triples"][kind]["correct"], len(self.data.triples[kind]))

    def score(self, name: str, kind: str, chosen: Flags | None = None, minus: str = "") -> Score | None:
        """Compute the share of correct triples of a network, or how much it exceeds that of another one."""
        correct, triples = self.get_correct(name, kind), self.data.triples.get(kind)
        other = self.get_correct(minus, kind) if minus else None
        if correct is None or triples is None or (minus and other is None):
            return None
        values = correct.astype(np.float64) - (0 if other is None else other)
        return triples.compute_score(values, self.resamples, chosen)

    def score_all(self, name: str, minus: str = "") -> Cells:
        """Compute the scores of all sets of triples."""
        found = {kind: self.score(name, kind, minus=minus) for kind in TRIPLE_SETS}
        return {kind: score for kind, score in found.items() if score is not None}

    def get_labelled(self, name: str, labels: str = ATLAS) -> Cells:
        """Return the scores of a network on a labelled set."""
        row = self.measure(name)
        return {key: Score(*score) for key, score in row["labelled"].get(labels, {}).items()} if row else {}

    def make_row(self, name: str, note: str = "", minus: str = "", kind: str = ML) -> TableRow | None:
        """Make a row of all scores of a network; `change` is how much it exceeds another one on triples of a kind."""
        if self.measure(name) is None:
            return None
        change = self.score(name, kind, minus=minus) if minus and name != minus else None
        cells = self.score_all(name) | self.get_labelled(name) | ({"change": change} if change else {})
        return TableRow(NETWORKS[name].title, cells, note=note)

    def describe(self) -> dict[str, str]:
        """Describe the data."""
        train, held_out = (one.compute_statistics() for one in (self.data.train, self.data.held_out))
        return {
            "trained on": f"{train['trees']:,} equations, {train['papers']:,} papers, {train['works']:,} works",
            "held out": f"{held_out['trees']:,} equations, {held_out['papers']:,} papers, {held_out['works']:,} works",
            "digest": self.data.train.digest[:16],
            "triples": f"{len(self.data.triples['any']):,} of each kind",
            "resamples": f"{self.resamples:,}, of works",
        }

    def make_ablation(self) -> ExperimentResult:
        """Make the tables of the ablation."""
        paper, best = [], ABLATION_ROWS[0].cells["ranking"]
        for row in ABLATION_ROWS:
            score = row.cells["ranking"]
            assert isinstance(score, Score) and isinstance(best, Score)
            cells: Cells = {ML: score}
            if score != best:
                cells["change"] = Score(score.value - best.value)
            paper.append(TableRow(row.title, cells, PAPER))
        caption = (
            "Share of held-out triples ranked correctly, and labelled equations of the atlas by cosine. Networks: one "
            "seed (another one: third table), 1 M fixed triplets of half of the works, 10 epochs, negatives of the "
            "anchor's field. Brackets: 95 %, bootstrap over works, or labels. The paper's rows are of its own "
            "machine-learning papers."
        )
        rows = [self.make_row(name, minus="full") for name in VARIANTS]
        for name in ("ml", "ml-no-augmentation"):
            rows.append(self.make_row(name, "trained on machine learning only, 250,000 triplets", minus="ml"))
        columns = [*_TRIPLES, *list_columns({"change": "change, machine learning only"}), *_LABELLED]
        tables = [Table("ablation", "Ablation", columns, [row for row in rows if row] + paper, caption)]
        return ExperimentResult(
            "ablation", "Ablation", [*tables, self._make_kinds(), self._make_augmentation(), self._make_differences()],
            facts=self.describe(),
        )  # fmt: skip

    def _make_kinds(self) -> Table:
        triples = self.data.triples["field"]
        chosen = {kind: triples.kind == number for number, kind in enumerate(CONTEXT_KINDS)}
        chosen |= {"shared": triples.shares_identifier, "none": ~triples.shares_identifier}
        chosen = {key: flags for key, flags in chosen.items() if flags.any()}
        titles = {"shared": "an identifier in common", "none": "no identifier in common"}
        columns = list_columns({key: f"{titles.get(key, key)} ({flags.mean():.0%})" for key, flags in chosen.items()})
        rows = []
        for name in (*VARIANTS, *(name for title in list(REGIMES)[2:5] for name in REGIMES[title])):
            cells = {key: self.score(name, "field", flags) for key, flags in chosen.items()}
            note = next((title for title, names in REGIMES.items() if name in names), "")
            found: Cells = {key: score for key, score in cells.items() if score is not None}
            rows += [TableRow(NETWORKS[name].title, found, note=note)] if found else []
        caption = "Negatives of the field, by the kind of pair, and by what anchor and partner share."
        return Table("ablation-kinds", "By kind of pair", columns, rows, caption)

    def _make_augmentation(self) -> Table:
        rows = []
        for title, (name, without) in REGIMES.items():
            cells: dict[str, Score | None] = {"full": self.score(name, "field")}
            cells |= {kind: self.score(without, kind, minus=name) for kind in TRIPLE_SETS}
            none = ~self.data.triples["field"].shares_identifier
            cells["none"] = self.score(without, "field", none, minus=name)
            for key in ("accuracy", "labelled_ranking"):
                one, other = self.get_labelled(without).get(key), self.get_labelled(name).get(key)
                if isinstance(one, Score) and isinstance(other, Score):
                    cells[key] = Score(one.value - other.value)
            found: Cells = {key: score for key, score in cells.items() if score is not None}
            rows += [TableRow(title, found)] if found else []
        compared = TRIPLE_SETS | {"none": "no identifier in common"} | {one.key: one.title for one in _LABELLED}
        columns = list_columns({"full": "full model, negatives of the field"})
        columns += list_columns({key: f"without: {title}" for key, title in compared.items()})
        caption = (
            "Each row is one way of training; columns with 'without' are percentage points more or less without "
            "augmentation. Labelled differences have no interval."
        )
        return Table("augmentation", "Without augmentation", columns, rows, caption)

    def _make_differences(self) -> Table:
        rows = [TableRow(title, self.score_all(*names)) for title, names in COMPARED.items()]
        caption = "Percentage points of held-out triples more or less than without what the row says."
        return Table("differences", "Differences", _TRIPLES, [row for row in rows if row.cells], caption)

    def make_formulas(self) -> ExperimentResult:
        """Make the table of what the printed formulas change, and citations."""
        rows = [row for name in FORMULAS if (row := self.make_row(name, minus="base", kind="any")) is not None]
        columns = [*_TRIPLES, *list_columns({"change": "change, negatives of any field"}), *_LABELLED]
        caption = "5 M fresh triplets, negatives of any field, one seed each."
        table = Table("formulas", "As the formulas say", columns, rows, caption)
        edges = [self.data.train.citations, self.data.held_out.citations]
        shares = (self.measure("citations") or {}).get("facts", {}).get("contexts", {})
        cells: Cells = {
            "train": Score(float(len(edges[0]))), "held_out": Score(float(len(edges[1]))),
            "papers": Score(float(sum(len(np.unique(one)) for one in edges))),
            "share": Score(float(shares.get("citation", math.nan))),
        }  # fmt: skip
        titles = {"train": "edges, training half", "held_out": "edges, held-out half", "papers": "papers with one"}
        columns = [*list_columns(titles, "number"), *list_columns({"share": "of the drawn pairs"})]
        rows = [TableRow("Here", cells), TableRow("The paper", {"share": Score(0.139)}, PAPER)]
        citations = Table("citations", "Citations between documents", columns, rows)
        return ExperimentResult("formulas", "Formulas and citations", [table, citations], facts=self.describe())

    def make_sizes(self) -> ExperimentResult:
        """Make the table of data sizes (the paper's table 2)."""
        rows = []
        for name in SIZES:
            measured = self.measure(name)
            row = self.make_row(name)
            if row is not None and measured is not None:
                cells = row.cells | {
                    "equations": Score(float(measured["facts"]["learned_from"]["trees"])),
                    "other": self.get_labelled(name, "notations-test").get("accuracy", Score(math.nan)),
                }
                title = "Paper's recipe, 100 %" if name == "base" else row.title
                rows.append(TableRow(title + (", 100 %" if name == "eqkin" else ""), cells | self.get_labelled(name)))
        columns = [
            *list_columns({"equations": "equations"}, "number"), *_TRIPLES[:2], *_LABELLED, *_AUTHORS,
            *list_columns({"other": "accuracy, notations-test"}),
        ]  # fmt: skip
        papers = [
            TableRow(
                row.title,
                {"accuracy_authors": row.cells["accuracy"], "ranking_authors": row.cells["labelled_ranking"]},
                PAPER,
            )
            for row in LARGE_SCALE_ROWS[:3]
        ]
        caption = (
            "Shares of the works of one half. Paper's recipe: 5 M triplets, eqkin's: 3 M, whatever the share (with its "
            "rewritten equations, which count among its equations). The paper's rows are on its own labelled set, with "
            "20 epochs."
        )
        table = Table("size", "More data", columns, rows + papers, caption)
        return ExperimentResult("size", "Data size", [table], facts=self.describe())

    def make_statistics(self) -> ExperimentResult:
        """Make the table of intervals (paper, section 5)."""
        rows = []
        for name in ("full", "base"):
            row = self.measure(name)
            for kind, triples in self.data.triples.items() if row else ():
                title, score = TRIPLE_SETS.get(kind, "pairs along citations"), self.score(name, kind)
                assert row is not None and score is not None
                by_paper, colours = triples.compute_bound(score.value, by_work=False)
                by_work, more = triples.compute_bound(score.value)
                cells: Cells = {
                    "score": score, "paper": by_paper, "work": by_work,
                    "colours": f"{colours:,} / {more:,}", "histogram": Score(*row["triples"][kind]["histogram"]),
                }  # fmt: skip
                rows.append(TableRow(f"{NETWORKS[name].title}, {title}", cells))
        columns = [
            *list_columns({"score": "ranking, bootstrap over works", "paper": "bound, papers coloured"}),
            *list_columns({"work": "bound, works coloured"}),
            *list_columns({"colours": "colours: papers / works"}, "text"),
            *list_columns({"histogram": "V_hist, bootstrap over works"}, "share"),
        ]
        caption = (
            "Bound: sqrt(chi ln(2/delta) / (2 |D|)) on both sides, chi colours, 95 %. V_hist is the histogram loss of "
            "the same triples; smaller is better."
        )
        sizes = self.data.held_out
        rows_complete = []
        for title, unit in (
            ("papers", sizes.paper),
            ("works", np.unique(sizes.works, return_inverse=True)[1][sizes.paper]),
        ):
            counts = np.bincount(unit)
            wide = 3 * math.sqrt(counts.max() * math.log(1 / 0.05) / (2 * len(sizes)))
            printed = 3 * math.sqrt(math.log(1 / 0.05) / (2 * len(counts)))
            cells = {
                "n": Score(float(len(sizes))), "units": Score(float(len(counts))),
                "largest": Score(float(counts.max())), "right": Score(wide), "printed": Score(printed),
            }  # fmt: skip
            rows_complete.append(TableRow(title, cells))
        complete = Table(
            "theorem", "Theorem 1, complete U-statistics",
            list_columns({
                "n": "equations n", "units": "units N", "largest": "largest unit",
                "right": "3 sqrt(max n_i ln(1/delta) / 2n)", "printed": "as printed, 3 sqrt(ln(1/delta) / 2N)",
            }, "number"),
            rows_complete, "Width of the one-sided 95 % bound. It says something only if it is well below 1.",
        )  # fmt: skip
        table = Table("statistics", "How sure are we", columns, rows, caption)
        return ExperimentResult("statistics", "Statistics", [table, complete], facts=self.describe())

    def make_equalities(self) -> ExperimentResult:
        """Make the tables of the equalities."""
        plain = [name for name in FINETUNINGS if "-batch-" not in name]
        tables = []
        for pair_set, title in SETS.items():
            pairs = self.data.pairs.get(pair_set)
            found = {name: self._score_recalls(name, pair_set) for name in plain} if pairs else {}
            rows = [
                TableRow(FINETUNINGS[name].title, cells, note=note) for name, one in found.items() if one
                for cells, note in (one,)
            ]  # fmt: skip
            if not rows or pairs is None:
                continue
            published = [self._convert_published(row) for row in EQUALITIES_ROWS[pair_set]]
            caption = (
                f"{2 * len(pairs.test):,} sides query for their partner among {2 * len(pairs.test) - 1:,}; "
                f"{len(pairs.train):,} training pairs, {STEPS} steps of 1,024, learning rate chosen on "
                f"{len(pairs.validation):,} pairs. 95 % intervals by bootstrap over works. The last three columns: "
                "what the test code of the paper's graph network would print."
            )
            tables.append(Table(pair_set, title, [*_RECALLS, *_PRINTED], rows + published, caption))
        differences = []
        for name, other in COMPARED_FINETUNINGS if tables else ():
            row, without = (try_to(partial(measure_finetuning, self.runner, some)) for some in (name, other))
            if row and without:
                title = f"{FINETUNINGS[name].title}, minus: {FINETUNINGS[other].title}"
                differences.append(TableRow(title, self._compare_recalls(row, without)))
        if differences:
            caption = "Mean differences over the same sides, 95 % intervals by bootstrap over works."
            tables.append(Table("differences", "Equalities, differences", _RECALLS, differences, caption))
        sweep = []
        for batch in SWEPT_BATCHES:
            one = self._score_recalls(f"base-batch-{batch}", "equalities")
            sweep += [TableRow(f"{batch:,}", one[0], note=one[1])] if one else []
        if sweep:
            caption = f"{SWEEP_STEPS:,} steps each, learning rates scaled with the square root of the batch."
            tables.append(Table("batches", "Batch size at equal steps", _RECALLS, sweep, caption))
        equal = [row for row in map(self.make_row, EQUAL) if row is not None]
        if equal:
            caption = (
                "Trained on pairs of one paper: 1.5 M fresh triplets in batches of 256, learning rate 3e-4, histogram "
                "loss of unit vectors and masking; renamed: with augmentation."
            )
            tables.append(Table("equal", "Before finetuning", [*_TRIPLES, *_LABELLED], equal, caption))
        return ExperimentResult("equalities", "Equalities", tables, facts=self.describe())

    def _score_recalls(self, name: str, pair_set: str) -> tuple[Cells, str] | None:
        row = try_to(lambda: measure_finetuning(self.runner, name, pair_set))
        if row is None:
            return None
        rate = row["choice"]["learning_rate"]
        weights = f"{row['weights'] / 1e6:.1f} M weights, " if FINETUNINGS[name].network != BAG else ""
        note = f"{weights}rate {rate:g}" if rate else f"{weights}no step was better than none"
        return self._compute_recalls(row, pair_set), note

    def _compute_recalls(self, row: Mapping[str, Any], pair_set: str) -> Cells:
        clusters = self.data.pairs[pair_set].clusters
        hits = {depth: unpack_bits(row["hits"][str(depth)], row["queries"]) for depth in DEPTHS}
        cells: Cells = {
            f"r{depth}": bootstrap_mean(found, clusters, resamples=self.resamples) for depth, found in hits.items()
        }
        printed = print_as_authors({depth: float(found.mean()) for depth, found in hits.items()})
        return cells | {f"p{depth}": Score(value) for depth, value in printed.items()}

    def _compare_recalls(self, row: Mapping[str, Any], other: Mapping[str, Any]) -> Cells:
        cells: Cells = {}
        for depth in DEPTHS:
            found, theirs = (unpack_bits(one["hits"][str(depth)], one["queries"]).astype(float) for one in (row, other))
            clusters = self.data.pairs["equalities"].clusters
            cells[f"r{depth}"] = bootstrap_mean(found - theirs, clusters, resamples=self.resamples)
        return cells

    @staticmethod
    def _convert_published(row: TableRow) -> TableRow:
        """Put the paper's graph network, whose test alone had that flaw, into the columns of that test."""
        if row.title != "Graph-CNN":
            return row
        return TableRow(row.title, {key.replace("r", "p"): score for key, score in row.cells.items()}, row.origin)


def make_bitmaps_result(
    context: ExperimentContext, data: Mapping[float, BitmapData], others: Mapping[str, tuple[Float32s, int]]
) -> ExperimentResult:
    """Make the table of the bitmap CNN, given the data of its networks by their `times`.

    `others` have vectors of the held-out equations, and the number of equations they were learned from, by title.
    """
    held_out = data[1.0].draw_triples(context.scale.triples // 5)[1]
    tall = data[1.0].heights[held_out.trees].max(axis=0) > HEIGHT - 2
    resamples, rows = context.scale.resamples, []

    def make_cells(correct: Flags) -> Cells:
        values = correct.astype(np.float64)
        parts = {"test": None, "tall": tall, "low": ~tall}
        return {key: held_out.compute_score(values, resamples, chosen) for key, chosen in parts.items()}

    def add_row(title: str, some: BitmapData, measure: Callable[[], Row]) -> None:
        row = try_to(measure)
        if row is not None:
            train = Score(float(unpack_bits(row["train"], context.scale.triples // 5).mean()))
            cells = make_cells(unpack_bits(row["test"], len(held_out)))
            rows.append(TableRow(title, cells | {"train": train, "equations": Score(float(len(some.train)))}))

    for name, settings in BITMAP_NETWORKS.items():
        some = data[settings.times]
        add_row(settings.title, some, partial(measure_bitmaps, context, some, name))
    add_row(PEER.title, data[1.0], partial(measure_peer, context, data[1.0]))
    for title, (vectors, equations) in others.items():
        cells = make_cells(held_out.find_correct(vectors))
        rows.append(TableRow(title, cells | {"equations": Score(float(equations))}))
    rows += [
        TableRow(row.title, {"test": row.cells["ranking"]}, PAPER)
        for row in ABLATION_ROWS
        if row.title in ("Bitmap CNN, retrained", "Full model")
    ]
    columns = list_columns({"equations": "equations learned from"}, "number") + list_columns({
        "test": "held out", "train": "own training papers", "low": "held out, all formulas fit",
        "tall": "held out, one is too tall",
    })  # fmt: skip
    caption = (
        f"{len(held_out):,} triples of {len(data[1.0].test):,} held-out equations; learned from 2 M triplets unless it "
        f"says otherwise. A formula is too tall if it needs more than {HEIGHT - 2} pixels: in {tall.mean():.0%} of the "
        "triples."
    )
    return ExperimentResult("bitmaps", "Bitmap CNN", [Table("bitmaps", "Bitmap CNN", columns, rows, caption)])


def try_to(measure: Callable[[], Row]) -> Row | None:
    """Return a measurement, None if it was not made and cannot be made here."""
    try:
        return measure()
    except BadInput:
        return None
