"""How related formulas are to a query: counted structure, common runs and vectors, weighed by what was learned.

For each candidate there are features (`FEATURES`): of families of terms the cosine with the query and the share of the
query's weight that is common; the same of all families together; the cosine of the vectors; the longest common run,
exactly and up to renaming, and what such runs cover; the heaviest common sequence; the sizes. Each similarity comes
twice: as it is, and compared with the query's best candidates, which says more where all of them are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.trees import Forest
from eqkin.trees.align import IDF_STEPS, CommonSubstrings, find_common_substrings, score_common_subsequences
from eqkin.trees.idf import DocumentFrequencies, load_bundled_frequencies
from eqkin.trees.normal import Normaliser
from eqkin.trees.terms import TERM_FAMILIES, Terms, extract_terms
from eqkin.trees.tokens import Tokens, extract_tokens

STANDARDISED_OVER = 150  # candidates the others are compared with
_SHORT_FORMULA_TOKENS = 56  # tokens of a short formula
_MIN_TO_SPLIT = 100  # formulas that are not worth parting
_LENGTH_PIVOT = 0.35  # how much a candidate's size counts against it: 0 not at all, 0.5 as in a cosine
_EPSILON = np.float32(1e-9)

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]

SIMILARITIES = (
    "path2.cosine", "apath2.cosine", "sibling.cosine", "sibling.of_query", "run2.of_query", "run3.of_query",
    "renamed2.cosine", "renamed3.cosine", "renamed3.of_query",
    "counted", "all.cosine", "all.of_query", "all.of_formula", "vector",
    "run", "run.of_query", "renamed_run", "renamed_run.of_query", "renamed_run.of_formula", "renamed_run.heaviest",
    "sequence", "sequence.cosine", "sequence.of_query", "sequence.of_formula",
)  # fmt: skip
LINEAR_WEIGHTS = {
    "counted": 1.0,
    "vector": 1.0,
    "sequence": 0.4,
    "renamed_run": 0.4,
}  # what is added up, without learning
SIZES = ("size", "size_of_query", "ratio")
FEATURES = (*SIMILARITIES, *SIZES, *(f"{name}.relative" for name in SIMILARITIES))


@dataclass(frozen=True)
class FormulaFeatures:
    """What is counted of some formulas, ready to be compared."""

    terms: Terms
    weight: Floats  # (terms,) of each term: saturated count, by the root of its idf
    norms: Matrix  # (families, formulas) sums of squared weights
    tokens: Tokens
    token_idf: Matrix  # (formulas, longest) of each token: its label's idf, in whole `STEPS`

    def __len__(self) -> int:
        return len(self.terms)

    def select(self, places: npt.NDArray[np.int64]) -> FormulaFeatures:
        """Profiles of some of the formulas, in that order."""
        offsets = self.terms.offsets
        counts = (offsets[1:] - offsets[:-1])[places]
        ends = np.cumsum(counts)
        kept = np.repeat(offsets[places] - ends + counts, counts) + np.arange(int(counts.sum()))
        terms = Terms(
            np.concatenate(([0], ends)), self.terms.code[kept], self.terms.family[kept], self.terms.count[kept]
        )
        tokens = self.tokens.select(places)
        worth = self.token_idf[np.ix_(places, np.arange(tokens.label.shape[1]))]
        return FormulaFeatures(terms, self.weight[kept], self.norms[:, places], tokens, worth)


def extract_features(
    forest: Forest, frequencies: DocumentFrequencies | None = None, *, tokens: bool = True
) -> FormulaFeatures:
    """The profile of all trees of a forest.

    Args:
        forest: Trees.
        frequencies: Of terms; by default those that come with eqkin.
        tokens: Whether runs are to be compared; what is only `counted` needs none.
    """
    simplify = Normaliser(forest)
    terms = extract_terms(forest, simplify=simplify)
    frequencies, counts = frequencies or load_bundled_frequencies(), terms.count.astype(np.float32)
    weight = 2 * counts / (counts + 1) * np.sqrt(frequencies.compute_idf(terms.code))
    place = terms.family * np.int64(len(terms)) + np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
    norms = np.bincount(place, weight * weight, len(TERM_FAMILIES) * len(terms)).reshape(len(TERM_FAMILIES), len(terms))
    found = extract_tokens(forest, simplify=simplify) if tokens else Tokens.make_empty(len(forest))
    worth = np.zeros(found.label.shape, np.float32)
    some = found.exact > 0
    worth[some] = np.round(frequencies.compute_idf(found.label[some]) * IDF_STEPS) / IDF_STEPS
    return FormulaFeatures(terms, weight.astype(np.float32), norms.astype(np.float32), found, worth)


def compute_overlaps(query: FormulaFeatures, formulas: FormulaFeatures) -> Matrix:
    """Sums of products of the weights of common terms, (families, formulas), of the first formula of `query`."""
    count = len(formulas)
    codes, weights = query.terms.code[: query.terms.offsets[1]], query.weight[: query.terms.offsets[1]]
    if not len(codes):
        return np.zeros((len(TERM_FAMILIES), count), np.float32)
    places = np.minimum(np.searchsorted(codes, formulas.terms.code), len(codes) - 1)
    common = np.flatnonzero(codes[places] == formulas.terms.code)
    formula = np.searchsorted(formulas.terms.offsets, common, "right") - 1
    products = weights[places[common]] * formulas.weight[common]
    at = formulas.terms.family[common] * np.int64(count) + formula
    sums = np.bincount(at, products, len(TERM_FAMILIES) * count)
    return sums.reshape(len(TERM_FAMILIES), count).astype(np.float32)


def compute_structural_overlap(query: FormulaFeatures, formulas: FormulaFeatures) -> Floats:
    """How much counted structure each formula shares with the query; for choosing whom to look at closely."""
    common = compute_overlaps(query, formulas).sum(axis=0)
    return normalise_by_length(common, query.norms[:, 0].sum(), formulas.norms.sum(axis=0))


def compute_similarities(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Matrix:
    """The features `SIMILARITIES`, (formulas, features), of the first formula of `query`."""
    common, ours, theirs = compute_overlaps(query, formulas), query.norms[:, 0], formulas.norms
    found = {"vector": cosines}
    for at, family in enumerate(TERM_FAMILIES):
        found |= _compute_shares(family, common[at], ours[at], theirs[at])
    found |= _compute_shares("all", common.sum(axis=0), ours.sum(), theirs.sum(axis=0))
    found["counted"] = normalise_by_length(common.sum(axis=0), ours.sum(), theirs.sum(axis=0))
    groups = _split_by_length(formulas.tokens.length)
    parts = [_compare_tokens(query, formulas.tokens.select(group), formulas.token_idf[group]) for group in groups]
    back = np.argsort(np.concatenate(groups), kind="stable")
    found |= {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}
    return np.stack([found[name] for name in SIMILARITIES], axis=1).astype(np.float32)


def _split_by_length(length: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Places of short formulas and of long ones: tables of tokens are as wide as the longest, and most are short."""
    if len(length) <= _MIN_TO_SPLIT:
        return [np.arange(len(length))]
    return [np.flatnonzero(length <= _SHORT_FORMULA_TOKENS), np.flatnonzero(length > _SHORT_FORMULA_TOKENS)]


