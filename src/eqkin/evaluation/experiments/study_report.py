"""What the search study's lists say: tables, a plot, and findings in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.compare import SIGNIFICANCE_LEVEL
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.study_lists import (
    KeywordJudgements,
    ResultLists,
    Values,
    compute_random_measures,
    get_cutoffs,
)
from eqkin.evaluation.published import STUDY_QUERIES, STUDY_ROWS
from eqkin.evaluation.report.formatting import format_score
from eqkin.evaluation.results import Curve, ExperimentResult, Plot, Score, Table, TableColumn, TableRow
from eqkin.statistics import (
    bootstrap_mean,
    compute_percentile_interval,
    compute_sign_flip_p,
    draw_bootstrap_weights,
    format_p,
)

RANDOM_TITLE = "Random order"
_QUERY_CUTOFF = 100  # results by which single queries are compared
_LEVEL_STARTS = (0, 1, 100, 1_000, 10_000)  # relevant equations from which on a query is of the next level
_PLOT_CUTOFFS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000)  # lengths of lists in the plot
_CLAIM = (
    "Over 53 queries the network trained on 5 M triplets and a bag of words are much alike among the first 10 results "
    "(P@10 .504 against .457), but further down the network finds up to 50 % more: P@100 .382 against .317, P@1000 "
    ".298 against .208, uMAP 165 against 106. Queries differ much, and those with broad keywords do better."
)
_DIFFERENCES = [
    "The paper prints the keywords of 22 of its 53 queries and no formulas. The bundled queries are others; 22 of them "
    "have those keywords. The library is another one too: the paper's figures stand beside ours, not comparable.",
    'Of the printed keywords "erm" and "lima" are left out: they are searched for within words, so that "term" or '
    '"climate" would count.',
    "Hyphens and apostrophes of all kinds are taken as one; what is searched is the section's heading and its prose "
    "without display equations.",
    "What learns, learns from half of the works; the bundled network, and those given as folders, learned before, "
    "maybe also from papers that are searched here, as the paper's did.",
    "How many equations are relevant is counted, so that a random order, MAP and levels of difficulty can be shown.",
    "Equal scores stand in one random order; the paper says nothing of ties.",
]


@dataclass(frozen=True, eq=False)
class _StudyScores:
    """Lists with what is measured on them."""

    context: ExperimentContext
    lists: Sequence[ResultLists]
    judgements: KeywordJudgements
    baseline: ResultLists | None

    @property
    def depth(self) -> int:
        return self.context.scale.depth

    @property
    def claimed(self) -> int:
        """Place of the lists that the paper's claim is about."""
        return next((at for at, found in enumerate(self.lists) if found.name == "paper"), 0)

    @property
    def columns(self) -> list[TableColumn]:
        found = [TableColumn(f"p{k}", f"P@{k}") for k in get_cutoffs(self.depth)]
        return [*found, TableColumn("umap", "uMAP", "number"), TableColumn("map", "MAP")]

    @property
    def query_cutoff(self) -> int:
        return max(k for k in get_cutoffs(self.depth) if k <= max(_QUERY_CUTOFF, get_cutoffs(self.depth)[0]))

    @cached_property
    def values(self) -> list[Values]:
        return [found.compute_measures(self.judgements) for found in self.lists]

    @cached_property
    def random_values(self) -> Values:
        return compute_random_measures(self.judgements, self.depth)

    @cached_property
    def base(self) -> Values | None:
        return None if self.baseline is None else self.values[self.lists.index(self.baseline)]

    def compute_mean(self, values: npt.NDArray[np.float64]) -> Score:
        return bootstrap_mean(values, resamples=self.context.scale.resamples)


def make_result(
    context: ExperimentContext,
    lists: Sequence[ResultLists],
    judgements: KeywordJudgements,
    baseline: str,
    facts: dict[str, str],
) -> ExperimentResult:
    """What the study found; the claim is about the lists of the paper's network, or else of the first system."""
    study = _StudyScores(context, lists, judgements, next((found for found in lists if found.name == baseline), None))
    tables = [_make_scores_table(study), _make_queries_table(study), _make_levels_table(study)]
    if study.baseline is not None and len(lists) > 1:
        tables.insert(1, _make_differences_table(study, study.baseline))
    return ExperimentResult(
        "study", "Search study", _CLAIM, _findings(study), tables, [_make_plot(study)],
        differences=_DIFFERENCES, facts=facts,
    )  # fmt: skip


