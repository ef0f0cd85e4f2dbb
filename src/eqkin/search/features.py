r"""Similarities of formulas to a query, and the relevance that they add up to.

Terms of three kinds are compared: pairs of neighbours in presentation trees, terms of operator trees and of their
outlines (`eqkin.formulas.operator_terms`). A term weighs its saturated count times the square root of its idf. The
similarity of two formulas by some terms is their common weight $c$, with pivoted length normalisation: long formulas
lose less than with a cosine,

$$ \frac{c}{q^{1 - p}\, f^{p}}, $$

with the query's weight $q$, the formula's $f$ and the pivot $p$. Neighbours make one similarity, each family of
operator terms and outline terms makes one, and the vectors make one by their cosine. The relevance of a formula is the
mean of all, weighted by `WEIGHTS`; similarities by terms of which the query has none are left out. A formula that says
the same in the same letters, perhaps solved for another of them, comes half-way nearer to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eqkin.formulas import Forest
from eqkin.formulas.engine import parse_operators
from eqkin.formulas.idf import (
    SATURATED_COUNTS,
    DocumentFrequencies,
    compute_norms,
    find_groups,
    load_bundled_frequencies,
    round_norms,
    saturate_counts,
    weigh_terms,
)
from eqkin.formulas.operator_terms import (
    FORM_FAMILY,
    NEIGHBOUR_FAMILY,
    RANKED_FAMILIES,
    add_overlaps,
    extract_query_terms,
    extract_structure_terms,
)
from eqkin.formulas.operators import OperatorForest, share_form
from eqkin.formulas.terms import INDEXED_FAMILIES, Terms, extract_terms

WEIGHTS = {
    "vector": 1.6,
    "neighbours": 0.6,
    "path": 0.4,
    "anypath": 0.2,
    "subtree": 0.3,
    "anytree": 0.3,
    "form": 0.025,  # without names; with names, `SAME_STATEMENT` counts it
    "outline path": 0.6,
    "outline anypath": 0.4,
    "outline subtree": 0.3,
    "outline anytree": 0.3,
}
SAME_STATEMENT = 0.5  # of the distance to 1 that a formula comes nearer if it says the same as the query
_SAME_KINDS = ("canonical", "weak")  # forms in which letters keep their names
_LENGTH_PIVOT = 0.35  # how much a formula's size counts against it: 0 not at all, 0.5 as in a cosine
_EPSILON = np.float32(1e-9)

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class FormulaFeatures:
    """Terms of `RANKED_FAMILIES` of some formulas with their weights, ready to be compared."""

    terms: Terms
    weight: Floats  # (terms,)
    norms: Floats  # (families, formulas) sums of squared weights
    forms: Codes  # (formulas, FORM_KINDS) of whole formulas

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which similarities the first formula has terms of, (similarities,); it always has a vector."""
        return np.concatenate(([True], self.norms[:, 0] > 0))

    def select(self, formulas: Integers) -> FormulaFeatures:
        """Return the features of some of the formulas, in that order."""
        offsets = self.terms.offsets
        counts = (offsets[1:] - offsets[:-1])[formulas]
        ends = np.cumsum(counts)
        rows = np.repeat(offsets[formulas] - ends + counts, counts) + np.arange(int(counts.sum()))
        terms = Terms(
            np.concatenate(([0], ends)), self.terms.code[rows], self.terms.family[rows], self.terms.count[rows]
        )
        return FormulaFeatures(terms, self.weight[rows], self.norms[:, formulas], self.forms[formulas])

    def compute_overlaps(self, formulas: FormulaFeatures) -> Floats:
        """Compute the dot products of the weights of the first formula here with others: (families, formulas)."""
        families, count = formulas.norms.shape
        end = self.terms.offsets[1]
        codes, weights = self.terms.code[:end], self.weight[:end]
        if not len(codes):
            return np.zeros((families, count), np.float32)
        match = np.minimum(np.searchsorted(codes, formulas.terms.code), len(codes) - 1)
        common = np.flatnonzero(codes[match] == formulas.terms.code)
        formula = np.searchsorted(formulas.terms.offsets, common, "right") - 1
        products = weights[match[common]] * formulas.weight[common]
        cells = find_groups(formulas.terms.family[common]) * count + formula
        return np.bincount(cells, products, families * count).reshape(families, count).astype(np.float32)


