"""Outlines: operator trees without details that authors add or leave out.

An outline has no arguments of functions (`u(x, t)` is `u`), indices, accents, signs, ranges of sums and integrals,
norms and transposes; every relation is `=`, and a derivative is a quotient. Two ways to write a law often share their
outline where their operator trees differ. Its terms are those of operator trees, in families of their own.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from eqkin.trees.operators import FIRST_OPERATOR_FAMILY, OPERATOR_TERM_FAMILIES, OperatorForest, extract_tree_terms
from eqkin.trees.terms import Terms

OUTLINE_TERM_FAMILIES = OPERATOR_TERM_FAMILIES[:4]  # without forms
FIRST_OUTLINE_FAMILY = FIRST_OPERATOR_FAMILY + len(OPERATOR_TERM_FAMILIES)
_RELATIONS = frozenset("≈ ∝ ~ ≡ ≤ < ≥ > ≠ → :=".split())
_APPLIED = frozenset({"app", "idx"})  # the first operand with arguments or indices
_DETAILS = frozenset({"from", "to", "any"})  # left out with everything below
_WRAPPERS = frozenset("neg with abs norm transpose bar rows list row".split())  # replaced by their operands
_PLAIN_LEAVES = ("n:", "o:", "c:", "text")
_DECORATION = re.compile(r"[_.′^]")

Mask = npt.NDArray[np.bool_]


def extract_outline_terms(forest: OperatorForest) -> Terms:
    """Return the terms of each tree's outline; families are numbered from `FIRST_OUTLINE_FAMILY`."""
    return extract_tree_terms(build_outlines(forest), "outline", OUTLINE_TERM_FAMILIES, FIRST_OUTLINE_FAMILY)


def build_outlines(forest: OperatorForest) -> OperatorForest:
    """Return the outline of each tree; outlines have no forms."""
    labels = forest.labels
    index: dict[str, int] = {}
    plain = np.array([index.setdefault(_simplify_label(label), len(index)) for label in labels], np.int64)
    label, parent, below = plain[forest.label], forest.parent, forest.depth > 0

    def mark(names: frozenset[str]) -> Mask:
        return np.array([name in names for name in labels], bool)[forest.label]

    variable = np.array([name.startswith("v:") for name in labels], bool)[forest.label]
    leaf = np.array([name.startswith(_PLAIN_LEAVES) for name in labels], bool)[forest.label]
    indexed = mark(frozenset({"idx"}))
    complex_operands = np.bincount(parent[below & ~(variable | leaf | indexed | mark(_DETAILS))], minlength=len(parent))
    applied = np.flatnonzero(mark(_APPLIED) & (complex_operands == 0) & (forest.n_children > 0))
    applied = applied[variable[applied + 1]]  # the first operand follows its operator
    label[applied] = label[applied + 1]
    dropped = mark(_DETAILS)
    dropped[below] |= np.isin(parent[below], applied)
    spliced = mark(_WRAPPERS) & (forest.n_children > 0) & (below | (forest.n_children == 1))
    raised = np.zeros(len(parent), np.int64)  # spliced ancestors
    for level in forest.levels[1:]:
        above = parent[level]
        dropped[level] |= dropped[above]
        raised[level] = raised[above] + spliced[above]
    kept = ~(dropped | spliced)
    before = np.concatenate(([0], np.cumsum(kept)))
    return OperatorForest(
        list(index),
        label[kept],
        forest.origin[kept],
        (forest.depth - raised)[kept],
        before[forest.offsets],
        forest.unparsed,
        forest.forms[:0],
        np.zeros_like(forest.form_offsets),
    )


def _simplify_label(label: str) -> str:
    """Return a variable without decoration, one kind of relation, one kind of quotient."""
    if label.startswith("v:"):
        return "v:" + (_DECORATION.split(label[2:])[0] or label[2:])
    if label.startswith("fn:"):
        return "v:" + label[3:]
    return "=" if label in _RELATIONS else "frac" if label == "D" else label
