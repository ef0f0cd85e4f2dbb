"""What the search study's lists say: tables, a plot, and findings in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eqkin.evaluation.bootstrap import mean_interval, middle, p_text, sign_flip, weights
from eqkin.evaluation.compare import SIGNIFICANT
from eqkin.evaluation.experiments.context import Context
from eqkin.evaluation.experiments.study_lists import Judgements, Lists, Values, cuts, random_values
from eqkin.evaluation.published import STUDY_QUERIES, STUDY_ROWS
from eqkin.evaluation.report.formatting import show
from eqkin.evaluation.results import Column, Curve, Plot, Result, Row, Score, Table

RANDOM = "Random order"
_SINGLE = 100  # results by which single queries are compared
_LEVELS = (0, 1, 100, 1_000, 10_000)  # relevant equations from which on a query is of the next level
_STEPS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000)  # lengths of lists in the plot
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
class _Study:
    """Lists with what is measured on them."""

    context: Context
    lists: Sequence[Lists]
    judgements: Judgements
    baseline: Lists | None

    @property
    def depth(self) -> int:
        return self.context.scale.depth

    @property
    def claimed(self) -> int:
        """Place of the lists that the paper's claim is about."""
        return next((at for at, found in enumerate(self.lists) if found.name == "paper"), 0)

    @property
    def columns(self) -> list[Column]:
        found = [Column(f"p{k}", f"P@{k}") for k in cuts(self.depth)]
        return [*found, Column("umap", "uMAP", "number"), Column("map", "MAP")]

    @property
    def single(self) -> int:
        return max(k for k in cuts(self.depth) if k <= max(_SINGLE, cuts(self.depth)[0]))

    @cached_property
    def values(self) -> list[Values]:
        return [found.values(self.judgements) for found in self.lists]

    @cached_property
    def chance(self) -> Values:
        return random_values(self.judgements, self.depth)

    @cached_property
    def base(self) -> Values | None:
        return None if self.baseline is None else self.values[self.lists.index(self.baseline)]

    def mean(self, values: npt.NDArray[np.float64]) -> Score:
        return mean_interval(values, resamples=self.context.scale.resamples)


def result(
    context: Context, lists: Sequence[Lists], judgements: Judgements, baseline: str, facts: dict[str, str]
) -> Result:
    """What the study found; the claim is about the lists of the paper's network, or else of the first system."""
    study = _Study(context, lists, judgements, next((found for found in lists if found.name == baseline), None))
    tables = [_scores(study), _queries(study), _levels(study)]
    if study.baseline is not None and len(lists) > 1:
        tables.insert(1, _differences(study, study.baseline))
    return Result(
        "study", "Search study", _CLAIM, _findings(study), tables, [_plot(study)],
        differences=_DIFFERENCES, facts=facts,
    )  # fmt: skip


