r"""Candidates of a search: retrieve them, compute their scores, sort them.

The pool has the equations near the formula's vector, those with its terms, and those near the text. It does not depend
on how many hits are asked for, so that a longer list begins with the shorter one. Which of the three searches found a
candidate does not matter any more afterwards: all of them are compared in the same way.

A term weighs its saturated count times the square root of its idf. The similarity of two formulas by one family of
terms (`eqkin.formulas.terms`) is their common weight $c$, with pivoted length normalisation: long formulas
lose less than with a cosine,

$$ \frac{c}{q^{1 - p}\, f^{p}}, $$

with the query's weight $q$, the formula's $f$ and the pivot $p$. The third similarity is the cosine of the vectors. The
relevance of a formula is the mean of all three, weighted by `WEIGHTS`; similarities by terms of which the query has
none are left out. A formula that says the same in the same letters, perhaps solved for another of them, comes half-way
nearer to 1.

With a formula and text, a candidate's score is

$$ \tfrac34 \text{relevance} + \tfrac14 \text{text}, $$

with one of them it is that part alone: text reorders equations whose mathematics fits, it does not replace it. The
weight of the text is a choice, not learned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.mathml import NodeColumns
from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.formulas.terms import (
    COMPARED_FAMILIES,
    SATURATED_COUNTS,
    Terms,
    add_overlaps,
    compute_norms,
    extract_norms,
    extract_terms,
    load_bundled_frequencies,
    round_norms,
    saturate_counts,
    weigh_terms,
)
from eqkin.index.index import EquationFeatures
from eqkin.library.references import NO_EQUATIONS, EquationColumns
from eqkin.search.backend import Codes, Floats, Snapshot
from eqkin.search.results import SearchOptions
from eqkin.search.wildcards import match_pattern, rank_matches_first

Rows: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float64]
AnyFloats: TypeAlias = npt.NDArray[np.floating[Any]]

TEXT_WEIGHT = 0.25
# Best candidates whose operator trees are compared with each other, to find those that say the same.
MAX_COMPARED = 250
_MAX_MATCHED = 600  # most relevant candidates that are matched with a query's wildcards
_NAMED_SCORE = 0.9  # least score of an equation with the name that was asked for
_BLOCK_FORMULAS = 20_000  # formulas of a collection whose operator trees are in memory together


# Relative to each other: they need not sum to 1. Chosen on seven sets together; leaving each of them out changes no
# weight by more than .04.
WEIGHTS = {"vector": 0.40, "path": 0.45, "tree": 0.15}
SAME_STATEMENT = 0.5  # of the distance to 1 that a formula comes nearer if it says the same as the query
_SAME_KINDS = ("canonical", "weak")  # forms in which letters keep their names
_LENGTH_PIVOT = 0.35  # how much a formula's size counts against it: 0 not at all, 0.5 as in a cosine
_EPSILON = np.float32(1e-9)


@dataclass(frozen=True, kw_only=True)
class QueryTerms:
    """The terms of one formula, to be looked up in an index and to be compared with operator trees."""

    codes: Codes  # (terms,) ascending
    families: npt.NDArray[np.uint8]  # (terms,) numbers of `TERM_FAMILIES`
    idf: Floats  # (terms,)
    weights: Floats  # (terms,) of one occurrence in another formula
    norms: Floats  # (COMPARED_FAMILIES, 1)
    forms: Codes  # (1, FORM_KINDS) of the whole formula
    known_similarities: npt.NDArray[np.bool_]  # which of `WEIGHTS` the formula has; it always has a vector

    @classmethod
    def extract(cls, operators: OperatorForest, pattern: OperatorForest | None = None) -> QueryTerms:
        """Extract the terms of an operator tree.

        Args:
            operators: The tree; letters stand for wildcards.
            pattern: The same tree with its wildcards. Terms with the name of a wildcard say nothing and are left out.
        """
        terms = extract_terms(operators)
        if pattern is not None:
            kept = np.isin(terms.code, extract_terms(pattern).code)
            offsets = np.array([0, np.count_nonzero(kept)])
            terms = Terms(offsets, terms.code[kept], terms.family[kept], terms.count[kept])
        frequencies = load_bundled_frequencies()
        idf = frequencies.compute_idf(terms.code)
        norms = compute_norms(terms, weigh_terms(terms, frequencies))
        return cls(
            codes=terms.code,
            families=terms.family,
            idf=idf,
            weights=saturate_counts(terms.count) * idf,
            norms=norms,
            forms=operators.formula_forms,
            known_similarities=np.append(True, norms[:, 0] > 0),
        )

    def compute_overlaps(self, operators: OperatorForest) -> Floats:
        """Compute the common weights with other formulas: (COMPARED_FAMILIES, formulas)."""
        compared = self.families < COMPARED_FAMILIES
        overlaps = np.zeros((COMPARED_FAMILIES, len(operators)), np.float32)
        add_overlaps(
            operators,
            codes=self.codes[compared],
            families=self.families[compared].astype(np.int64),
            weights=self.weights[compared],
            saturated=SATURATED_COUNTS,
            overlaps=overlaps,
        )
        return overlaps


@dataclass(frozen=True, kw_only=True)
class QueryFeatures:
    """A formula that is searched for: all that is computed of it, once."""

    latex: str  # as given; "" for MathML
    mathml: str
    nodes: NodeColumns
    vector: Floats  # (d,), of length 1
    terms: QueryTerms
    operators: OperatorForest  # one tree
    pattern: OperatorForest | None = None  # if it has wildcards


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Equations that may become hits, by ascending key."""

    features: EquationFeatures  # without operator trees for a search by text alone
    text_score: Scores  # how well the text around them matches, in [0, 1]


