"""The search study: how many of the first 10, 100, 1,000 results stand in a section with the query's keywords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.errors import BadInput
from eqkin.evaluation.compare import TIE_SEED
from eqkin.evaluation.experiments import study_report
from eqkin.evaluation.experiments.context import ExperimentContext
from eqkin.evaluation.experiments.study_lists import KeywordJudgements, ResultLists
from eqkin.evaluation.results import ExperimentResult
from eqkin.evaluation.sets import queries as asking
from eqkin.evaluation.sets.library_formulas import compute_content_digest, read_library_formulas, read_section_ids
from eqkin.evaluation.sets.queries import StudyQuery
from eqkin.evaluation.sets.relevance import find_relevant_sections
from eqkin.evaluation.sets.triples import pack_bits, unpack_bits
from eqkin.evaluation.systems.base import FormulaSet, System
from eqkin.library import LibraryFiles
from eqkin.training.data import Corpus

NAME = "study"
BASELINE = "bag-of-words"
_MAX_SCORES = 100_000_000  # scores in memory at once
_KEPT_RESULTS = 10  # results of each query whose names are kept


@dataclass(frozen=True, eq=False)
class _StudyCollection:
    """What is searched."""

    corpus: Corpus
    formulas: FormulaSet
    digest: str


def run_study(
    context: ExperimentContext,
    library: LibraryFiles,
    systems: Sequence[System],
    queries: Sequence[StudyQuery] | None = None,
    *,
    baseline: str = BASELINE,
) -> ExperimentResult:
    """Rank all equations of a library for each query, and judge the results by keywords in their sections.

    Args:
        context: The surroundings.
        library: What is searched.
        systems: What is compared, having learned what they have to. The claim is about the one called
            "paper", or else the first.
        queries: Formulas with keywords; by default the bundled ones.
        baseline: Name of the system that the others are tested against; if it is not there, none are.

    Raises:
        BadInput: there are no systems, queries or equations, two systems have one name, or scores are no numbers.
    """
    queries = asking.load_queries() if queries is None else queries
    names = [system.name for system in systems]
    if not names or not queries:
        raise BadInput("there is nothing to compare: give a system and a query")
    if len(set(names)) < len(names):
        raise BadInput(f"systems need names of their own: {', '.join(names)}")
    corpus, formulas = read_library_formulas(library)
    collection = _StudyCollection(corpus, formulas, compute_content_digest(library))
    judgements = _judge_sections(context, library, collection, queries)
    lists = [_search_system(context, system, collection, queries, judgements) for system in systems]
    return study_report.make_result(context, lists, judgements, baseline, _describe_data(context, collection, queries))


def _judge_sections(
    context: ExperimentContext, library: LibraryFiles, collection: _StudyCollection, queries: Sequence[StudyQuery]
) -> KeywordJudgements:
    """Which equations are relevant to which query."""
    sections = read_section_ids(library, collection.corpus)

    def look() -> dict[str, Any]:
        keywords = [query.keywords for query in queries]
        return {
            "sections": [pack_bits(row) for row in find_relevant_sections(library, sections, keywords, context.log)]
        }

    key = {"library": collection.digest, "keywords": [query.keywords for query in queries]}
    kept = context.cache.get_or_measure(f"{NAME}-keywords", key, look)["sections"]
    relevant = np.stack([unpack_bits(row, len(sections)) for row in kept])
    return KeywordJudgements(list(queries), relevant, collection.corpus.section)


def _search_system(
    context: ExperimentContext,
    system: System,
    collection: _StudyCollection,
    queries: Sequence[StudyQuery],
    judgements: KeywordJudgements,
) -> ResultLists:
    """What a system finds, up to the depth of the scale."""
    depth = context.scale.depth

    def search() -> dict[str, Any]:
        context.log(f"{system.title}: ranking {len(collection.formulas):,} formulas for {len(queries):,} queries")
        hits, first = [], []
        for number, places in enumerate(
            find_top(system, asking.read_query_formulas(queries), collection.formulas, depth)
        ):
            hits.append(pack_bits(judgements.is_relevant(number)[places]))
            first.append([collection.corpus.get_equation_id(int(place)) for place in places[:_KEPT_RESULTS]])
        return {"results": len(places), "hits": hits, "first": first}

    key = {
        "system": system.name, "settings": system.settings, "learned_from": system.learned_from,
        "library": collection.digest, "queries": asking.compute_queries_digest(queries), "depth": depth, "ties": TIE_SEED,
    }  # fmt: skip
    kept = context.cache.get_or_measure(NAME, key, search)
    hits = np.zeros((len(queries), depth), bool)  # a library with fewer equations than that has nothing there
    hits[:, : kept["results"]] = [unpack_bits(row, kept["results"]) for row in kept["hits"]]
    return ResultLists(system.name, system.title, hits)


def find_top(system: System, queries: FormulaSet, formulas: FormulaSet, depth: int) -> npt.NDArray[np.int64]:
    """The places of the formulas most related to each query, (queries, depth or as many as there are), best first.

    Ties are broken by one random order of the formulas, the same for all systems and queries: in the library's own
    order they would all be of the same few papers.

    Raises:
        BadInput: the scores are of the wrong shape, or one is NaN.
    """
    order = np.random.default_rng(TIE_SEED).permutation(len(formulas))
    found = np.empty((len(queries), min(depth, len(formulas))), np.int64)
    part = max(1, _MAX_SCORES // len(formulas))
    for start in range(0, len(queries), part):
        asked = np.arange(start, min(start + part, len(queries)))
        scores = np.asarray(system.rank(queries.select(asked), formulas))
        if scores.shape != (len(asked), len(formulas)) or np.isnan(scores).any():
            shape = len(asked), len(formulas)
            raise BadInput(f"{system.title}: scores are numbers of shape {shape}, not {scores.shape}")
        for number, row in zip(asked.tolist(), scores, strict=True):
            found[number] = order[np.argsort(-row[order], kind="stable")[: found.shape[1]]]
    return found


def _describe_data(
    context: ExperimentContext, collection: _StudyCollection, queries: Sequence[StudyQuery]
) -> dict[str, str]:
    counts = collection.corpus.compute_statistics()
    return {
        "library": f"{counts['trees']:,} equations in {counts['sections']:,} sections of {counts['papers']:,} papers, "
        f"digest {collection.digest[:16]}",
        "queries": f"{len(queries):,} from {len({query.field for query in queries}):,} fields, "
        f"{sum(query.paper_keywords for query in queries)} with keywords of the paper's table, "
        f"digest {asking.compute_queries_digest(queries)}",
        "results": f"the first {context.scale.depth:,} of each query",
        "resamples": f"{context.scale.resamples:,}",
        "order of ties": f"seed {TIE_SEED}",
    }