def _scores(study: _Study) -> Table:
    named = [(found.title, values) for found, values in zip(study.lists, study.values, strict=True)]
    rows = [
        Row(title, {column.key: study.mean(values[column.key]) for column in study.columns})
        for title, values in [*named, (RANDOM, study.chance)]
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


def _differences(study: _Study, baseline: Lists) -> Table:
    columns = []
    for column in study.columns:
        columns += [Column(column.key, column.title, column.form, ""), Column(f"p_{column.key}", "p", "text", "")]
    rows = []
    for found, values in zip(study.lists, study.values, strict=True):
        if found is not baseline and study.base is not None:
            cells: dict[str, Score | str] = {}
            for key, base in study.base.items():
                cells[key] = study.mean(values[key] - base)
                cells[f"p_{key}"] = p_text(sign_flip(values[key], base))
            rows.append(Row(found.title, cells))
    return Table(
        "study-differences",
        f"Search study: differences to {baseline.title}",
        columns,
        rows,
        "Mean difference over the same queries, with its 95 % interval (bootstrap over queries), and the two-sided "
        "p-value of a paired randomisation test, not corrected for the number of comparisons.",
    )


def _queries(study: _Study) -> Table:
    k, judgements = study.single, study.judgements
    precisions = [values[f"p{k}"] for values in study.values]
    columns = [
        Column("field", "field", "text", ""),
        Column("sections", "relevant sections", "number", ""),
        Column("equations", "relevant equations", "number", ""),
        Column("chance", RANDOM, best=""),
        *(Column(f"system-{number}", found.title, best="") for number, found in enumerate(study.lists)),
        Column("paper", "the paper", best=""),
    ]
    rows = []
    for at in np.lexsort((np.arange(len(precisions[0])), -precisions[0])).tolist():
        query = judgements.queries[at]
        cells: dict[str, Score | str] = {
            "field": query.field,
            "sections": Score(float(judgements.sections[at].sum())),
            "equations": Score(float(judgements.equations[at])),
            "chance": Score(float(study.chance[f"p{k}"][at])),
        }
        cells |= {f"system-{number}": Score(float(one[at])) for number, one in enumerate(precisions)}
        printed = [row.cells["p100"] for row in STUDY_QUERIES if row.title.split(", ")[0] in query.keywords]
        if query.paper_keywords and printed and k == _SINGLE:
            cells["paper"] = printed[0]
        note = "" if judgements.equations[at] else "nothing in the library is relevant"
        rows.append(Row(query.title, cells, note=note))
    return Table(
        "study-queries",
        f"Search study: P@{k} by query",
        columns,
        rows,
        f"Sorted by {study.lists[0].title}. A query's figure is a count, not an estimate, and has no interval; the "
        "means have. The paper's are for the same keywords, or most of them, with its own formula and library.",
    )


def _levels(study: _Study) -> Table:
    """P@100 by the number of relevant equations, as the paper proposes for the future."""
    level = np.searchsorted(_LEVELS, study.judgements.equations, "right") - 1
    present = [number for number in range(len(_LEVELS)) if (level == number).any()]
    columns = [Column(f"level{number}", _level_title(number, int((level == number).sum()))) for number in present]
    key = f"p{study.single}"
    named = [(found.title, values) for found, values in zip(study.lists, study.values, strict=True)]
    rows = [
        Row(title, {f"level{number}": study.mean(values[key][level == number]) for number in present})
        for title, values in [*named, (RANDOM, study.chance)]
    ]
    return Table(
        "study-levels",
        f"Search study: P@{study.single} by difficulty",
        columns,
        rows,
        "Queries by how many equations of the library are relevant to them. Intervals: 95 %, bootstrap over queries; a "
        "single query has none.",
    )


def _level_title(number: int, queries: int) -> str:
    low, high = _LEVELS[number], (*_LEVELS, 0)[number + 1] - 1
    span = "none" if not low else f"{low:,} or more" if high < 0 else f"{low:,} to {high:,}"
    return f"{span} ({queries:,} {'query' if queries == 1 else 'queries'})"


def _plot(study: _Study) -> Plot:
    steps = [k for k in _STEPS if k <= study.depth]
    curves = []
    for found in study.lists:
        scores = [study.mean(found.at(k)) for k in steps]
        ends = [(score.low, score.high) for score in scores if score.low is not None and score.high is not None]
        low, high = ([pair[0] for pair in ends], [pair[1] for pair in ends]) if len(ends) == len(steps) else ([], [])
        curves.append(Curve(found.title, [*steps], [score.value for score in scores], low, high))
    chance = float(study.judgements.shares.mean())
    curves.append(Curve(RANDOM, [*steps], [chance] * len(steps)))
    return Plot(
        "study-precision",
        "Search study: precision by the length of the list",
        "k, results",
        "P@k, mean over queries",
        curves,
        log_x=True,
        caption="Intervals: 95 %, bootstrap over queries.",
    )


def _findings(study: _Study) -> list[str]:
    found = [_verdict(study)]
    for column in study.columns:
        scores = [study.mean(values[column.key]) for values in study.values]
        best = max(range(len(scores)), key=lambda at: scores[at].value)
        chance = study.mean(study.chance[column.key])
        found.append(
            f"{study.lists[best].title} has the best {column.title}, {show(scores[best], column.form)}; "
            f"a random order has {show(chance, column.form)}."
        )
    none = [query.id for query, count in zip(study.judgements.queries, study.judgements.equations, strict=True)
            if not count]  # fmt: skip
    if none:
        found.append(f"Nothing in the library is relevant to {_counted(len(none))}: {', '.join(none)}.")
    found.append(_breadth(study))
    return found


def _verdict(study: _Study) -> str:
    """Whether the paper's network finds more than the baseline beyond the first 10 results, and no fewer there."""
    at = study.claimed
    first = study.lists[at]
    if study.base is None or first is study.baseline or study.baseline is None:
        return "Undecided: the bag of words the paper compares with was not measured beside a network."
    signs, said = [], []
    for column in study.columns[:-1]:  # the paper has no MAP
        ours, base = study.values[at][column.key], study.base[column.key]
        p = sign_flip(ours, base)
        signs.append(int(np.sign(ours.mean() - base.mean())) if p < SIGNIFICANT else 0)
        figures = [show(Score(float(values.mean())), column.form) for values in (ours, base)]
        told = p_text(p) if p_text(p).startswith("<") else f"= {p_text(p)}"
        said.append(f"{column.title} {' against '.join(figures)} (p {told})")
    if min(signs[1:]) > 0 and signs[0] >= 0:
        word = "Holds"
    elif max(signs) > 0:
        word = "Holds in part"
    else:
        word = "Does not hold" if min(signs) < 0 else "Undecided"
    return f"{word}: {first.title} against {study.baseline.title}: {', '.join(said)}."


def _breadth(study: _Study) -> str:
    """Whether queries with broader keywords do better, as the paper says."""
    k, shares = study.single, study.judgements.shares
    reached = study.values[study.claimed][f"p{k}"]
    if len(shares) < 3 or np.ptp(shares) == 0 or np.ptp(reached) == 0:
        return "Whether broader keywords do better cannot be told from so few queries."
    drawn = weights(len(shares), study.context.scale.resamples).astype(np.int64)
    every = np.arange(len(shares))
    low, high = middle([_rank_correlation(shares[places], reached[places])
                        for places in (np.repeat(every, row) for row in drawn)])  # fmt: skip
    rho = _rank_correlation(shares, reached)
    word = "do better" if low > 0 else "do worse" if high < 0 else "do neither better nor worse for sure"
    return (
        f"Queries with broader keywords {word}: Spearman's correlation of the relevant share of the library and P@{k} "
        f"of {study.lists[study.claimed].title} is {rho:.2f} [{low:.2f}, {high:.2f}]."
    )


def _rank_correlation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
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