def _make_scores_table(study: _StudyScores) -> Table:
    named = [(found.title, values) for found, values in zip(study.lists, study.values, strict=True)]
    rows = [
        TableRow(title, {column.key: study.compute_mean(values[column.key]) for column in study.columns})
        for title, values in [*named, (RANDOM_TITLE, study.random_values)]
    ]
    return Table(
        "study",
        "Search study",
        study.columns,
        rows + STUDY_ROWS,
        f"Means over {len(study.judgements.queries):,} queries, those without a relevant equation included; the first "
        f"{study.depth:,} of {len(study.judgements.section):,} equations. MAP: uMAP's sum divided by the relevant "
        "equations that fit into the list. Random order: what is to be expected of it. Intervals: 95 %, bootstrap over "
        "queries. The paper's figures are from 53 other queries over another library, without intervals.",
    )


def _make_differences_table(study: _StudyScores, baseline: ResultLists) -> Table:
    columns = []
    for column in study.columns:
        columns += [
            TableColumn(column.key, column.title, column.form, ""),
            TableColumn(f"p_{column.key}", "p", "text", ""),
        ]
    rows = []
    for found, values in zip(study.lists, study.values, strict=True):
        if found is not baseline and study.base is not None:
            cells: dict[str, Score | str] = {}
            for key, base in study.base.items():
                cells[key] = study.compute_mean(values[key] - base)
                cells[f"p_{key}"] = format_p(compute_sign_flip_p(values[key], base))
            rows.append(TableRow(found.title, cells))
    return Table(
        "study-differences",
        f"Search study: differences to {baseline.title}",
        columns,
        rows,
        "Mean difference over the same queries, with its 95 % interval (bootstrap over queries), and the two-sided "
        "p-value of a paired randomisation test, not corrected for the number of comparisons.",
    )


def _make_queries_table(study: _StudyScores) -> Table:
    k, judgements = study.query_cutoff, study.judgements
    precisions = [values[f"p{k}"] for values in study.values]
    columns = [
        TableColumn("field", "field", "text", ""),
        TableColumn("sections", "relevant sections", "number", ""),
        TableColumn("equations", "relevant equations", "number", ""),
        TableColumn("chance", RANDOM_TITLE, best=""),
        *(TableColumn(f"system-{number}", found.title, best="") for number, found in enumerate(study.lists)),
        TableColumn("paper", "the paper", best=""),
    ]
    rows = []
    for at in np.lexsort((np.arange(len(precisions[0])), -precisions[0])).tolist():
        query = judgements.queries[at]
        cells: dict[str, Score | str] = {
            "field": query.field,
            "sections": Score(float(judgements.sections[at].sum())),
            "equations": Score(float(judgements.equations[at])),
            "chance": Score(float(study.random_values[f"p{k}"][at])),
        }
        cells |= {f"system-{number}": Score(float(one[at])) for number, one in enumerate(precisions)}
        printed = [row.cells["p100"] for row in STUDY_QUERIES if row.title.split(", ")[0] in query.keywords]
        if query.paper_keywords and printed and k == _QUERY_CUTOFF:
            cells["paper"] = printed[0]
        note = "" if judgements.equations[at] else "nothing in the library is relevant"
        rows.append(TableRow(query.title, cells, note=note))
    return Table(
        "study-queries",
        f"Search study: P@{k} by query",
        columns,
        rows,
        f"Sorted by {study.lists[0].title}. A query's figure is a count, not an estimate, and has no interval; the "
        "means have. The paper's are for the same keywords, or most of them, with its own formula and library.",
    )


def _make_levels_table(study: _StudyScores) -> Table:
    """P@100 by the number of relevant equations, as the paper proposes for the future."""
    level = np.searchsorted(_LEVEL_STARTS, study.judgements.equations, "right") - 1
    present = [number for number in range(len(_LEVEL_STARTS)) if (level == number).any()]
    columns = [TableColumn(f"level{number}", _format_level(number, int((level == number).sum()))) for number in present]
    key = f"p{study.query_cutoff}"
    named = [(found.title, values) for found, values in zip(study.lists, study.values, strict=True)]
    rows = [
        TableRow(title, {f"level{number}": study.compute_mean(values[key][level == number]) for number in present})
        for title, values in [*named, (RANDOM_TITLE, study.random_values)]
    ]
    return Table(
        "study-levels",
        f"Search study: P@{study.query_cutoff} by difficulty",
        columns,
        rows,
        "Queries by how many equations of the library are relevant to them. Intervals: 95 %, bootstrap over queries; a "
        "single query has none.",
    )


def _format_level(number: int, queries: int) -> str:
    low, high = _LEVEL_STARTS[number], (*_LEVEL_STARTS, 0)[number + 1] - 1
    span = "none" if not low else f"{low:,} or more" if high < 0 else f"{low:,} to {high:,}"
    return f"{span} ({queries:,} {'query' if queries == 1 else 'queries'})"


