"""Features by which formulas are compared with a query.

Each candidate has the features `FEATURES`: for each family of terms the cosine with the query and the share of the
query's weight that both have in common; the same for all families together; the cosine of the vectors; the longest
common substring of tokens, exact and up to renaming, and what such substrings cover; the heaviest common subsequence;
the sizes. Each similarity is given twice: raw, and standardised over the query's top candidates, which discriminates
better when all are similar. The names of the features are stored with the ranker and do not change.
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

STANDARDISED_OVER = 150  # top candidates over which similarities are standardised
_SHORT_FORMULA_TOKENS = 56  # most tokens of a short formula
_MIN_TO_SPLIT = 100  # up to this many formulas, short and long ones are compared together
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
LINEAR_WEIGHTS = {"counted": 1.0, "vector": 1.0, "sequence": 0.4, "renamed_run": 0.4}  # of the linear score
SIZES = ("size", "size_of_query", "ratio")
FEATURES = (*SIMILARITIES, *SIZES, *(f"{name}.relative" for name in SIMILARITIES))


@dataclass(frozen=True)
class FormulaFeatures:
    """Terms and tokens of some formulas with their weights, ready to be compared."""

    terms: Terms
    weight: Floats  # (terms,) saturated count times the square root of the idf
    norms: Matrix  # (families, formulas) sums of squared weights
    tokens: Tokens
    token_idf: Matrix  # (formulas, longest) idf of each token's label, in multiples of 1 / `IDF_STEPS`

    def __len__(self) -> int:
        return len(self.terms)

    def select(self, formulas: npt.NDArray[np.int64]) -> FormulaFeatures:
        """Return the features of some of the formulas, in that order."""
        offsets = self.terms.offsets
        counts = (offsets[1:] - offsets[:-1])[formulas]
        ends = np.cumsum(counts)
        rows = np.repeat(offsets[formulas] - ends + counts, counts) + np.arange(int(counts.sum()))
        terms = Terms(
            np.concatenate(([0], ends)), self.terms.code[rows], self.terms.family[rows], self.terms.count[rows]
        )
        tokens = self.tokens.select(formulas)
        token_idf = self.token_idf[np.ix_(formulas, np.arange(tokens.label.shape[1]))]
        return FormulaFeatures(terms, self.weight[rows], self.norms[:, formulas], tokens, token_idf)


def extract_features(
    forest: Forest, frequencies: DocumentFrequencies | None = None, *, tokens: bool = True
) -> FormulaFeatures:
    """Extract the features of all trees of a forest.

    Args:
        forest: Trees.
        frequencies: Document frequencies of terms; by default the bundled ones.
        tokens: Whether tokens are needed; `compute_structural_overlap` needs none.
    """
    normaliser = Normaliser(forest)
    terms = extract_terms(forest, normaliser=normaliser)
    frequencies, counts = frequencies or load_bundled_frequencies(), terms.count.astype(np.float32)
    weight = 2 * counts / (counts + 1) * np.sqrt(frequencies.compute_idf(terms.code))
    cell = terms.family * np.int64(len(terms)) + np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
    norms = np.bincount(cell, weight * weight, len(TERM_FAMILIES) * len(terms)).reshape(len(TERM_FAMILIES), len(terms))
    found = extract_tokens(forest, normaliser=normaliser) if tokens else Tokens.make_empty(len(forest))
    token_idf = np.zeros(found.label.shape, np.float32)
    is_token = found.exact > 0
    token_idf[is_token] = np.round(frequencies.compute_idf(found.label[is_token]) * IDF_STEPS) / IDF_STEPS
    return FormulaFeatures(terms, weight.astype(np.float32), norms.astype(np.float32), found, token_idf)


def compute_overlaps(query: FormulaFeatures, formulas: FormulaFeatures) -> Matrix:
    """Compute the dot products of term weights with the first formula of `query`, (families, formulas)."""
    count = len(formulas)
    codes, weights = query.terms.code[: query.terms.offsets[1]], query.weight[: query.terms.offsets[1]]
    if not len(codes):
        return np.zeros((len(TERM_FAMILIES), count), np.float32)
    match = np.minimum(np.searchsorted(codes, formulas.terms.code), len(codes) - 1)
    common = np.flatnonzero(codes[match] == formulas.terms.code)
    formula = np.searchsorted(formulas.terms.offsets, common, "right") - 1
    products = weights[match[common]] * formulas.weight[common]
    cell = formulas.terms.family[common] * np.int64(count) + formula
    sums = np.bincount(cell, products, len(TERM_FAMILIES) * count)
    return sums.reshape(len(TERM_FAMILIES), count).astype(np.float32)


def compute_structural_overlap(query: FormulaFeatures, formulas: FormulaFeatures) -> Floats:
    """Compute how many weighted terms each formula shares with the query: the first stage of ranking."""
    common = compute_overlaps(query, formulas).sum(axis=0)
    return normalise_by_length(common, query.norms[:, 0].sum(), formulas.norms.sum(axis=0))


def compute_similarities(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Matrix:
    """Compute the features `SIMILARITIES` to the first formula of `query`, (formulas, features)."""
    common, ours, theirs = compute_overlaps(query, formulas), query.norms[:, 0], formulas.norms
    found = {"vector": cosines}
    for at, family in enumerate(TERM_FAMILIES):
        found |= _compute_shares(family, common[at], ours[at], theirs[at])
    found |= _compute_shares("all", common.sum(axis=0), ours.sum(), theirs.sum(axis=0))
    found["counted"] = normalise_by_length(common.sum(axis=0), ours.sum(), theirs.sum(axis=0))
    length = formulas.tokens.length
    groups = [np.arange(len(length))]
    if len(length) > _MIN_TO_SPLIT:  # tables of tokens are as wide as the longest formula, and most are short
        groups = [np.flatnonzero(length <= _SHORT_FORMULA_TOKENS), np.flatnonzero(length > _SHORT_FORMULA_TOKENS)]
    parts = [_compare_tokens(query, formulas.tokens.select(group), formulas.token_idf[group]) for group in groups]
    back = np.argsort(np.concatenate(groups), kind="stable")
    found |= {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}
    return np.stack([found[name] for name in SIMILARITIES], axis=1).astype(np.float32)


def _compare_tokens(query: FormulaFeatures, tokens: Tokens, token_idf: Matrix) -> dict[str, Floats]:
    """Compare tokens with those of the first formula of `query`: common substrings and the heaviest subsequence."""
    found: dict[str, Floats] = {}
    for name, renamed in (("run", False), ("renamed_run", True)):
        substrings = find_common_substrings(query.tokens, tokens, renamed=renamed)
        found |= _compute_substring_shares(name, substrings, query, tokens)
    sequence = score_common_subsequences(query.tokens, query.token_idf[0], tokens)
    ours, theirs = query.token_idf[0].sum(), token_idf.sum(axis=1)
    found |= _compute_shares("sequence", sequence, ours, theirs)
    return found | {"sequence": normalise_by_length(sequence, ours, theirs)}


def compute_linear_score(columns: Matrix) -> Floats:
    """Compute the mean of the similarities `LINEAR_WEIGHTS` names: a score that needs no learning."""
    total = sum(weight * columns[:, SIMILARITIES.index(name)] for name, weight in LINEAR_WEIGHTS.items())
    return np.asarray(total / sum(LINEAR_WEIGHTS.values()), np.float32)


def build_feature_matrix(query: FormulaFeatures, formulas: FormulaFeatures, cosines: Floats) -> Matrix:
    """Compute all of `FEATURES` for the first formula of `query`, (formulas, features)."""
    raw = compute_similarities(query, formulas, cosines)
    ours, theirs = np.log1p(query.tokens.length[0]), np.log1p(formulas.tokens.length)
    sizes = np.stack((theirs, np.full(len(formulas), ours), theirs - ours), axis=1)
    order = raw[:, SIMILARITIES.index("counted")] + raw[:, SIMILARITIES.index("vector")]
    best = raw[np.argsort(-order, kind="stable")[:STANDARDISED_OVER]]
    best = best if len(raw) else np.zeros((1, raw.shape[1]), np.float32)
    relative = (raw - best.mean(axis=0)) / (best.std(axis=0) + np.float32(0.01))
    return np.concatenate((raw, sizes, relative), axis=1).astype(np.float32)


def _compute_shares(name: str, common: Floats, ours: np.floating, theirs: Floats) -> dict[str, Floats]:
    """Divide the common weight by both weights (the cosine), by the query's and by the formula's."""
    return {
        f"{name}.cosine": common / np.sqrt(ours * theirs + _EPSILON),
        f"{name}.of_query": common / (ours + _EPSILON),
        f"{name}.of_formula": common / (theirs + _EPSILON),
    }


def normalise_by_length(common: Floats, ours: Floats | np.floating, theirs: Floats) -> Floats:
    r"""Apply pivoted length normalisation: long formulas lose less than with a cosine.

    $$ \frac{c}{q^{1 - p}\, f^{p}}, $$

    with the common weight $c$, the query's weight $q$, the formula's $f$ and the pivot $p$.
    """
    normalised: Floats = common / (
        np.sqrt(ours + _EPSILON) * (theirs + _EPSILON) ** _LENGTH_PIVOT * (ours + _EPSILON) ** (0.5 - _LENGTH_PIVOT)
    )
    return normalised


def _compute_substring_shares(
    name: str, substrings: CommonSubstrings, query: FormulaFeatures, tokens: Tokens
) -> dict[str, Floats]:
    """Compute how long the longest common substring is, what all cover of query and formula, and the heaviest one."""
    length = int(query.tokens.length[0])
    ours, theirs = max(length, 1), np.maximum(tokens.length, 1)
    is_name = query.tokens.kind[0, :length] != query.tokens.label[0, :length]
    weight = np.concatenate((np.zeros(1, np.float32), np.cumsum(np.where(is_name, 1, query.token_idf[0, :length]))))
    ends = np.arange(1, length + 1)
    heaviest = (weight[1:] - weight[ends - substrings.query]).max(axis=1, initial=0)
    return {
        name: (substrings.longest / ours).astype(np.float32),
        f"{name}.of_query": (substrings.mark_query().sum(axis=1) / ours).astype(np.float32),
        f"{name}.of_formula": (substrings.mark_formula().sum(axis=1) / theirs).astype(np.float32),
        f"{name}.heaviest": (heaviest / (weight[-1] + _EPSILON)).astype(np.float32),
    }
