"""Retrieval: find candidates near the formula's vector, with the formula's terms, and near the text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqkin.index.terms import PRESENTATION_FAMILIES, select_codes
from eqkin.search.backend import Floats, Keys, Snapshot
from eqkin.search.candidates import CandidateSet, QueryFeatures
from eqkin.search.rerank import FIRST_STAGE_VECTOR_WEIGHT, combine_scores
from eqkin.search.results import SearchOptions
from eqkin.trees.idf import load_bundled_frequencies


@dataclass(frozen=True)
class RetrievalSettings:
    """Numbers of candidates to retrieve."""

    min_candidates: int = 40  # by vector and terms, for a short list
    candidates_per_hit: int = 2  # and for each hit of a long one
    sparse_depth_factor: int = 8  # times as many equations whose common terms are known
    wildcard_factor: int = 3  # times as many candidates for a query with wildcards, whose vector says little
    text_candidates: int = 300  # by text that are compared with a formula, for a short list


SETTINGS = RetrievalSettings()


def retrieve(
    snapshot: Snapshot, query: QueryFeatures | None, options: SearchOptions, settings: RetrievalSettings = SETTINGS
) -> CandidateSet:
    """Find equations near the formula, with its terms, or in sections that match the text.

    Raises:
        NoSuchEquation: an equation was removed in the meantime.
    """
    if not len(snapshot):
        return CandidateSet(snapshot, [], np.zeros((0, 0), np.float32), {})
    text_scores = snapshot.search_text(options.text, options.filters) if options.text else {}
    keys, pool = np.array(list(text_scores), np.int64), None
    if query is not None:
        keys, pool = _retrieve_by_formula(snapshot, query, options, text_scores, settings)
    keys = np.unique(keys[keys != options.exclude])
    refs = snapshot.get_refs(keys.tolist())
    keys = keys[np.array([key in refs for key in keys.tolist()], bool)]
    if pool is not None:
        vectors = pool.get(keys)
    else:
        vectors = snapshot.get_vectors(keys) if options.fold else np.zeros((len(keys), 0), np.float32)
    return CandidateSet(snapshot, [refs[key] for key in keys.tolist()], vectors, text_scores)


class _VectorPool:
    """Vectors of all equations found, read once."""

    def __init__(self, snapshot: Snapshot, keys: Keys) -> None:
        self._keys = np.unique(keys)
        self._vectors = snapshot.get_vectors(self._keys)

    def get(self, keys: Keys) -> Floats:
        """Return the vectors of keys, in their order."""
        vectors: Floats = self._vectors[np.searchsorted(self._keys, keys)]
        return vectors


def _retrieve_by_formula(
    snapshot: Snapshot,
    query: QueryFeatures,
    options: SearchOptions,
    text_scores: dict[int, float],
    settings: RetrievalSettings,
) -> tuple[Keys, _VectorPool]:
    """Find the best equations by vector and terms, and those of the text's that are also near the formula."""
    depth = max(settings.min_candidates, settings.candidates_per_hit * options.k)
    depth *= settings.wildcard_factor if query.pattern else 1
    dense = snapshot.search_vectors(query.vector[None], depth, options.filters)[1]
    dense = dense[dense >= 0]
    codes = select_codes(query.formula.terms, PRESENTATION_FAMILIES)
    weights = load_bundled_frequencies().compute_idf(codes)
    sums, sparse = snapshot.search_terms(codes, weights, settings.sparse_depth_factor * depth, options.filters)
    texts = np.array(list(text_scores), np.int64)
    found = np.union1d(dense, sparse[:depth]) if len(sparse) else dense
    pool = _VectorPool(snapshot, np.concatenate((found, texts)))
    if len(sparse):
        order = np.argsort(sparse)
        sparse, sums = sparse[order], sums[order]
        match = np.minimum(np.searchsorted(sparse, found), len(sparse) - 1)
        shared = np.where(sparse[match] == found, sums[match], 0)  # beyond this depth few terms are shared: none
        first_stage = FIRST_STAGE_VECTOR_WEIGHT * (pool.get(found) @ query.vector)
        first_stage += shared / max(float(weights.sum()), 1e-9)
        found = found[np.argsort(-first_stage, kind="stable")[:depth]]
    most = max(settings.text_candidates, settings.candidates_per_hit * options.k)
    if len(texts) > most:  # comparing takes time: keep the best by text and vector
        cosines = (pool.get(texts) @ query.vector).tolist()
        scores = [
            combine_scores(cosine, score, formula=True, text=True)
            for cosine, score in zip(cosines, text_scores.values(), strict=True)
        ]
        texts = texts[np.argsort(-np.array(scores), kind="stable")[:most]]
    return np.concatenate((found, texts)), pool