@dataclass(frozen=True, kw_only=True)
class RankedCandidates:
    """Candidates in the order of the list of hits, best first; each array has one row of each."""

    columns: EquationColumns
    vectors: Floats
    operators: OperatorForest  # of all candidates; without a formula, of the first `MAX_COMPARED`
    similarity: Scores  # cosines
    text_score: Scores
    score: Scores
    matches: npt.NDArray[np.uint8]  # 2: has the form of a query with wildcards, 1: a part has it; see `match_pattern`


_NO_FEATURES = EquationFeatures(
    columns=NO_EQUATIONS,
    vectors=np.zeros((0, 0), np.float32),
    operators=OperatorForest.concatenate([]),
    norms=np.zeros((COMPARED_FAMILIES, 0), np.float32),
)


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
        return Candidates(features=_NO_FEATURES, text_score=np.zeros(0))
    text_scores = snapshot.search_text(options.text, options.filters) if options.text else {}
    text_scores = dict.fromkeys(named, 0.0) | text_scores
    text_scores.pop(options.exclude, None)
    found_by_text = np.array(sorted(text_scores), np.int64)
    if query is None:
        keys = found_by_text
    else:
        nearest = snapshot.search_vectors(query.vector[None], settings.vector_candidates, options.filters)[1]
        wanted = settings.term_candidates * (settings.wildcard_factor if query.pattern is not None else 1)
        sharing = snapshot.search_terms(query.terms.codes, query.terms.idf, wanted, options.filters)[1]
        pool = np.union1d(nearest[nearest >= 0], sharing)
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
    # Equations that were removed a moment ago have no features any more.
    features = snapshot.get_features(keys, operators=query is not None)
    found = features.columns.keys.tolist()
    text_score = np.array([text_scores.get(key, 0.0) for key in found]) if text_scores else np.zeros(len(found))
    return Candidates(features=features, text_score=text_score)


def combine_scores(relevance: AnyFloats, text_scores: AnyFloats, *, formula: bool, text: bool) -> AnyFloats:
    """Compute the scores a list is sorted by, in [0, 1], for a query with a formula, text, or both."""
    if formula and text:
        return (1 - TEXT_WEIGHT) * relevance + TEXT_WEIGHT * text_scores
    return relevance if formula else text_scores