def _compare_tokens(query: FormulaFeatures, tokens: Tokens, worth: Matrix) -> dict[str, Floats]:
    """What compares tokens with those of the first formula of `query`; `worth` is what each of the tokens is worth."""
    found: dict[str, Floats] = {}
    for name, renamed in (("run", False), ("renamed_run", True)):
        found |= _compute_substring_shares(
            name, find_common_substrings(query.tokens, tokens, renamed=renamed), query, tokens
        )
    sequence = score_common_subsequences(query.tokens, query.token_idf[0], tokens)
    ours, theirs = query.token_idf[0].sum(), worth.sum(axis=1)
    found |= _compute_shares("sequence", sequence, ours, theirs)
    return found | {"sequence": normalise_by_length(sequence, ours, theirs)}


def compute_linear_score(columns: Matrix) -> Floats:
    """What needs no learning, of the features: a weighted mean of `PLAIN`."""
    total = sum(weight * columns[:, SIMILARITIES.index(name)] for name, weight in LINEAR_WEIGHTS.items())
    return np.asarray(total / sum(LINEAR_WEIGHTS.values()), np.float32)


def build_feature_matrix(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Matrix:
    """All of `FEATURES`, (formulas, features), of the first formula of `query`."""
    alike = compute_similarities(query, formulas, cosines)
    ours, theirs = np.log1p(query.tokens.length[0]), np.log1p(formulas.tokens.length)
    sizes = np.stack((theirs, np.full(len(formulas), ours), theirs - ours), axis=1)
    order = alike[:, SIMILARITIES.index("counted")] + alike[:, SIMILARITIES.index("vector")]
    best = (
        alike[np.argsort(-order, kind="stable")[:STANDARDISED_OVER]]
        if len(alike)
        else np.zeros((1, alike.shape[1]), np.float32)
    )
    relative = (alike - best.mean(axis=0)) / (best.std(axis=0) + np.float32(0.01))
    return np.concatenate((alike, sizes, relative), axis=1).astype(np.float32)


def _compute_shares(name: str, common: Floats, ours: np.floating, theirs: Floats) -> dict[str, Floats]:
    """Of common weight: the cosine, the share of the query, the share of the formula."""
    return {
        f"{name}.cosine": common / np.sqrt(ours * theirs + _EPSILON),
        f"{name}.of_query": common / (ours + _EPSILON),
        f"{name}.of_formula": common / (theirs + _EPSILON),
    }


def normalise_by_length(common: Floats, ours: Floats | np.floating, theirs: Floats) -> Floats:
    """Common weight by the query's length and a power of the formula's, in which long formulas lose less."""
    alike: Floats = common / (
        np.sqrt(ours + _EPSILON) * (theirs + _EPSILON) ** _LENGTH_PIVOT * (ours + _EPSILON) ** (0.5 - _LENGTH_PIVOT)
    )
    return alike


def _compute_substring_shares(
    name: str, runs: CommonSubstrings, query: FormulaFeatures, tokens: Tokens
) -> dict[str, Floats]:
    """Of common runs: the longest, what is covered of the query and of the formula, the one that is worth most."""
    length = int(query.tokens.length[0])
    ours, theirs = max(length, 1), np.maximum(tokens.length, 1)
    names = query.tokens.kind[0, :length] != query.tokens.label[0, :length]
    worth = np.concatenate((np.zeros(1, np.float32), np.cumsum(np.where(names, 1, query.token_idf[0, :length]))))
    ends = np.arange(1, length + 1)
    heaviest = (worth[1:] - worth[ends - runs.query]).max(axis=1, initial=0)
    return {
        name: (runs.longest / ours).astype(np.float32),
        f"{name}.of_query": (runs.mark_query().sum(axis=1) / ours).astype(np.float32),
        f"{name}.of_formula": (runs.mark_formula().sum(axis=1) / theirs).astype(np.float32),
        f"{name}.heaviest": (heaviest / (worth[-1] + _EPSILON)).astype(np.float32),
    }
