r"""Similarities of formulas to a query, and the relevance that they add up to.

Terms of three kinds are compared: pairs of neighbours in presentation trees, terms of operator trees
(`eqkin.trees.operators`) and of their outlines (`eqkin.trees.outlines`). A term weighs its saturated count times the
square root of its idf. The similarity of two formulas by some terms is their common weight $c$, with pivoted length
normalisation: long formulas lose less than with a cosine,

$$ \frac{c}{q^{1 - p}\, f^{p}}, $$

with the query's weight $q$, the formula's $f$ and the pivot $p$. Neighbours make one similarity, each family of
operator terms and outline terms makes one, and the vectors make one by their cosine. The relevance of a formula is the
mean of all, weighted by `WEIGHTS`; similarities by terms of which the query has none are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.mathml.operators import parse_operators
from eqkin.trees import Forest
from eqkin.trees.idf import DocumentFrequencies, load_bundled_frequencies
from eqkin.trees.operators import (
    FIRST_OPERATOR_FAMILY,
    OPERATOR_TERM_FAMILIES,
    OperatorForest,
    extract_operator_terms,
)
from eqkin.trees.outlines import FIRST_OUTLINE_FAMILY, OUTLINE_TERM_FAMILIES, extract_outline_terms
from eqkin.trees.terms import TERM_FAMILIES, Terms, extract_terms

WEIGHTS = {
    "vector": 1.25,
    "neighbours": 0.6,
    "path": 0.4,
    "anypath": 0.2,
    "subtree": 0.3,
    "anytree": 0.3,
    "form": 0.1,
    "outline path": 0.6,
    "outline anypath": 0.4,
    "outline subtree": 0.3,
    "outline anytree": 0.3,
}
_NEIGHBOURS = TERM_FAMILIES.index("sibling")
_LENGTH_PIVOT = 0.35  # how much a formula's size counts against it: 0 not at all, 0.5 as in a cosine
_EPSILON = np.float32(1e-9)

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WeightedTerms:
    """Terms of one kind of some formulas, with their weights."""

    terms: Terms
    weight: Floats  # (terms,)
    group: npt.NDArray[np.uint8]  # (terms,) which similarity of this kind a term belongs to
    norms: Floats  # (groups, formulas) sums of squared weights

    @classmethod
    def compute(cls, terms: Terms, first: int, groups: int, idf: DocumentFrequencies) -> WeightedTerms:
        """Compute the weights of terms; each family from the first on is a group."""
        group = (terms.family - first).astype(np.uint8)
        counts = terms.count.astype(np.float32)
        weight = (2 * counts / (counts + 1) * np.sqrt(idf.compute_idf(terms.code))).astype(np.float32)
        cell = group * np.int64(len(terms)) + np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
        norms = np.bincount(cell, weight * weight, groups * len(terms)).reshape(groups, len(terms))
        return cls(terms, weight, group, norms.astype(np.float32))

    def select(self, formulas: Integers) -> WeightedTerms:
        """Return the terms of some of the formulas, in that order."""
        offsets = self.terms.offsets
        counts = (offsets[1:] - offsets[:-1])[formulas]
        ends = np.cumsum(counts)
        rows = np.repeat(offsets[formulas] - ends + counts, counts) + np.arange(int(counts.sum()))
        terms = Terms(
            np.concatenate(([0], ends)), self.terms.code[rows], self.terms.family[rows], self.terms.count[rows]
        )
        return WeightedTerms(terms, self.weight[rows], self.group[rows], self.norms[:, formulas])

    def compute_overlaps(self, formulas: WeightedTerms) -> Floats:
        """Compute the dot products of the weights of the first formula here with others, (groups, formulas)."""
        groups, count = formulas.norms.shape
        end = self.terms.offsets[1]
        codes, weights = self.terms.code[:end], self.weight[:end]
        if not len(codes):
            return np.zeros((groups, count), np.float32)
        match = np.minimum(np.searchsorted(codes, formulas.terms.code), len(codes) - 1)
        common = np.flatnonzero(codes[match] == formulas.terms.code)
        formula = np.searchsorted(formulas.terms.offsets, common, "right") - 1
        products = weights[match[common]] * formulas.weight[common]
        sums = np.bincount(formulas.group[common] * np.int64(count) + formula, products, groups * count)
        return sums.reshape(groups, count).astype(np.float32)


@dataclass(frozen=True)
class FormulaFeatures:
    """Weighted terms of some formulas, ready to be compared."""

    neighbours: WeightedTerms
    operators: WeightedTerms
    outlines: WeightedTerms

    def __len__(self) -> int:
        return len(self.neighbours.terms)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which similarities the first formula has terms of, (similarities,); it always has a vector."""
        parts = (self.neighbours, self.operators, self.outlines)
        return np.concatenate(([True], *(part.norms[:, 0] > 0 for part in parts)))

    def select(self, formulas: Integers) -> FormulaFeatures:
        """Return the features of some of the formulas, in that order."""
        parts = (self.neighbours, self.operators, self.outlines)
        return FormulaFeatures(*(part.select(formulas) for part in parts))


def extract_features(
    forest: Forest,
    operators: OperatorForest | None = None,
    idf: DocumentFrequencies | None = None,
    terms: Terms | None = None,
) -> FormulaFeatures:
    """Extract the features of all trees of a forest.

    Args:
        forest: Presentation trees.
        operators: Their operator trees; parsed if they are not given.
        idf: Document frequencies of terms; by default the bundled ones.
        terms: Terms of the presentation trees, if they are known already.
    """
    idf = idf or load_bundled_frequencies()
    operators = parse_operators(forest) if operators is None else operators
    neighbours = _select_family(terms or extract_terms(forest, families=_NEIGHBOURS + 1), _NEIGHBOURS)
    operator, outline = extract_operator_terms(operators), extract_outline_terms(operators)
    return FormulaFeatures(
        WeightedTerms.compute(neighbours, _NEIGHBOURS, 1, idf),
        WeightedTerms.compute(operator, FIRST_OPERATOR_FAMILY, len(OPERATOR_TERM_FAMILIES), idf),
        WeightedTerms.compute(outline, FIRST_OUTLINE_FAMILY, len(OUTLINE_TERM_FAMILIES), idf),
    )


def _select_family(terms: Terms, family: int) -> Terms:
    chosen = terms.family == family
    before = np.concatenate(([0], np.cumsum(chosen)))
    return Terms(before[terms.offsets], terms.code[chosen], terms.family[chosen], terms.count[chosen])


def compute_similarities(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Floats:
    """Compute the similarities `WEIGHTS` names to the first formula of `query`, (formulas, similarities).

    Args:
        query: Features of the query.
        formulas: Features of the formulas.
        cosines: Cosines of the query's vector with theirs.
    """
    rows = [cosines[None]]
    for ours, theirs in (
        (query.neighbours, formulas.neighbours),
        (query.operators, formulas.operators),
        (query.outlines, formulas.outlines),
    ):
        rows.append(normalise_by_length(ours.compute_overlaps(theirs), ours.norms[:, :1], theirs.norms))
    return np.concatenate(rows).T.astype(np.float32)


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
    return weight_similarities(compute_similarities(query, formulas, cosines), query.known)


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
