r"""The search study (paper, section 6.3): how many of the first 10, 100, 1,000 results are in sections with a keyword.

$$ \mathrm{P@}k = \frac{1}{k} \sum_{i \le k} \mathrm{rel}(i), \qquad
   \mathrm{uMAP} = \sum_{k \le 1000} \mathrm{P}(k)\, \mathrm{rel}(k) \quad \text{(mean over queries)} $$

The paper cannot count the relevant equations and does not divide uMAP by their number. Here they are counted, so the
expected figures of a random order are known, and MAP is uMAP's sum divided by the relevant equations that fit into the
list.

The paper: over 53 queries the network trained on 5 M triplets and a bag of words are similar among the first 10 results
(P@10 .504 and .457), but further down the network finds up to 50 % more: P@100 .382 and .317, P@1000 .298 and .208,
uMAP 165 and 106. Queries differ much, and those with broad keywords do better.

Differences from the paper: it prints the keywords of 22 of its 53 queries and no formulas, and its library is another
one, so its figures are not comparable. The searched text is a section's heading and prose without display equations;
all kinds of hyphens and apostrophes are equal. Systems are fitted on half of the works; bundled networks were trained
on searched papers, as the paper's was, and eqkin's on the words around their equations, which judge it here: a clean
comparison searches works that no network saw (`held_out`). Equal scores are in one random order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.context import HELD_OUT_FRACTION, SPLIT_SEED, ExperimentContext
from eqkin.evaluation.formulas import FormulaSet
from eqkin.evaluation.scores import TIE_SEED, SystemScores, make_differences_table, summarize
from eqkin.evaluation.systems.base import System
from eqkin.evaluation.tables import ExperimentResult, Table, TableColumn, TableRow
from eqkin.library.files import LibraryFiles
from eqkin.statistics import Score
from research.keywords import (
    Flags,
    StudyQuery,
    compute_content_digest,
    compute_query_digest,
    find_relevant_sections,
    load_queries,
    read_library_formulas,
    read_query_formulas,
    read_section_ids,
)
from research.published import STUDY_QUERIES, STUDY_ROWS
from research.triples import pack_bits, unpack_bits

Values: TypeAlias = dict[str, npt.NDArray[np.float64]]  # a number for each query, by the key of the measure

NAME = "study"
BASELINE = "bag-of-words"
RANDOM_TITLE = "Random order"
CUTOFFS = (10, 100, 1_000)
UNSEEN_SHARES = (HELD_OUT_FRACTION, 0.1)  # of papers, held out from experiments and from bundled networks
_QUERY_CUTOFF = 100  # of the table of single queries
_MAX_SCORES = 100_000_000  # in memory at once
_KEPT_RESULTS = 10  # of each query whose names are cached


@dataclass(frozen=True, eq=False)
class KeywordJudgements:
    """Which equations of a library are relevant to which query."""

    queries: list[StudyQuery]
    sections: Flags  # (queries, sections)
    section: npt.NDArray[np.int32]  # (equations,) the section of each

    def is_relevant(self, query: int) -> Flags:
        """Return which equations are relevant to a query."""
        return np.asarray(self.sections[query][self.section])

    @cached_property
    def equations(self) -> npt.NDArray[np.int64]:
        """Number of relevant equations, (queries,)."""
        sizes = np.bincount(self.section, minlength=self.sections.shape[1])
        return np.asarray(self.sections @ sizes, np.int64)

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of relevant equations, (queries,): the expected precision of a random order."""
        return self.equations / len(self.section)


@dataclass(frozen=True, eq=False)
class ResultLists:
    """The results of one system."""

    name: str
    title: str
    hits: Flags  # (queries, depth) whether each result is relevant, best first

    def compute_precision(self, k: int) -> npt.NDArray[np.float64]:
        """Compute P@k of each query."""
        return np.asarray(self.hits[:, :k].sum(axis=1) / k, np.float64)

    def compute_measures(self, judgements: KeywordJudgements) -> Values:
        """Compute every measure of each query."""
        depth = self.hits.shape[1]
        places = [np.flatnonzero(row) for row in self.hits]
        sums = np.array([(np.arange(1, len(one) + 1) / (one + 1)).sum() for one in places])  # uAP of each list
        return {f"p{k}": self.compute_precision(k) for k in get_cutoffs(depth)} | _add_map(sums, judgements, depth)


def get_cutoffs(depth: int) -> list[int]:
    """Return the lengths of lists for which precision is reported."""
    return [k for k in CUTOFFS if k <= depth] or [depth]


