"""How related formulas are to a query: counted structure, common runs and vectors, weighed by what was learned.

For each candidate there are features (`FEATURES`): of each family of terms the cosine with the query and the shares of
the query's and of the candidate's weight that are common; the same of all families together; the cosine of the vectors;
the longest common run, exactly and up to renaming, and what such runs cover of both; the sizes. Each similarity comes
twice: as it is, and compared with the query's best candidates, which says more where all of them are alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.forest import Forest
from eqkin.structure.frequencies import Frequencies, bundled
from eqkin.structure.matches import Runs, common_runs
from eqkin.structure.simplified import Simplifier
from eqkin.structure.terms import FAMILIES, Terms, terms_of
from eqkin.structure.tokens import Tokens, tokens_of

BEST = 150  # candidates the others are compared with
_PIVOT = 0.35  # how much a candidate's size counts against it: 0 not at all, 0.5 as in a cosine
_TINY = np.float32(1e-9)

Floats = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]

_SHARES = ("cosine", "of_query", "of_formula")
SIMILARITIES = (
    *(f"{family}.{share}" for family in FAMILIES for share in _SHARES),
    "counted", *(f"all.{share}" for share in _SHARES), "vector",
    "run", "run.of_query", "run.of_formula", "renamed_run", "renamed_run.of_query", "renamed_run.of_formula",
)  # fmt: skip
SIZES = ("size", "size_of_query", "ratio")
FEATURES = (*SIMILARITIES, *SIZES, *(f"{name}.relative" for name in SIMILARITIES))


@dataclass(frozen=True)
class Profile:
    """What is counted of some formulas, ready to be compared."""

    terms: Terms
    weight: Floats  # (terms,) of each term: saturated count, by the root of its idf
    norms: Matrix  # (families, formulas) sums of squared weights
    tokens: Tokens

    def __len__(self) -> int:
        return len(self.terms)

    def select(self, places: npt.NDArray[np.int64]) -> Profile:
        """Profiles of some of the formulas, in that order."""
        offsets = self.terms.offsets
        counts = (offsets[1:] - offsets[:-1])[places]
        ends = np.cumsum(counts)
        kept = np.repeat(offsets[places] - ends + counts, counts) + np.arange(int(counts.sum()))
        terms = Terms(
            np.concatenate(([0], ends)), self.terms.code[kept], self.terms.family[kept], self.terms.count[kept]
        )
        return Profile(terms, self.weight[kept], self.norms[:, places], self.tokens.select(places))


def profile(forest: Forest, frequencies: Frequencies | None = None, *, tokens: bool = True) -> Profile:
    """The profile of all trees of a forest.

    Args:
        forest: Trees.
        frequencies: Of terms; by default those that come with eqkin.
        tokens: Whether runs are to be compared; what is only `counted` needs none.
    """
    simplify = Simplifier(forest)
    terms = terms_of(forest, simplify=simplify)
    counts = terms.count.astype(np.float32)
    weight = 2 * counts / (counts + 1) * np.sqrt((frequencies or bundled()).idf(terms.code))
    place = terms.family * np.int64(len(terms)) + np.repeat(np.arange(len(terms)), np.diff(terms.offsets))
    norms = np.bincount(place, weight * weight, len(FAMILIES) * len(terms)).reshape(len(FAMILIES), len(terms))
    found = tokens_of(forest, simplify=simplify) if tokens else Tokens.none(len(forest))
    return Profile(terms, weight.astype(np.float32), norms.astype(np.float32), found)


def overlaps(query: Profile, formulas: Profile) -> Matrix:
    """Sums of products of the weights of common terms, (families, formulas), of the first formula of `query`."""
    count = len(formulas)
    codes, weights = query.terms.code[: query.terms.offsets[1]], query.weight[: query.terms.offsets[1]]
    if not len(codes):
        return np.zeros((len(FAMILIES), count), np.float32)
    places = np.minimum(np.searchsorted(codes, formulas.terms.code), len(codes) - 1)
    common = np.flatnonzero(codes[places] == formulas.terms.code)
    formula = np.searchsorted(formulas.terms.offsets, common, "right") - 1
    products = weights[places[common]] * formulas.weight[common]
    at = formulas.terms.family[common] * np.int64(count) + formula
    sums = np.bincount(at, products, len(FAMILIES) * count)
    return sums.reshape(len(FAMILIES), count).astype(np.float32)


def counted(query: Profile, formulas: Profile) -> Floats:
    """How much counted structure each formula shares with the query; for choosing whom to look at closely."""
    common = overlaps(query, formulas).sum(axis=0)
    return pivoted(common, query.norms[:, 0].sum(), formulas.norms.sum(axis=0))


def similarities(query: Profile, formulas: Profile, cosines: Floats) -> Matrix:
    """The features `SIMILARITIES`, (formulas, features), of the first formula of `query`."""
    common, ours, theirs = overlaps(query, formulas), query.norms[:, 0], formulas.norms
    columns: list[Floats] = []
    for at in range(len(FAMILIES)):
        columns += _shares(common[at], ours[at], theirs[at])
    columns.append(pivoted(common.sum(axis=0), ours.sum(), theirs.sum(axis=0)))
    columns += _shares(common.sum(axis=0), ours.sum(), theirs.sum(axis=0))
    columns.append(cosines)
    for renamed in (False, True):
        columns += _run_shares(common_runs(query.tokens, formulas.tokens, renamed=renamed), query, formulas)
    return np.stack(columns, axis=1).astype(np.float32)


def features(query: Profile, formulas: Profile, cosines: Floats) -> Matrix:
    """All of `FEATURES`, (formulas, features), of the first formula of `query`."""
    alike = similarities(query, formulas, cosines)
    ours, theirs = np.log1p(query.tokens.length[0]), np.log1p(formulas.tokens.length)
    sizes = np.stack((theirs, np.full(len(formulas), ours), theirs - ours), axis=1)
    order = alike[:, SIMILARITIES.index("counted")] + alike[:, SIMILARITIES.index("vector")]
    best = alike[np.argsort(-order, kind="stable")[:BEST]] if len(alike) else np.zeros((1, alike.shape[1]), np.float32)
    relative = (alike - best.mean(axis=0)) / (best.std(axis=0) + np.float32(0.01))
    return np.concatenate((alike, sizes, relative), axis=1).astype(np.float32)


def _shares(common: Floats, ours: np.floating, theirs: Floats) -> list[Floats]:
    """Of common weight: the cosine, the share of the query, the share of the formula."""
    return [common / np.sqrt(ours * theirs + _TINY), common / (ours + _TINY), common / (theirs + _TINY)]


def pivoted(common: Floats, ours: Floats | np.floating, theirs: Floats) -> Floats:
    """Common weight by the query's length and a power of the formula's, in which long formulas lose less."""
    alike: Floats = common / (np.sqrt(ours + _TINY) * (theirs + _TINY) ** _PIVOT * (ours + _TINY) ** (0.5 - _PIVOT))
    return alike


def _run_shares(runs: Runs, query: Profile, formulas: Profile) -> list[Floats]:
    ours, theirs = max(int(query.tokens.length[0]), 1), np.maximum(formulas.tokens.length, 1)
    return [
        (runs.longest / ours).astype(np.float32),
        (runs.of_query().sum(axis=1) / ours).astype(np.float32),
        (runs.of_formula().sum(axis=1) / theirs).astype(np.float32),
    ]
