"""Terms of operator trees and of their outlines, and how often some formulas have the terms of a query.

    path       a leaf and its slots in up to four ancestors, once for each length from zero
    anypath    the same with an anonymous leaf for every variable
    subtree    an operator with everything below it
    anytree    the same with an anonymous leaf for every variable
    form       a whole statement, in the last of `FORM_KINDS`: equal in any other of them, two statements are equal in
               it, unless only one is among the first four of its formula; not of outlines

A slot is the parent's label and, unless the parent's operands have no order, the position. The hash of a subtree adds
up the hashes of its operands, so operands that commute need not be sorted.

An outline is an operator tree without details that authors add or leave out. It has no arguments of functions
(`u(x, t)` is `u`), indices, accents, signs, ranges of sums and integrals, norms and transposes; every relation is `=`,
and a derivative is a quotient. Two ways to write a law often share their outline where their operator trees differ.

A query needs only those terms of a formula that it has itself. A path is its path without the last step, and then that
step; a subtree consists of subtrees: whatever grows from a part that the query does not have is left out at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eqkin.formulas.hashing import Codes, combine_hashes, hash_strings
from eqkin.formulas.kinds import TERM_FAMILIES
from eqkin.formulas.operators import FORM_KINDS, OperatorForest, accumulate
from eqkin.formulas.terms import Terms, count_terms, make_term_keys, split_term_keys

OPERATOR_TERM_FAMILIES = ("path", "anypath", "subtree", "anytree", "form")
OUTLINE_TERM_FAMILIES = OPERATOR_TERM_FAMILIES[:4]
FIRST_OPERATOR_FAMILY = len(TERM_FAMILIES)  # in `Terms.family`; the numbers before it are presentation families
FIRST_OUTLINE_FAMILY = FIRST_OPERATOR_FAMILY + len(OPERATOR_TERM_FAMILIES)
NEIGHBOUR_FAMILY = TERM_FAMILIES.index("sibling")
RANKED_FAMILIES = (NEIGHBOUR_FAMILY, *range(FIRST_OPERATOR_FAMILY, FIRST_OUTLINE_FAMILY + len(OUTLINE_TERM_FAMILIES)))
_SEEDS = hash_strings(
    [*(f"operator {name}" for name in OPERATOR_TERM_FAMILIES), *(f"outline {name}" for name in OUTLINE_TERM_FAMILIES)]
)  # of each family from `FIRST_OPERATOR_FAMILY` on
_FORM_SEED, _FORM_KIND = _SEEDS[[OPERATOR_TERM_FAMILIES.index("form")]], np.array([len(FORM_KINDS) - 1], np.uint64)
FORM_FAMILY = FIRST_OPERATOR_FAMILY + OPERATOR_TERM_FAMILIES.index("form")
_KNOWN_HASHES = 1 << 16  # by the last bits of a hash, most terms that a query does not have are told apart

Mask = npt.NDArray[np.uint8]  # one bit for each value of the last 16 bits of a hash


def extract_operator_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree; families are numbered from `FIRST_OPERATOR_FAMILY`."""
    return _extract(forest, outlines=False)[0]


def extract_structure_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree and of its outline."""
    return _extract(forest, outlines=True)[0]


def extract_query_terms(query: OperatorForest) -> tuple[Terms, Mask]:
    """Return the terms of each tree and of its outline, and the last bits of the hashes of paths and subtrees.

    `add_overlaps` looks for these terms in other trees.
    """
    return _extract(query, outlines=True)


def add_overlaps(forest: OperatorForest, known: Mask, *arguments: Any) -> None:
    """Add up the weights of terms of a query that trees have; raises `ValueError` if nodes do not form trees.

    Args:
        forest: Trees.
        known: What `extract_query_terms` returned.
        arguments: Those of `kernels.add_overlaps` from `codes` on.
    """
    from eqkin.formulas import kernels

    nodes = forest.label, forest.depth, forest.offsets, forest.properties
    if not kernels.add_overlaps(*nodes, _SEEDS, known, *arguments):
        raise ValueError("nodes do not form trees")


def _extract(forest: OperatorForest, *, outlines: bool) -> tuple[Terms, Mask]:
    known = np.zeros(_KNOWN_HASHES // 8, np.uint8)
    keys = _hash_terms(forest, known, outlines=outlines, learn=True)
    statements = np.repeat(np.arange(len(forest)), np.diff(forest.form_offsets))
    forms = np.unique(make_term_keys(statements, _hash_forms(forest.forms), FORM_FAMILY))
    tree, code, family, count = count_terms(np.concatenate((keys, forms)))
    return Terms(accumulate(np.bincount(tree, minlength=len(forest))), code, family, count), known


def _hash_terms(forest: OperatorForest, known: Mask, *, outlines: bool, learn: bool) -> Codes:
    """Return the keys of all paths and subtrees; see `kernels.hash_terms`."""
    from eqkin.formulas.kernels import find_parents, hash_terms

    parent = find_parents(forest.label, forest.depth, forest.offsets, len(forest.labels))
    if len(parent) != len(forest.label):
        raise ValueError("nodes do not form trees")
    tree = np.repeat(np.arange(len(forest)), np.diff(forest.offsets))
    keys: Codes = hash_terms(forest.label, parent, tree, forest.properties, _SEEDS, outlines, known, learn)
    return keys


def compute_form_codes(forms: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the codes of the terms of statements, given their forms (statements, FORM_KINDS)."""
    return split_term_keys(make_term_keys(np.zeros(len(forms), np.int64), _hash_forms(forms), FORM_FAMILY))[1]


def _hash_forms(forms: npt.NDArray[np.uint32]) -> Codes:
    return combine_hashes(_FORM_SEED, combine_hashes(_FORM_KIND, forms[:, -1].astype(np.uint64)))