def compute_random_measures(judgements: KeywordJudgements, depth: int) -> Values:
    """Compute the expected measures of a random order of all equations for each query.

    With R of n equations relevant, P(k) rel(k) is expected to be (R/n) (1 + (k - 1) (R - 1) / (n - 1)) / k.
    """
    relevant, total = judgements.equations[:, None].astype(np.float64), len(judgements.section)
    places = np.arange(1, min(depth, total) + 1)
    others = (relevant - 1) / max(total - 1, 1)
    sums = (relevant / total * (1 + (places - 1) * others) / places).sum(axis=1)
    filled = {k: min(k, total) / k for k in get_cutoffs(depth)}  # a list cannot be longer than the library
    return {f"p{k}": judgements.shares * filled[k] for k in filled} | _add_map(sums, judgements, depth)


def _add_map(sums: npt.NDArray[np.float64], judgements: KeywordJudgements, depth: int) -> Values:
    possible = np.minimum(judgements.equations, depth)
    return {"umap": sums, "map": sums / np.maximum(possible, 1)}


def run_study(
    context: ExperimentContext,
    library: LibraryFiles,
    systems: Sequence[System],
    queries: Sequence[StudyQuery] | None = None,
    *,
    baseline: str = BASELINE,
    held_out: bool = False,
) -> ExperimentResult:
    """Rank all equations of a library for each query, and judge the results by keywords in their sections.

    With `held_out` only works are searched that neither `research.networks` nor the bundled network of eqkin saw. The
    systems are fitted; the others are tested against the baseline if it is among them. Raises `BadInput` if there are
    no systems, queries or equations, two systems have one name, or a score is NaN.
    """
    queries = load_queries() if queries is None else queries
    names = [system.name for system in systems]
    if not names or not queries:
        raise BadInput("there is nothing to compare: give a system and a query")
    if len(set(names)) < len(names):
        raise BadInput(f"systems need distinct names, got {', '.join(names)}")
    corpus, formulas = read_library_formulas(library)
    digest = compute_content_digest(library)
    rows = np.arange(len(corpus))
    if held_out:
        halves = [set(corpus.split(share, SPLIT_SEED)[1].papers) for share in UNSEEN_SHARES]
        unseen = np.array([all(paper in half for half in halves) for paper in corpus.papers], bool)
        rows = np.flatnonzero(unseen[corpus.paper])
        formulas = formulas.select(rows)
    numbers, section = np.unique(corpus.section[rows], return_inverse=True)
    sections = read_section_ids(library, corpus)[numbers]
    keywords = [query.keywords for query in queries]

    def judge() -> dict[str, Any]:
        found = find_relevant_sections(library, sections, keywords, context.log)
        return {"sections": [pack_bits(row) for row in found]}

    kept = context.cache.get_or_measure(
        f"{NAME}-keywords", {"library": digest, "keywords": keywords, "held_out": held_out}, judge
    )
    relevant = np.stack([unpack_bits(row, len(sections)) for row in kept["sections"]])
    judgements = KeywordJudgements(list(queries), relevant, section.astype(np.int32))
    lists = []
    for system in systems:

        def search(system: System = system) -> dict[str, Any]:
            context.log(f"{system.title}: ranking {len(formulas):,} formulas for {len(queries):,} queries")
            hits, first = [], []
            for number, top in enumerate(find_top(system, read_query_formulas(queries), formulas, context.scale.depth)):
                hits.append(pack_bits(judgements.is_relevant(number)[top]))
                first.append([corpus.get_equation_id(int(rows[tree])) for tree in top[:_KEPT_RESULTS]])
            return {"results": len(top), "hits": hits, "first": first}

        key = {
            "system": system.name, "settings": system.settings, "learned_from": system.learned_from, "library": digest,
            "queries": compute_query_digest(queries), "depth": context.scale.depth, "ties": TIE_SEED,
            "held_out": held_out,
        }  # fmt: skip
        kept = context.cache.get_or_measure(NAME, key, search)
        found = np.zeros((len(queries), context.scale.depth), bool)  # a small library has shorter lists
        found[:, : kept["results"]] = [unpack_bits(row, kept["results"]) for row in kept["hits"]]
        lists.append(ResultLists(system.name, system.title, found))
    facts = {
        "library": f"{len(rows):,} equations in {len(numbers):,} sections of "
        f"{len(np.unique(corpus.paper[rows])):,} papers{', held out' if held_out else ''}, digest {digest[:16]}",
        "queries": f"{len(queries):,} from {len({query.field for query in queries}):,} fields, "
        f"{sum(query.paper_keywords for query in queries)} with keywords of the paper's table, "
        f"digest {compute_query_digest(queries)}",
        "results": f"the first {context.scale.depth:,} of each query",
        "resamples": f"{context.scale.resamples:,}",
        "order of ties": f"seed {TIE_SEED}",
    }
    result = make_study_result(context, lists, judgements, baseline, facts)
    return replace(result, experiment=f"{NAME}-held-out") if held_out else result


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
        scores, shape = np.asarray(system.rank(queries.select(batch), formulas)), (len(batch), len(formulas))
        if scores.shape != shape or np.isnan(scores).any():
            raise BadInput(f"{system.title}: scores must be numbers of shape {shape}, got {scores.shape} or NaN")
        for number, row in zip(batch.tolist(), scores, strict=True):
            found[number] = order[np.argsort(-row[order], kind="stable")[: found.shape[1]]]
    return found


