"""Equalities (paper, section 6.4): find the other side of an equality among all sides of the test half.

The pairs come from the half of the works that no baseline was fitted on. Half of them, by work, are for finetuning, the
rest for testing: every side queries for its partner among all sides of the test half, by cosine; the query is not in
the list, ties count against it.

The test of the paper's graph network, and only that one, drew the test pairs with replacement and dropped only the
first hit, so that a query could find its own copy. A system with recalls r prints about

    .264 + .368 r1,   .368 + .632 r10,   .368 + .632 r100

by that protocol: a query has c ~ Poisson(1) copies, it is first among them with probability 1 / (c + 1), and otherwise
it is counted as found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from eqkin.errors import BadInput
from eqkin.evaluation import EmbeddingSystem, System
from eqkin.evaluation.measures import Score, bootstrap_mean
from eqkin.evaluation.systems import Float32s, FormulaSet, NetworkSystem, normalize_rows
from eqkin.learning.data import Corpus
from eqkin.learning.finetuning import (
    DEPTHS,
    PAIR_SIGNS,
    FinetuningConfig,
    PairSplit,
    compute_partner_ranks,
    finetune_model,
    split_pairs,
)
from research.experiment import Experiment
from research.published import EQUALITIES_ROWS
from research.report import list_columns
from research.tables import ExperimentResult, Table, TableRow


def run_equalities(
    experiment: Experiment, held_out: Corpus, systems: Sequence[System], networks: Mapping[str, str]
) -> ExperimentResult:
    """Measure systems that embed formulas, and networks (titles and folders) after they were finetuned."""
    columns = list_columns({f"r{depth}": f"R@{depth}" for depth in DEPTHS}, "share")
    columns += list_columns({f"p{depth}": f"R@{depth}, authors' test" for depth in DEPTHS}, "share")
    tables = []
    for name in PAIR_SIGNS:
        try:
            pairs = split_pairs(held_out, name, most=experiment.scale.pairs)
        except BadInput as error:
            experiment.log(str(error))
            continue
        sides = FormulaSet(pairs.forest.select(pairs.test.T.ravel()))
        rows = []
        for system in systems:
            if isinstance(system, EmbeddingSystem):
                experiment.log(f"{name}: {system.title}")
                vectors = np.asarray(normalize_rows(system.encode(sides)), np.float32)
                rows.append(TableRow(system.title, score_recalls(vectors, pairs, experiment.scale.resamples)))
        for title, model in networks.items():
            folder = experiment.folder / "finetuned" / f"{title}-{name}"
            if not folder.exists():
                finetune_model(
                    held_out, folder, model=model, pairs=name, held_out=0.5, device=experiment.device,
                    settings=FinetuningConfig(epochs=experiment.scale.epochs), log=experiment.log,
                )  # fmt: skip
            vectors = NetworkSystem(title, title, folder).encode(sides)
            rows.append(TableRow(f"{title}, finetuned", score_recalls(vectors, pairs, experiment.scale.resamples)))
        caption = (
            f"{len(sides):,} sides query for their partner among {len(sides) - 1:,}; {len(pairs.train):,} training "
            "pairs. 95 % intervals by bootstrap over works. The last three columns: what the test code of the paper's "
            "graph network would print."
        )
        published = [_convert_published(row) for row in EQUALITIES_ROWS[name]]
        tables.append(Table(name, name.capitalize(), columns, rows + published, caption))
    return ExperimentResult("equalities", "Equalities", tables, facts={"corpus": held_out.digest[:16]})


def score_recalls(vectors: Float32s, pairs: PairSplit, resamples: int) -> dict[str, Score | str]:
    """Compute the recalls of the vectors of all test sides, left sides first, and what the authors' test would say."""
    ranks = compute_partner_ranks(vectors)
    hits = {depth: (ranks < depth).astype(np.float64) for depth in DEPTHS}
    works = np.tile(pairs.test_works, 2)
    cells: dict[str, Score | str] = {
        f"r{depth}": bootstrap_mean(found, works, resamples=resamples) for depth, found in hits.items()
    }
    printed = print_as_authors({depth: float(found.mean()) for depth, found in hits.items()})
    return cells | {f"p{depth}": Score(value) for depth, value in printed.items()}


def print_as_authors(recalls: Mapping[int, float]) -> dict[int, float]:
    """Return what the test code of the paper's graph network would print for a system with these recalls."""
    # Probability that a query has no copy; of having copies, and being second among them.
    lost = math.exp(-1)
    first = 1 - 2 * lost
    return {k: first + lost * recall if k == 1 else lost + (1 - lost) * recall for k, recall in recalls.items()}


def _convert_published(row: TableRow) -> TableRow:
    """Put the paper's graph network, whose test alone had that flaw, into the columns of that test."""
    if row.title != "Graph-CNN":
        return row
    return TableRow(row.title, {key.replace("r", "p"): score for key, score in row.cells.items()}, row.origin)
