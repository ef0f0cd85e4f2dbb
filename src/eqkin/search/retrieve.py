"""Retrieval: a pool of candidates near the formula's vector, with its terms, and near the text.

The pool does not depend on how many hits are asked for, so that a longer list begins with the shorter one. Which of the
three searches found a candidate does not matter any more afterwards: all of them are compared in the same way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from eqkin.library.references import NO_EQUATIONS
from eqkin.search.backend import Keys, Snapshot
from eqkin.search.candidates import Candidates, QueryFeatures
from eqkin.search.rank import combine_scores
from eqkin.search.results import SearchOptions


@dataclass(frozen=True)
class RetrievalSettings:
    """How many candidates each search contributes."""

    vector_candidates: int = 300
    term_candidates: int = 300
    text_candidates: int = 300  # in addition to those that the formula found
    # The vector of a query with wildcards says little, so its terms find this many times as many.
    wildcard_factor: int = 3


SETTINGS = RetrievalSettings()


def retrieve(
    snapshot: Snapshot,
    query: QueryFeatures | None,
    options: SearchOptions,
    *,
    settings: RetrievalSettings = SETTINGS,
    named: Collection[int] = (),
) -> Candidates:
    """Find equations near the formula, with its terms, in sections that match the text, and the named ones."""
    if not len(snapshot):
        return Candidates(columns=NO_EQUATIONS, vectors=np.zeros((0, 0), np.float32), text_score=np.zeros(0))
    text_scores = snapshot.search_text(options.text, options.filters) if options.text else {}
    text_scores = dict.fromkeys(named, 0.0) | text_scores
    text_scores.pop(options.exclude, None)
    found_by_text = np.array(sorted(text_scores), np.int64)
    if query is None:
        keys = found_by_text
    else:
        pool = _retrieve_by_formula(snapshot, query, options, settings)
        keys = np.union1d(pool, found_by_text)
        keys = keys[keys != options.exclude]
        only_text = np.flatnonzero(~np.isin(keys, [*pool, *named]))
        # Equations that only their text found are weak candidates: keep the best few, so that a common word does not
        # crowd out the formulas.
        if len(only_text) > settings.text_candidates:
            texts = np.array([text_scores[key] for key in keys[only_text].tolist()], np.float32)
            cosines = snapshot.get_vectors(keys[only_text]) @ query.vector
            scores = combine_scores(cosines, texts, formula=True, text=True)
            dropped = only_text[np.argsort(-scores, kind="stable")[settings.text_candidates :]]
            keys = np.delete(keys, dropped)
    # Equations that were removed a moment ago have no columns any more.
    columns = snapshot.get_columns(keys)
    is_compared = query is not None or options.fold
    return Candidates(
        columns=columns,
        vectors=snapshot.get_vectors(columns.keys) if is_compared else np.zeros((len(columns.keys), 0), np.float32),
        text_score=np.array([text_scores.get(key, 0.0) for key in columns.keys.tolist()], np.float64)
        if text_scores
        else np.zeros(len(columns.keys)),
    )


def _retrieve_by_formula(
    snapshot: Snapshot, query: QueryFeatures, options: SearchOptions, settings: RetrievalSettings
) -> Keys:
    """Return the keys of the nearest equations and of those with most of the query's terms, ascending."""
    wanted = settings.term_candidates * (settings.wildcard_factor if query.pattern else 1)
    nearest = snapshot.search_vectors(query.vector[None], settings.vector_candidates, options.filters)[1]
    _, sharing = snapshot.search_terms(query.terms.codes, query.terms.idf, wanted, options.filters)
    return np.union1d(nearest[nearest >= 0], sharing)