def rank(
    snapshot: Snapshot, query: QueryFeatures | None, candidates: Candidates, *, text: bool, named: Collection[int] = ()
) -> RankedCandidates:
    """Compute the scores of candidates and sort them, best first.

    Equations with the name that was asked for come before all others. Then come those that are the same statement in
    the same letters: in another notation, one may have a lower score than a formula that only looks like the query.

    Args:
        snapshot: Where the candidates come from.
        query: The formula; None for text alone.
        candidates: Those that were retrieved.
        text: Whether text is searched for.
        named: Keys of equations with the name that was asked for.

    Raises:
        NoSuchEquation: an equation is gone.
    """
    features = candidates.features
    keys = features.columns.keys
    cosines = relevance = np.zeros(len(keys), np.float32)
    is_same = np.zeros(len(keys), bool)
    matches = np.zeros(len(keys), np.uint8)
    operators: OperatorForest | None = None
    if query is not None and len(keys):
        operators = features.operators
        # Not a product of matrices, whose last bits depend on the place of a row: copies of a formula must tie.
        cosines = np.einsum("ij,j->i", features.vectors, query.vector)
        # Stored vectors are rounded, so that a cosine may be a little above 1.
        cosines = np.clip(cosines, -1, 1)
        relevance = compute_relevance(query.terms, operators, features.norms, cosines)
        if query.pattern is not None:
            nearest = np.argsort(-relevance, kind="stable")[:_MAX_MATCHED]
            matches[nearest] = match_pattern(query.pattern, operators.select(nearest))
            relevance = rank_matches_first(relevance, matches)
        else:
            is_same = share_form(operators.formula_forms, query.operators.formula_forms[:1], kinds=["canonical"])
    scores = combine_scores(relevance.astype(np.float64), candidates.text_score, formula=query is not None, text=text)
    is_named = np.isin(keys, list(named))
    if named:
        scores = np.where(is_named, _NAMED_SCORE + (1 - _NAMED_SCORE) * scores, _NAMED_SCORE * scores)
    order = np.lexsort((keys, -cosines, -scores, ~is_same, ~is_named))
    if operators is not None:
        operators = operators.select(order)
    elif len(order):
        operators = snapshot.get_operators(keys[order[:MAX_COMPARED]])
    else:
        operators = OperatorForest.concatenate([])
    return RankedCandidates(
        columns=features.columns.select(order),
        vectors=features.vectors[order],
        operators=operators,
        similarity=cosines[order].astype(np.float64),
        text_score=candidates.text_score[order],
        score=scores[order].astype(np.float64),
        matches=matches[order],
    )


def compute_similarities(query: QueryTerms, operators: OperatorForest, norms: Floats, cosines: Floats) -> Floats:
    """Compute the similarities that `WEIGHTS` names to the query: (formulas, similarities).

    Args:
        query: Terms of the query.
        operators: Operator trees of the formulas.
        norms: Their norms.
        cosines: Cosines of the query's vector with theirs.
    """
    # An index stores rounded norms. The query's own are exact, so that it is equal to itself.
    norms = round_norms(norms)
    norms = np.where(norms == round_norms(query.norms), query.norms, norms)
    lengths = (query.norms + _EPSILON) ** (1 - _LENGTH_PIVOT) * (norms + _EPSILON) ** _LENGTH_PIVOT
    similarities = query.compute_overlaps(operators) / lengths
    columns: Floats = np.concatenate((cosines[None], similarities)).T.astype(np.float32)
    return columns


def weigh_similarities(
    similarities: Floats, known: npt.NDArray[np.bool_], weights: Mapping[str, float] = WEIGHTS
) -> Floats:
    """Compute the weighted mean of those similarities that the query has terms of, in [0, 1].

    Args:
        similarities: What `compute_similarities` returns.
        known: `QueryTerms.known_similarities`.
        weights: The weight of each similarity.
    """
    chosen = np.where(known, np.array([weights[name] for name in WEIGHTS]), 0).astype(np.float32)
    relevance: Floats = np.clip(similarities @ (chosen / max(chosen.sum(), _EPSILON)), 0, 1)
    return relevance


def compute_relevance(query: QueryTerms, operators: OperatorForest, norms: Floats, cosines: Floats) -> Floats:
    """Compute the relevance of formulas to the query, in [0, 1]; 1 for the query itself. See `compute_similarities`."""
    relevance = weigh_similarities(compute_similarities(query, operators, norms, cosines), query.known_similarities)
    same = share_form(operators.formula_forms, query.forms, _SAME_KINDS)
    relevance[same] += SAME_STATEMENT * (1 - relevance[same])
    return relevance


def compare_collections(queries: Forest, query_vectors: Floats, formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of each formula to each query, (queries, formulas); vectors have length 1."""
    parsed = parse_operators(queries)
    asked = [QueryTerms.extract(parsed.select([tree])) for tree in range(len(parsed))]
    scores = np.zeros((len(asked), len(formulas)), np.float32)
    for start in range(0, len(formulas), _BLOCK_FORMULAS):
        block = slice(start, min(start + _BLOCK_FORMULAS, len(formulas)))
        operators = parse_operators(formulas.select(np.arange(block.start, block.stop)))
        norms = extract_norms(operators)
        for at, query in enumerate(asked):
            scores[at, block] = compute_relevance(query, operators, norms, vectors[block] @ query_vectors[at])
    return scores


def compare_within(formulas: Forest, vectors: Floats) -> Floats:
    """Compute the relevance of the formulas of a collection to each other; none is a candidate for itself."""
    scores = compare_collections(formulas, vectors, formulas, vectors)
    np.fill_diagonal(scores, 0)
    return scores