def _make_plot(study: _StudyScores) -> Plot:
    steps = [k for k in _PLOT_CUTOFFS if k <= study.depth]
    curves = []
    for found in study.lists:
        scores = [study.compute_mean(found.compute_precision(k)) for k in steps]
        ends = [(score.low, score.high) for score in scores if score.low is not None and score.high is not None]
        low, high = ([pair[0] for pair in ends], [pair[1] for pair in ends]) if len(ends) == len(steps) else ([], [])
        curves.append(Curve(found.title, [*steps], [score.value for score in scores], low, high))
    chance = float(study.judgements.shares.mean())
    curves.append(Curve(RANDOM_TITLE, [*steps], [chance] * len(steps)))
    return Plot(
        "study-precision",
        "Search study: precision by the length of the list",
        "k, results",
        "P@k, mean over queries",
        curves,
        log_x=True,
        caption="Intervals: 95 %, bootstrap over queries.",
    )


def _findings(study: _StudyScores) -> list[str]:
    found = [_verdict(study)]
    for column in study.columns:
        scores = [study.compute_mean(values[column.key]) for values in study.values]
        best = max(range(len(scores)), key=lambda at: scores[at].value)
        chance = study.compute_mean(study.random_values[column.key])
        found.append(
            f"{study.lists[best].title} has the best {column.title}, {format_score(scores[best], column.form)}; "
            f"a random order has {format_score(chance, column.form)}."
        )
    none = [query.id for query, count in zip(study.judgements.queries, study.judgements.equations, strict=True)
            if not count]  # fmt: skip
    if none:
        found.append(f"Nothing in the library is relevant to {_counted(len(none))}: {', '.join(none)}.")
    found.append(_breadth(study))
    return found


def _verdict(study: _StudyScores) -> str:
    """Whether the paper's network finds more than the baseline beyond the first 10 results, and no fewer there."""
    at = study.claimed
    first = study.lists[at]
    if study.base is None or first is study.baseline or study.baseline is None:
        return "Undecided: the bag of words the paper compares with was not measured beside a network."
    signs, said = [], []
    for column in study.columns[:-1]:  # the paper has no MAP
        ours, base = study.values[at][column.key], study.base[column.key]
        p = compute_sign_flip_p(ours, base)
        signs.append(int(np.sign(ours.mean() - base.mean())) if p < SIGNIFICANCE_LEVEL else 0)
        figures = [format_score(Score(float(values.mean())), column.form) for values in (ours, base)]
        told = format_p(p) if format_p(p).startswith("<") else f"= {format_p(p)}"
        said.append(f"{column.title} {' against '.join(figures)} (p {told})")
    if min(signs[1:]) > 0 and signs[0] >= 0:
        word = "Holds"
    elif max(signs) > 0:
        word = "Holds in part"
    else:
        word = "Does not hold" if min(signs) < 0 else "Undecided"
    return f"{word}: {first.title} against {study.baseline.title}: {', '.join(said)}."


def _breadth(study: _StudyScores) -> str:
    """Whether queries with broader keywords do better, as the paper says."""
    k, shares = study.query_cutoff, study.judgements.shares
    reached = study.values[study.claimed][f"p{k}"]
    if len(shares) < 3 or np.ptp(shares) == 0 or np.ptp(reached) == 0:
        return "Whether broader keywords do better cannot be told from so few queries."
    drawn = draw_bootstrap_weights(len(shares), study.context.scale.resamples).astype(np.int64)
    every = np.arange(len(shares))
    low, high = compute_percentile_interval([_compute_rank_correlation(shares[places], reached[places])
                        for places in (np.repeat(every, row) for row in drawn)])  # fmt: skip
    rho = _compute_rank_correlation(shares, reached)
    word = "do better" if low > 0 else "do worse" if high < 0 else "do neither better nor worse for sure"
    return (
        f"Queries with broader keywords {word}: Spearman's correlation of the relevant share of the library and P@{k} "
        f"of {study.lists[study.claimed].title} is {rho:.2f} [{low:.2f}, {high:.2f}]."
    )


def _compute_rank_correlation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Spearman's rho; NaN where one of them is constant."""
    ranks = []
    for values in (one, other):
        _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[group])  # ties share their mean rank
    if np.ptp(ranks[0]) == 0 or np.ptp(ranks[1]) == 0:
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _counted(number: int) -> str:
    return f"{number:,} {'query' if number == 1 else 'queries'}"
