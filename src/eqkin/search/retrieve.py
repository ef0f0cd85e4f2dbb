r"""Retrieval: a pool of candidates near the formula's vector, with its terms, and near the text.

The pool does not depend on how many hits are asked for. Its members get a first score

$$ \sum_i w_i s_i, \qquad \sum_i w_i = 1, $$

of the cosine of the vectors and the shares of the query's terms that a formula has: terms of presentation trees, terms
of operator trees with names, and those without. The best `ranked_candidates` are compared by all features; the others
follow in the order of the first score.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from eqkin.formulas.idf import load_bundled_frequencies
from eqkin.formulas.operator_terms import extract_operator_terms
from eqkin.formulas.operators import OperatorForest
from eqkin.index.term_segments import (
    NAMED_FAMILIES,
    NAMELESS_FAMILIES,
    PATTERN_FAMILIES,
    PRESENTATION_FAMILIES,
    normalise_length,
    select_codes,
)
from eqkin.library.references import NO_EQUATIONS
from eqkin.search.backend import Codes, Floats, Keys, Snapshot
from eqkin.search.candidates import CandidateSet, QueryFeatures
from eqkin.search.rerank import combine_scores
from eqkin.search.results import SearchOptions


@dataclass(frozen=True)
class RetrievalSettings:
    """Numbers of candidates to retrieve, and the weights of their first score."""

    vector_candidates: int = 400
    presentation_candidates: int = 300  # by terms of presentation trees
    named_candidates: int = 300  # by terms of operator trees with names
    nameless_candidates: int = 300  # by terms of operator trees without names
    text_candidates: int = 300
    ranked_candidates: int = 200  # that are compared by all features
    scored_factor: int = 4  # times as many equations whose common terms are known
    wildcard_factor: int = 3  # times as many candidates by terms for a query with wildcards, whose vector says little
    vector_weight: float = 0.4
    presentation_weight: float = 0.1
    named_weight: float = 0.3
    nameless_weight: float = 0.2
    needed_weight: float = 0.6  # of terms without wildcards, which every formula of a pattern's form has


SETTINGS = RetrievalSettings()


def retrieve(
    snapshot: Snapshot,
    query: QueryFeatures | None,
    options: SearchOptions,
    settings: RetrievalSettings = SETTINGS,
    named: Collection[int] = (),
) -> CandidateSet:
    """Find equations near the formula, with its terms, in sections that match the text, and the named ones."""
    if not len(snapshot):
        return CandidateSet(snapshot, NO_EQUATIONS, np.zeros((0, 0), np.float32), {})
    text_scores = snapshot.search_text(options.text, options.filters) if options.text else {}
    text_scores = dict.fromkeys(named, 0.0) | text_scores
    text_scores.pop(options.exclude, None)
    texts = np.array(sorted(text_scores), np.int64)
    if query is None:
        columns = snapshot.get_columns(texts)
        vectors = snapshot.get_vectors(columns.keys) if options.fold else np.zeros((len(columns.keys), 0), np.float32)
        return CandidateSet(snapshot, columns, vectors, text_scores)
    pool, scored = _retrieve_by_formula(snapshot, query, options, settings)
    keys = np.union1d(pool, texts) if len(texts) else pool
    keys = keys[keys != options.exclude]
    vectors = snapshot.get_vectors(keys)
    first = settings.vector_weight * (vectors @ query.vector) + _add_scores(keys, scored)
    if options.text:
        text = np.array([text_scores.get(key, 0.0) for key in keys.tolist()])
        first = combine_scores(first, text, formula=True, text=True)
        only_text = np.flatnonzero(~np.isin(keys, [*pool, *named]))
        order = np.argsort(-first[only_text], kind="stable")[settings.text_candidates :]
        kept = np.setdiff1d(np.arange(len(keys)), only_text[order])
        keys, vectors, first = keys[kept], vectors[kept], first[kept]
    order = np.lexsort((-first, ~np.isin(keys, list(named)))) if named else np.argsort(-first, kind="stable")
    ranked = settings.ranked_candidates * (settings.wildcard_factor if query.pattern else 1)
    best, rest = np.sort(order[:ranked]), order[ranked:]
    columns = snapshot.get_columns(keys[best])
    if len(columns.keys) < len(best):
        best = best[np.isin(keys[best], columns.keys)]
    return CandidateSet(snapshot, columns, vectors[best], text_scores, keys[rest])


def _add_scores(keys: Keys, scored: Sequence[tuple[Keys, Floats]]) -> Floats:
    """Return the sums of the scores of equations, given keys and scores of several searches; 0 for unknown ones."""
    total = np.zeros(len(keys), np.float64)
    for known, scores in scored:
        if len(known):
            order = np.argsort(known)
            at = order[np.minimum(np.searchsorted(known, keys, sorter=order), len(known) - 1)]
            total += np.where(known[at] == keys, scores[at], 0)
    return total.astype(np.float32)


def _retrieve_by_formula(
    snapshot: Snapshot, query: QueryFeatures, options: SearchOptions, settings: RetrievalSettings
) -> tuple[Keys, list[tuple[Keys, Floats]]]:
    """Find the best equations by vector and by each kind of terms.

    Returns:
        Their keys, ascending; and for each kind of terms, keys and the part of the first score that comes from them, of
        all equations for which it is known: those without it share few terms.
    """
    factor = settings.wildcard_factor if query.pattern else 1
    dense = snapshot.search_vectors(query.vector[None], settings.vector_candidates, options.filters)[1]
    length = float(normalise_length(np.diff(query.operators.offsets))[0])  # of the query itself
    pool, scored = [dense[dense >= 0]], []
    queries = _list_queries(query, settings)
    weights_of_all = load_bundled_frequencies().compute_idf(np.concatenate([codes for codes, *_ in queries]))
    for codes, depth, weight in queries:
        weights, weights_of_all = weights_of_all[: len(codes)], weights_of_all[len(codes) :]
        depth *= factor
        sums, found = snapshot.search_terms(codes, weights, settings.scored_factor * depth, options.filters)
        pool.append(found[:depth])
        scored.append((found, weight * sums / max(length * float(weights.sum()), 1e-9)))
    found = np.sort(np.concatenate(pool))
    return found[np.diff(found, prepend=-1) > 0], scored


def _list_queries(query: QueryFeatures, settings: RetrievalSettings) -> list[tuple[Codes, int, float]]:
    """Return the terms of the query of each kind, how many candidates they find, and their weight."""
    presentation = query.terms
    operators = extract_operator_terms(query.operators) if query.pattern else query.formula.features.terms
    named = select_codes(operators, NAMED_FAMILIES), settings.named_candidates, settings.named_weight
    if query.pattern:
        named = find_needed_codes(query.operators), settings.named_candidates, settings.needed_weight
    return [
        (
            select_codes(presentation, PRESENTATION_FAMILIES),
            settings.presentation_candidates,
            settings.presentation_weight,
        ),
        named,
        (select_codes(operators, NAMELESS_FAMILIES), settings.nameless_candidates, settings.nameless_weight),
    ]


def find_needed_codes(operators: OperatorForest) -> Codes:
    """Return the terms of a pattern that contain no wildcard: those that do not depend on what wildcards are."""
    changed = replace(operators, labels=[f"o:{x}" if x.startswith("v:?") else x for x in operators.labels])
    codes, others = (select_codes(extract_operator_terms(x), PATTERN_FAMILIES) for x in (operators, changed))
    needed: Codes = codes[np.isin(codes, others)]
    return needed