def make_study_result(
    context: ExperimentContext,
    lists: Sequence[ResultLists],
    judgements: KeywordJudgements,
    baseline: str,
    facts: Mapping[str, str],
) -> ExperimentResult:
    """Make the tables of judged result lists."""
    depth, resamples = context.scale.depth, context.scale.resamples
    cutoffs = get_cutoffs(depth)
    columns = [TableColumn(f"p{k}", f"P@{k}") for k in cutoffs]
    columns += [TableColumn("umap", "uMAP", "number"), TableColumn("map", "MAP")]
    values: list[Mapping[str, Any]] = [one.compute_measures(judgements) for one in lists]
    names, titles = [one.name for one in lists], [one.title for one in lists]
    scores = summarize(names, titles, values, baseline, resamples)
    random_values = compute_random_measures(judgements, depth)
    chance = summarize(["random"], [RANDOM_TITLE], [random_values], "", resamples)  # type: ignore[list-item]
    caption = (
        f"Means over {len(judgements.queries):,} queries, including those without a relevant equation; the first "
        f"{depth:,} of {len(judgements.section):,} equations. MAP: uMAP's sum divided by the relevant equations that "
        "fit into the list. Random order: its expectation. Intervals: 95 %, bootstrap over queries. The paper's "
        "figures are from 53 other queries over another library, without intervals."
    )
    rows = [TableRow(one.title, dict(one.scores)) for one in [*scores, *chance]]
    tables = [Table(NAME, "Search study", columns, rows + STUDY_ROWS, caption)]
    if baseline in names and len(lists) > 1:
        title = f"Search study: differences to {titles[names.index(baseline)]}"
        tables.append(make_differences_table(f"{NAME}-differences", title, columns, scores, baseline, resamples))
    cutoff = max(k for k in cutoffs if k <= max(_QUERY_CUTOFF, cutoffs[0]))
    tables.append(_make_queries_table(judgements, scores, random_values, cutoff))
    return ExperimentResult(NAME, "Search study", tables, facts=dict(facts))


def _make_queries_table(
    judgements: KeywordJudgements, scores: Sequence[SystemScores], random_values: Values, k: int
) -> Table:
    precisions = [np.asarray(one.values[f"p{k}"]) for one in scores]
    columns = [
        TableColumn("field", "field", "text", ""),
        TableColumn("sections", "relevant sections", "number", ""),
        TableColumn("equations", "relevant equations", "number", ""),
        TableColumn("chance", RANDOM_TITLE, best=""),
        *(TableColumn(f"system-{number}", one.title, best="") for number, one in enumerate(scores)),
        TableColumn("paper", "the paper", best=""),
    ]
    rows = []
    for index in np.lexsort((np.arange(len(precisions[0])), -precisions[0])).tolist():
        query = judgements.queries[index]
        cells: dict[str, Score | str] = {
            "field": query.field,
            "sections": Score(float(judgements.sections[index].sum())),
            "equations": Score(float(judgements.equations[index])),
            "chance": Score(float(random_values[f"p{k}"][index])),
        }
        cells |= {f"system-{number}": Score(float(one[index])) for number, one in enumerate(precisions)}
        printed = [row.cells["p100"] for row in STUDY_QUERIES if row.title.split(", ")[0] in query.keywords]
        if query.paper_keywords and printed and k == _QUERY_CUTOFF:
            cells["paper"] = printed[0]
        note = "" if judgements.equations[index] else "no equation of the library is relevant"
        rows.append(TableRow(query.title, cells, note=note))
    caption = (
        f"Sorted by {scores[0].title}. The paper's figures are for the same keywords, or most of them, with its own "
        "formula and library."
    )
    return Table(f"{NAME}-queries", f"Search study: P@{k} by query", columns, rows, caption)
