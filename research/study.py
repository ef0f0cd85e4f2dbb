r"""The search study (paper, section 6.3): how many of the first 10, 100, 1,000 results are in sections with a keyword.

$$ \mathrm{P@}k = \frac{1}{k} \sum_{i \le k} \mathrm{rel}(i), \qquad
   \mathrm{uMAP} = \sum_{k \le 1000} \mathrm{P}(k)\, \mathrm{rel}(k) \quad \text{(mean over queries)} $$

The paper cannot count the relevant equations and does not divide uMAP by their number. Here they are counted, so the
expected figures of a random order are known, and MAP is uMAP's sum divided by the relevant equations that fit into the
list.

Differences from the paper: it prints the keywords of 22 of its 53 queries and no formulas, and its library is another
one, so its figures are not comparable. The searched text is a section's heading and prose without display equations;
all kinds of hyphens and apostrophes are equal. Systems are fitted on half of the works; bundled networks were trained
on searched papers, as the paper's was, and eqkin's on the words around their equations, which judge it here: a clean
comparison searches works that no network saw (`held_out`). Equal scores are in one random order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation import System
from eqkin.evaluation.comparison import TIE_SEED, SystemScores, summarize
from eqkin.evaluation.measures import Score, format_p
from eqkin.evaluation.systems import FormulaSet
from eqkin.library.files import LibraryFiles
from research.experiment import HELD_OUT_FRACTION, SPLIT_SEED, Experiment
from research.keywords import (
    Flags,
    StudyQuery,
    find_relevant_sections,
    load_queries,
    read_library_formulas,
    read_query_formulas,
    read_section_ids,
)
from research.published import STUDY_QUERIES, STUDY_ROWS
from research.tables import ExperimentResult, Table, TableColumn, TableRow

# A number for each query, by the key of the measure.
Values: TypeAlias = dict[str, npt.NDArray[np.float64]]

NAME = "study"
BASELINE = "bag-of-words"
RANDOM_TITLE = "Random order"
CUTOFFS = (10, 100, 1_000)
# Of papers, held out from experiments and from bundled networks.
UNSEEN_SHARES = (HELD_OUT_FRACTION, 0.1)
# Of the table of single queries.
_QUERY_CUTOFF = 100
# Scores in memory at once.
_MAX_SCORES = 100_000_000


@dataclass(frozen=True, eq=False)
class KeywordJudgements:
    """Which equations of a library are relevant to which query."""

    queries: list[StudyQuery]
    # (queries, sections)
    sections: Flags
    # (equations,) the section of each.
    section: npt.NDArray[np.int32]

    def is_relevant(self, query: int) -> Flags:
        """Return which equations are relevant to a query."""
        return np.asarray(self.sections[query][self.section])

    @cached_property
    def equations(self) -> npt.NDArray[np.int64]:
        """Number of relevant equations, (queries,)."""
        sizes = np.bincount(self.section, minlength=self.sections.shape[1])
        return np.asarray(self.sections @ sizes, np.int64)


def get_cutoffs(depth: int) -> list[int]:
    """Return the lengths of lists for which precision is reported."""
    return [k for k in CUTOFFS if k <= depth] or [depth]


def compute_measures(hits: Flags, judgements: KeywordJudgements, depth: int) -> Values:
    """Compute every measure of each query; `hits` (queries, depth) says which results are relevant, best first."""
    measures: Values = {f"p{k}": hits[:, :k].sum(axis=1) / k for k in get_cutoffs(depth)}
    places = [np.flatnonzero(row) + 1 for row in hits]
    sums = np.array([(np.arange(1, len(one) + 1) / one).sum() for one in places])
    return measures | _add_map(sums, judgements, depth)


def compute_random_measures(judgements: KeywordJudgements, depth: int) -> Values:
    """Compute the expected measures of a random order of all equations for each query.

    With R of n equations relevant, P(k) rel(k) is expected to be (R/n) (1 + (k - 1) (R - 1) / (n - 1)) / k.
    """
    relevant = judgements.equations[:, None].astype(np.float64)
    total = len(judgements.section)
    places = np.arange(1, min(depth, total) + 1)
    others = (relevant - 1) / max(total - 1, 1)
    sums = (relevant / total * (1 + (places - 1) * others) / places).sum(axis=1)
    # A list cannot be longer than the library.
    measures: Values = {f"p{k}": judgements.equations / total * min(k, total) / k for k in get_cutoffs(depth)}
    return measures | _add_map(sums, judgements, depth)


def _add_map(sums: npt.NDArray[np.float64], judgements: KeywordJudgements, depth: int) -> Values:
    possible = np.minimum(judgements.equations, depth)
    return {"umap": sums, "map": sums / np.maximum(possible, 1)}


def run_study(
    experiment: Experiment,
    library: LibraryFiles,
    systems: Sequence[System],
    queries: Sequence[StudyQuery] | None = None,
    *,
    held_out: bool = False,
) -> ExperimentResult:
    """Rank all equations of a library for each query, and judge the results by keywords in their sections.

    With `held_out` only works are searched that neither `research.networks` nor the bundled network of eqkin saw. The
    others are tested against the bag of words if it is among the systems. Raises `BadInput` if there are no systems or
    equations, or a score is NaN.
    """
    queries = load_queries() if queries is None else queries
    if not systems:
        raise BadInput("there is nothing to compare: give a system")
    depth = experiment.scale.depth
    corpus, formulas = read_library_formulas(library)
    rows = np.arange(len(corpus))
    if held_out:
        halves = [set(corpus.split(share, SPLIT_SEED)[1].papers) for share in UNSEEN_SHARES]
        unseen = np.array([all(paper in half for half in halves) for paper in corpus.papers], bool)
        rows = np.flatnonzero(unseen[corpus.paper])
        formulas = formulas.select(rows)
    numbers, section = np.unique(corpus.section[rows], return_inverse=True)
    sections = read_section_ids(library, corpus)[numbers]
    relevant = find_relevant_sections(library, sections, [query.keywords for query in queries], experiment.log)
    judgements = KeywordJudgements(list(queries), relevant, section.astype(np.int32))
    values: dict[str, Values] = {}
    asked = read_query_formulas(queries)
    for system in systems:
        experiment.log(f"{system.title}: ranking {len(formulas):,} formulas for {len(queries):,} queries")
        # A small library has shorter lists.
        hits = np.zeros((len(queries), depth), bool)
        for number, top in enumerate(find_top(system, asked, formulas, depth)):
            hits[number, : len(top)] = judgements.is_relevant(number)[top]
        values[system.name] = compute_measures(hits, judgements, depth)
    facts = {
        "library": f"{len(rows):,} equations in {len(numbers):,} sections of "
        f"{len(np.unique(corpus.paper[rows])):,} papers{', held out' if held_out else ''}",
        "queries": f"{len(queries):,} from {len({query.field for query in queries}):,} fields",
        "results": f"the first {depth:,} of each query",
        "order of ties": f"seed {TIE_SEED}",
    }
    titles = {system.name: system.title for system in systems}
    result = make_study_result(values, titles, judgements, depth, experiment.scale.resamples)
    return dataclasses.replace(result, experiment=f"{NAME}-held-out" if held_out else NAME, facts=facts)


def find_top(system: System, queries: FormulaSet, formulas: FormulaSet, depth: int) -> npt.NDArray[np.int64]:
    """Find the formulas most related to each query, (queries, depth or fewer), best first.

    Ties are broken by one random order of the formulas, the same for all systems and queries: in the library's own
    order they would all be of the same few papers. Raises `BadInput` if scores have the wrong shape, or one is NaN.
    """
    order = np.random.default_rng(TIE_SEED).permutation(len(formulas))
    found = np.empty((len(queries), min(depth, len(formulas))), np.int64)
    part = max(1, _MAX_SCORES // len(formulas))
    for start in range(0, len(queries), part):
        batch = np.arange(start, min(start + part, len(queries)))
        scores = np.asarray(system.rank(queries.select(batch), formulas))
        if scores.shape != (len(batch), len(formulas)) or np.isnan(scores).any():
            raise BadInput(f"{system.title}: scores must be numbers for {len(formulas)} formulas, got {scores.shape}")
        for number, row in zip(batch.tolist(), scores, strict=True):
            found[number] = order[np.argsort(-row[order], kind="stable")[: found.shape[1]]]
    return found


def make_study_result(
    values: Mapping[str, Values], titles: Mapping[str, str], judgements: KeywordJudgements, depth: int, resamples: int
) -> ExperimentResult:
    """Make the tables of judged result lists."""
    cutoffs = get_cutoffs(depth)
    columns = [TableColumn(f"p{k}", f"P@{k}") for k in cutoffs]
    columns += [TableColumn("umap", "uMAP", "number"), TableColumn("map", "MAP")]
    baseline = BASELINE if BASELINE in values else next(iter(values))
    chance = compute_random_measures(judgements, depth)
    scores = summarize(values, titles, baseline, resamples)  # type: ignore[arg-type]
    shown = [*scores, *summarize({RANDOM_TITLE: chance}, {}, RANDOM_TITLE, resamples)]  # type: ignore[dict-item]
    caption = (
        f"Means over {len(judgements.queries):,} queries, including those without a relevant equation; the first "
        f"{depth:,} of {len(judgements.section):,} equations. MAP: uMAP's sum divided by the relevant equations that "
        "fit into the list. Random order: its expectation. Intervals: 95 %, bootstrap over queries. The paper's "
        "figures are from 53 other queries over another library, without intervals."
    )
    rows = [TableRow(one.title, dict(one.scores)) for one in shown]
    tables = [Table(NAME, "Search study", columns, rows + STUDY_ROWS, caption)]
    changes = []
    for one in scores:
        if one.p:
            texts = {key: f"{change}, p {format_p(one.p[key])}" for key, change in one.differences.items()}
            changes.append(TableRow(one.title, dict(texts)))
    if changes:
        title = f"Search study: differences to {titles.get(baseline, baseline)}"
        texts_of = [TableColumn(column.key, column.title, "text", "") for column in columns]
        tables.append(Table(f"{NAME}-differences", title, texts_of, changes, "Mean differences with 95 % intervals."))
    cutoff = max(k for k in cutoffs if k <= max(_QUERY_CUTOFF, cutoffs[0]))
    tables.append(_make_queries_table(judgements, scores, chance, cutoff))
    return ExperimentResult(NAME, "Search study", tables)


def _make_queries_table(judgements: KeywordJudgements, scores: Sequence[SystemScores], chance: Values, k: int) -> Table:
    precisions = {one.name: np.asarray(one.values[f"p{k}"]) for one in scores}
    columns = [
        TableColumn("field", "field", "text", ""),
        TableColumn("equations", "relevant equations", "number", ""),
        TableColumn("chance", RANDOM_TITLE, best=""),
        *(TableColumn(one.name, one.title, best="") for one in scores),
        TableColumn("paper", "the paper", best=""),
    ]
    rows = []
    for index in np.argsort(-precisions[scores[0].name], kind="stable").tolist():
        query = judgements.queries[index]
        cells: dict[str, Score | str] = {
            "field": query.field,
            "equations": Score(float(judgements.equations[index])),
            "chance": Score(float(chance[f"p{k}"][index])),
        }
        cells |= {name: Score(float(column[index])) for name, column in precisions.items()}
        printed = [row.cells["p100"] for row in STUDY_QUERIES if row.title.split(", ")[0] in query.keywords]
        if query.paper_keywords and printed and k == _QUERY_CUTOFF:
            cells["paper"] = printed[0]
        rows.append(TableRow(query.title, cells))
    caption = (
        f"Sorted by {scores[0].title}. The paper's figures are for the same keywords, or most of them, with its own "
        "formula and library."
    )
    return Table(f"{NAME}-queries", f"Search study: P@{k} by query", columns, rows, caption)