@dataclass(frozen=True)
class QueryTerms:
    """The terms of one formula, to be counted in formulas of which nothing but operator trees is known."""

    features: FormulaFeatures
    known: npt.NDArray[np.uint8]  # see `extract_query_terms`

    @property
    def indexed(self) -> Codes:
        """The terms that an index counts: of its presentation tree, and forms; ascending."""
        return self.features.terms.code[self._indexed_places]

    def compute_overlaps(self, operators: OperatorForest, indexed: npt.NDArray[np.uint8]) -> Floats:
        """Compute the dot products of weights with other formulas: (families, formulas).

        Args:
            operators: Operator trees of the formulas.
            indexed: (terms, formulas) how often each of `indexed` occurs in each formula.
        """
        terms = self.features.terms
        overlaps = np.zeros((len(RANKED_FAMILIES), len(operators)), np.float32)
        weights = self.features.weight**2 / saturate_counts(terms.count)  # those of other formulas lack their counts
        query = terms.code, find_groups(terms.family), weights, indexed, self._indexed_places, SATURATED_COUNTS
        add_overlaps(operators, self.known, *query, overlaps)
        return overlaps

    @cached_property
    def _indexed_places(self) -> Integers:
        return np.flatnonzero(np.isin(self.features.terms.family, (NEIGHBOUR_FAMILY, FORM_FAMILY)))


def extract_features(
    forest: Forest, operators: OperatorForest | None = None, idf: DocumentFrequencies | None = None
) -> FormulaFeatures:
    """Extract the features of all trees of a forest.

    Args:
        forest: Presentation trees.
        operators: Their operator trees; parsed if they are not given.
        idf: Document frequencies of terms; by default the bundled ones.
    """
    operators = parse_operators(forest) if operators is None else operators
    presentation, structure = extract_terms(forest, families=INDEXED_FAMILIES), extract_structure_terms(operators)
    return _weigh(presentation, structure, operators, idf or load_bundled_frequencies())


def extract_query(terms: Terms, operators: OperatorForest) -> QueryTerms:
    """Extract the terms of a query.

    Args:
        terms: Of its presentation tree.
        operators: Its operator tree.
    """
    structure, known = extract_query_terms(operators)
    return QueryTerms(_weigh(terms, structure, operators, load_bundled_frequencies()), known)


def _weigh(
    presentation: Terms, structure: Terms, operators: OperatorForest, idf: DocumentFrequencies
) -> FormulaFeatures:
    terms = presentation.select_families([NEIGHBOUR_FAMILY]).merge(structure)
    weights = weigh_terms(terms, idf)
    return FormulaFeatures(terms, weights, compute_norms(terms, weights), operators.formula_forms)


def compute_similarities(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Floats:
    """Compute the similarities `WEIGHTS` names to the first formula of `query`, (formulas, similarities).

    Args:
        query: Features of the query.
        formulas: Features of the formulas.
        cosines: Cosines of the query's vector with theirs.
    """
    return combine_similarities(query, query.compute_overlaps(formulas), formulas.norms, cosines)


def combine_similarities(query: FormulaFeatures, overlaps: Floats, norms: Floats, cosines: Floats) -> Floats:
    """Do the same as `compute_similarities`, given overlaps with the query and norms of formulas.

    Norms are rounded as an index stores them; one that rounds to the same as the query's is replaced by the query's.
    """
    own, norms = query.norms[:, :1], round_norms(norms)
    similarities = normalise_by_length(overlaps, own, np.where(norms == round_norms(own), own, norms))
    return np.concatenate((cosines[None], similarities)).T.astype(np.float32)


def normalise_by_length(common: Floats, query: Floats, formulas: Floats) -> Floats:
    """Normalise common weights by the weights of query and formulas; arrays are broadcast."""
    lengths = (query + _EPSILON) ** (1 - _LENGTH_PIVOT) * (formulas + _EPSILON) ** _LENGTH_PIVOT
    return np.asarray(common / lengths, np.float32)


def compute_relevance(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Floats:
    """Compute the relevance of each formula to the first one of `query`, in [0, 1]; 1 for the query itself.

    Args:
        query: Features of the query.
        formulas: Features of the formulas.
        cosines: Cosines of the query's vector with theirs.
    """
    relevance = weight_similarities(compute_similarities(query, formulas, cosines), query.known)
    return favour_same_statements(relevance, query, formulas.forms)


def weight_similarities(
    similarities: Floats, known: npt.NDArray[np.bool_], weights: Mapping[str, float] = WEIGHTS
) -> Floats:
    """Compute the weighted mean of those similarities that the query has terms of, in [0, 1].

    Args:
        similarities: What `compute_similarities` returns.
        known: `FormulaFeatures.known` of the query.
        weights: The weight of each similarity.
    """
    chosen = np.where(known, np.array([weights[name] for name in WEIGHTS]), 0).astype(np.float32)
    relevance: Floats = np.clip(similarities @ (chosen / max(chosen.sum(), _EPSILON)), 0, 1)
    return relevance


def favour_same_statements(relevance: Floats, query: FormulaFeatures, forms: Codes) -> Floats:
    """Raise the relevance of formulas, given their forms, that say the same as the first one of `query`."""
    same = share_form(forms, query.forms[:1], _SAME_KINDS)
    return np.where(same, relevance + SAME_STATEMENT * (1 - relevance), relevance).astype(np.float32)
