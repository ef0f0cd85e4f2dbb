"""Terms of formulas: paths and trees of the outlines of their operator trees, and their statements.

    path    a leaf and its slots in up to four ancestors, once for each length from zero
    tree    an operator with everything below it, with an anonymous leaf for every variable
    form    a whole statement, in the last of `FORM_KINDS`: equal in any other of them, two statements are equal in it,
            unless only one is among the first four of its formula

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a tree adds up
the hashes of its operands, so operands that commute need not be sorted.

An outline is an operator tree without details that authors add or leave out. It has no arguments of functions
(`u(x, t)` is `u`), indices, accents, signs, ranges of sums and integrals, norms and transposes; every relation is `=`,
and a derivative is a quotient. Two ways to write a law often share their outline where their operator trees differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqkin.formulas.forest import Places, accumulate
from eqkin.formulas.hashing import Codes, combine_hashes, hash_strings
from eqkin.formulas.kinds import FAMILY_BITS
from eqkin.formulas.operators import FORM_KINDS, OperatorForest

# Their places are the numbers in `Terms.family`.
TERM_FAMILIES = ("path", "tree", "form")
# The first families make similarities; forms only find formulas.
COMPARED_FAMILIES = 2
# The bundled table of frequencies counts the hashes that come from these names.
_SEEDS = hash_strings(["outline path", "outline anytree", "operator form"])
_FORM = TERM_FAMILIES.index("form")
_FORM_KIND = np.array([len(FORM_KINDS) - 1], np.uint64)


@dataclass(frozen=True)
class Terms:
    """The terms of each tree; within a tree sorted by code, each code once."""

    offsets: npt.NDArray[np.int64]  # (trees + 1,) first term of each tree
    code: npt.NDArray[np.uint32]  # (terms,) hash, the same on every machine; families have hashes of their own
    family: npt.NDArray[np.uint8]  # (terms,) index into `TERM_FAMILIES`
    count: npt.NDArray[np.uint8]  # (terms,) occurrences in the tree, at most 255

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def tree(self) -> Places:
        """Tree of each term: (terms,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def extract_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree; raises `ValueError` if nodes do not form trees."""
    from eqkin.formulas.kernels import find_parents, hash_terms

    parent = find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))
    if len(parent) != len(forest.label):
        raise ValueError("nodes do not form trees")
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.offsets))
    keys = hash_terms(forest.label, parent, tree, forest.properties, _SEEDS)
    statements = np.repeat(np.arange(len(forest)), np.diff(forest.form_offsets))
    forms = np.unique(make_term_keys(statements, _hash_forms(forest.forms), _FORM))
    tree, code, family, count = count_terms(np.concatenate((keys, forms)))
    return Terms(offsets=accumulate(np.bincount(tree, minlength=len(forest))), code=code, family=family, count=count)


def add_overlaps(
    forest: OperatorForest,
    *,
    codes: npt.NDArray[np.uint32],
    families: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float32],
    saturated: npt.NDArray[np.float32],
    overlaps: npt.NDArray[np.float32],
) -> None:
    """Add up the weights of terms of a query that trees have; raises `ValueError` if nodes do not form trees.

    Args:
        forest: Trees.
        codes: Paths and trees of the query, ascending.
        families: Number of the family of each.
        weights: Weight of each for one occurrence.
        saturated: By what a weight is multiplied for each number of occurrences.
        overlaps: (families, trees) to which is added.
    """
    from eqkin.formulas import kernels

    nodes = forest.label, forest.depth, forest.offsets, forest.properties
    if not kernels.add_overlaps(*nodes, _SEEDS, codes, families, weights, saturated, overlaps):
        raise ValueError("nodes do not form trees")


def compute_form_codes(forms: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the codes of the terms of statements, given their forms (statements, FORM_KINDS)."""
    return split_term_keys(make_term_keys(np.zeros(len(forms), np.int64), _hash_forms(forms), _FORM))[1]


def _hash_forms(forms: npt.NDArray[np.uint32]) -> Codes:
    return combine_hashes(_SEEDS[[_FORM]], combine_hashes(_FORM_KIND, forms[:, -1].astype(np.uint64)))


def make_term_keys(tree: Places, code: Codes, family: int | Places) -> Codes:
    """Return integers that sort by tree, then by the first 32 bits of the hash."""
    key = tree.astype(np.uint64) << np.uint64(32)
    key |= code >> np.uint64(32)
    key <<= np.uint64(FAMILY_BITS)
    key |= np.asarray(family).astype(np.uint64)
    return key


def split_term_keys(keys: Codes) -> tuple[Places, npt.NDArray[np.uint32]]:
    """Return tree and code of keys."""
    terms = keys >> np.uint64(FAMILY_BITS)
    return (terms >> np.uint64(32)).astype(np.int64), terms.astype(np.uint32)


def count_terms(
    keys: Codes,
) -> tuple[Places, npt.NDArray[np.uint32], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return tree, code, family and count of the distinct terms with these keys (`make_term_keys`)."""
    keys.sort()
    terms = keys >> np.uint64(FAMILY_BITS)
    first = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1]))[: len(terms)])
    count = np.minimum(np.diff(first, append=len(terms)), 255).astype(np.uint8)
    keys = keys[first]
    return *split_term_keys(keys), (keys & np.uint64((1 << FAMILY_BITS) - 1)).astype(np.uint8), count
