r"""Terms of a query's formula, and the relevance of other formulas to it.

A term weighs its saturated count times the square root of its idf. The similarity of two formulas by one family of
terms (`eqkin.formulas.terms`) is their common weight $c$, with pivoted length normalisation: long formulas
lose less than with a cosine,

$$ \frac{c}{q^{1 - p}\, f^{p}}, $$

with the query's weight $q$, the formula's $f$ and the pivot $p$. The third similarity is the cosine of the vectors. The
relevance of a formula is the mean of all three, weighted by `WEIGHTS`; similarities by terms of which the query has
none are left out. A formula that says the same in the same letters, perhaps solved for another of them, comes half-way
nearer to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.formulas.terms import (
    COMPARED_FAMILIES,
    SATURATED_COUNTS,
    Terms,
    add_overlaps,
    compute_norms,
    extract_terms,
    load_bundled_frequencies,
    round_norms,
    saturate_counts,
    weigh_terms,
)

# Relative to each other: they need not sum to 1. Chosen on seven sets together; leaving each of them out changes no
# weight by more than .04.
WEIGHTS = {"vector": 0.40, "path": 0.45, "tree": 0.15}
SAME_STATEMENT = 0.5  # of the distance to 1 that a formula comes nearer if it says the same as the query
_SAME_KINDS = ("canonical", "weak")  # forms in which letters keep their names
_LENGTH_PIVOT = 0.35  # how much a formula's size counts against it: 0 not at all, 0.5 as in a cosine
_EPSILON = np.float32(1e-9)

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint32]


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


def extract_norms(operators: OperatorForest) -> Floats:
    """Compute the norms of formulas of which nothing is stored: (COMPARED_FAMILIES, formulas)."""
    terms = extract_terms(operators)
    return compute_norms(terms, weigh_terms(terms, load_bundled_frequencies()))


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
